"""What the slot of an Extract keeps back, for INFO EXTRACT, DETAIL: asked of the Extract itself while it runs, else of
its database by a sub-process, for a bounded time. Not knowing is said, and never fails the command.
"""

from __future__ import annotations

from typing import Any

from ggsci import admin
from ggsci.facts import GroupFacts
from ggsci.view import span
from trails.errors import GateError
from trails.runtime.control import ask
from trails.runtime.diskguard import human
from trails.runtime.home import Home

ASK_SECONDS = 1.0
ADMIN_SECONDS = 15.0
_LABEL = 21


def has_slot(group: GroupFacts) -> bool:
    """Whether this is an Extract with a slot at its source."""
    return bool(group.registration.slot.get("slot")) and not group.registration.trail


def found(home: Home, group: GroupFacts) -> dict[str, Any]:
    """The slot's facts by METRICS' names, or `error`: why they are not known."""
    try:
        if group.status == "RUNNING":
            answer = ask(home, group.name, "METRICS", timeout=ASK_SECONDS)
            extra = answer.get("extra") or {}
            if "wal_status" not in extra:
                return {"error": extra.get("wal_trouble") or answer.get("error") or "the Extract has not looked lately"}
            return dict(extra)
        return of_stopped(home, group.name)
    except GateError as error:
        return {"error": error.message}


def of_stopped(home: Home, name: str) -> dict[str, Any]:
    """The same from the database, with `level`, `text` and `lost`. Raises GateError."""
    reply = admin.ask("extract", "slot", seconds=ADMIN_SECONDS, home=home.root, group=name)
    return {key: value for key, value in reply.items() if key != "ok"}


def lines(group: GroupFacts, facts: dict[str, Any]) -> list[str]:
    """What INFO EXTRACT, DETAIL adds."""
    slot = group.registration.slot.get("slot")
    if "error" in facts:
        return [f"{'Replication Slot':{_LABEL}}{slot}  UNKNOWN ({facts['error']})", ""]
    reason = f" ({facts['wal_reason']})" if facts.get("wal_reason") else ""
    made = [f"{'Replication Slot':{_LABEL}}{slot}  {facts.get('wal_status') or 'UNKNOWN'}{reason}"]
    if facts.get("wal_status") == "lost" or facts.get("lost"):
        made.append(f"{'':{_LABEL}}{facts.get('lost') or 'The slot is lost: re-sync'}")
        return [*made, ""]
    kept = facts.get("wal_kept_bytes")
    age = span(max(0, group.now_us - int(facts.get("wal_checked_us") or group.now_us)))
    amount = "UNKNOWN" if kept is None else human(kept)
    made.append(f"{'Log Kept Back':{_LABEL}}{amount} (looked {age} ago)")
    return [*made, f"{'Log Headroom':{_LABEL}}{_room(facts)}", ""]


def _room(facts: dict[str, Any]) -> str:
    room, limit = facts.get("wal_headroom_bytes"), facts.get("wal_limit_bytes")
    if room is None:
        return "no limit (max_slot_wal_keep_size); the server's disk, whose free space is not known here"
    return f"{human(max(0, room))} until the slot is lost (max_slot_wal_keep_size {human(limit or 0)})"
