"""The decoder's tests through its compiled form: messages by the kernel, records as the plain decoder has them."""

from __future__ import annotations

from typing import Any

from extract.sources.postgres.kernel import PackedDecoder, PackedRecords
from extract.sources.postgres.pgoutput import FIXES, Decoder
from trails.position import Position
from trails.record import BEGIN, COMMIT, DDL, TRUNCATE


class _Told:
    """The test's sink, with packed records in front of its own."""

    is_full = False

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self.records = PackedRecords()
        self.cache = sink.cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def opened(self, at: int, csn: str, xid: str, commit_us: int) -> None:
        self._sink.begin(csn, xid, commit_us)

    def gathered(self, transactions: int, origin: Position, csn: str, commit_us: int) -> None:
        self._sink.commit(origin, csn, commit_us)


class ThroughKernel:
    """As a Decoder."""

    def __init__(self, sink: Any, *how: Any, **more: Any) -> None:
        self._sink, self._told = sink, _Told(sink)
        self._plain = Decoder(self._told, *how, **more)
        self._front = PackedDecoder(self._told.records, self._plain, self._told, FIXES, None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    def decode(self, data: bytes, at: int = 0) -> None:
        """As Decoder.decode."""
        try:
            self._front.decode(data, at)
        finally:
            self._sink.records += [_plain(record) for record in self._told.records if record[0] not in (BEGIN, COMMIT)]
            del self._told.records[:]


def _plain(record: tuple[Any, ...]) -> tuple[Any, ...]:
    """With lists where the decoder has them."""
    if record[0] in (TRUNCATE, DDL):
        return record
    return tuple(list(part) if isinstance(part, tuple) else part for part in record)
