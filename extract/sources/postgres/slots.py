"""The replication slot: what the server says of it, and what there is to say where it is gone or lost."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from extract.sources.postgres.driver import Session
from extract.sources.postgres.pgoutput import parse_lsn
from trails.errors import OperatorError
from trails.runtime.language.freespace import human
from trails.runtime.report.answers import KeptAnswer

STALE_SECONDS: Final = 60.0

_SLOT = """
SELECT s.wal_status, s.restart_lsn, s.safe_wal_size, {reason},
    CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END,
    (SELECT setting::bigint << 20 FROM pg_settings WHERE name = 'max_slot_wal_keep_size'),
    (SELECT count(*) FROM pg_stat_activity WHERE backend_xid IS NOT NULL) + (SELECT count(*) FROM pg_prepared_xacts),
    (SELECT (extract(epoch FROM min(began)) * 1000000)::bigint FROM (
        SELECT xact_start AS began FROM pg_stat_activity WHERE backend_xid IS NOT NULL
        UNION ALL SELECT prepared FROM pg_prepared_xacts) AS found)
FROM pg_replication_slots s WHERE s.slot_name = $1
"""


@dataclass(frozen=True, slots=True)
class SlotFacts:
    """What the server says of a slot. `status`: log_status; `limit`: max_slot_wal_keep_size, None if unlimited.

    `restart`: its restart_lsn; `open`: whether a transaction is open in the server, since `oldest_us` if that is shown.
    """

    slot: str
    status: str
    kept_bytes: int | None
    headroom_bytes: int | None
    limit: int | None
    end: int
    reason: str = ""
    restart: int = 0
    open: bool = False
    oldest_us: int | None = None
    checked_us: int = field(default_factory=lambda: time.time_ns() // 1000)

    @property
    def lost(self) -> bool:
        """Whether log that was not captured yet is gone."""
        return self.status == "lost"

    @property
    def is_news(self) -> bool:
        """Whether it may be told as what is: not once later looks have failed, or hung, for too long."""
        return time.time_ns() // 1000 - self.checked_us <= STALE_SECONDS * 1_000_000

    @property
    def kept(self) -> KeptAnswer:
        """The same as others have it."""
        return KeptAnswer(
            f"slot {self.slot}", self.status, self.reason, self.kept_bytes, self.headroom_bytes, self.limit,
            "max_slot_wal_keep_size", self.checked_us,
        )  # fmt: skip


class NoSlotError(OperatorError):
    """The server has no such slot."""

    def __init__(self, slot: str) -> None:
        super().__init__(
            f"replication slot {slot} does not exist",
            hint="It was dropped, and changes are lost: see docs/recovery.md#lost-slot",
        )


def look(session: Session, slot: str) -> SlotFacts:
    """Ask the server. Raises NoSlotError if there is no such slot."""
    reason = "s.invalidation_reason" if session.server_version >= 170000 else "NULL"
    rows = session.query(_SLOT.format(reason=reason), slot)
    if not rows:
        raise NoSlotError(slot)
    status, restart, safe, why, end, limit, opened, oldest = rows[0]
    stands = parse_lsn(end or "0/0")
    kept = None if restart is None else max(0, stands - parse_lsn(restart))
    most = int(limit) if limit is not None and int(limit) >= 0 else None
    return SlotFacts(
        slot, status or "", kept, None if safe is None else int(safe), most, stands, why or "",
        parse_lsn(restart or "0/0"), opened not in (None, "0"), None if oldest is None else int(oldest),
    )  # fmt: skip


def confirmed(session: Session, slot: str) -> int:
    """The LSN up to which the slot's reader has all; nothing before it comes again. Raises NoSlotError."""
    rows = session.query("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = $1", slot)
    if not rows:
        raise NoSlotError(slot)
    return parse_lsn(rows[0][0] or "0/0")


def log_end(session: Session) -> str:
    """Where the log ends that is written by now; each transaction that has waited for its commit lies before it."""
    (end,) = session.one(
        "SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END)::text"
    )
    return end or "0/0"


def confirms(session: Session, slot: str, goal: str) -> bool:
    """Whether the slot's reader has said that it has all up to `goal`. Raises NoSlotError if there is no such slot."""
    rows = session.query(
        "SELECT confirmed_flush_lsn >= $2::pg_lsn FROM pg_replication_slots WHERE slot_name = $1", slot, goal
    )
    if not rows:
        raise NoSlotError(slot)
    return rows[0][0] == "t"


def lost(facts: SlotFacts) -> OperatorError:
    """What ends an Extract whose slot is lost."""
    limit = f"max_slot_wal_keep_size is {human(facts.limit)}" if facts.limit is not None else ""
    why = ", ".join(part for part in (facts.reason and f"reason {facts.reason}", limit) if part) or "it was invalidated"
    return OperatorError(
        f"slot {facts.slot} is lost: the server removed log that was not captured yet ({why})",
        hint="Trying again can't help: re-sync, as docs/recovery.md#lost-slot says, and allow the slot more",
    )
