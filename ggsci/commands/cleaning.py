"""CLEANUP and SYNCHRONIZE: what can be forgotten of a group, and what a Replicat never needs.

Nothing here touches where a group stands: CLEANUP forgets runs that are over, and the rows of groups that are gone.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ggsci import admin
from ggsci.commands.choose import chosen, facts_of, locked
from ggsci.commands.database import checkpoint_table
from ggsci.commands.groups import group_key
from ggsci.commands.session import OperatorSession
from ggsci.table.grammar import Parsed
from trails.checkpoint import forget_runs
from trails.errors import GateError, OperatorError
from trails.runtime.home import registration as registrations
from trails.runtime.home.home import group_name


def cleanup(session: OperatorSession, command: Parsed) -> None:
    """Forget the runs of stopped groups but the last, and SAVE n before it; a running group is refused."""
    home, keep = session.home, command.number("SAVE") or 0
    for group in chosen(session, command):
        try:
            with locked(home, group.name, command.command.name):
                dropped, kept = forget_runs(home.fs, home.checkpoint(group.name, group.kind), keep)
        except GateError as error:
            session.fail(str(error))
            continue
        session.say(f"{group.kind} {group.name}: {_runs(dropped)} forgotten, {_runs(kept)} kept.")


def _runs(number: int) -> str:
    return f"{number} run{'' if number == 1 else 's'}"


def synchronize(session: OperatorSession, command: Parsed) -> Any:
    """Where each Replicat stands: one place, so there is nothing that could be out of step."""
    rows = []
    for group in facts_of(session, chosen(session, command)):
        place = group.checkpoint.reads[0].current if group.checkpoint and group.checkpoint.reads else None
        where = f"sequence # {place.seqno}, RBA {place.rba}" if place else "no place yet: it has not run"
        session.say(
            f"{group.program} {group.name} needs no SYNCHRONIZE: its work is applied in parallel, but committed in one "
            f"target transaction with one checkpoint row. It stands at {where}."
        )
        rows.append({"group": group.name, "needed": False, "read": place and asdict(place)})
    return rows


def cleanup_checkpointtable(session: OperatorSession, command: Parsed) -> Any:
    """Remove the rows of this home's groups that are gone; other homes' rows are none of ours."""
    table, login = checkpoint_table(session, command), session.need_login("CLEANUP CHECKPOINTTABLE")
    home = session.home
    rows = admin.ask("replicat", "info_checkpointtable", url=login.url, table=table).get("rows") or []
    # The key is made of home and name, so a row of ours can be told from one of another home.
    ours = [row for row in rows if int(row["group_key"]) == group_key(home, row["group"])]
    here = {group.name for group in registrations.all(home)}
    gone = [row["group"] for row in ours if row["group"] not in here]
    others = len(rows) - len(ours)
    if gone:
        what = f"the row{'s' if len(gone) > 1 else ''} of REPLICAT {', '.join(gone)}"
        session.confirm(f"This removes {what} from {table}. Are you sure", command)
    removed = [name for name in gone if _remove_row(session, table, name)]
    if not gone:
        session.say(f"{table} has no row of a group that this home has no more.")
    if others:
        session.say(f"{others} row{'s' if others > 1 else ''} of other homes' groups stay.")
    return {"table": table, "removed": removed, "others": others}


def _remove_row(session: OperatorSession, table: str, name: str) -> bool:
    """Unless the group was added again while we asked: it may go on from that row already."""
    home, login = session.home, session.need_login("CLEANUP CHECKPOINTTABLE")
    try:
        with locked(home, group_name(name), "CLEANUP CHECKPOINTTABLE"):
            if home.fs.exists(home.registration(name)):
                raise OperatorError(
                    f"REPLICAT {name} was added again meanwhile: its row stays",
                    hint="DELETE it first if the row is to go",
                )
            admin.ask("replicat", "delete_row", url=login.url, table=table, group=name, group_key=group_key(home, name))
    except GateError as error:
        session.fail(str(error))
        return False
    session.say(f"Removed the row of REPLICAT {name} from {table}.")
    return True
