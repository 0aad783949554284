"""INFO ALL and INFO of groups: from registrations, locks, status and checkpoint files. No process is asked."""

from __future__ import annotations

import os
from typing import Any

from ggsci import facts, view
from ggsci.choose import chosen, facts_of
from ggsci.facts import GroupFacts
from ggsci.grammar import Parsed
from ggsci.session import Session
from trails.runtime.home import Home


def info_all(session: Session, _command: Parsed) -> Any:
    """The Manager and every group: Extracts first, then Replicats, by name."""
    home = session.home
    status, pid = facts.manager(home)
    groups = facts_of(session, home.groups())
    session.say_lines(view.info_all(status, groups))
    return {"manager": {"status": status, "pid": pid}, "groups": [group.brief() for group in groups]}


def info(session: Session, command: Parsed) -> Any:
    """The basic block of each group; with DETAIL its trails and files, with SHOWCH its checkpoints."""
    groups = facts_of(session, chosen(session, command))
    saves = command.number("SHOWCH") or 1
    home = session.home
    for group in groups:
        session.say_lines(view.info(group))
        if command.has("DETAIL"):
            session.say_lines(view.detail(group, _files(home, group), home.root))
        if command.has("SHOWCH"):
            session.say_lines(view.showch(group, saves))
    session.say("")
    return [group.to_json(saves) for group in groups]


def _files(home: Home, group: GroupFacts) -> list[tuple[str, str]]:
    status = home.status(group.name, group.program)
    files = [
        ("Report file", home.report(group.name)),
        ("Parameter file", home.prm(group.name)),
        ("Checkpoint file", home.checkpoint(group.name, group.program)),
    ]
    if group.registration.checkpoint_table:
        files.append(("Checkpoint table", group.registration.checkpoint_table))
    files.append(("Process file", status if os.path.exists(status) else ""))
    return [*files, ("Error log", home.ggserr)]
