"""INFO ALL and INFO of groups: from registrations, locks, status and checkpoint files. No process is asked, but for
DETAIL: INFO ALL, DETAIL asks every running one (slow.py), INFO EXTRACT, DETAIL the Extract for its slot (slots.py).
"""

from __future__ import annotations

import os
from typing import Any

from ggsci import facts
from ggsci.commands.choose import chosen, facts_of, meant
from ggsci.commands.database import table_in_use
from ggsci.commands.session import OperatorSession
from ggsci.facts import GroupFacts
from ggsci.table.grammar import Parsed
from ggsci.views import view
from trails.runtime.home import registration as registrations
from trails.runtime.home.home import Home
from trails.runtime.report.answers import plain


def info_all(session: OperatorSession, command: Parsed) -> Any:
    """The Manager and every group: Extracts first, then Replicats, by name. Tasks only with ALLPROCESSES or TASKS."""
    home = session.home
    status, pid = facts.manager(home)
    groups = facts_of(session, meant(command, registrations.all(home)))
    session.say_lines(view.info_all(status, groups))
    found = {"manager": {"status": status, "pid": pid}, "groups": [group.brief() for group in groups]}
    if command.has("DETAIL"):
        from ggsci.commands import slow

        found["pipelines"] = slow.show(session)
    return found


def info(session: OperatorSession, command: Parsed) -> Any:
    """The basic block of each group; with DETAIL its trails and files, with SHOWCH its checkpoints."""
    groups = facts_of(session, chosen(session, command))
    saves = command.number("SHOWCH") or 1
    home = session.home
    found: list[dict[str, Any]] = []
    for group in groups:
        session.say_lines(view.info(group))
        if command.has("DETAIL"):
            session.say_lines(view.detail(group, _files(home, group), home.root))
            found.append(_slot(session, group))
        if command.has("SHOWCH"):
            session.say_lines(view.showch(group, saves, _checkpoint_table(home, group)))
    session.say("")
    found = found or [{} for _ in groups]
    return [
        {**group.to_json(saves), "checkpoint_table": _checkpoint_table(home, group), **more}
        for group, more in zip(groups, found, strict=True)
    ]


def _checkpoint_table(home: Home, group: GroupFacts) -> str:
    return table_in_use(home, group.registration) if group.program == "REPLICAT" else ""


def _slot(session: OperatorSession, group: GroupFacts) -> dict[str, Any]:
    """What the source keeps back for an Extract on a log."""
    from ggsci.flow import slots

    if not slots.is_registered(group):
        return {}
    kept = slots.found(session.home, group)
    session.say_lines(slots.lines(group, kept))
    return {"kept": plain(kept)}


def _files(home: Home, group: GroupFacts) -> list[tuple[str, str]]:
    status = home.status(group.name, group.program)
    files = [
        ("Report file", home.report(group.name)),
        ("Parameter file", home.prm(group.name)),
        ("Checkpoint file", home.checkpoint(group.name, group.program)),
    ]
    if table := _checkpoint_table(home, group):
        files.append(("Checkpoint table", table))
    files.append(("Process file", status if os.path.exists(status) else ""))
    return [*files, ("Error log", home.ggserr)]
