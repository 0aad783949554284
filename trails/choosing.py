"""Which changes of a table go into the trail, by TABLE's FILTER and WHERE and by IGNOREINSERTS and its kin.

A condition without operations says which rows belong to the other side, and the other side has exactly those:

    the row before   the row after    what goes on
    passes           passes           the update
    fails, or none   passes           an insert
    passes           fails, or none   a delete
    fails            fails            nothing

Rule: nothing is guessed. Where a change lacks what a condition reads, it is refused with table, column and key. A
condition with operations, and a switch, speak of what the source did, and never move a row in or out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trails.computing import Test
from trails.conditions import bind
from trails.errors import OperatorError
from trails.naming import shown_key
from trails.record import DELETE, INSERT, MISSING, TRUNCATE, UPDATE, Image, Op, Record, TableDef
from trails.rowvalues import UnaskableError, UnknownError, UnreadableError, index_of
from trails.terms import Condition, columns


@dataclass(frozen=True, slots=True)
class TableFilter:
    """A FILTER or WHERE (`keyword`). `ops`: the operations that ON names, or that IGNORE leaves; empty: rows."""

    condition: Condition
    ops: frozenset[int] = frozenset()
    keyword: str = "FILTER"

    @property
    def reads_old_rows(self) -> bool:
        """Whether it asks how a row was before its change."""
        return not self.ops or DELETE in self.ops


class Choice:
    """What of one table's changes goes on. `reads`: indexes of the columns that conditions look at."""

    def __init__(self, filters: Sequence[TableFilter], ignored: frozenset[int], where: str, table: TableDef) -> None:
        """Raises OperatorError where the table can't be asked what the filters ask. `where`: their file:line."""
        self._table = table
        self._where = where
        self._ignored = ignored
        self._rows: list[Test] = []
        self._ops: dict[int, list[Test]] = {}
        self.reads: frozenset[int] = frozenset()
        for filtered in filters:
            try:
                test = bind(filtered.condition, table)
                self.reads |= {index_of(column, table) for column in columns(filtered.condition)}
            except UnaskableError as error:
                what = f"{where}: TABLE {table.full_name}: {filtered.keyword}: {error.what}"
                raise OperatorError(what, hint=error.mend) from None
            for op in filtered.ops:
                self._ops.setdefault(op, []).append(test)
            if not filtered.ops:
                self._rows.append(test)
        self._by_key = self.reads <= set(table.key)

    @property
    def truncates(self) -> bool:
        """Whether a TRUNCATE goes on."""
        return TRUNCATE not in self._ignored

    def record(self, record: Record, begin: Any) -> Record | None:
        """An INSERT, UPDATE or DELETE as it goes on; None if it does not. `begin`: its transaction's BEGIN record.

        Raises OperatorError if the record lacks what decides.
        """
        op = record[0]
        if op in self._ignored:
            return None
        try:
            if op != UPDATE:
                return record if self._passes(op, record[2]) else None
            return self._update(record)
        except UnknownError as error:
            raise self._undecided(error.column, record, begin) from None
        except UnreadableError as error:
            raise OperatorError(
                f"{self._of(record, begin)} has a text that is no value for {error.by}, by which {self._where} chooses",
                hint="Have the condition look at it first, as in @IF (condition, value, otherwise), then START",
            ) from None

    def _passes(self, op: int, image: Image) -> bool:
        return all(test(image) is True for test in (*self._ops.get(op, ()), *self._rows))

    def _update(self, record: Record) -> Record | None:
        op, table, after, before = record
        if before is not None:
            after = _filled(after, before)
        if not all(test(after) is True for test in self._ops.get(op, ())):
            return None
        belongs = all(test(after) is True for test in self._rows)
        belonged = belongs if not self._rows else self._belonged(after, before)
        if belongs and belonged:
            return record
        if belongs:
            if MISSING in after:
                raise UnknownError(list(after).index(MISSING))
            return (INSERT, table, after)
        return (DELETE, table, before) if belonged else None

    def _belonged(self, after: Image, before: Image | None) -> bool:
        """Whether the row passed before it was updated. Without an old row the key is as it was."""
        if before is None and not self._by_key:
            key = set(self._table.key)
            raise UnknownError(min(self.reads - key))
        image = after if before is None else before
        return all(test(image) is True for test in self._rows)

    def _undecided(self, column: int, record: Record, begin: Any) -> OperatorError:
        table = self._table
        return OperatorError(
            f"{self._of(record, begin)} came without what its row had in column {table.columns[column].name}, by which "
            f"{self._where} chooses",
            hint=f"ADD TRANDATA {table.full_name}, ALLCOLS at the source, and GETUPDATEBEFORES in its Extract, mend "
            "later changes",
        )

    def _of(self, record: Record, begin: Any) -> str:
        table, key = self._table, shown_key(self._table, record[2])
        return f"table {table.full_name}, row {key}, CSN {begin[1]}: the {Op(record[0]).name}"


def chosen(filters: Sequence[TableFilter], ignored: frozenset[int], where: str, table: TableDef) -> Choice | None:
    """What chooses a table's changes; None if all go on. Raises OperatorError as Choice does."""
    return Choice(filters, ignored, where, table) if filters or ignored else None


def _filled(after: Sequence[Any], before: Sequence[Any]) -> Sequence[Any]:
    """The new row, and of columns that did not come what the old row has."""
    if MISSING not in after:
        return after
    return [old if new is MISSING else new for new, old in zip(after, before, strict=True)]
