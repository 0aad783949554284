"""Changes that are kept until it is known what becomes of them: prepared XA transactions, and rows behind a SAVEPOINT.

    XA PREPARE g   its rows stand in the log ...
    XA COMMIT g    ... and count from here on, any number of files and hours later
    XA ROLLBACK g  ... or never

What is kept are the bodies of the log's own events, unpacked: they are decoded when they count, as if they stood there.

Rule: nothing here outlives the process. After a restart the log is read again from the first event of the oldest
transaction that was not decided (state.py says where). So a file here needs no sync, and no name: it has one for the
moment in which it is made, in the scratch folder, and is gone with the process. Memory is bounded: what is more goes
to such a file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from extract.sources.mysql.events import BinlogError
from extract.sources.mysql.state import Again
from trails.fs import File, RealFs

MEMORY: Final = 32 << 20
"""So many bytes are kept in memory, of all transactions together."""
_BUFFER: Final = 1 << 20
_OBJECTS: Final = 150
"""What an event in memory takes above its bytes."""
_HEAD = struct.Struct("<BI")

Kind = int
Body = bytes


class Xid(NamedTuple):
    """The name that its client gave an XA transaction."""

    format: int
    gtrid: bytes
    bqual: bytes

    def __str__(self) -> str:
        return f"X'{self.gtrid.hex()}',X'{self.bqual.hex()}',{self.format}"


class Kept:
    """Events, in order. `again`: where the log must be read again for them."""

    def __init__(self, shelf: Shelf, again: Again) -> None:
        self.again = again
        self._shelf = shelf
        self._file: File | None = None
        self._filed = 0  # bytes in the file
        self._size = 0  # of all, as they would stand in a file
        self._events: list[tuple[Kind, Body]] = []  # behind those in the file
        self._savepoints: dict[bytes, int] = {}
        self.weight = 0
        """Bytes of memory."""

    def add(self, kind: Kind, body: Body) -> None:
        """One more."""
        self._events.append((kind, body))
        self._size += _HEAD.size + len(body)
        self._weigh(len(body) + _OBJECTS)
        if self._shelf.weight > self._shelf.memory:
            self._spill()

    def savepoint(self, name: bytes) -> None:
        """The end, to go back to later."""
        self._savepoints[name] = self._size

    def back_to(self, name: bytes) -> bool:
        """Forget what was added since that savepoint; False: there is none of that name."""
        if name not in self._savepoints:
            return False
        mark = self._savepoints[name]
        while self._events and self._size > mark:
            _, body = self._events.pop()
            self._size -= _HEAD.size + len(body)
            self._weigh(-len(body) - _OBJECTS)
        self._filed = min(self._filed, mark)
        self._size = mark
        return True

    def events(self) -> Iterator[tuple[Kind, Body]]:
        """All of them."""
        at, data = 0, b""
        while self._file is not None and at < self._filed:
            data = self._file.read_at(at, min(_BUFFER, self._filed - at))
            kind, size = _HEAD.unpack_from(data)
            if size + _HEAD.size > len(data):
                data = self._file.read_at(at, size + _HEAD.size)
            done = 0
            while len(data) - done >= _HEAD.size:
                kind, size = _HEAD.unpack_from(data, done)
                end = done + _HEAD.size + size
                if end > len(data):
                    break
                yield kind, data[done + _HEAD.size : end]
                done = end
            at += done
        yield from self._events

    def close(self) -> None:
        """Forget all of it."""
        self._weigh(-self.weight)
        self._events.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _weigh(self, more: int) -> None:
        self.weight += more
        self._shelf.weight += more

    def _spill(self) -> None:
        if self._file is None:
            self._file = self._shelf.file()
        data = b"".join(_HEAD.pack(kind, len(body)) + body for kind, body in self._events)
        self._file.write_at(self._filed, data)
        self._filed += len(data)
        self._events.clear()
        self._weigh(-self.weight)


class Shelf:
    """All that is kept; `prepared` by the name, in the log's order."""

    def __init__(self, folder: str, memory: int = MEMORY) -> None:
        """`folder`: where files may be made."""
        self.memory = memory
        self.weight = 0
        self._prepared: dict[Xid, Kept] = {}
        self._folder = folder
        self._fs = RealFs()
        self._files = 0

    def begin(self, again: Again) -> Kept:
        """Something new to keep."""
        return Kept(self, again)

    def prepare(self, xid: Xid, kept: Kept) -> None:
        """It waits for its XA COMMIT or XA ROLLBACK."""
        if xid in self._prepared:
            raise BinlogError(f"XA transaction {xid} is prepared twice")
        self._prepared[xid] = kept

    def take(self, xid: Xid) -> Kept | None:
        """It is decided, and no longer here."""
        return self._prepared.pop(xid, None)

    def __len__(self) -> int:
        return len(self._prepared)

    @property
    def oldest(self) -> Again | None:
        """Where the log must be read again after a restart; None: from the end of what was handed over."""
        for kept in self._prepared.values():
            return kept.again
        return None

    def close(self) -> None:
        """Forget all of it."""
        while self._prepared:
            self._prepared.popitem()[1].close()

    def file(self) -> File:
        """A file without a name."""
        self._fs.makedirs(self._folder)
        self._files += 1
        path = f"{self._folder}/{self._files}.kept"
        self._fs.remove(path)  # of a process that was killed in this very moment
        made = self._fs.create(path)
        self._fs.remove(path)
        return made
