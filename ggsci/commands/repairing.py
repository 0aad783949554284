"""COMPARE REPLICAT ..., REPAIR: what was found is asked about, then written by a sub-process of replicat.

Rule: nothing is written before somebody has confirmed how many rows of which tables that would be. Who can't be asked
is refused before anything is read. ggserr.log has a line before the first row is written, and one behind the last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ggsci import admin
from ggsci.commands.session import OperatorSession, command_log
from ggsci.table.grammar import CommandError, Parsed
from trails.runtime.report.report import quietly

CODE = "TG-01860"
REPAIRED, EQUAL_NOW, KEPT = "repaired", "equal by now", "not repaired"
"""As replicat/compare/rowrepair.py says it."""
_VERBS = {"missing": "to insert", "different": "to update", "too many": "to delete"}
_NAMED = 5
_SHOWN = 20
Reply = dict[str, Any]
_Todo = list[tuple[Reply, Reply]]


def check_confirmed(session: OperatorSession, command: Parsed) -> None:
    """Refuse what could not be asked about."""
    if not (command.force or session.may_ask):
        raise CommandError("COMPARE ..., REPAIR: not confirmed", hint="End the command with ! to confirm it")


def repair(
    session: OperatorSession,
    command: Parsed,
    reply: tuple[Sequence[Reply], Sequence[Reply]],
    describe: Callable[[], Any],
    request: Reply,
) -> None:
    """Ask, have it done, and put into each table what became of its rows.

    `reply`: the tables, and of each what may be repaired. `describe`: how the source's tables are by then; `request`:
    as COMPARE had it.
    """
    tables, wanted = reply
    for table, one in zip(tables, wanted, strict=True):
        if table["differences"] and one["why"]:
            session.say(f"{table['source']}: {KEPT}: {one['why']}")
            _put(table, [(KEPT, one["why"])] * len(table["differences"]))
    todo = [(table, one) for table, one in zip(tables, wanted, strict=True) if one["rows"]]
    if todo:
        shown = _shown(todo)
        session.confirm(f"This makes what the source has of {shown}. Are you sure", command)
        _done(session, todo, shown, {**request, "tables": describe()})


def _shown(todo: _Todo) -> str:
    number = sum(len(one["rows"]) for _, one in todo)
    names = [f"{len(one['rows'])} of {one['target']}" for _, one in todo]
    more = f" and others of {len(names) - _NAMED} tables" if len(names) > _NAMED else ""
    counts = Counter(_VERBS[difference["what"]] for table, _ in todo for difference in table["differences"])
    return f"{number} rows of the target, {_counted(counts)} ({', '.join(names[:_NAMED])}{more})"


def _done(session: OperatorSession, todo: _Todo, shown: str, request: Reply) -> None:
    group = request["group"]
    _note(session, f"REPAIR of {group} begins: {shown}.")
    said = "it gave no answer; COMPARE tells which rows differ now"
    try:
        reply = admin.follow("replicat", "repair", session.say, wanted=[one for _, one in todo], **request)
        counts: Counter[str] = Counter()
        for (table, _), outcomes in zip(todo, reply["outcomes"], strict=True):
            counts += _put(table, outcomes)
            session.say_lines(_lines(table))
        said = _counted(counts)
    finally:
        _note(session, f"REPAIR of {group} ended: {said}.")


def _put(table: Reply, outcomes: Sequence[Sequence[str]]) -> Counter[str]:
    """What became of each difference; the table is repaired if nothing of it is left in doubt."""
    counts: Counter[str] = Counter()
    for difference, (what, why) in zip(table["differences"], outcomes, strict=True):
        difference["repair"], difference["repair_reason"] = what, why
        counts[what] += 1
    table["repaired"] = counts[REPAIRED]
    if not counts[KEPT]:
        table["state"] = "unknown" if table["unknown"] else REPAIRED
    return counts


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {what}" for what, number in counts.items())


def _lines(table: Reply) -> list[str]:
    """How many were repaired, and which not, and why."""
    found = table["differences"]
    lines = [f"{table['target']}: {_counted(Counter(one['repair'] for one in found))}"]
    kept = [one for one in found if one["repair"] == KEPT]
    for one in kept[:_SHOWN]:
        key = ", ".join(f"{name}={value}" for name, value in one["key"].items())
        lines.append(f"  {KEPT} ({key}): {one['repair_reason']}")
    return lines + ([f"  and {len(kept) - _SHOWN} more, which the report has"] if len(kept) > _SHOWN else [])


def _note(session: OperatorSession, text: str) -> None:
    """Into ggserr.log."""
    quietly(command_log(session.home).info, CODE, text)
