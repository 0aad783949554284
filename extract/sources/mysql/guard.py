"""The source guard: how much of the server's binary log is still needed, and when the server may delete it.

    needed     the file in which capturing would begin again, and all files behind it
    share      what has gone by of the time that the server keeps a file, or of the room that it has for all

No reader holds back a binary log: the server deletes its files by their age (binlog_expire_logs_seconds) or their size
(max_binlog_total_size), and its administrator by PURGE BINARY LOGS. The server does not say how old a file is. But one
with a transaction of some time in it can't be older than that; nor older than the begin of the file behind it, where
the server runs since before both. So what is said here may come too early, and never too late.
The file that the server writes to is never deleted. Bounds are BINLOGWARN and BINLOGCRITICAL (retention.py has what
follows). For a stopped Extract ggsci asks `extract.admin` the same question; its trail says where it stands.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from extract.retention import CRITICAL, Retained, RetentionWatch
from extract.source import Durable, Reply, SourceSettings
from extract.sources.mysql import gtid, server
from extract.sources.mysql.flavour import Flavour
from extract.sources.mysql.link import MysqlSession
from extract.sources.mysql.places import csn_text, file_name, file_number, origin_of, parse_csn, parts
from extract.sources.mysql.server import LogFile
from extract.sources.mysql.state import State
from extract.sources.mysql.walk import Walker
from extract.sources.mysql.words import LogLimits
from trails.errors import OperatorError
from trails.position import Position
from trails.runtime.language.freespace import human
from trails.runtime.report.answers import KeptAnswer, plain

ASK_SECONDS: Final = 0.1
STATEMENT_SECONDS: Final = 5
STALE_SECONDS: Final = 60
"""For so long what was found may be given out."""
HOLDER: Final = "the server"
LOST: Final = "see docs/recovery.md#lost-log"


@dataclass(frozen=True, slots=True)
class Needed:
    """Where capturing would begin again: a file, a position in it, and a time that the file is no older than."""

    file: int
    pos: int
    time_us: int | None

    @classmethod
    def of(cls, flavour: Flavour, durable: Durable) -> Needed:
        """As the trail's end says."""
        again = State.parse(flavour, durable.state).again if durable.state else None
        _, file, pos = parts(durable.origin if again is None else again.origin)
        return cls(file, pos, durable.time_us)


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What one look found."""

    needed: Needed
    files: tuple[LogFile, ...]
    expire_seconds: float
    expire_name: str
    room: int
    now_us: int
    """By the server's clock, as all times of its log."""
    checked_us: int
    """By ours."""
    closed_us: int | None = None
    """The oldest needed file was written to up to then; None where that is not known."""

    @property
    def name(self) -> str:
        """The oldest file that is needed."""
        return file_name(self.files[-1].name, self.needed.file) if self.files else ""

    @property
    def is_gone(self) -> bool:
        """Whether the server has deleted it."""
        return bool(self.files) and self.needed.file < self.files[0].number

    @property
    def kept_bytes(self) -> int:
        """All that is not captured yet, as far as it is there."""
        return self.behind(self.needed.file, 0 if self.is_gone else self.needed.pos)

    @property
    def is_news(self) -> bool:
        """Whether it may still be given out."""
        return time.time_ns() // 1000 - self.checked_us < STALE_SECONDS * 1_000_000

    def behind(self, number: int, pos: int) -> int:
        """How much log lies behind a place, by this look."""
        return max(0, sum(file.size for file in self.files if file.number >= number) - pos)

    @property
    def files_bytes(self) -> int:
        """The needed files, whole."""
        return sum(file.size for file in self.files if file.number >= self.needed.file)

    @property
    def no_older_us(self) -> int | None:
        """A time that the oldest needed file is no older than."""
        return max(filter(None, (self.needed.time_us, self.closed_us)), default=None)

    @property
    def expires_us(self) -> int | None:
        """From when on the server may delete the oldest needed file; None: not by its age, or that is not known."""
        is_written = bool(self.files) and self.needed.file >= self.files[-1].number
        if is_written or not self.expire_seconds or self.no_older_us is None:
            return None
        return self.no_older_us + int(self.expire_seconds * 1_000_000)

    @property
    def percent(self) -> int:
        """What has gone by of the time or of the room, whichever is more."""
        room = self.files_bytes * 100 // self.room if self.room else 0
        if self.expires_us is None or self.no_older_us is None:
            return room
        gone = (self.now_us - self.no_older_us) / 1_000_000
        return max(room, int(max(0.0, gone) * 100 / self.expire_seconds))

    @property
    def age_limit(self) -> str:
        """What bounds the log, where its size is not bounded."""
        return f"by age: {self.expire_name} {self.expire_seconds:g}" if self.expire_seconds else "nor one of age"

    @property
    def why(self) -> str:
        """When the server deletes it, in words."""
        words = []
        if self.expires_us is not None:
            words.append(f"the server may delete it from {_moment(self.expires_us)} on ({self.expire_name})")
        if self.room:
            words.append(f"the server keeps {human(self.room)} of log (max_binlog_total_size)")
        return " and ".join(words)

    def kept(self, limits: LogLimits) -> KeptAnswer:
        """As METRICS has it."""
        critical = bool(limits.critical) and self.percent >= limits.critical
        return KeptAnswer(
            HOLDER, "missing" if self.is_gone else "unreserved" if critical else "reserved",
            f"from {self.name} on{f'; {self.why}' if self.why else ''}", self.kept_bytes,
            max(0, self.room - self.files_bytes) if self.room else None, self.room or None,
            "max_binlog_total_size" if self.room else self.age_limit, self.checked_us,
        )  # fmt: skip


