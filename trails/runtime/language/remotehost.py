"""RMTHOST: the host that a trail or file is sent to, as a pump and an Extract that reads tables name it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from trails.errors import ParamError
from trails.runtime.language import acceptedoptions, params
from trails.runtime.language.params import Keyword, Statement, Values

DEFAULT_DEAD_SECONDS: Final = 10

_SHAPE: Final = "host, MGRPORT n [, TIMEOUT seconds] [, NOTLS]"
_LIMITS: Final = {"MGRPORT": (1, 65_535), "TIMEOUT": (1, 300)}


@dataclass(frozen=True, slots=True)
class RemoteHost:
    """RMTHOST: where the Manager listens that hands out Collectors."""

    host: str
    port: int
    dead_seconds: int = DEFAULT_DEAD_SECONDS
    tls: bool = True


@dataclass(frozen=True, slots=True)
class CarryOrder:
    """What an Extract that reads tables tells the process that sends its file (pump/carry.py).

    `home`, `group`, `host`: those of the Extract. `file`: as the remote home names it. `task`: the Replicat of that
    home that is started then; empty for none.
    """

    home: str
    group: str
    host: str
    remote: RemoteHost
    file: str
    encrypt: bool = False
    task: str = ""

    @classmethod
    def of(cls, told: dict[str, Any]) -> CarryOrder:
        """From its fields, the remote host's too as fields."""
        return cls(**{**told, "remote": RemoteHost(**told["remote"])})


def keyword(*, required: bool) -> Keyword:
    """Its line in a program's table."""
    return Keyword(
        "RMTHOST", _SHAPE,
        "The remote host and its Manager's port. TIMEOUT is the number of seconds (1 to 300) of silence after which "
        f"the other side is taken for dead: {DEFAULT_DEAD_SECONDS} if not given. The link is TLS with the home's "
        "certificates (CREATE CERTIFICATES). With NOTLS, here and in the remote Manager's file, it is plain: then "
        "anybody on the way can read and change the data.",
        "RMTHOST there, MGRPORT 7809", acceptedoptions.stripped(_remote), required=required,
    )  # fmt: skip


def contradictions(found: Values) -> list[ParamError]:
    """ENCRYPT of GoldenGate beside NOTLS; RMTHOST is given."""
    link = () if found.one("RMTHOST").tls else (*found.statements("RMTHOST"), *found.statements("RMTHOSTOPTIONS"))
    return [
        statement.wrong("expected ENCRYPT or NOTLS, found both")
        for statement in link
        if any(str(word).upper() == "ENCRYPT" for word in statement.words)
    ]


def _remote(statement: Statement) -> RemoteHost:
    tls = not any(isinstance(word, str) and word.upper() == "NOTLS" for word in statement.words[1:])
    words = [word for word in statement.words if tls or str(word).upper() != "NOTLS"]
    if len(words) < 3 or len(words) % 2 == 0 or not all(isinstance(word, str) for word in words):
        raise statement.error(_SHAPE)
    options: dict[str, int] = {}
    for name, value in zip(words[1::2], words[2::2], strict=True):
        key = str(name).upper()
        if key not in _LIMITS or key in options:
            raise statement.error(_SHAPE + params.did_you_mean(key, _LIMITS), name)
        options[key] = params.whole(statement, value, *_LIMITS[key])
    if "MGRPORT" not in options:
        raise statement.error(_SHAPE)
    return RemoteHost(str(words[0]), options["MGRPORT"], options.get("TIMEOUT", DEFAULT_DEAD_SECONDS), tls)
