"""The page's parameters, which stand in mgr.prm: their keywords, and the frozen value that a checked file becomes.

Rule: nothing listens unless WEBPORT is given. On loopback, overview and figures are free and the rest needs the token;
on any other address everything needs the token, and TLS unless WEBNOTLS says otherwise.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

from trails.errors import OperatorError
from trails.link import tls
from trails.runtime.language import params
from trails.runtime.language.params import Keyword, Statement

DEFAULT_BIND = "127.0.0.1"
DEFAULT_EVERY = 5
MAX_LINE = 60_000
"""So many bytes of parameters fit the pipe to a page that does not read yet: its Manager never waits for it."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}\Z")
_HOST = re.compile(r"[A-Za-z0-9_.:-]{1,253}\Z")
_URL = re.compile(r"https?://[A-Za-z0-9_.-]+(:\d{1,5})?/?\Z|https?://\[[0-9A-Fa-f:]+\](:\d{1,5})?/?\Z")


@dataclass(frozen=True, slots=True)
class WebHome:
    """Another home whose pipelines are drawn too: a folder of this host, or the page of its own Manager."""

    name: str
    folder: str = ""
    url: str = ""
    token_file: str = ""

    @property
    def is_open_to_others(self) -> bool:
        """Is its token sent over a network as it is?"""
        return self.url.startswith("http:") and not tls.is_loopback(urlsplit(self.url).hostname or "")


@dataclass(frozen=True, slots=True)
class WebParams:
    """What mgr.prm says of the page; `port` 0 is no page."""

    port: int = 0
    bind: str = DEFAULT_BIND
    plain: bool = False
    every: int = DEFAULT_EVERY
    hosts: tuple[str, ...] = ()
    homes: tuple[WebHome, ...] = ()

    @classmethod
    def from_values(cls, found: params.Values) -> WebParams:
        """From the checked statements of mgr.prm. Raises OperatorError if they are too many."""
        made = cls(
            port=found.one("WEBPORT", 0),
            bind=found.one("WEBBIND", DEFAULT_BIND),
            plain=found.has("WEBNOTLS"),
            every=found.one("WEBCHECKSECONDS", DEFAULT_EVERY),
            hosts=tuple(found.all("WEBHOST")),
            homes=tuple(found.all("WEBHOME")),
        )
        if len(made.to_line()) > MAX_LINE:
            raise OperatorError(f"mgr.prm: WEBHOST and WEBHOME: expected at most {MAX_LINE} characters in all")
        return made

    @property
    def is_loopback(self) -> bool:
        """Can nobody but this host connect?"""
        return tls.is_loopback(self.bind)

    @property
    def tls(self) -> bool:
        """Is it served by HTTPS?"""
        return not self.is_loopback and not self.plain

    def url(self, host: str) -> str:
        """The page's address, `host` being how this host is called when it listens on all addresses."""
        shown = host if ipaddress.ip_address(self.bind).is_unspecified else self.bind
        shown = f"[{shown}]" if ":" in shown else shown
        return f"{'https' if self.tls else 'http'}://{shown}:{self.port}/"

    def to_line(self) -> str:
        """One line of JSON: how the Manager hands these to the page's process."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_line(cls, line: str) -> WebParams:
        """Inverse of to_line. Raises ValueError."""
        try:
            given: dict[str, Any] = json.loads(line)
            homes = tuple(WebHome(**home) for home in given.pop("homes"))
            return cls(**{**given, "hosts": tuple(given["hosts"]), "homes": homes})
        except (TypeError, KeyError, AttributeError):
            raise ValueError("expected the page's parameters as one line of JSON") from None


# --- parsers ----------------------------------------------------------------------------------------------------------


def address(statement: Statement) -> str:
    """The value of BIND and WEBBIND."""
    try:
        return str(ipaddress.ip_address(params.word(statement)))
    except ValueError:
        raise statement.error("an IP address of this host, or 0.0.0.0 for all of them") from None


def _host(statement: Statement) -> str:
    name = params.word(statement)
    if not _HOST.match(name):
        raise statement.error("a host name without a port, such as gate.example.org")
    return name.lower()


def _home(statement: Statement) -> WebHome:
    shape = "name, DIR path or name, URL url, TOKENFILE file"
    # A URL may end in a slash, and takes the comma behind that for a part of itself.
    words = [str(word).rstrip(",") for word in statement.words if isinstance(word, str)]
    if len(words) != len(statement.words) or len(words) % 2 == 0:
        raise statement.error(shape)
    if not _NAME.match(words[0]):
        raise statement.error("a name of at most 32 letters, digits, '.', '_' or '-'", words[0])
    given = {words[i].upper(): words[i + 1] for i in range(1, len(words), 2)}
    if set(given) == {"DIR"}:
        return WebHome(words[0], folder=_full_path(statement, given["DIR"]))
    if set(given) != {"URL", "TOKENFILE"}:
        raise statement.error(shape)
    if not _URL.match(given["URL"]):
        raise statement.error("an address such as https://gate2:7891", given["URL"])
    return WebHome(words[0], url=given["URL"].rstrip("/"), token_file=_full_path(statement, given["TOKENFILE"]))


def _full_path(statement: Statement, path: str) -> str:
    if not os.path.isabs(path) or "\0" in path:
        raise statement.error("a full path", path)
    return os.path.normpath(path)


KEYWORDS = params.table(
    Keyword(
        "WEBPORT", "n",
        "Serve the page that draws the pipelines, and the figures for Prometheus, on this TCP port; no page if not "
        "given.",
        "WEBPORT 7890", params.number(1, 65535),
    ),
    Keyword(
        "WEBBIND", "address",
        f"The address that the page listens on; {DEFAULT_BIND} if not given. On an address that is not loopback, "
        "everything needs the token (INFO WEBTOKEN), and TLS with this home's certificate (CREATE CERTIFICATES).",
        "WEBBIND 0.0.0.0", address,
    ),
    Keyword(
        "WEBNOTLS", "",
        "Serve plain HTTP on an address that is not loopback, such as behind a proxy that speaks TLS. Without such a "
        "proxy anybody on the way can read the token.",
        "WEBNOTLS", params.nothing,
    ),
    Keyword(
        "WEBCHECKSECONDS", "n",
        f"The page looks at its homes every n seconds, 1 to 10; {DEFAULT_EVERY} if not given. It remembers six hours, "
        "and at most 4320 looks.",
        "WEBCHECKSECONDS 2", params.number(1, 10),
    ),
    Keyword(
        "WEBHOST", "name",
        "Another name by which browsers may call this host, such as a proxy's. All names but these, this host's own "
        "and localhost are refused, so that no foreign page can reach in by a name of its own.",
        "WEBHOST gate.example.org", _host, repeatable=True,
    ),
    Keyword(
        "WEBHOME", "name, {DIR path | URL url, TOKENFILE file}",
        "Draw the pipelines of this home too. A home of this host is named by its folder. A home elsewhere is named "
        "by the URL of its own page, and a file that holds that page's token.",
        "WEBHOME target, URL https://gate2:7890, TOKENFILE /opt/gate/dircrd/gate2.token", _home, repeatable=True,
    ),
)  # fmt: skip
