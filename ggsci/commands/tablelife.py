"""PAUSE TABLE and RESUME TABLE: an order to the Replicat that runs, or written down in its target by a sub-process.

Rule: where the Replicat is down, its lock is held until the order is written, so that no START comes between.
"""

from __future__ import annotations

from typing import Any

from ggsci import admin
from ggsci.commands.choose import registered
from ggsci.commands.loading import held
from ggsci.commands.session import OperatorSession
from ggsci.table.grammar import CommandError, Parsed
from trails.runtime.home.registration import Registration
from trails.runtime.process.control import ask

SECONDS = 120.0
"""A batch that is being applied is rolled back first, and the target looked at anew."""


def pause(session: OperatorSession, command: Parsed) -> Any:
    """One table stays behind."""
    group = registered(session.home, command.text("REPLICAT"), "REPLICAT")
    reply = _ordered(session, group, "PAUSETABLE", command.operand, hours=_hours(command))
    for one in reply["tables"]:
        session.say(
            f"{one['source']} to {one['target']} is {one['state']}. Its changes stay in the trail; "
            f"INFO TABLES {group.name} shows from where on."
        )
    return reply


def resume(session: OperatorSession, command: Parsed) -> Any:
    """It catches up; or what it missed is given up."""
    group = registered(session.home, command.text("REPLICAT"), "REPLICAT")
    verb = "RESUMETABLE"
    if command.has("SKIP"):
        verb = "SKIPTABLE"
        session.confirm(f"What {command.operand} has missed is never applied by {group.name}. Are you sure", command)
    reply = _ordered(session, group, verb, command.operand)
    for one in reply["tables"]:
        told = f"goes on from position {one['since']} on" if verb == "SKIPTABLE" else "catches up"
        session.say(f"{one['source']} to {one['target']} {told}{_when(reply, group)}.")
    return reply


def _when(reply: dict[str, Any], group: Registration) -> str:
    return "" if reply["running"] else f", once you START REPLICAT {group.name}"


def _hours(command: Parsed) -> int | None:
    """MAXKEEPHOURS or MAXKEEPDAYS; None if neither is given."""
    hours, days = command.number("MAXKEEPHOURS"), command.number("MAXKEEPDAYS")
    found = hours if days is None else days * 24
    if found == 0:
        raise CommandError(f"{command.command.name}: expected at least 1 hour to keep its changes for, found 0")
    return found


def _ordered(
    session: OperatorSession, group: Registration, verb: str, table: str, hours: int | None = None
) -> dict[str, Any]:
    with held(session.home, group.name) as running:
        if not running:
            done = admin.ask(
                "replicat", "table_order", seconds=SECONDS, home=session.home.root, group=group.name, order=verb,
                table=table, hours=hours,
            )  # fmt: skip
            return {**done, "running": False}
    reply = ask(session.home, group.name, verb, timeout=SECONDS, table=table, hours=hours)
    if not reply.get("ok"):
        raise CommandError(f"{group.name} did not take it: {reply.get('error')}")
    return {"tables": reply["tables"], "running": True}
