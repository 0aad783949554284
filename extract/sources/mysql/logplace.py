"""Where in the log an event stands: what ROTATE says, and what each event's header adds to it.

Rule: a place never goes back. Positions in the log have 32 bits and begin anew behind 4 GiB; here they go on.
"""

from __future__ import annotations

from typing import Final

from extract.sources.mysql import events as ev
from extract.sources.mysql.events import BinlogError, Event
from extract.sources.mysql.places import csn_text, file_number, origin_of
from trails.position import Position

_HALF: Final = 1 << 31
_LOW: Final = (1 << 32) - 1


class LogPlace:
    """`begins` and `pos`: where the last event that stands in the file begins and ends."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.file = ""
        self.number = -1
        self.begins = self.pos = 0

    def __str__(self) -> str:
        return f"{self.file or 'the binary log'}, position {self.begins}"

    @property
    def known(self) -> bool:
        """Whether a ROTATE has said it."""
        return self.number >= 0

    @property
    def origin(self) -> Position:
        """Behind the last event."""
        return origin_of(self.epoch, max(self.number, 0), self.pos)

    @property
    def start(self) -> Position:
        """Before the last event."""
        return origin_of(self.epoch, max(self.number, 0), self.begins)

    @property
    def csn(self) -> str:
        """That of a group whose first event was the last one."""
        return csn_text(self.epoch, self.number, self.pos)

    def moved(self, end: int, size: int) -> None:
        """An event of this file, which says where it ends."""
        self.begins = self.pos
        pos = self.begins & ~_LOW | end
        if pos < self.begins + size:
            pos += 1 << 32
            if pos - self.begins > _HALF + size:
                raise BinlogError(f"expected an event behind position {self.begins}, found one that ends at {end}")
        self.pos = pos

    def rotate(self, event: Event, data: bytes) -> None:
        """The log goes on in another file; or, artificial, this is where it is read."""
        name, pos = ev.rotate_of(data, event.at, event.upto)
        number = file_number(name)
        if number < self.number or (number == self.number and pos < self.pos):
            raise BinlogError(f"expected a place behind {self.file}, position {self.pos}, found {name}, position {pos}")
        self.file, self.number, self.pos, self.begins = name, number, pos, pos

    def heartbeat(self, event: Event, data: bytes) -> int:
        """How far all of this file was sent."""
        name, pos = ev.heartbeat_of(event, data)
        if name != self.file:
            raise BinlogError(f"HEARTBEAT: expected one of {self.file}, found {name}")
        return pos if pos > _LOW else pos | self.pos & ~_LOW
