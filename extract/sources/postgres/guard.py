"""The source guard: how much log the slot keeps back on the server, how much more the server lets it, and whether the
slot is still good.

    kept = end of the server's log - the slot's restart_lsn        headroom = safe_wal_size (none without a limit)

Bounds are WALWARN and WALCRITICAL; "unreserved" is critical whatever they say (retention.py has what follows). What
was found is given out no more once it is older than STALE_SECONDS. For a stopped Extract ggsci asks `extract.admin` the
same question.
"""

from __future__ import annotations

import time
from typing import Final

from extract.retention import Retained, RetentionWatch
from extract.source import Reply, SourceSettings
from extract.sources.postgres.driver import Session
from extract.sources.postgres.limits import WalLimits
from extract.sources.postgres.slots import NoSlotError, SlotFacts, confirms, log_end, look, lost
from extract.sources.postgres.typeparts import TypesLook, TypesWatch
from trails.runtime.language.freespace import human
from trails.runtime.report.answers import KeptAnswer, plain

ASK_SECONDS: Final = 0.1
STATEMENT_MS: Final = 5000


def retained(facts: SlotFacts, limits: WalLimits) -> Retained:
    """What a look at the slot means to the guard."""
    bounds = limits.bytes_of(facts.limit)
    return Retained(
        facts.kept_bytes or 0, bounds, lambda at: _text(facts, bounds, at), facts.status == "unreserved",
        lost(facts) if facts.lost else None,
    )  # fmt: skip


def _text(facts: SlotFacts, bounds: tuple[int, int], at: int) -> str:
    """The warning of a level."""
    name, bound = ("WALWARN", "WALCRITICAL")[at - 1], bounds[at - 1]
    over = f" ({name} {human(bound)})" if bound and (facts.kept_bytes or 0) >= bound else ""
    if facts.headroom_bytes is None:
        room = "the server sets no limit (max_slot_wal_keep_size), so its disk is the limit"
    else:
        room = f"after {human(max(0, facts.headroom_bytes))} more the server removes it and the slot is lost"
    urgent = "; CRITICAL: it may be removed at the next checkpoint" if facts.status == "unreserved" else ""
    return (
        f"slot {facts.slot} keeps back {human(facts.kept_bytes or 0)} of the server's log{over}; {room}{urgent}. "
        "INFO ALL, DETAIL names the stage that holds it back"
    )


Look = tuple[SlotFacts, Retained, TypesLook | None]


def watch(url: str, application: str, slot: str, limits: WalLimits, types: TypesWatch) -> RetentionWatch[Session, Look]:
    """A watch of a slot, and of types, with a connection of its own."""

    def connect() -> Session:
        session = Session(url, f"{application} guard")
        session.query(f"SET statement_timeout = {STATEMENT_MS}")
        return session

    def once(session: Session) -> Look:
        facts = look(session, slot)
        return facts, retained(facts, limits), types.look(session)

    return RetentionWatch(connect, once)


# --- what ggsci asks of a group that does not run ---


def kept(session: Session, settings: SourceSettings) -> Reply:
    """The slot's facts as METRICS has them; `level` 0 to 2 and `text`, or `lost`, by the group's own limits.

    A slot that is not there any more is as lost as one that the server gave up.
    """
    slot, limits = settings.noted.made["slot"], WalLimits.of(settings)
    try:
        facts = look(session, slot)
    except NoSlotError as error:
        return plain(KeptAnswer(f"slot {slot}", "missing", level=0, text="", lost=str(error)))
    return plain(retained(facts, limits).judged(facts.kept))


def captured(session: Session, settings: SourceSettings, goal: str, seconds: float) -> Reply:
    """Whether all that was committed up to `goal` stands in the trail; without one the log's end of now is the goal.

    Waits for it for so long at most. Extract tells the slot only what is synced in its trail, so the slot knows.
    """
    slot = settings.noted.made["slot"]
    goal = goal or log_end(session)
    deadline = time.monotonic() + seconds
    while not (reached := confirms(session, slot, goal)) and time.monotonic() < deadline:
        time.sleep(ASK_SECONDS)
    return {"goal": goal, "reached": reached}
