"""The source guard: how much log the slot keeps back on the server, how much more the server lets it, and whether the
slot is still good.

    kept = end of the server's log - the slot's restart_lsn        headroom = safe_wal_size (none without a limit)

    kept < WALWARN                        nothing is said
    WALWARN <= kept < WALCRITICAL         a WARNING, and again each hour
    WALCRITICAL <= kept, or "unreserved"  a WARNING that says so, and again each hour
    lost                                  the process ends at once with exit code 2: no retry brings that log back

Rule: a look must never hold up capturing. It is made each LOOK_SECONDS on a connection of its own, with bounded times,
by a thread of its own; the capturing thread only picks up what was found last. A look that fails changes nothing: the
figures stay, with their age, and are given out no more once they are older than STALE_SECONDS. For a stopped Extract
ggsci asks `extract.admin` the same question.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from extract.sources import pgcheck
from extract.sources.pgdriver import Session
from extract.sources.pgoutput import parse_lsn
from trails.errors import AwayError, GateError, OperatorError
from trails.runtime.diskguard import Bound, human

LOOK_SECONDS: Final = 10.0
STALE_SECONDS: Final = 60.0
REPEAT_SECONDS: Final = 3600.0
STATEMENT_MS: Final = 5000
WARN, CRITICAL = 1, 2

_SLOT = """
SELECT s.wal_status, s.restart_lsn, s.safe_wal_size, {reason},
    CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END,
    (SELECT setting::bigint << 20 FROM pg_settings WHERE name = 'max_slot_wal_keep_size')
