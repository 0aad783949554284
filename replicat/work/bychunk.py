"""A table that is being loaded: each change is applied or left out, by the chunk that its row's source key lies in.

    verdict     the change
    applied     goes on as it is
    left out    goes nowhere: the chunk's snapshot sees it, or will see it
    unsure      goes on as a change whose row may be there or not; a part of its transaction may have been copied

    a key change between chunks: its two halves, a delete and an insert, are judged each by itself

Rule: the same filter stands before whoever takes the changes, in Spark's workers and where the ladder does a refused
batch again, so a change that is left out is left out everywhere. Where a MAP has expressions, what Spark evaluated for
a change that is left out is taken and thrown away: results come in the order of the changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from replicat.model.loading import LoadAgainError
from replicat.model.plan import TablePlan
from replicat.model.target import UnmappedError
from replicat.work.net.compact import merge, whole
from replicat.work.roles import TRANDATA, ChangeFacts
from trails.record import MISSING, Image

Make = Callable[[Any], Any]
"""Puts what the table's MAP needs in front of a worker."""


class ChunkJudge:
    """The verdicts on one plan's changes. `met`: their transactions. A later snapshot must see these, also those that
    are applied: the table's load may begin anew.
    """

    def __init__(self, plan: TablePlan, facts: ChangeFacts) -> None:
        assert plan.loading is not None
        self._plan = plan
        self._loading = plan.loading
        self._facts = facts
        self._of: tuple[str | None, str | None] = ("", "")
        self._verdicts: dict[int, bool | None] = {}
        self.met: set[str] = set()

    def applies(self, image: Image, after: Image | None = None) -> bool | None:
        """Whether a change of this row is applied; None: nobody knows. What a key lacks stands in `after`."""
        if after is not None:
            image = [new if old is MISSING else old for old, new in zip(image, after, strict=True)]
        try:
            chunk = self._loading.chunk(image)
        except ValueError as error:
            raise UnmappedError(self._plan.source, f"a change can't be judged by its chunk: {error}") from None
        return self._of_chunk(chunk)

    def empties(self) -> bool:
        """Whether a TRUNCATE is applied. Raises LoadAgainError where some chunk was copied before it."""
        for chunk in range(len(self._loading.seen)):
            if self._of_chunk(chunk) is not False:
                raise LoadAgainError(self._plan.source, self._plan.layout.place, "it was truncated while it was copied")
        return False

    def _of_chunk(self, chunk: int) -> bool | None:
        facts = self._facts
        if self._of != (facts.csn, facts.xid):
            self._of = facts.csn, facts.xid
            self._verdicts.clear()
        if chunk not in self._verdicts:
            self._verdicts[chunk] = self._judge(chunk)
        return self._verdicts[chunk]

    def _judge(self, chunk: int) -> bool | None:
        seen, (csn, xid) = self._loading.seen[chunk], self._of
        assert csn is not None and xid is not None, "a change is judged, and nobody said of which transaction it is"
        self.met.add(xid)
        if seen is None:
            return False
        sees = seen.sees(csn, xid)
        return None if sees is None else not sees


class ByChunk:
    """Takes a table's changes, and gives on those that are applied. `counts`: inserts, updates, deletes left out."""

    def __init__(self, judge: ChunkJudge, inner: Any, around: Make, counts: list[int]) -> None:
        """`inner`: who takes rows as the target has them; `around`: puts the MAP in front of it."""
        self._judge = judge
        self._counts = counts
        self._all = around(inner)
        self._none = around(_Nothing())
        self._gone = around(_Gone(inner))
        self._come = around(_Come(inner))
        self._maybe = around(_Maybe(inner))

    def insert(self, row: Image) -> None:
        """A new row."""
        self._to(self._judge.applies(row), 0).insert(row)

    def delete(self, before: Image) -> None:
        """A row that is gone."""
        self._to(self._judge.applies(before), 2).delete(before)

    def update(self, after: Image, before: Image | None) -> None:
        """A row as it became."""
        now = self._judge.applies(after)
        was = now if before is None else self._judge.applies(before, after)
        if was is now:
            self._to(now, 1).update(after, before)
        elif None in (was, now):
            self._maybe.update(after, before)
        else:
            (self._come if now else self._gone).update(after, before)

    def _to(self, applies: bool | None, op: int) -> Any:
        if applies is False:
            self._counts[op] += 1
            return self._none
        return self._maybe if applies is None else self._all


class _Nothing:
    """Takes changes, and does nothing with them."""

    def insert(self, row: Image) -> None:
        """A new row."""

    def update(self, after: Image, before: Image | None, **may: bool) -> None:
        """A row as it became."""

    def delete(self, before: Image, **may: bool) -> None:
        """A row that is gone."""

    def upsert(self, row: Image) -> None:
        """A row that may be there."""


class _Gone(_Nothing):
    """Of a key change only the row that was: it lay in a chunk whose changes are applied, the new one does not."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def update(self, after: Image, before: Image | None, **may: bool) -> None:
        self._inner.delete(after if before is None else merge(after, before), **may)

    def delete(self, before: Image, **may: bool) -> None:
        self._inner.delete(before, **may)


class _Come(_Nothing):
    """Of a key change only the row that is: the one before lies in a chunk whose changes are left out."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def update(self, after: Image, before: Image | None, **may: bool) -> None:  # noqa: ARG002  -- it is new here
        row = after if before is None else merge(before, after)
        if not whole(row):
            raise UnmappedError(
                "a table that is being loaded",
                "an update took a row into a copied chunk, without all its columns",
                hint=TRANDATA,
            )
        self._inner.insert(row)

    def insert(self, row: Image) -> None:
        self._inner.insert(row)

    def upsert(self, row: Image) -> None:
        self._inner.upsert(row)


class _Maybe:
    """Changes whose row may be there or not."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def insert(self, row: Image) -> None:
        self._inner.upsert(row)

    def update(self, after: Image, before: Image | None, **_may: bool) -> None:
        self._inner.update(after, before, may=True)

    def delete(self, before: Image, **_may: bool) -> None:
        self._inner.delete(before, may=True)

    def upsert(self, row: Image) -> None:
        self._inner.upsert(row)
