"""What databases share whose values go through a codec on their way into a staging table.

Rule: staging tables have the target's own column types, so that a value either fits there or is refused there; what
follows copies between columns of one type and can lose nothing. Their rows outlive the transaction, and are emptied
when they are used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from replicat.model.target import Layout, RefusedError
from replicat.targets.contract import Kind, TargetSettings
from replicat.targets.sql.codec import Codec, Spec
from replicat.targets.sql.database import SqlDatabase
from replicat.targets.sql.staged_sql import StagedSql
from replicat.targets.sql.types import Native
from trails.record import Image


class ConvertingDatabase(SqlDatabase):
    """Base of both. A subclass says what a column type is."""

    rows_stay = True

    def __init__(self, kind: Kind, settings: TargetSettings) -> None:
        super().__init__(kind, settings)
        self._codecs: dict[tuple[Layout, tuple[str, ...]], Codec] = {}

    # Hooks

    def native(self, column_type: str) -> Native:
        """A column's type, taken apart."""
        raise NotImplementedError

    def required(self, layout: Layout) -> frozenset[str]:
        """Columns, beside the key, to which NULL would mean a value that the target makes up."""
        raise NotImplementedError

    # Errors

    def refusal(self, error: Exception) -> RefusedError | None:
        found = self.ours(error)
        return found if isinstance(found, RefusedError) else None

    # Codecs

    def codec(self, sql: StagedSql, columns: Sequence[str]) -> Codec:
        """The codec for columns of a staging table."""
        place = sql.layout, tuple(columns)
        found = self._codecs.get(place)
        if found is None:
            found = self._codecs[place] = self._make_codec(sql, columns)
        return found

    def _make_codec(self, sql: StagedSql, columns: Sequence[str]) -> Codec:
        layout = sql.layout
        logicals = layout.logical or ("text",) * len(layout.columns)
        plain = dict(zip(layout.columns, zip(logicals, layout.types, strict=True), strict=True))
        aliases = dict(zip(sql.bases, layout.key, strict=True))
        aliases |= {sql.was(i): name for i, name in enumerate(layout.columns)}
        required = self.required(layout) | frozenset(layout.key)
        specs = []
        for name in columns:
            column = aliases.get(name, name)
            if column in plain:
                logical, kind = plain[column]
                specs.append(Spec(column, logical, self.native(kind), name != column or column in required))
            else:
                specs.append(Spec(name, "integer", self.native(sql.integer)))
        return Codec(layout.full_name, specs, layout.key)

    def check_layout(self, layout: Layout) -> None:
        self.codec(self.sql_of(layout), layout.columns)

    def count_lost(self, codec: Codec, layout: Layout) -> None:
        """What the codec has lost since it was asked last."""
        if lost := codec.take_lost():
            place = layout.schema, layout.name
            self.tally.converted[place] = self.tally.converted.get(place, 0) + lost

    def back(self, layout: Layout, row: Sequence[Any]) -> Image:
        """A row as the target gave it, as canonical text."""
        rules = self.codec(self.sql_of(layout), layout.columns).rules
        return tuple(None if value is None else rule.back(value) for value, rule in zip(row, rules, strict=True))

    def fetch(self, layout: Layout, relation: str) -> list[Image]:
        return [self.back(layout, row) for row in self.ask(self.sql_of(layout).fetch(relation))]

    def close(self) -> None:
        super().close()
        self._codecs.clear()
