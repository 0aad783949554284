"""Places of a binary log, as numbers and as text.

    origin   Position(epoch << 32 | number of the file, end position in it)
    CSN      epoch:file:position, each of a fixed width, so texts compare as the numbers do

`epoch` counts the failovers that a trail has seen: another server counts its files anew, and an origin never goes back.
A position may be past 4 GB, where the log's own fields wrap around: whoever reads events counts on.
"""

from __future__ import annotations

import re
from typing import Final

from trails.position import Position

FIRST: Final = 4
"""Where the first event of every file stands, behind its magic number."""
FILES: Final = 1 << 32
_CSN: Final = re.compile(r"(\d{1,4}):(\d{1,10}):(\d{1,15})\Z")
_NAME: Final = re.compile(r"(.+)\.(\d+)\Z", re.DOTALL)


def origin_of(epoch: int, file_number: int, pos: int) -> Position:
    """The place just behind an event that ends at `pos`."""
    return Position(epoch << 32 | file_number, pos)


def parts(origin: Position) -> tuple[int, int, int]:
    """Epoch, file number and position: inverse of `origin_of`."""
    return origin.seqno >> 32, origin.seqno & FILES - 1, origin.rba


def csn_text(epoch: int, file_number: int, pos: int) -> str:
    """A place as a CSN."""
    return f"{epoch:04d}:{file_number:010d}:{pos:015d}"


def csn_of(origin: Position) -> str:
    """An origin as a CSN."""
    return csn_text(*parts(origin))


def parse_csn(text: str) -> tuple[int, int, int]:
    """Inverse of `csn_text`; leading zeros may be left out. Raises ValueError."""
    found = _CSN.match(text)
    if found is None:
        raise ValueError(f"CSN {text!r:.60}: expected epoch:file:position, such as 0:7:1548")
    return int(found[1]), int(found[2]), int(found[3])


def file_number(name: str) -> int:
    """7 of `binlog.000007`. Raises ValueError."""
    found = _NAME.match(name)
    if found is None or int(found[2]) >= FILES:
        raise ValueError(f"binary log {name!r:.200}: expected a name that ends in a number, such as binlog.000007")
    return int(found[2])


def file_name(example: str, number: int) -> str:
    """The file of that number beside a file of the same log: `binlog.000012` for `binlog.000007` and 12."""
    found = _NAME.match(example)
    if found is None:
        raise ValueError(f"binary log {example!r:.200}: expected a name that ends in a number, such as binlog.000007")
    return f"{found[1]}.{number:06d}"
