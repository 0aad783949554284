"""The pump: local trail -> Collector. A Process whose output is the remote trail.

Rule: the Collector says where to go on, and its acknowledgements alone move our checkpoint. step() never waits:
getting a link is a Dialler's work, the socket is non-blocking, and while the window is full or the link is away
nothing is read.

    AWAY --(time to try)--> DIALLING --(socket)--> GREETING --(WELCOME)--> STREAMING
      ^---------(any error but a permanent one; Backoff says when, and when to give up)-------'
"""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pump.feed import Feed, Outgoing
from pump.filter import Filter
from pump.heartbeat import PumpHeartbeats
from pump.link import Backoff, Dialler, Request
from pump.params import PumpParams
from pump.tcpstats import LinkStats
from trails import tls, wire
from trails.channel import Channel
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint, WriteCheckpoint
from trails.errors import AwayError, GateError, MismatchError, OperatorError, ProtocolError
from trails.format import BlockHeader, FileHeader, Kind
from trails.fs import Fs
from trails.heartbeat import Beat, lag_of
from trails.position import Position, TrailName
from trails.reader import last_header
from trails.record import Op, TableDef
from trails.runtime import clockdiff
from trails.runtime.clock import Clock
from trails.runtime.control import unknown
from trails.runtime.metrics import Counters, trail_backlog
from trails.runtime.process import Process
from trails.runtime.report import Log
from trails.runtime.stats import TOTAL_OPERATIONS, Stats
from trails.runtime.tableparams import environment
from trails.watch import Watch
from trails.wire import Side, Type

# Blocks queued in our own memory: enough to keep the socket busy, no more.
QUEUE_BYTES = 2 << 20
STEP_BYTES = 8 << 20
DRAIN_SECONDS = 1.0
CLOSE_SECONDS = 2.0
SAME_WARNING_SECONDS = 60.0
SOURCE = "GGS Log Trail"

UNDECODED = (
    "All tables are counted together: PASSTHRU sends blocks undecoded, and a block's header counts its changes without "
    "their tables and kinds. NOPASSTHRU decodes the blocks and counts by table."
)
"""What STATS and report say beside such a count."""

CODE_LINK = "TG-01226"
CODE_LOST = "TG-01223"
CODE_MODE = "TG-01520"


class Phase(Enum):
    """Where the link stands; the text is what STATUS shows."""

    AWAY = "Waiting for the remote host"
    DIALLING = "Connecting"
    GREETING = "Waiting for the Collector"
    STREAMING = "Processing data"


@dataclass(frozen=True, slots=True)
class Job:
    """What this pump is to do, from parameter file and registration."""

    params: PumpParams
    home_id: str
    host: str
    trail: TrailName
    title: str  # the local trail as its operator named it
    megabytes: int
    tls: str = ""  # the folder of the home's certificates; empty: a plain link
    alter_no: int = 0
    alter: dict[str, Any] = field(default_factory=dict)
    clock_diff_s: float = clockdiff.DEFAULT_SECONDS

    def start(self) -> Position | None:
        """Where the last ALTER wants to begin; None if it moves nothing. OperatorError for what no pump can obey."""
        if not self.alter or set(self.alter) == {"etrollover"}:
            return None
        try:
            return Position(int(self.alter["seqno"]), int(self.alter.get("rba", 0)))
        except (KeyError, TypeError, ValueError):
            known = ", ".join(sorted(self.alter))
            raise OperatorError(
                f"{self.params.group}: a pump can't be altered by {known}",
                hint="Use EXTSEQNO and EXTRBA, or ETROLLOVER",
            ) from None


@dataclass(frozen=True, slots=True)
class _Sent:
    """One block in flight. `counts`: its changes, for STATS."""

    end: Position
    size: int
    header: BlockHeader
    needed: Position | None
    beat: Beat | None = None
    at: float = 0.0
    counts: Sequence[tuple[str, Op | str, int]] = ()


