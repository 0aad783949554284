"""The history of the charts on disk, so that it outlives the Manager and its page.

    dirpcs/web.history, web.history.old     records, one a look, oldest first; each is
        length u32, CRC-32 of the payload u32, payload: msgpack [at, names of the figures, {stage: [figures]}]

    a crash, or the power goes              leaves
    inside an append                        a torn last record: it is cut at the next start
    after appends that were not synced      the last looks are missing; a hole of zeros fails its CRC and is cut
    between the two steps of a turn         web.history.old alone: the next append makes web.history
    somebody else's bytes in it             what stands before them is read, the rest is cut

Rule: bounded to two files of MAX_BYTES. Charts are worth neither a wait nor a sync, and never end a page: what can't be
written is told, and stays in memory.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgpack

from trails.runtime.home.home import Home

MAX_BYTES = 4 << 20
MAX_RECORD = 1 << 20
_HEAD = struct.Struct("<II")

Figures = Mapping[str, float | None]


class KeptHistory:
    """The two files of one home. One thread uses it."""

    def __init__(self, home: Home, max_bytes: int = MAX_BYTES) -> None:
        self.path = os.path.join(home.folder("dirpcs"), "web.history")
        self._old = f"{self.path}.old"
        self._max_bytes = max_bytes
        self.trouble = ""
        """Why the last look was not kept; empty if it was."""

    def load(self, since: float, until: float) -> Iterator[tuple[float, dict[str, dict[str, float | None]]]]:
        """What was kept between these times, oldest first. A torn end is cut off."""
        last = since
        for path in (self._old, self.path):
            for at, stages in self._read(path):
                if last < at <= until:  # a clock that was put back has written later times before
                    last = at
                    yield at, stages

    def add(self, at: float, stages: Mapping[str, Figures]) -> None:
        """Keep one look."""
        names = sorted({name for figures in stages.values() for name in figures})
        rows = {key: [figures.get(name) for name in names] for key, figures in stages.items()}
        payload = msgpack.packb([at, names, rows])
        if len(payload) > MAX_RECORD:
            self.trouble = f"{len(payload)} bytes for one look are too many"
            return
        try:
            self._append(_HEAD.pack(len(payload), zlib.crc32(payload)) + payload)
            self.trouble = ""
        except OSError as error:
            self.trouble = f"{self.path}: {error.strerror}"

    def _append(self, record: bytes) -> None:
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(file).st_size
            if os.write(file, record) != len(record):
                os.ftruncate(file, size)
                raise OSError(28, "No space left on device")
        finally:
            os.close(file)
        if size + len(record) >= self._max_bytes:
            os.replace(self.path, self._old)

    def _read(self, path: str) -> list[tuple[float, dict[str, dict[str, float | None]]]]:
        try:
            with open(path, "rb") as file:
                data = file.read(self._max_bytes + MAX_RECORD + _HEAD.size)
        except OSError:
            return []
        found, at = [], 0
        while (record := _record(data, at)) is not None:
            at, look = record
            found.append(look)
        if at < len(data):
            _cut(path, at)
        return found


def _record(data: bytes, at: int) -> tuple[int, tuple[float, dict[str, dict[str, float | None]]]] | None:
    """(where the next one begins, this one); None if there is no whole one here."""
    begin = at + _HEAD.size
    if begin > len(data):
        return None
    length, crc = _HEAD.unpack_from(data, at)
    payload = data[begin : begin + length]
    if not 0 < length <= MAX_RECORD or len(payload) < length or zlib.crc32(payload) != crc:
        return None
    try:
        return begin + length, _look(msgpack.unpackb(payload))
    except (ValueError, TypeError, AttributeError, msgpack.UnpackException):
        return None


def _look(given: Any) -> tuple[float, dict[str, dict[str, float | None]]]:
    time, names, rows = given
    return float(time), {
        str(key): {str(name): None if value is None else float(value) for name, value in zip(names, row, strict=True)}
        for key, row in rows.items()
    }


def _cut(path: str, at: int) -> None:
    try:
        os.truncate(path, at)
    except OSError:
        return  # what is behind stays unread at each start, and the file goes at its next turn
