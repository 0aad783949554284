"""The pump: local trail -> Collector. A Process whose output is the remote trail.

Rule: the Collector says where to go on, and its acknowledgements alone move our checkpoint. step() never waits:
getting a link is a Caller's work, the socket is non-blocking, and while the window is full or the link is away nothing
is read. phase.py says how a link begins and ends, as a table.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from pump import pin
from pump.feed import Feed
from pump.filter import Filter
from pump.heartbeat import PumpHeartbeats
from pump.job import PumpJob
from pump.link import Caller, Dial, LinkRequest, dial
from pump.phase import LIVE, NEXT, LinkEvent, LinkPhase
from pump.places import PumpPlaces
from pump.tcpstats import LinkStats
from pump.window import Counts, Sent, Window
from trails.checkpoint import Checkpoint, Place
from trails.clock import Clock
from trails.errors import AwayError, GateError, MismatchError, OperatorError, ProtocolError
from trails.format import BlockKind, FileHeader
from trails.fs import Fs
from trails.link import tls, wire
from trails.link.channel import Channel
from trails.link.wire import Side, Type
from trails.position import Position
from trails.reader import last_header
from trails.record import Op, TableDef
from trails.runtime.home.status import FOR_TRAIL
from trails.runtime.language.tableparams import environment
from trails.runtime.process import clockdiff
from trails.runtime.process.group import GroupProcess, Request
from trails.runtime.report.answers import LagAnswer, MetricsAnswer, PlaceAnswer, StatusAnswer, WriteAnswer
from trails.runtime.report.metrics import Counters, trail_backlog
from trails.runtime.report.report import Log
from trails.runtime.report.stats import TOTAL_OPERATIONS, Stats

STEP_BYTES = 8 << 20
DRAIN_SECONDS = 1.0
CLOSE_SECONDS = 2.0
ACK_SECONDS = 0.02
"""So long acknowledgements may lie where nobody needs them."""

UNDECODED = (
    "All tables are counted together: PASSTHRU sends blocks undecoded, and a block's header counts its changes without "
    "their tables and kinds. NOPASSTHRU decodes the blocks and counts by table."
)
"""What STATS and report say beside such a count."""

CODE_LINK = "TG-01226"
CODE_LOST = "TG-01223"
CODE_MODE = "TG-01520"


class Pump(GroupProcess):
    """One run of a pump: the phase of its link, and the parts that know the rest."""

    called = "a pump"

    def __init__(
        self, job: PumpJob, fs: Fs, log: Log, clock: Clock, previous: Sequence[Checkpoint] = (), dial: Dial = dial
    ) -> None:
        """`dial`: how a Collector is reached."""
        self._job = job
        self._fs = fs
        self._log = log
        self._clock = clock
        self._start = job.start()
        self._watch = fs.watch_folder(job.trail.folder, lambda text: log.warning(CODE_LOST, text))
        self._phase = LinkPhase.AWAY
        self._stuck: int | None = None  # so many bytes were synced when flush() had waited in vain
        self._caller = Caller(job.params, lambda text: log.warning(CODE_LOST, text), clock.monotonic(), dial, fs.host)
        self._revocations = tls.RevocationWatch("")
        self._channel: Channel | None = None
        self._greeted_at = 0.0
        self._proven = False  # this link has passed a block on
        self._feed: Feed | None = None
        self._source: FileHeader | None = None
        self._window = Window(job.params.window_bytes)
        self._places = PumpPlaces(job, fs, clock)
        self._tcp = LinkStats(clock, self._window)
        self._taken = 0  # bytes read in sessions that are over
        self._counted: list[tuple[str, Op | str, int]] = []  # changes of the block that was read last
        self._rules = self._filter()
        self.stats: Stats = Stats(clock.now_us, job.params.trail, "" if self._rules else UNDECODED)
        self._heartbeats = PumpHeartbeats(
            job.params.group, job.params.remote.host, clock, job.clock_diff_s,
            lambda text: log.warning(clockdiff.CODE, text),
        )  # fmt: skip
        if last := next((save for save in previous if save.reads), None):
            self._heartbeats.arrivals.load(last.extra.get("heartbeats"))
            self._places.remember(last)
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
            if self._phase is LinkPhase.AWAY:
                return now >= self._caller.retry_at and self._dial(now)
            if self._phase is LinkPhase.DIALLING:
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
            more = self._phase is LinkPhase.STREAMING and self._fill(now)
            self._tcp.room(free=self._phase not in LIVE or self._has_room())
            if self._phase is LinkPhase.ROLLING and self._window.is_empty and self._channel.may_send(Type.BYE):
                self._channel.send(wire.Bye(f"pump {self._job.params.group} begins a new trail file"))
            if self.at_end:
                self._places.nothing_waits()
            # While blocks are sent, what came has been seen to; in other phases it has led to another one.
            seen_to = self._phase is LinkPhase.STREAMING and self._channel.failed is None
            return more or (bool(events) and not seen_to)
        except (AwayError, ProtocolError) as error:
            self._lost(error, now)
            return False

    def flush(self) -> Checkpoint | None:
        """Let what is in flight be acknowledged, for a moment; then say how far the remote trail stands synced.

        Where nothing was acknowledged since that moment was over the last time, nobody waits for it again.
        """
        deadline = self._fs.host.monotonic() + (DRAIN_SECONDS if self._window.synced != self._stuck else 0.0)
        while not self._window.is_empty and self._phase in LIVE and self._fs.host.monotonic() < deadline:
            self._await(deadline)
        self._stuck = None if self._window.is_empty else self._window.synced
        lag_us, _ = self._places.lag(at_end=self.at_end)
        return self._places.checkpoint(lag_us, self._heartbeats.arrivals.entries())

    def close(self) -> None:
        """Say goodbye and wait a moment for the answer; then let go of everything."""
        try:
            self._say_goodbye()
        except GateError as error:
            # What was to be saved is saved; the Collector notices the closed link as well.
            self._log.warning(CODE_LOST, f"{error}.")
        finally:
            self._drop_link(LinkEvent.DROPPED)
            self._watch.close()

    def _to(self, event: LinkEvent) -> None:
        self._phase = NEXT[self._phase, event]

    def _say_goodbye(self) -> None:
        if self._channel is None or not self._channel.may_send(Type.BYE):
            return
        self._channel.send(wire.Bye(f"pump {self._job.params.group} ends"))
        self._to(LinkEvent.GOODBYE)
        deadline = self._fs.host.monotonic() + CLOSE_SECONDS
        while self._channel is not None and self._fs.host.monotonic() < deadline:
            self._await(deadline)

    def waits(self) -> list[int]:
        """The link, and the local trail's folder where a new block could be sent."""
        if self._phase is LinkPhase.DIALLING:
            return [self._caller.fileno()]
        if self._channel is None:
            return []
        link = [] if self._leaves_acks else [self._channel.fileno()]
        return [*link, *([self._watch.fileno()] if self._has_room() else [])]

    @property
    def _leaves_acks(self) -> bool:
        """Whether what the Collector says may lie for a moment: much may be sent before any of it is needed.

        An acknowledgement for each block would wake us as often as the blocks do, which take it along.
        """
        if self._channel is None or self._phase is not LinkPhase.STREAMING or self._channel.unsent:
            return False
        return 0 < self._window.bytes < self._window.size // 2

    def idle_seconds(self) -> float:
        """Until the next try or heartbeat; a second at most, because events of a folder may get lost."""
        now = self._clock.monotonic()
        if self._phase is LinkPhase.AWAY:
            return min(1.0, max(0.0, self._caller.retry_at - now))
        if self._channel is not None:
            return min(ACK_SECONDS if self._leaves_acks else 1.0, self._channel.wait(now))
        return 1.0

    def waits_for(self) -> str:
        """For the remote side until there is a link, or for the local trail."""
        if self._phase in LIVE:
            return ""
        trouble = self._caller.trouble
        if self._source is None and self._phase is LinkPhase.AWAY and not trouble:
            return f"{FOR_TRAIL} {self._job.title}: it has no file yet"
        remote = self._job.params.remote
        said = f": {trouble or 'no answer yet'}"
        return f"{LinkPhase.AWAY.value} {remote.host}, Manager's port {remote.port}{said}"

    def counters(self) -> Counters:
        """What the Collector has acknowledged as synced; read ahead of that, by what is in flight."""
        taken = self._taken + (self._feed.taken if self._feed is not None else 0)
        return Counters(self._window.changes, self._window.transactions, taken, self._window.synced)

    def blocked(self) -> bool:
        """Whether the window, or the link, is full."""
        return self._phase in LIVE and not self._has_room()

    # getting a link

    def _dial(self, now: float) -> bool:
        source = last_header(self._fs, self._job.trail)
        if source is None:  # not a lost link: the Extract has not written anything yet
            self._caller.retry_at = self._clock.monotonic() + 1.0
            return False
        self._source = source
        params = self._job.params
        pump = f"{self._job.home_id}/{params.group}"
        self._caller.dial(
            LinkRequest(params.remote.host, params.remote.port, params.trail, pump, source.trail_id, self._job.tls), now
        )
        self._revocations = tls.RevocationWatch(self._job.tls)
        self._to(LinkEvent.DIAL)
        return False

    def _connected(self, now: float) -> bool:
        assert self._source is not None
        sock = self._caller.result(now)
        if sock is None:
            return False
        remote = self._job.params.remote
        try:
            peer = "Collector at {}:{}".format(*sock.getpeername()[:2])
            self._channel = Channel(sock, Side.PUMP, peer, remote.dead_seconds, now, self._fs.host)
        except OSError as error:
            # It took the connection and died before we looked.
            sock.close()
            raise AwayError(f"Collector at {remote.host}: the link is lost: {error.strerror}") from None
        self._to(LinkEvent.CONNECTED)
        self._tcp.opened(self._channel)
        self._greeted_at, self._proven = now, False
        self._channel.send(self._hello(self._source))
        return True

    def _hello(self, source: FileHeader) -> wire.Hello:
        job = self._job
        return wire.Hello(
            home=job.home_id, group=job.params.group, host=job.host, trail=job.params.trail, trail_id=source.trail_id,
            source=source.source, alter=job.alter_no, start=self._start, megabytes=job.megabytes,
            dead=job.params.remote.dead_seconds * 1000, encrypt=job.params.encrypt, whole=job.whole,
        )  # fmt: skip

    def _lost(self, error: GateError, now: float) -> None:
        """The link is away: say so once, and plan the next try. Raises AwayError when it was tried for long enough."""
        if self._phase in LIVE and now - self._greeted_at > self._job.params.remote.dead_seconds:
            self._caller.succeeded()
        self._drop_link(LinkEvent.DROPPED)
        self._caller.lost(error, now)

    def _drop_link(self, event: LinkEvent) -> None:
        self._taken += self._feed.taken if self._feed is not None else 0
        for part in (self._caller, self._channel, self._feed):
            if part is not None:
                part.close()
        self._channel = self._feed = None
        self._tcp.closed()
        self._to(event)

    # what the Collector says

    def _handle(self, event: wire.Event) -> None:
        match event:
            case wire.Welcome():
                self._welcomed(event)
            case wire.Ack():
                settled = self._settle(event.origin)
                if settled:
                    self._places.passed_on(settled[-1], event.position, self._heartbeats.skew_us)
                if settled and not self._proven:
                    self._caller.succeeded()
                    self._proven = True
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
        pin.check(self._fs, self._job, welcome.home, self._peer())
        if 0 < self._job.alter_no < welcome.alter:
            raise MismatchError(
                f"the remote trail has obeyed ALTER {welcome.alter}, this group's registration knows only "
                f"{self._job.alter_no}: it was restored, or the group added again",
                hint="ALTER the group again until its number is higher, or give it another remote trail",
            )
        self._heartbeats.greeted(welcome.now_us, int(self._greeted_at * 1_000_000))
        self._settle(welcome.origin)
        self._window.clear()
        self._counted.clear()
        place, stamp = (welcome.origin, welcome.open), self._heartbeats.stamp
        self._feed = Feed(self._fs, self._job.trail, self._source.trail_id, *place, self._rules, stamp)
        self._to(LinkEvent.WELCOME)
        self._places.welcomed(welcome, self._source.trail_id, self._feed.needed)
        peer = f"{self._peer()}, home {welcome.home or '?'}"
        self._log.info(CODE_LINK, f"Linked to {peer}; going on from {welcome.origin} of {self._job.title}.")

    def _settle(self, origin: Position) -> list[Sent]:
        """Blocks in flight up to there are synced: they count now."""
        settled = self._window.settle(origin, self._clock.monotonic())
        for sent in settled:
            for table, op, n in sent.counts:
                self.stats.count(table, table, op, n)
            if sent.beat is not None:
                self._heartbeats.passed(sent.beat)
        return settled

    def _closed(self, bye: wire.Bye) -> None:
        """The Collector ended the session: in answer to our own BYE, or because it was told to."""
        if (self._phase, LinkEvent.BYE) not in NEXT:
            raise AwayError(f"{self._peer()} ended the session: {bye.text}")
        self._caller.succeeded()  # the link did its work: a loss from now on is another one
        self._caller.retry_at = self._clock.monotonic()
        self._drop_link(LinkEvent.BYE)

    # sending

    def _has_room(self) -> bool:
        """Whether another block may go out: into our queue, and into the window."""
        if self._channel is None or self._phase is not LinkPhase.STREAMING:
            return False
        return self._window.has_room(self._channel.unsent)

    def _fill(self, now: float) -> bool:
        """Read and send until the window or the socket is full, the trail is at its end, or a step's share is done."""
        assert self._feed is not None and self._channel is not None
        sent = 0
        while sent < STEP_BYTES and self._has_room():
            for outgoing in self._feed.read(now):
                block, header = outgoing.block, outgoing.header
                self._channel.send(block)
                size, at = len(block.payload) + wire.BLOCK_PREFIX, self._clock.monotonic()
                counts: Counts = ()
                if self._rules is not None and header.kind == BlockKind.DATA:
                    counts, self._counted = self._counted, []
                elif header.changes:
                    # Undecoded blocks say how many changes they hold, not of which table or kind.
                    counts = (("*.*", TOTAL_OPERATIONS, header.changes),)
                self._window.add(Sent(block.end, size, header, outgoing.needed, outgoing.beat, at, counts))
                sent += size
            if self._feed.at_end:
                return False
            sent += 1 << 10  # blocks that are filtered out cost time too
        return self._has_room()

    def _await(self, deadline: float) -> None:
        """Serve the link without sending more blocks, until something came or the deadline."""
        assert self._channel is not None
        host = self._fs.host
        host.poll([self._channel.fileno()], max(0.0, min(0.1, deadline - host.monotonic())))
        now = self._clock.monotonic()
        try:
            self._channel.flush()
            for event in self._channel.receive(now):
                self._handle(event)
        except (AwayError, ProtocolError) as error:
            self._lost(error, now)

    # checkpoint and commands

    def _count(self, table: TableDef, op: Op, n: int) -> None:
        self._counted.append((table.full_name, op, n))

    @property
    def at_end(self) -> bool:
        """Everything durable in the local trail is acknowledged."""
        return self._feed is not None and self._feed.at_end and self._window.is_empty

    def requests(self) -> Mapping[str, Request]:
        return {
            "ROLLOVER": self._roll,
            "GETTCPSTATS": lambda _: self._tcp.reply(),
            "RESETTCPSTATS": lambda _: self._tcp.reset(),
        }

    def _roll(self, _args: dict[str, Any]) -> dict[str, Any]:
        """End the session once all is acknowledged: a Collector begins each session in a new file."""
        if (self._phase, LinkEvent.ROLLOVER) not in NEXT:
            raise OperatorError(
                "the remote trail can't be rolled over: there is no link", hint="Try again once it is back"
            )
        self._to(LinkEvent.ROLLOVER)
        return {}

    def status(self) -> StatusAnswer:
        write = self._places.write
        return StatusAnswer(
            "At EOF" if self.at_end else self.waits_for() or LinkPhase.STREAMING.value, os.getpid(),
            PlaceAnswer.of(self._places.current or Place(0, 0)), (WriteAnswer.of(write),) if write else (),
            clocks=self._heartbeats.clocks(),
        )  # fmt: skip

    def lag(self) -> LagAnswer:
        lag_us, why = self._places.lag(at_end=self.at_end)
        return LagAnswer(lag_us, why, self.at_end, self._heartbeats.arrivals.entries())

    def metrics(self) -> MetricsAnswer:
        """What is in flight still waits: it is not yet acknowledged."""
        place, write, live = self._places.current, self._places.write, self._phase in LIVE
        position = Position(place.seqno, place.rba) if place else None
        waiting = 0 if self.at_end else trail_backlog(self._fs, self._job.trail, position)
        return MetricsAnswer(
            read=PlaceAnswer.of(place) if place else None,
            write=WriteAnswer.of(write) if write else None,
            backlog_bytes=waiting, backlog_us=None if waiting else 0,
            extra={
                "state": "" if live else self._phase.value, "trouble": "" if live else self._caller.trouble,
                "peer": self._peer() if self._channel else "",
                "inflight_bytes": self._window.bytes if live else 0, "window_bytes": self._window.size,
                "newest_us": place.time_us if place else None, "clock_offset_us": self._heartbeats.ahead_us,
                "clock_error_us": self._heartbeats.error_us,
            },
        )  # fmt: skip