class Pump(Process):
    """See the module."""

    def __init__(self, job: Job, fs: Fs, log: Log, clock: Clock, previous: Sequence[Checkpoint] = ()) -> None:
        self._job = job
        self._fs = fs
        self._log = log
        self._clock = clock
        self._start = job.start()
        self._watch = Watch(job.trail.folder)
        self._phase = Phase.AWAY
        self._closing = False
        self._backoff = Backoff(job.params.retry_delay, job.params.retry_seconds)
        self._retry_at = clock.monotonic()
        self._warned = ("", -SAME_WARNING_SECONDS)
        self._dialler: Dialler | None = None
        self._revocations = tls.RevocationWatch("")
        self._channel: Channel | None = None
        self._greeted_at = 0.0
        self._feed: Feed | None = None
        self._source: FileHeader | None = None
        self._read_trail = ""  # id of the trail that the checkpoint's positions are in
        self._in_flight: deque[_Sent] = deque()
        self._bytes_in_flight = 0
        self._counted: list[tuple[str, Op | str, int]] = []  # changes of the block that was read last
        self._startup: Place | None = None
        self._current: Place | None = None
        self._recovery: Place | None = None
        self._write: WriteCheckpoint | None = None
        self._lag_us: int | None = None
        self._lag_why = ""
        self._lag_at = clock.monotonic()  # when that was true
        self._rolling = False  # ROLLOVER: the session is to end, and the next one begins a new remote file
        self._tcp = LinkStats(clock)
        self._acked_changes = self._acked_transactions = self._acked_bytes = 0
        self._taken = 0  # bytes read in sessions that are over
        self._rules = self._filter()
        self.stats: Stats = Stats(clock.now_us, job.params.trail, "" if self._rules else UNDECODED)
        self._heartbeats = PumpHeartbeats(
            job.params.group, job.params.remote.host, clock, job.clock_diff_s,
            lambda text: log.warning(clockdiff.CODE, text),
        )  # fmt: skip
        self._remember(previous)
        mode = "TABLE clauses filter: blocks are decoded" if self._rules else "PASSTHRU: blocks are sent undecoded"
        log.info(CODE_MODE, f"{mode}; from {job.title} to {job.params.remote.host} {job.params.trail}.")

    def _filter(self) -> Filter | None:
        params = self._job.params
        if not params.filters:
            return None
        return Filter(params.passes, self._count, params.tables.projector(environment(params.group, self._job.host)))

    # Process

    def step(self) -> bool:
        """One bounded piece of work of whatever phase the link is in."""
        now = self._clock.monotonic()
        self._watch.clear()
        try:
            return self._step(now)
        except (AwayError, ProtocolError) as error:
            self._lost(error, now)
            return False

    def _step(self, now: float) -> bool:
        if self._phase is Phase.AWAY:
            return now >= self._retry_at and self._dial()
        if self._phase is Phase.DIALLING:
            return self._connected(now)
        assert self._channel is not None
        self._channel.flush()
        events = self._channel.receive(now)
        for event in events:
            self._handle(event)
        if self._channel is None:
            return True
        self._channel.tick(now)
        if self._revocations.changed(now):
            raise AwayError("another list of revoked certificates came: connecting anew")
        more = self._phase is Phase.STREAMING and self._fill(now)
        self._tcp.room(free=self._phase is not Phase.STREAMING or self._has_room())
        if self._rolling and not self._in_flight and self._channel.may_send(Type.BYE):
            self._channel.send(wire.Bye(f"pump {self._job.params.group} begins a new trail file"))
        if self.at_end:
            self._lag_us, self._lag_at, self._lag_why = 0, now, ""
        return more or bool(events)

    def flush(self) -> Checkpoint | None:
        """Let what is in flight be acknowledged, for a moment; then say how far the remote trail stands synced."""
        deadline = time.monotonic() + DRAIN_SECONDS
        while self._in_flight and self._phase is Phase.STREAMING and time.monotonic() < deadline:
            self._await(deadline)
        return self._checkpoint()

    def close(self) -> None:
        """Say goodbye and wait a moment for the answer; then let go of everything."""
        if self._dialler is not None:
            self._dialler.close()
            self._dialler = None
        self._closing = True
        try:
            self._say_goodbye()
        except GateError as error:
            # What was to be saved is saved; the Collector notices the closed link as well.
            self._log.warning(CODE_LOST, f"{error}.")
        finally:
            self._drop_link()
            self._watch.close()

    def _say_goodbye(self) -> None:
        if self._channel is None or not self._channel.may_send(Type.BYE):
            return
        self._channel.send(wire.Bye(f"pump {self._job.params.group} ends"))
        deadline = time.monotonic() + CLOSE_SECONDS
        while self._channel is not None and time.monotonic() < deadline:
            self._await(deadline)

    def waits(self) -> list[int]:
        """The link, and the local trail's folder where a new block could be sent."""
        if self._phase is Phase.DIALLING and self._dialler is not None:
            return [self._dialler.fileno()]
        if self._channel is None:
            return []
        return [self._channel.fileno(), *([self._watch.fileno()] if self._has_room() else [])]

    def idle_seconds(self) -> float:
        """Until the next try or heartbeat; a second at most, because events of a folder may get lost."""
        now = self._clock.monotonic()
        if self._phase is Phase.AWAY:
            return min(1.0, max(0.0, self._retry_at - now))
        if self._channel is not None:
            return min(1.0, self._channel.wait(now))
        return 1.0

    def counters(self) -> Counters:
        """What the Collector has acknowledged as synced; read ahead of that, by what is in flight."""
        taken = self._taken + (self._feed.taken if self._feed is not None else 0)
        return Counters(self._acked_changes, self._acked_transactions, taken, self._acked_bytes)

    def blocked(self) -> bool:
        """Whether the window, or the link, is full."""
        return self._phase is Phase.STREAMING and not self._has_room()

    # getting a link

    def _dial(self) -> bool:
        source = last_header(self._fs, self._job.trail)
        if source is None:
            # Not a lost link: the Extract has not written anything yet.
            self._retry_at = self._clock.monotonic() + 1.0
            return False
        self._source = source
        params = self._job.params
        pump = f"{self._job.home_id}/{params.group}"
        request = Request(params.remote.host, params.remote.port, params.trail, pump, source.trail_id, self._job.tls)
        self._dialler = Dialler(request, timeout=params.remote.dead_seconds)
        self._revocations = tls.RevocationWatch(self._job.tls)
        self._phase = Phase.DIALLING
        return False

    def _connected(self, now: float) -> bool:
        assert self._dialler is not None and self._source is not None
        sock = self._dialler.result()
        if sock is None:
            return False
        self._dialler.close()
        self._dialler = None
        remote = self._job.params.remote
        try:
            peer = "Collector at {}:{}".format(*sock.getpeername()[:2])
            self._channel = Channel(sock, Side.PUMP, peer, remote.dead_seconds, now)
        except OSError as error:
            # It took the connection and died before we looked.
            sock.close()
            raise AwayError(f"Collector at {remote.host}: the link is lost: {error.strerror}") from None
        self._phase = Phase.GREETING
        self._tcp.opened(self._channel)
        self._greeted_at = now
        self._channel.send(self._hello(self._source))
        return True

    def _hello(self, source: FileHeader) -> wire.Hello:
        job = self._job
        return wire.Hello(
            home=job.home_id, group=job.params.group, host=job.host, trail=job.params.trail, trail_id=source.trail_id,
            source=source.source, alter=job.alter_no, start=self._start, megabytes=job.megabytes,
            dead=job.params.remote.dead_seconds * 1000, encrypt=job.params.encrypt, clock=True,
        )  # fmt: skip

    def _lost(self, error: GateError, now: float) -> None:
        """The link is away: say so once, and plan the next try. Raises AwayError when it was tried for long enough."""
        if self._phase is Phase.STREAMING and now - self._greeted_at > self._job.params.remote.dead_seconds:
            self._backoff.succeeded()
        self._drop_link()
        self._retry_at = self._backoff.again(now, error)
        text, when = self._warned
        if error.message != text or now - when >= SAME_WARNING_SECONDS:
            self._warned = (error.message, now)
            self._log.warning(CODE_LOST, f"{error}. Trying again in {self._retry_at - now:.1f} s.")

    def _drop_link(self) -> None:
        for part in (self._dialler, self._channel, self._feed):
            if part is not None:
                part.close()
        self._taken += self._feed.taken if self._feed is not None else 0
        self._dialler = self._channel = self._feed = None
        self._bytes_in_flight = 0  # the next WELCOME says how much of it arrived
        self._rolling = False
        self._tcp.closed()
        self._phase = Phase.AWAY

    # what the Collector says

    def _handle(self, event: wire.Event) -> None:
        match event:
            case wire.Welcome():
                self._welcomed(event)
            case wire.Ack():
                self._acknowledged(event)
            case wire.Pong():
                self._heartbeats.answered(event.now_us, event.number)
            case wire.Refuse(permanent=True):
                raise OperatorError(f"{self._peer()} refused: {event.text}")
            case wire.Refuse():
                raise AwayError(f"{self._peer()} refused: {event.text}")
            case wire.Bye():
                self._closed(event)
            case _:
                raise ProtocolError(f"{self._peer()} sent {event.type.name}")

    def _peer(self) -> str:
        return self._channel.peer if self._channel else "Collector"

    def _welcomed(self, welcome: wire.Welcome) -> None:
        assert self._source is not None and self._channel is not None
        self._channel.check_home(welcome.home)
        if 0 < self._job.alter_no < welcome.alter:
            raise MismatchError(
                f"the remote trail has obeyed ALTER {welcome.alter}, this group's registration knows only "
                f"{self._job.alter_no}: it was restored, or the group added again",
                hint="ALTER the group again until its number is higher, or give it another remote trail",
            )
        self._heartbeats.greeted(welcome.now_us, int(self._greeted_at * 1_000_000))
        self._settle(welcome.origin)
        self._in_flight.clear()
        self._counted.clear()
        self._bytes_in_flight = 0
        self._read_trail = self._source.trail_id.hex()
        place, stamp = (welcome.origin, welcome.open), self._heartbeats.stamp
        self._feed = Feed(self._fs, self._job.trail, self._source.trail_id, *place, self._rules, stamp)
        self._phase = Phase.STREAMING
        csn = self._current.csn if self._current else ""
        self._current = self._place(welcome.origin, None, csn)
        self._recovery = self._place(self._feed.needed, None, "") if self._feed.needed else None
        self._startup = self._startup or self._current
        self._written(welcome.position)
        self._log.info(CODE_LINK, f"Linked to {self._peer()}; going on from {welcome.origin} of {self._job.title}.")

    def _acknowledged(self, ack: wire.Ack) -> None:
        settled = self._settle(ack.origin)
        for sent in settled:
            self._tcp.acknowledged(self._clock.monotonic() - sent.at)
        if settled:
            self._passed_on(settled[-1])
            self._backoff.succeeded()
        self._written(ack.position)

    def _settle(self, origin: Position) -> list[_Sent]:
        """Blocks in flight up to there are synced: they count now, once, however often the link was lost."""
        settled = []
        while self._in_flight and self._in_flight[0].end <= origin:
            sent = self._in_flight.popleft()
            settled.append(sent)
            self._bytes_in_flight -= sent.size
            self._acked_bytes += sent.size
            self._acked_changes += sent.header.changes
            self._acked_transactions += 0 if sent.header.is_heartbeat else sent.header.transactions
            for table, op, n in sent.counts:
                self.stats.count(table, table, op, n)
            if sent.beat is not None:
                self._heartbeats.passed(sent.beat)
        return settled

    def _passed_on(self, sent: _Sent) -> None:
        header = sent.header
        csn = header.csn or (self._current.csn if self._current else "")
        self._current = self._place(sent.end, header.time_us or None, csn)
        self._recovery = self._place(sent.needed, None, "") if sent.needed else None
        if header.kind == Kind.DATA:
            self._lag_us, self._lag_why = lag_of(self._clock.now_us(), header.time_us, self._heartbeats.skew_us)
            self._lag_at = self._clock.monotonic()

    def _written(self, position: Position) -> None:
        now_us = self._clock.now_us()
        self._write = WriteCheckpoint(position.seqno, position.rba, now_us, self._job.params.trail, "RMTTRAIL")

    def _closed(self, bye: wire.Bye) -> None:
        """The Collector ended the session: in answer to our own BYE, or because it was told to."""
        if not self._closing and not self._rolling:
            raise AwayError(f"{self._peer()} ended the session: {bye.text}")
        self._backoff.succeeded()  # the link did its work: a loss from now on is another one
        self._retry_at = self._clock.monotonic()
        self._drop_link()

    # sending

    def _has_room(self) -> bool:
        """Whether another block may go out: into our queue, and into the window. One block always may."""
        if self._channel is None or self._phase is not Phase.STREAMING or self._rolling:
            return False
        return not self._in_flight or (
            self._channel.unsent < QUEUE_BYTES and self._bytes_in_flight < self._job.params.window_bytes
        )

    def _fill(self, now: float) -> bool:
        """Read and send until the window or the socket is full, the trail is at its end, or a step's share is done."""
        assert self._feed is not None
        sent = 0
        while sent < STEP_BYTES and self._has_room():
            found = self._feed.read(now)
            for outgoing in found:
                sent += self._send(outgoing)
            if self._feed.at_end:
                return False
            sent += 1 << 10  # blocks that are filtered out cost time too
        return self._has_room()

    def _send(self, outgoing: Outgoing) -> int:
        assert self._channel is not None
        block = outgoing.block
        self._channel.send(block)
        size = len(block.payload) + wire.BLOCK_PREFIX
        counts, header = self._counts(outgoing.header), outgoing.header
        self._in_flight.append(
            _Sent(block.end, size, header, outgoing.needed, outgoing.beat, self._clock.monotonic(), counts)
        )
        self._bytes_in_flight += size
        self._tcp.sent(header)
        return size

    def _counts(self, header: BlockHeader) -> Sequence[tuple[str, Op | str, int]]:
        """What STATS is to count once the block is acknowledged."""
        if header.kind != Kind.DATA or header.is_heartbeat:
            return ()
        if self._rules is None:
            # Undecoded blocks say how many changes they hold, not of which table or kind.
            return (("*.*", TOTAL_OPERATIONS, header.changes),) if header.changes else ()
        counted, self._counted = self._counted, []
        return counted

    def _await(self, deadline: float) -> None:
        """Serve the link without sending more blocks, until something came or the deadline."""
        assert self._channel is not None
        select.select([self._channel.fileno()], [], [], max(0.0, min(0.1, deadline - time.monotonic())))
        now = self._clock.monotonic()
        try:
            self._channel.flush()
            for event in self._channel.receive(now):
                self._handle(event)
        except (AwayError, ProtocolError) as error:
            self._lost(error, now)

    # checkpoint and commands

    def _remember(self, previous: Sequence[Checkpoint]) -> None:
        """Until the first WELCOME: stand where the last run's checkpoint stood, so that nothing more is purged."""
        last = next((c for c in previous if c.reads), None)
        self._heartbeats.arrivals.load(last.extra.get("heartbeats") if last is not None else None)
        if last is None or last.extra.get("alter_no", 0) != self._job.alter_no:
            return
        self._read_trail = str(last.extra.get("trail_id", ""))
        self._startup = self._current = last.reads[0].current
        self._recovery = last.reads[0].recovery
        self._write = last.writes[0] if last.writes else None

    def _checkpoint(self) -> Checkpoint | None:
        if self._current is None or self._startup is None:
            return None
        read = ReadCheckpoint(SOURCE, self._startup, self._current, self._recovery)
        return Checkpoint(
            self._job.params.group, "EXTRACT", (read,), (self._write,) if self._write else (),
            lag_us=self._lag_now(),
            extra={
                "trail_id": self._read_trail, "alter_no": self._job.alter_no,
                "heartbeats": self._heartbeats.arrivals.entries(),
            },
        )  # fmt: skip

    def _place(self, position: Position, time_us: int | None, csn: str) -> Place:
        name = os.path.join(os.path.dirname(self._job.title), self._job.trail.file_name(position.seqno))
        return Place(position.seqno, position.rba, time_us, csn, name)

    def _count(self, table: TableDef, op: Op, n: int) -> None:
        self._counted.append((table.full_name, op, n))

    @property
    def at_end(self) -> bool:
        """Everything durable in the local trail is acknowledged."""
        return self._feed is not None and self._feed.at_end and not self._in_flight

    def command(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002  -- no verb here has any
        """See Process."""
        answers = {
            "STATUS": self._status, "GETLAG": self._lag, "LOGEND": self._log_end, "METRICS": self._measures,
            "ROLLOVER": self._roll, "GETTCPSTATS": self._tcp.reply, "RESETTCPSTATS": self._tcp.reset,
        }  # fmt: skip
        if verb not in answers:
            raise unknown("a pump", verb, answers)
        return answers[verb]()

    def _status(self) -> dict[str, Any]:
        place = self._current or Place(0, 0)
        read = {"seqno": place.seqno, "rba": place.rba, "time_us": place.time_us, "csn": place.csn, "file": place.file}
        written = []
        if (w := self._write) is not None:
            written.append({"seqno": w.seqno, "rba": w.rba, "time_us": w.time_us, "trail": w.trail})
        status = "At EOF" if self.at_end else self._phase.value
        return {
            "status": status, "pid": os.getpid(), "read": read, "write": written, "in_transaction": None,
            "clocks": self._heartbeats.clocks(),
        }  # fmt: skip

    def _roll(self) -> dict[str, Any]:
        """End the session once all is acknowledged: a Collector begins each session in a new file."""
        if self._phase is not Phase.STREAMING:
            raise OperatorError(
                "the remote trail can't be rolled over: there is no link", hint="Try again once it is back"
            )
        self._rolling = True
        return {}

    def _lag(self) -> dict[str, Any]:
        found = self._heartbeats.arrivals.entries()
        return {"lag_us": self._lag_now(), "lag_why": self._lag_why, "at_eof": self.at_end, "heartbeats": found}

    def _lag_now(self) -> int | None:
        """That of the last block acknowledged, or none at the trail's end, and all the time since.

        So it grows while nothing moves, whatever the reason.
        """
        if self.at_end or self._lag_us is None:
            return 0 if self.at_end else None
        return self._lag_us + int((self._clock.monotonic() - self._lag_at) * 1_000_000)

    def _measures(self) -> dict[str, Any]:
        """What METRICS can't know of by itself. What is in flight still waits: it is not yet acknowledged."""
        place, status = self._current, self._status()
        position = Position(place.seqno, place.rba) if place else None
        waiting = 0 if self.at_end else trail_backlog(self._fs, self._job.trail, position)
        return {
            "read": status["read"] if place else None,
            "write": next(iter(status["write"]), None),
            "backlog_bytes": waiting,
            "backlog_us": None if waiting else 0,
            "extra": {
                "state": "" if self._phase is Phase.STREAMING else self._phase.value,
                "trouble": self._warned[0] if self._phase is not Phase.STREAMING else "",
                "peer": self._peer() if self._channel else "",
                "inflight_bytes": self._bytes_in_flight,
                "window_bytes": self._job.params.window_bytes,
                "newest_us": place.time_us if place else None,
                "clock_offset_us": self._heartbeats.ahead_us,
                "clock_error_us": self._heartbeats.error_us,
            },
        }

    def _log_end(self) -> dict[str, Any]:
        return {"logend": self.at_end}
