"""Sources that are asked, rather than sending: a queue or a change table, read one piece of its counter after another.

    asker's thread                                   the main loop
    settled(after)  -> the next segment's end
    changes(after, end) -> pieces          ==>       poll: begin, records piece by piece, commit
                                                     ... trail, sync ...
    forget(upto)                           <==       release

Each segment is one transaction of the trail: what was committed between two looks at the source. It is not known where
one of the source's transactions ends in it and the next begins, so it is never cut (I7); but it is handed over in
pieces, and of these only a bounded number waits.

Rule: a question may take long, so nothing is asked on the main thread once capturing has begun. The asker has its
connection for itself. It goes on behind the last segment that it has put into its queue whole: what was put before that
is handed over, whatever happens to the connection, and what was put of a segment that broke off is abandoned.
"""

from __future__ import annotations

import math
import os
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from extract.absence import Absence
from extract.retention import RetentionGuard
from extract.source import Say, Sink
from trails.ddl import DdlChange
from trails.errors import AwayError
from trails.position import Position
from trails.record import Op, TableDef
from trails.runtime.process.backoff import Backoff

PIECES: Final = 8
"""So many pieces wait for the main loop, and no more."""
PIECE_BYTES: Final = 256 << 10
CLOSE_SECONDS: Final = 10.0
_TRUNCATE: Final = int(Op.TRUNCATE)

Row = tuple[Any, ...]
"""(op, image), or of an update (op, after, before): a record without the number of its table."""


@dataclass(frozen=True, slots=True)
class SourceSegment:
    """What was committed behind one value of the counter, up to and with `end`; `time_us`: when the last of it was.

    `state`: what the method wants to be told with `end` when it opens there; see extract.source.
    """

    end: int
    csn: str
    xid: str
    time_us: int
    state: str = ""


@dataclass(frozen=True, slots=True)
class Emptied:
    """Tables that one TRUNCATE has emptied."""

    tables: Sequence[TableDef]


Run = tuple[TableDef, Sequence[Row]] | Emptied | DdlChange
"""What goes over in one: rows of one table, or one change of whole tables."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a segment, as runs in their order. `size` is about."""

    runs: Sequence[Run]
    size: int