FROM pg_replication_slots s WHERE s.slot_name = $1
"""


@dataclass(frozen=True, slots=True)
class WalLimits:
    """WALWARN and WALCRITICAL. A percentage is of max_slot_wal_keep_size, and says nothing where that is unlimited."""

    warn: tuple[Bound, ...] = (Bound(10 << 30), Bound(50, percent=True))
    critical: tuple[Bound, ...] = (Bound(50 << 30), Bound(80, percent=True))

    @classmethod
    def of(cls, warn: Bound | None, critical: Bound | None) -> WalLimits:
        """As the parameter file says; what it does not say is as it is without it."""
        usual = cls()
        return cls((warn,) if warn else usual.warn, (critical,) if critical else usual.critical)

    def bytes_of(self, limit: int | None) -> tuple[int, int]:
        """Both in bytes, where the server keeps at most `limit` (None: any amount); 0 is never."""
        return _least(self.warn, limit), _least(self.critical, limit)


def _least(bounds: tuple[Bound, ...], limit: int | None) -> int:
    usable = [bound.bytes_of(limit or 0) for bound in bounds if bound.amount and (limit or not bound.percent)]
    return min(usable, default=0)


@dataclass(frozen=True, slots=True)
class SlotFacts:
    """What the server says of a slot. `status`: wal_status; `limit`: max_slot_wal_keep_size, None if unlimited."""

    slot: str
    status: str
    kept_bytes: int | None
    headroom_bytes: int | None
    limit: int | None
    end: int
    reason: str = ""
    checked_us: int = field(default_factory=lambda: time.time_ns() // 1000)

    @property
    def lost(self) -> bool:
        """Whether log that was not captured yet is gone."""
        return self.status == "lost"

    @property
    def is_news(self) -> bool:
        """Whether it may be told as what is: not once later looks have failed, or hung, for too long."""
        return time.time_ns() // 1000 - self.checked_us <= STALE_SECONDS * 1_000_000

    def to_json(self) -> dict[str, Any]:
        """Plain values, by the names that METRICS has."""
        return {
            "slot": self.slot, "wal_status": self.status, "wal_kept_bytes": self.kept_bytes,
            "wal_headroom_bytes": self.headroom_bytes, "wal_limit_bytes": self.limit, "wal_reason": self.reason,
            "wal_checked_us": self.checked_us,
        }  # fmt: skip


class NoSlotError(OperatorError):
    """The server has no such slot."""


def look(session: Session, slot: str) -> SlotFacts:
    """Ask the server. Raises NoSlotError if there is no such slot."""
    reason = "s.invalidation_reason" if session.server_version >= 170000 else "NULL"
    rows = session.query(_SLOT.format(reason=reason), slot)
    if not rows:
        what, mend = pgcheck.no_slot(slot)
        raise NoSlotError(what, hint=mend)
    status, restart, safe, why, end, limit = rows[0]
    stands = parse_lsn(end or "0/0")
    kept = None if restart is None else max(0, stands - parse_lsn(restart))
    most = int(limit) if limit is not None and int(limit) >= 0 else None
    return SlotFacts(slot, status or "", kept, None if safe is None else int(safe), most, stands, why or "")


def lost(facts: SlotFacts) -> OperatorError:
    """What ends an Extract whose slot is lost."""
    limit = f"max_slot_wal_keep_size is {human(facts.limit)}" if facts.limit is not None else ""
    why = ", ".join(part for part in (facts.reason and f"reason {facts.reason}", limit) if part) or "it was invalidated"
    return OperatorError(
        f"slot {facts.slot} is lost: the server removed log that was not captured yet ({why})",
        hint=f"Trying again can't help: re-sync. {pgcheck.ANEW}; allow the slot more: ALTER SYSTEM SET "
        "max_slot_wal_keep_size",
    )


def level(facts: SlotFacts, limits: WalLimits) -> int:
    """0, WARN or CRITICAL."""
    warn, critical = limits.bytes_of(facts.limit)
    kept = facts.kept_bytes or 0
    if facts.status == "unreserved" or (critical and kept >= critical):
        return CRITICAL
    return WARN if warn and kept >= warn else 0


def text(facts: SlotFacts, limits: WalLimits, at: int) -> str:
    """The warning of a level."""
    name, bound = (("WALWARN", "WALCRITICAL")[at - 1], limits.bytes_of(facts.limit)[at - 1])
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


class SlotGuard:
    """Judges what a watch finds; called by the capturing thread, as often as it likes."""

    def __init__(self, found: Callable[[], SlotFacts | None], limits: WalLimits, warn: Callable[[str], None]) -> None:
        self._found = found
        self._limits = limits
        self._warn = warn
        self._judged: SlotFacts | None = None
        self._level = 0
        self._said = 0.0

    def judge(self, now: float) -> None:
        """Warn if what was found is worth it. Raises OperatorError if the slot is lost."""
        facts = self._found()
        if facts is None or facts is self._judged:
            return
        self._judged = facts
        if facts.lost:
            raise lost(facts)
        at = level(facts, self._limits)
        if at > self._level or (at and now - self._said >= REPEAT_SECONDS):
            self._warn(text(facts, self._limits, at))
            self._said = now
        # A level is left only when a tenth less is kept: a slot that swings around a bound is not news each time.
        bound = self._bound(self._level) if at < self._level else 0
        if bound and (facts.kept_bytes or 0) >= bound * 9 // 10:
            return
        self._level = at

    def _bound(self, at: int) -> int:
        limit = self._judged.limit if self._judged else None
        return self._limits.bytes_of(limit)[at - 1]


class SlotWatch:
    """Looks at a slot now and then, on a thread and a connection of its own."""

    def __init__(self, url: str, application: str, slot: str, every: float = LOOK_SECONDS) -> None:
        self._url = url
        self._application = application
        self._slot = slot
        self._every = every
        self._end = threading.Event()
        self.facts: SlotFacts | None = None
        self.trouble = ""
        """Why the last look failed."""
        threading.Thread(target=self._run, name="slot guard", daemon=True).start()

    def close(self) -> None:
        """Look no more; a look under way ends by itself."""
        self._end.set()

    def _run(self) -> None:
        session: Session | None = None
        while not self._end.is_set():
            try:
                session = session or _open(self._url, self._application)
                self.facts = look(session, self._slot)
                self.trouble = ""
            except GateError as error:
                self.trouble = error.message
                if session is not None and isinstance(error, AwayError):
                    session.close()
                    session = None
            self._end.wait(self._every)
        if session is not None:
            session.close()


def _open(url: str, application: str) -> Session:
    session = Session(url, application)
    session.query(f"SET statement_timeout = {STATEMENT_MS}")
    return session
