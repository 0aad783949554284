"""CHECK PARAMS and CHECKPARAMS, what all programs share: findings, and a process that only checked.

Rule: a check looks, and changes nothing. What can't be reached is no mistake of the file; a note says what was left
unchecked because of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from trails.errors import GateError, OperatorError
from trails.link import tls
from trails.runtime.language.params import Statement
from trails.runtime.masking import mask
from trails.runtime.process.loop import Process
from trails.runtime.process.startup import Context

MESSAGE = "TG-02244"
MISTAKE = "TG-02245"


@dataclass(slots=True)
class Findings:
    """What a check found. `mistakes`: each with its file and line; `notes`: what was looked at, and what was not."""

    mistakes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, error: GateError) -> None:
        """One mistake, or the several that an error holds."""
        several: Iterable[GateError] = getattr(error, "errors", None) or (error,)
        self.mistakes += [text for one in several if (text := str(one)) not in self.mistakes]
        self.mistakes.sort(key=_line_of)

    def to_reply(self) -> dict[str, Any]:
        """The answer to an admin program's verb check_params."""
        return {"mistakes": [mask(text) for text in self.mistakes], "notes": [mask(text) for text in self.notes]}


def unverified(hosts: Sequence[str], mend: str) -> str:
    """What to say of a database's link that nobody vouches for; nothing if it stays on this host."""
    leaving = [host for host in hosts if host and not host.startswith(("/", "@")) and not tls.is_loopback(host)]
    if not leaving:
        return ""
    return (
        f"The link to the database on {', '.join(leaving)} is not verified: who is on the way can read and change it, "
        f"or answer as the database. Add {mend} to its URL"
    )


def unverified_options(options: Iterable[Any], mend: str) -> str:
    """The same of a link by its options, each with `keyword` and `val` as bytes, of which later ones count."""
    said = {option.keyword: option.val.decode() for option in options if option.val is not None}
    if said.get(b"sslmode") in ("verify-ca", "verify-full"):
        return ""
    # Where an address is given, a host is only a name for it; and a service's file may give either.
    hosts = (said.get(b"hostaddr") or said.get(b"host") or "").split(",")
    service = said.get(b"service")
    return unverified([*hosts, *([f"service {service}"] if service else [])], mend)


def _line_of(mistake: str) -> int:
    """The line of the file that a mistake begins with."""
    match = re.match(r"[^:]*:(\d+): ", mistake)
    return int(match[1]) if match else 0


def is_asked(statements: Sequence[Statement]) -> bool:
    """Does the file hold CHECKPARAMS?"""
    return any(statement.keyword == "CHECKPARAMS" for statement in statements)


class Checked(Process):
    """A process whose work is over before it runs: CHECKPARAMS, or a STOP while it was being built."""

    def step(self) -> bool:
        return False

    def flush(self) -> None:
        """None: there is no place to save."""

    def close(self) -> None: ...

    def command(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002  -- none is known
        raise OperatorError(
            f"{verb}: the group only checks its parameter file (CHECKPARAMS)",
            hint="Take CHECKPARAMS out of the parameter file, then START",
        )


def report_and_stop(context: Context, found: Findings) -> Process:
    """CHECKPARAMS: what was found goes to the report; then the group stops, or ABENDs if there are mistakes."""
    for note in found.notes:
        context.log.info(MESSAGE, f"CHECKPARAMS: {note}")
    if found.mistakes:
        for mistake in found.mistakes:
            context.log.error(MISTAKE, mistake)
        more = f"; and {len(found.mistakes) - 1} more in the report" if found.mistakes[1:] else ""
        raise OperatorError(f"CHECKPARAMS: {found.mistakes[0]}{more}", hint="Mend these, then START")
    context.log.info(MESSAGE, "CHECKPARAMS: no mistakes found")
    context.stop.request()
    return Checked()