class Method(Protocol):
    """One way to ask a source. All calls come from one thread. Any may raise AwayError: then comes `open` again."""

    def open(self, after: int, state: str) -> None:
        """Connect, and check that everything behind `after` is still there; `state` was given with it."""
        ...

    def settled(self, after: int) -> SourceSegment | None:
        """The next segment, if there is any: nothing that is in it will still change or grow."""
        ...

    def changes(self, after: int, segment: SourceSegment) -> Iterator[Piece]:
        """What is in it, each piece of about PIECE_BYTES or one change. Holds no lock while a piece is taken."""
        ...

    def forget(self, upto: int) -> bool:
        """Let the source drop what is not behind `upto`, a bounded piece of it; True if there is more to drop."""
        ...

    def pause(self) -> float:
        """In how many seconds to look again when there was nothing."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


@dataclass(frozen=True, slots=True)
class _Begin:
    segment: SourceSegment


@dataclass(frozen=True, slots=True)
class _End:
    segment: SourceSegment


@dataclass(frozen=True, slots=True)
class _Lost:
    error: BaseException


@dataclass(frozen=True, slots=True)
class _Back:
    after: int


_Item = _Begin | Piece | _End | _Lost | _Back


class Asker:
    """The thread. Items come out of `take` in their order; `fileno` is readable while there are some."""

    def __init__(self, method: Method, after: int, state: str, name: str) -> None:
        self._method = method
        self._after, self._state = after, state
        self._items: queue.Queue[_Item] = queue.Queue(PIECES)
        self._woken = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._released = 0
        self._forgotten = 0
        self._stir = threading.Event()  # something was released, or the end is asked for
        self._stopping = False
        self._backoff = Backoff(math.inf)  # the main loop says when to give up
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """Readable while there may be something to take."""
        return self._woken

    def take(self) -> _Item | None:
        """The next item; None if there is none yet."""
        try:
            return self._items.get_nowait()
        except queue.Empty:
            pass
        try:
            os.eventfd_read(self._woken)
        except BlockingIOError:
            return None
        # Put and woken between the two: then it is here now.
        try:
            return self._items.get_nowait()
        except queue.Empty:
            return None

    @property
    def is_empty(self) -> bool:
        """Whether `take` has nothing now."""
        return self._items.empty()

    def release(self, upto: int) -> None:
        """The source may drop everything up to there."""
        if upto > self._released:
            self._released = upto
            self._stir.set()

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """End, once what was released is dropped. A thread that waits for its source ends with the process."""
        self._stopping = True
        self._stir.set()
        while self._thread.is_alive() and seconds > 0:
            if self.take() is None:
                self._thread.join(0.02)
                seconds -= 0.02
        if not self._thread.is_alive():
            os.close(self._woken)

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._method.open(self._after, self._state)
                self._ask()
            except AwayError as error:
                self._method.close()
                self._put(_Lost(error))
                self._stir.clear()
                if not self._stopping:
                    self._stir.wait(self._backoff.again(0.0))
            except BaseException as error:  # noqa: BLE001  -- whatever it is: the main thread raises it
                self._method.close()
                self._put(_Lost(error))
                return
        self._method.close()

    def _ask(self) -> None:
        while not self._stopping:
            more = self._forget()
            segment = self._method.settled(self._after)
            if segment is None:
                self._steady()
                if not more:
                    self._stir.wait(self._method.pause())
                    self._stir.clear()
                continue
            self._put(_Begin(segment))
            for piece in self._method.changes(self._after, segment):
                self._put(piece)
                if self._stopping:
                    return
            self._put(_End(segment))
            self._after, self._state = segment.end, segment.state
            self._steady()
        while self._forget():
            pass

    def _steady(self) -> None:
        """A question was answered whole: only then a source that was away is back, and not once it is connected."""
        if self._backoff.failing:
            self._backoff.succeeded()
            self._put(_Back(self._after))

    def _forget(self) -> bool:
        upto = self._released
        if upto <= self._forgotten:
            return False
        if self._method.forget(upto):
            return True
        self._forgotten = upto
        return False

    def _put(self, item: _Item) -> None:
        """Wait for room, unless the end is asked for."""
        while not self._stopping:
            try:
                self._items.put(item, timeout=0.2)
            except queue.Full:
                continue
            os.eventfd_write(self._woken, 1)
            return


class SegmentSource:
    """The part of a Source that is the same whatever is asked: a method's folder has the rest.

    `say` takes one line for the operator: lost and regained connections.
    """

    def __init__(self, method: Method, reconnect_seconds: float, say: Say, guard: RetentionGuard, name: str) -> None:
        self._method = method
        self._absence = Absence(reconnect_seconds, say)
        self._guard = guard
        self._name = name
        self._asker: Asker | None = None
        self._sink: Sink | None = None
        self._open: SourceSegment | None = None
        self.read_us: int | None = None
        """When the last of what was handed over was committed; None before anything was."""

    def start(self, origin: Position, state: str, sink: Sink) -> None:
        self._sink = sink
        self._asker = Asker(self._method, origin.rba, state, self._name)
        self._asker.release(origin.rba)  # the trail was recovered up to here: it is durable

    def poll(self) -> bool:
        """Hand over one item of the asker's."""
        assert self._asker is not None and self._sink is not None
        now = time.monotonic()
        self._guard.judge(now)
        item = self._asker.take()
        if item is None:
            self._absence.check(now)
            return False
        match item:
            case Piece():
                self._hand_over(item, self._sink)
            case _Begin(segment):
                self._open, self.read_us = segment, segment.time_us
                self._sink.begin(segment.csn, segment.xid, segment.time_us)
            case _End(segment):
                self._open = None
                self._sink.commit(Position(0, segment.end), segment.csn, segment.time_us, segment.state)
            case _Lost(error):
                self._lost(error, now)
            case _Back():
                self._absence.connected(str(item.after))
                self._absence.over()
        return not self._asker.is_empty

    @staticmethod
    def _hand_over(piece: Piece, sink: Sink) -> None:
        add = sink.records.append
        for run in piece.runs:
            if isinstance(run, DdlChange):
                sink.ddl(run)
                continue
            if isinstance(run, Emptied):
                for definition in run.tables:
                    _index(definition, sink)  # naming one may begin a new block: only then all their numbers hold
                add((_TRUNCATE, tuple(_index(definition, sink) for definition in run.tables), 0))
                continue
            definition, rows = run
            cached = _index(definition, sink)
            for row in rows:
                add((row[0], cached, *row[1:]))
        sink.grew(piece.size)

    def _lost(self, error: BaseException, now: float) -> None:
        assert self._sink is not None
        self._sink.abandon()
        self._open = None
        if not isinstance(error, AwayError):
            raise error
        self._absence.lost(error, now)  # the asker tries again by itself

    def release(self, origin: Position) -> None:
        """The asker drops it soon."""
        if self._asker is not None:
            self._asker.release(origin.rba)

    def waits(self) -> list[int]:
        return [self._asker.fileno()] if self._asker is not None else []

    def idle_seconds(self) -> float:
        return 1.0

    @property
    def waits_for(self) -> str:
        """As `Source.waits_for`."""
        return self._absence.waits_for

    @property
    def read(self) -> int:
        """The counter's value up to which everything was handed over, or is being."""
        if self._open is not None:
            return self._open.end
        return self._sink.origin.rba if self._sink is not None else 0

    def close(self) -> None:
        if self._asker is not None:
            self._asker.close()


def _index(definition: TableDef, sink: Sink) -> int:
    """The number of a table in the block that is being gathered."""
    found: int | None = sink.cache.get(definition.id)
    if found is None:
        found = sink.cache[definition.id] = sink.table(definition)
    return found
