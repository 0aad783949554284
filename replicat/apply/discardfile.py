"""The discard file on disk: records that are durable before the commit that skips their changes (I8).

Text for people, a record a change; its last line bears a CRC over the lines before it, so a torn one is known. Behind
a transaction that is discarded whole one more record ends it: it says how many there are, so a part of it is known.

    crash                          found by the next start              then
    in a record's write            a record without its last line       it is cut off; the change comes again
    inside a whole transaction     records without the one that ends it the others are written; if never, it is a part
    after the write, before sync   whole records, in memory or on disk  they are written again in place, and synced
    after sync, before commit      whole records                        the change comes again, and is not written twice
    after commit                   whole records before the row         nothing: they count no more for what comes
    in DISCARDROLLOVER, or PURGE   files with their old or new names    a number is missing, at most; no record is lost
    (deleted before the sync)      no file, or another                  nothing was committed; the records come again

Which changes may come again is told by the checkpoint row: those of records at its position or after it. Nothing that
is whole is ever removed here, nor what a person wrote between records; PURGE only gives an older file another name.
"""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from collections.abc import Iterator

from trails.errors import AnewError, GateError, OperatorError
from trails.fs import File, Fs
from trails.position import Position

BEGINS = b"Current time: "
ENDS = b"Record ends, CRC32 "
FAILED = b"Operation failed at "
ENDING = b"Whole transaction discarded at "
AGED = 10
CHUNK = 1 << 20
_PLACE = re.compile(b"(?:" + FAILED + b"|" + ENDING + rb")seqno (\d+) rba (\d+), ")


def framed(lines: list[str]) -> bytes:
    """A record's lines, and the last one with their CRC."""
    body = "".join(line + "\n" for line in lines).encode("utf-8", "backslashreplace")
    return body + _last_line(zlib.crc32(body))


def _last_line(crc: int) -> bytes:
    return ENDS + b"%08x\n" % crc


class Examined:
    """One walk over a file: iterate for (place line, end) of each whole record, then ask for `torn`."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.torn: int | None = None
        """Where a record begins that was never written whole, at the file's end."""

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        at = crc = 0
        place = b""
        hole = False  # a power loss left zeros; we write none
        self.torn = None
        for line in _lines(self._file):
            if line.startswith(BEGINS):
                crc, place = 0, b""
                self.torn = self.torn if hole else at
            elif not place and _PLACE.match(line):
                place = line
            elif line.startswith(ENDS):
                if place and line == _last_line(crc):
                    yield place, at + len(line)
                    hole = False
                place = b""
                self.torn = self.torn if hole else None  # else changed by a person, who may
            if b"\0" in line:
                hole = True
                self.torn = at + line.index(b"\0") if self.torn is None else self.torn
            at += len(line)
            crc = zlib.crc32(line, crc)


def whole_records(file: File) -> Iterator[list[bytes]]:
    """The lines of each whole record as it was written, without their line ends; what was changed since is left out."""
    lines: list[bytes] = []
    crc = 0
    for line in _lines(file):
        if line.startswith(BEGINS):
            lines, crc = [], 0
        elif lines and line == _last_line(crc) and any(_PLACE.match(one) for one in lines):
            yield [one.rstrip(b"\n") for one in lines]
            lines = []
        if lines or line.startswith(BEGINS):
            lines.append(line)
            crc = zlib.crc32(line, crc)


def _lines(file: File) -> Iterator[bytes]:
    offset = 0
    parts: list[bytes] = []
    while data := file.read_at(offset, CHUNK):
        offset += len(data)
        parts.append(data)
        if b"\n" in data:
            *whole, rest = b"".join(parts).split(b"\n")
            yield from (line + b"\n" for line in whole)
            parts = [rest] if rest else []
    if parts:
        yield b"".join(parts)


