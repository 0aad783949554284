"""How fast the machine is just now: the rows of inserts that LZ4 and msgpack alone decode in a second.

Rule: milliseconds that are wanted are those of a machine that decodes `QUICK` rows a second. Machines differ by a
factor of two, and so does one machine between two hours: such a bar is scaled by what this very run decoded.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import lz4.block
import msgpack

from benchmarks import trailfiles
from trails.format import FLAG_LZ4, BlockKind
from trails.fs import RealFs
from trails.position import TrailName
from trails.reader import Block, BlockReader

NAME = "LZ4 and msgpack alone"
QUICK = 3_300_000.0
ROWS = 200_000


class Yardstick:
    """The payloads, made once, and what each round decoded."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory(prefix="tg-bench-") as folder:
            trailfiles.write(Path(folder), "lt", "bench", list(trailfiles.blocks(ROWS, 1000, 0)))
            self._loaded = load(TrailName(folder, "lt"))
        self.found: list[float] = []
        """Rows a second, of each round."""

    def measure(self) -> None:
        """One round."""
        gc.disable()  # records hold no cycles, and a collection would count the whole program's objects
        began = time.monotonic()
        try:
            rows = decode(self._loaded)
        finally:
            seconds = time.monotonic() - began
            gc.enable()
        self.found.append(rows / seconds)

    def scaled(self, wanted: float) -> float:
        """What is wanted of a machine as quick as this one was, in milliseconds as `wanted` is."""
        return wanted * QUICK / statistics.median(self.found)


def load(trail: TrailName) -> Sequence[Block]:
    """The data blocks of a trail."""
    reader = BlockReader(RealFs(), trail)
    found = []
    while (block := reader.read()) is not None:
        if block.header.kind == BlockKind.DATA:
            found.append(block)
    reader.close()
    return found


def decode(loaded: Iterable[Block]) -> int:
    """Unpack the payloads, and nothing else. Returns the rows."""
    rows = 0
    for block in loaded:
        raw = block.payload
        if block.header.flags & FLAG_LZ4:
            raw = lz4.block.decompress(raw, uncompressed_size=block.header.raw_len)
        _, records = msgpack.unpackb(raw, raw=False, strict_map_key=False)
        rows += len(records) - 2 * block.header.transactions
    return rows