def _moment(us: int) -> str:
    return f"{datetime.fromtimestamp(us / 1_000_000, UTC):%Y-%m-%d %H:%M:%S} UTC"


class FileTimes:
    """When files of the log were begun, each asked once."""

    def __init__(self, url: str, name: str) -> None:
        self._url, self._name = url, name
        self._begun: dict[str, int] = {}

    def closed_us(self, session: MysqlSession, file: int, files: Sequence[LogFile], since_us: int) -> int | None:
        """Up to when a file was written to: until the next one was begun, if the server did not stop between.

        It did not where it runs since before the file's own begin; it runs since `since_us`.
        """
        names = [found.name for found in files if file <= found.number <= file + 1]
        if len(names) < 2:
            return None
        self._begun = {name: self._begun.get(name) or self._asked(session, name) for name in names}
        begun, closed = self._begun.values()
        return closed if begun > since_us else None

    def _asked(self, session: MysqlSession, name: str) -> int:
        return Walker(self._url, self._name, session.flavour).head(name)[0]


def look(session: MysqlSession, needed: Needed, times: FileTimes) -> LogFacts:
    """Ask the server."""
    files, values = tuple(server.logs(session)), server.settings(session)
    seconds, name = server.expires(values)
    room = int(values.get("max_binlog_total_size", 0) or 0)
    # Before the time: a second that begins between both makes the server younger, never older than it is.
    (_, uptime) = session.one("SHOW GLOBAL STATUS LIKE 'Uptime'")
    (now,) = session.one("SELECT UNIX_TIMESTAMP(NOW(6))")
    server_us = int(float(now or 0) * 1_000_000)
    closed_us = times.closed_us(session, needed.file, files, server_us - int(uptime or 0) * 1_000_000)
    return LogFacts(needed, files, seconds, name, room, server_us, time.time_ns() // 1000, closed_us)


def retained(facts: LogFacts, limits: LogLimits, lost: OperatorError | None = None) -> Retained:
    """What a look means to the guard; its unit is percent."""
    bounds = limits.warn, limits.critical
    return Retained(facts.percent, bounds, lambda at: _text(facts, bounds, at), lost=lost)


def _text(facts: LogFacts, bounds: tuple[int, int], at: int) -> str:
    """The warning of a level."""
    name, bound = (("BINLOGWARN", bounds[0]), ("BINLOGCRITICAL", bounds[1]))[at - 1]
    urgent = "; CRITICAL: what it deletes before it is captured is lost" if at == CRITICAL else ""
    return (
        f"{facts.name} is needed, with {human(facts.kept_bytes)} from there on, and has used up {facts.percent}% of "
        f"its time ({name} {bound}%): {facts.why}{urgent}. START the group, or find what holds it back with "
        "INFO ALL, DETAIL; a larger binlog_expire_logs_seconds keeps the log for longer"
    )


Look = tuple[LogFacts, Retained]


class LogWatch:
    """The guard of a running source, with a connection and a thread of its own; all calls come from the main loop.

    What a connected reader reads the server does not delete, so nothing is called lost here: connecting finds it out.
    """

    def __init__(self, settings: SourceSettings, application: str) -> None:
        self._url, self._application = settings.url, f"{application} guard"
        self._limits = LogLimits.of(settings)
        self._times = FileTimes(self._url, self._application)
        self._needs = Durable(Position(0, 0))
        self._watch: RetentionWatch[MysqlSession, Look] | None = None

    def begin(self, origin: Position, state: str) -> None:
        """Look from now on."""
        self._needs = Durable(origin, state)
        self._watch = RetentionWatch(lambda: bounded(MysqlSession(self._url, self._application)), self._look)

    def needs(self, origin: Position, state: str, time_us: int | None) -> None:
        """The trail ends there by now."""
        self._needs = Durable(origin, state, time_us)

    def _look(self, session: MysqlSession) -> Look:
        facts = look(session, Needed.of(session.flavour, self._needs), self._times)
        return facts, retained(facts, self._limits)

    def retained(self) -> Retained | None:
        """For the RetentionGuard."""
        return self._watch.found[1] if self._watch is not None and self._watch.found is not None else None

    def measures(self, read: Position, *, connected: bool) -> dict[str, Any]:
        """For SourceFacts: what the last look found, and how much log lay behind what is read by now."""
        if self._watch is None:
            return {}
        made: dict[str, Any] = {"log_trouble": self._watch.trouble} if self._watch.trouble else {}
        facts = self._watch.found[0] if self._watch.found is not None else None
        if facts is None or not facts.is_news:
            return {"holder": HOLDER, **made}
        if connected:
            made["backlog_bytes"] = facts.behind(*parts(read)[1:])
        return {**made, **plain(facts.kept(self._limits))}

    def close(self) -> None:
        """Look no more."""
        if self._watch is not None:
            self._watch.close()


def bounded(session: MysqlSession) -> MysqlSession:
    """A session whose questions have a bounded time."""
    mariadb = session.flavour is Flavour.MARIADB
    bound = f"max_statement_time = {STATEMENT_SECONDS}" if mariadb else f"max_execution_time = {STATEMENT_SECONDS}000"
    try:
        session.query(f"SET SESSION {bound}")
    except BaseException:
        session.close()
        raise
    return session


# --- what ggsci asks of a group that does not run ---


def kept(session: MysqlSession, settings: SourceSettings) -> Reply:
    """The log's facts as METRICS has them; `level` 0 to 2 and `text`, or `lost`, by the group's own limits."""
    limits, durable = LogLimits.of(settings), _durable(settings)
    times = FileTimes(settings.url, f"trailgate {settings.group} guard")
    facts = look(session, Needed.of(session.flavour, durable), times)
    return plain(retained(facts, limits, _lost(session, facts, durable)).judged(facts.kept(limits)))


def _durable(settings: SourceSettings) -> Durable:
    """The trail's end; where there is no trail yet, the place of REGISTER EXTRACT."""
    noted = settings.noted
    return settings.durable() or Durable(_origin(noted.place.csn), noted.state, noted.place.time_us)


def _origin(csn: str) -> Position:
    return origin_of(*parse_csn(csn))


def _lost(session: MysqlSession, facts: LogFacts, durable: Durable) -> OperatorError | None:
    """What was deleted may all have been captured: the GTIDs say so."""
    if not facts.is_gone or not durable.state:
        return None
    state = State.parse(session.flavour, durable.state)
    captured = state.gtids if state.again is None else state.again.gtids
    deleted = gtid.parse(session.flavour, _deleted(session, facts.files[0].name))
    if captured.contains_all(deleted):
        return None
    return OperatorError(
        f"the server has deleted {facts.name}, from which the trail goes on: its oldest file is {facts.files[0].name}, "
        "and transactions between are in no trail",
        hint=f"The target must be loaded anew: {LOST}",
    )


def _deleted(session: MysqlSession, oldest: str) -> str:
    """The GTIDs before the oldest file that is left."""
    if session.flavour is Flavour.MYSQL:
        (purged,) = session.one("SELECT @@global.gtid_purged")
        return (purged or "").replace("\n", "")
    for row in session.rows(f"SHOW BINLOG EVENTS IN {_quoted(oldest)} LIMIT 3"):
        if row["event_type"] == "Gtid_list":
            return (row["info"] or "").strip("[]")
    return ""


def _quoted(name: str) -> str:
    return "'" + name.replace("\\", "\\\\").replace("'", "''") + "'"


def captured(session: MysqlSession, settings: SourceSettings, goal: str, seconds: float) -> Reply:
    """Whether all that was committed up to `goal` stands in the trail; without one the log's end of now is the goal.

    The server is not told what is durable, so the trail is looked at.
    """
    durable = settings.durable()
    if not goal:
        end = server.log_end(session)
        if end is None:
            raise OperatorError("the server has no binary log", hint="Set log_bin, and restart it")
        epoch = parts((durable or _durable(settings)).origin)[0]
        goal = csn_text(epoch, file_number(end.file), end.pos)
    wanted = _origin(goal)
    deadline = time.monotonic() + seconds
    while not (reached := _has_reached(durable, wanted)) and time.monotonic() < deadline:
        time.sleep(ASK_SECONDS)
        durable = settings.durable()
    return {"goal": goal, "reached": reached}


def _has_reached(durable: Durable | None, wanted: Position) -> bool:
    """Places of two servers are not to be compared. Raises OperatorError."""
    if durable is None:
        return False
    if parts(durable.origin)[0] != parts(wanted)[0]:
        raise OperatorError("another server has taken over meanwhile, whose log has other places", hint="Ask again")
    return durable.origin >= wanted
