"""Looking for a place in the binary log: by position, by time, by a set of GTIDs. For ADD and ALTER EXTRACT, and START.

A walk reads a log's events up to its end of now and looks at no rows: each group of events begins with a GTID event, so
the places before these, and the end, are the borders between transactions; and the head of each file says which
transactions stand in the files before it. Which file to begin in is found by the heads of a few of them.

Rule: a place that is none of these borders is refused. Reading from there would tear a transaction.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from extract.sources.mysql import begins, events
from extract.sources.mysql.dump import SILENCE_SECONDS, BinlogStream, DumpBegin, LogReader
from extract.sources.mysql.events import Event, Frame
from extract.sources.mysql.flavour import Flavour
from extract.sources.mysql.gtid import DomainSet, Gtid, GtidSet, UuidSet
from extract.sources.mysql.places import FIRST, file_number
from extract.sources.mysql.server import LogFile
from trails.errors import AwayError, OperatorError

_HEARTBEATS: Final = (events.HEARTBEAT, events.HEARTBEAT_V2)
_LOW: Final = (1 << 32) - 1
_HEADS: Final = (events.PREVIOUS_GTIDS, events.GTID_LIST)
_BEGINS: Final = {
    events.GTID: begins.of_mysql, events.ANONYMOUS_GTID: begins.of_mysql, events.GTID_TAGGED: begins.of_tagged,
    events.MARIA_GTID: begins.of_mariadb,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogBorder:
    """A place between two transactions. `before`: all that committed before it, as far as the log's heads know.

    `gtid`, `time_us`: of the one that begins there; None at the end of a file.
    """

    file: str
    pos: int
    before: GtidSet
    gtid: Gtid | None = None
    time_us: int | None = None


class Walker:
    """Walks through the log of one server, beside whoever reads it. `name`: for the server's list of connections."""

    def __init__(self, url: str, name: str, flavour: Flavour) -> None:
        self._url, self._reader, self._flavour = url, LogReader(0, name), flavour

    def borders(self, file: str) -> Iterator[LogBorder]:
        """All from the begin of a file up to the log's end of now. Raises AwayError or OperatorError."""
        stream = BinlogStream(self._url, self._reader, DumpBegin(file), to_end=True)
        try:
            walked = _Walked(self._flavour)
            while not stream.ended:
                _, more = stream.gulp(walked.take)
                yield from walked.found
                walked.found.clear()
                if not more and not stream.ended:
                    _await(stream)
            yield walked.here()
        finally:
            stream.close()

    def head(self, file: str) -> tuple[int, GtidSet]:
        """(when a file was begun, in us; the transactions that stand before it)."""
        stream = BinlogStream(self._url, self._reader, DumpBegin(file), to_end=True)
        try:
            walked = _Walked(self._flavour)
            while walked.before is None and not stream.ended:
                _, more = stream.gulp(walked.take)
                if walked.before is None and not more and not stream.ended:
                    _await(stream)
            if walked.before is None:
                raise OperatorError(
                    f"binary log {file}: its begin does not say which transactions stand before it",
                    hint="Name a place in a later file",
                )
            return walked.begun_us, walked.first
        finally:
            stream.close()

    def at(self, file: str, pos: int) -> LogBorder:
        """The border at a position. Raises OperatorError where there is none."""
        nearest: LogBorder | None = None
        for border in self.borders(file):
            if border.file != file or border.pos > pos:
                break
            nearest = border
            if border.pos == pos:
                return border
        if pos == FIRST and nearest is None:
            return LogBorder(file, FIRST, self.head(file)[1])
        better = f", such as {nearest.pos}" if nearest is not None else ""
        raise OperatorError(
            f"binary log {file}, position {pos}: no transaction begins there",
            hint=f"Name a position between two transactions{better}; SHOW BINLOG EVENTS IN '{file}' shows them",
        )

    def since(self, time_us: int, logs: Sequence[LogFile]) -> LogBorder:
        """The first transaction that committed at a time or later; the log's end if there is none yet.

        Raises OperatorError where older files, which may have had it, are gone.
        """
        number = _last(logs, lambda log: self.head(log.name)[0] <= time_us)
        if number < 0:
            if file_number(logs[0].name) > 1:
                raise OperatorError(
                    f"the oldest file of the binary log, {logs[0].name}, was begun after that time",
                    hint="BEGIN at a later time, or BEGIN NOW",
                )
            number = 0
        for border in self.borders(logs[number].name):
            if border.time_us is not None and border.time_us >= time_us:
                break
        return border

    def behind(self, wanted: GtidSet, logs: Sequence[LogFile]) -> LogBorder:
        """The place before which exactly this set was committed. Raises OperatorError where there is none."""
        number = _last(logs, lambda log: _within(self.head(log.name)[1], wanted))
        if number < 0:
            raise OperatorError(
                f"the server has purged transactions that are not in the set {str(wanted)!r:.200}: its oldest file, "
                f"{logs[0].name}, comes behind {self.head(logs[0].name)[1]}",
                hint="Name a later set, or re-synchronize the tables and BEGIN NOW",
            )
        for border in self.borders(logs[number].name):
            if not _within(border.before, wanted):
                break
            if _within(wanted, border.before) and (border.gtid is None or not wanted.contains(border.gtid)):
                return border
        raise OperatorError(
            f"at no place of the binary log exactly the set {str(wanted)!r:.200} was committed",
            hint="Name a set that the server had, such as that of now: @@GLOBAL.gtid_executed of MySQL, "
            "@@GLOBAL.gtid_binlog_pos of MariaDB",
        )