class DiscardFile:
    """One discard file; one process at a time, by a lock beside it."""

    def __init__(self, fs: Fs, path: str, megabytes: int, *, purge: bool = False, title: str = "") -> None:
        """`title`: the first line of a new file. `purge`: the first look() gives an older file another name."""
        folder, name = os.path.split(path)
        self.path = path
        self._fs = fs
        self._megabytes = megabytes
        self._purge = purge
        self._title = title
        self._known: set[bytes] = set()  # places of records whose change may come again
        self._last = Position(0, 0)  # the last of them
        self._name_durable = False
        self._file: File | None = None
        self._lock = fs.lock(os.path.join(folder, f".{name}.lock"))

    def look(self, position: Position) -> None:
        """At each connection: mend the end, and learn which records' changes were not committed before `position`."""
        self._close_file()
        self._known.clear()
        purge, self._purge = self._purge, False
        if not self._fs.exists(self.path):
            return
        file = self._fs.open(self.path, write=True)
        try:
            older = self._learn(file, position)
        finally:
            file.close()
        if older and purge:
            self._age()
            self._known.clear()

    def _learn(self, file: File, position: Position) -> bool:
        """Whether there are records of committed changes."""
        walk = Examined(file)
        synced = 0  # up to here, as it was committed
        older = False
        for place, end in walk:
            if _position(place) >= position:
                self._know(place)
                continue
            older = True
            synced = synced if self._known else end
        if walk.torn is not None:
            file.truncate(walk.torn)
        if self._known:
            _write_again(file, synced)
        return older

    def _age(self) -> None:
        stem, suffix = os.path.splitext(self.path)
        names = [self.path, *(f"{stem}.{age}{suffix}" for age in range(AGED))]
        # Up to the first number that is free: after a crash in here no file takes the place of another.
        free = next((i for i, name in enumerate(names) if i and not self._fs.exists(name)), AGED)
        for i in range(free, 0, -1):
            self._fs.rename(names[i - 1], names[i])
        self._fs.sync_dir(os.path.dirname(self.path))

    def add(self, lines: list[str]) -> None:
        """Write a record, unless it is there; not durable before sync(). OperatorError if there is no space for it."""
        file = self._opened()
        data = framed(lines)
        match = next(line for line in data.splitlines(keepends=True) if _PLACE.match(line))
        if match in self._known:
            return
        end = file.size()
        if end == 0:
            data = f"{self._title}\n\n".encode() + data
        elif file.read_at(end - 1, 1) != b"\n":
            data = b"\n" + data
        self._check_size(end + len(data))
        self._write(file, end, data)
        self._know(match)

    def _know(self, place: bytes) -> None:
        self._known.add(place)
        self._last = max(self._last, _position(place))

    def _check_size(self, size: int) -> None:
        if size > self._megabytes << 20:
            raise OperatorError(
                f"{self.path}: the discard file would exceed its MEGABYTES {self._megabytes}; nothing of the batch was "
                "committed",
                hint="Move the file away, or raise MEGABYTES of DISCARDFILE; or mend what the target refuses. "
                "Then START again",
            )

    def _write(self, file: File, end: int, data: bytes) -> None:
        try:
            file.write_at(end, data)
        except OperatorError as error:
            with contextlib.suppress(GateError):
                file.truncate(end)
            raise self._not_kept(error) from error

    def sync(self) -> None:
        """Make all records durable, also those of an earlier try, in the file that has the name now."""
        try:
            file = self._opened()
            file.datasync()
            if not self._name_durable:
                self._fs.sync_dir(os.path.dirname(self.path))
            if not file.is_at(self.path):
                self._close_file()
                self._known.clear()  # they were in the file that is gone
                raise AnewError(
                    f"{self.path} was removed or replaced while records were written",
                    hint="START again: its records are written anew",
                )
        except (OperatorError, AnewError) as error:
            raise self._not_kept(error) from error
        self._name_durable = True
        self._close_file()  # opened by name for each batch: whoever moves the file away loses nothing

    def _not_kept(self, error: OperatorError | AnewError) -> OperatorError | AnewError:
        # Of the same type: a full disk (exit code 3) stays one.
        return type(error)(
            f"the discard file does not take a record, so nothing of the batch was committed: {error.message}",
            hint=error.hint,
        )

    def committed(self, position: Position) -> None:
        """What stands before `position` will not come again, unless a new connection finds an older row."""
        if self._last < position:
            self._known.clear()

    def roll(self) -> bool:
        """Give the file another name, so that a new one begins. False: it has records of changes not committed."""
        if self._known or self._file is not None:
            return False
        if self._fs.exists(self.path):
            self._age()
        return True

    def close(self) -> None:
        """Let the file go."""
        self._close_file()
        self._lock.release()

    def _opened(self) -> File:
        if self._file is None:
            try:
                self._file = self._fs.open(self.path, write=True)
            except FileNotFoundError:
                self._known.clear()  # moved away, with the records of an earlier try
                self._file = self._created()
        return self._file

    def _created(self) -> File:
        self._name_durable = False
        try:
            return self._fs.create(self.path)
        except OperatorError as error:
            raise self._not_kept(error) from error

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _position(place: bytes) -> Position:
    match = _PLACE.match(place)
    assert match is not None
    return Position(int(match[1]), int(match[2]))


def _write_again(file: File, at: int) -> None:
    """After a failed sync pages look clean and are nowhere: only what is written again is synced again."""
    while data := file.read_at(at, CHUNK):
        file.write_at(at, data)
        at += len(data)
