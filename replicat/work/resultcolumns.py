"""What Spark evaluated, as it comes: by columns for the kernel, or row by row from the first one on.

Rule: nothing is lost by a try: what the kernel has taken is kept for the plain code, until that takes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from replicat.work.roles import Result


class ResultColumns:
    """Arrow's batches of (f, r0...). `skip`: so many rows at the beginning are nobody's."""

    def __init__(self, batches: Iterable[Any], skip: int) -> None:
        self.skip = skip
        self._batches = iter(batches)
        self._kept: list[Any] = []

    def fetch(self) -> Any:
        """The next batch as the kernel reads it (kernel.Results); None: it can't, or there is none."""
        batch = next(self._batches, None)
        if batch is None:
            return None
        self._kept.append(batch)
        verdicts, *columns = batch.columns
        kinds = str(verdicts.type) == "int8" and all(str(column.type) == "string" for column in columns)
        if not kinds or any(column.offset for column in batch.columns) or verdicts.null_count or not batch.num_rows:
            return None
        return batch, batch.num_rows, verdicts.buffers()[1].address, [_addresses(column) for column in columns]

    def rows(self) -> Iterator[Result]:
        """All of them."""
        kept, self._kept = self._kept, []
        found = (row for batch in chain(kept, self._batches) for row in _rows(batch))
        for _ in range(self.skip):
            next(found, None)
        return found

    def drain(self) -> None:
        """A worker that leaves something unread is not used again."""
        self._kept = []
        for _ in self._batches:
            pass


def _addresses(column: Any) -> tuple[int, int, int, int]:
    bits, begins, texts = column.buffers()
    if texts is None:  # of empty texts
        return bits.address if bits else 0, begins.address, begins.address, 0
    return bits.address if bits else 0, begins.address, texts.address, texts.size


def _rows(batch: Any) -> Iterator[Result]:
    columns = [column.to_numpy(zero_copy_only=False).tolist() for column in batch.columns]
    return zip(*columns, strict=True)