class _Walked:
    """Takes the events of one dump, from the begin of a file, and finds the borders."""

    def __init__(self, flavour: Flavour) -> None:
        self._frame = Frame(checksums=True)
        self._decode = DomainSet.decode if flavour is Flavour.MARIADB else UuidSet.decode
        self._file = ""
        self._pos = self._end = FIRST  # where the event begins, and where it ends
        self.begun_us = 0
        self.before: GtidSet | None = None
        """Committed before the place that was read; None before the file's head."""
        self.first: GtidSet = DomainSet() if flavour is Flavour.MARIADB else UuidSet()
        self.found: list[LogBorder] = []

    def take(self, data: bytes, at: int, upto: int) -> None:
        event = self._frame.event(data, at, upto)
        kind = event.type
        in_file = event.end and kind not in _HEARTBEATS and not event.flags & events.ARTIFICIAL
        if in_file:
            end = self._end & ~_LOW | event.end
            self._end = end if end >= self._end else end + _LOW + 1  # positions have 32 bits
            self._pos = self._end - (upto - at)  # not every event in the file is sent
        if kind == events.ROTATE:
            if in_file:
                self.found.append(self._border())
            self._file, self._end = events.rotate_of(data, event.at, event.upto)
        if not in_file:
            return
        if kind == events.FORMAT_DESCRIPTION:
            self.begun_us = self.begun_us or event.time * 1_000_000
        elif kind in _HEADS:
            head = self._decode(data[event.at : event.upto])
            if self.before is None:
                self.before = self.first = head
        elif kind in _BEGINS:
            self._group(event, data)

    def _group(self, event: Event, data: bytes) -> None:
        begun = _BEGINS[event.type](event, data)
        border = self._border(begun.gtid, begun.commit_us)
        self.found.append(border)
        if begun.gtid is not None:
            self.before = border.before.add(begun.gtid)

    def _border(self, gtid: Gtid | None = None, time_us: int | None = None) -> LogBorder:
        return LogBorder(self._file, self._pos, self.first if self.before is None else self.before, gtid, time_us)

    def here(self) -> LogBorder:
        """The end of what was read."""
        self._pos = self._end
        return self._border()


def _within(one: GtidSet, other: GtidSet) -> bool:
    return other.contains_all(one)


def _last(logs: Sequence[LogFile], fits: Callable[[LogFile], bool]) -> int:
    """The last file that fits, where all before it do too; -1 where none does."""
    low, high = -1, len(logs) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(logs[middle]) else (low, middle - 1)
    return low


def _await(stream: BinlogStream) -> None:
    poller = select.poll()
    poller.register(stream.fileno(), select.POLLIN)
    if not poller.poll(SILENCE_SECONDS * 1000):
        raise AwayError(f"the source database sent nothing of its binary log for {SILENCE_SECONDS:g} s")
