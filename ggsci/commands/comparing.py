"""COMPARE REPLICAT: asked of source and target by sub-processes, as both sides are databases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ggsci import admin
from ggsci.commands import repairing
from ggsci.commands.choose import registered
from ggsci.commands.loading import SECONDS, asked_pattern, pattern_of, source_params, trail_source
from ggsci.commands.session import OperatorSession
from ggsci.table.grammar import CommandError, Parsed
from trails.runtime.home.registration import Registration

_ALL = 100
_SHOWN = 20


def compare(session: OperatorSession, command: Parsed) -> Any:
    """One line a table, one for each row that differs; fails unless all is equal, or has become so by REPAIR."""
    home, group = session.home, registered(session.home, command.operand, "REPLICAT")
    found = source_params(home, group.name, "COMPARE")
    pattern = pattern_of(command, "COMPARE")
    sample = command.number("SAMPLE") if command.has("SAMPLE") else _ALL
    if sample is None or not 1 <= sample <= _ALL:
        raise CommandError(f"COMPARE: SAMPLE {sample}: expected percent, 1 to {_ALL}")
    rate = command.number("RATE") if command.has("RATE") else 0
    if rate is None or (rate < 1 and command.has("RATE")):
        raise CommandError(f"COMPARE: RATE {rate}: expected rows a second, 1 or more")
    wants_repair = command.has("REPAIR")
    if wants_repair:
        repairing.check_confirmed(session, command)
    request = {
        "home": home.root, "group": group.name, "pattern": str(pattern or ""), "sample": sample,
        "values": command.has("VALUES"), "rate": rate, "repair": wants_repair,
    }  # fmt: skip
    # What a repair deletes must be no other table's: all that may go to the same target are asked for.
    asked = asked_pattern(None if wants_repair else pattern, found)
    tables = _described(session, group, found.source_url, asked)
    reply = admin.follow("replicat", "compare", session.say, tables=tables, **request)
    for lines in reply.pop("lines"):
        session.say_lines(lines[:_SHOWN])
        if len(lines) > _SHOWN:
            session.say(f"  and {len(lines) - _SHOWN} more lines, which the report has")
    session.say(f"The report is {home.shown(reply['report'])}.")
    wanted = reply.pop("wanted")
    if wants_repair:
        both = reply["tables"], wanted
        repairing.repair(session, command, both, lambda: _described(session, group, found.source_url, asked), request)
    _judge(session, reply["tables"])
    return reply


def _described(session: OperatorSession, group: Registration, url: str, pattern: str) -> Any:
    """The source's tables as they are now."""
    trail = trail_source(session.home, group)
    return admin.ask("extract", "describe_tables", seconds=SECONDS, url=url, trail=trail, pattern=pattern)["tables"]


def _judge(session: OperatorSession, tables: Sequence[dict[str, Any]]) -> None:
    states = Counter(table["state"] for table in tables)
    faults = [f"{states[state]} {state}" for state in ("different", "unknown", "not compared") if states[state]]
    if faults:
        session.fail(f"of {len(tables)} tables {', '.join(faults)}")
