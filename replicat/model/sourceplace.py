"""Up to which place of the source a trail goes, in the terms of what a snapshot of the source tells (`Snapshot.past`).

Rule: the origin of a block tells it only in the trail that Extract writes. In a trail that a Collector writes, it is a
place of the trail that was copied, which says nothing of the source. There the CSN of the last transaction counts, and
a source at rest has no newer one.
"""

from __future__ import annotations

import re
from typing import Final

from trails.position import Position

_LSN: Final = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})\Z")
_BINLOG: Final = re.compile(r"(\d+):(\d+):(\d+)\Z", re.ASCII)
_NUMBER: Final = re.compile(r"\d+\Z", re.ASCII)


def source_place(origin: Position, csn: str, *, copied: bool) -> Position | None:
    """Of a block with which transactions are complete; None: it is not known."""
    return place_of(csn) if copied else origin


def place_of(csn: str) -> Position | None:
    """Where the transaction of a CSN stands: whatever was committed before is before it in the trail."""
    if found := _LSN.match(csn):
        return Position(0, int(found[1], 16) << 32 | int(found[2], 16))
    if found := _BINLOG.match(csn):
        return Position(int(found[1]) << 32 | int(found[2]), int(found[3]))
    return Position(0, int(csn)) if _NUMBER.match(csn) else None
