"""What SQLite and MySQL/MariaDB share beyond StagedTarget: values go through a codec on their way into a staging table.

Rule: staging tables have the target's own column types, so that a value either fits there or is refused there; what
follows copies between columns of one type and can lose nothing. Their rows outlive the transaction, and are emptied
when they are used again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from replicat.target import Layout, RefusedError, Row
from replicat.targets import TargetSettings
from replicat.targets.codec import Codec, Spec
from replicat.targets.staged import StagedTarget
from replicat.targets.staged_sql import StagedSql
from replicat.targets.types import Native
from trails.record import Image

Place = tuple[str, str]


class ConvertingTarget(StagedTarget):
    """Base of both. A subclass says what a column type is."""

    def __init__(self, settings: TargetSettings) -> None:
        super().__init__()
        self.settings = settings
        self._codecs: dict[tuple[Layout, tuple[str, ...]], Codec] = {}
        self._converted: dict[Place, int] = {}

    # Hooks

    def native(self, column_type: str) -> Native:
        """A column's type, taken apart."""
        raise NotImplementedError

    def required(self, layout: Layout) -> frozenset[str]:
        """Columns, beside the key, to which NULL would mean a value that the target makes up."""
        raise NotImplementedError

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
        """See Target."""
        self.codec(self.sql_of(layout), layout.columns)

    def speak_for(self, group: str, group_key: int) -> None:
        """See Target."""
        self.settings = replace(self.settings, group=group, group_key=group_key)

    def count_lost(self, codec: Codec, layout: Layout) -> None:
        """What the codec has lost since it was asked last."""
        lost, codec.lost = codec.lost, 0
        if lost:
            place = layout.schema, layout.name
            self._converted[place] = self._converted.get(place, 0) + lost

    def converted(self) -> dict[Place, int]:
        """(schema, table) -> values that a declared rule changed, since the last call; begin() forgets them too."""
        found, self._converted = self._converted, {}
        return found

    def back(self, layout: Layout, row: Sequence[Any]) -> Image:
        """A row as the target gave it, as canonical text."""
        rules = self.codec(self.sql_of(layout), layout.columns).rules
        return tuple(None if value is None else rule.back(value) for value, rule in zip(row, rules, strict=True))

    # Transactions

    @contextlib.contextmanager
    def savepoint(self, name: str) -> Iterator[None]:
        """See StagedTarget; what was converted in vain does not count."""
        had = dict(self._converted)
        try:
            with super().savepoint(name):
                yield
        except RefusedError:
            self._converted = had
            raise

    def mark(self) -> object:
        """See Target."""
        return super().mark(), dict(self._converted)

    def undo(self, token: object) -> None:
        """See Target."""
        assert isinstance(token, tuple)
        super().undo(token[0])
        self._converted = dict(token[1])

    def forget_stages(self) -> None:
        """See StagedTarget."""
        super().forget_stages()
        self._codecs.clear()
        self._loaded.clear()

    def forget_rows(self) -> None:
        """See StagedTarget; rows stay, and so does the memory that they must be emptied."""
        self._fresh.clear()
        self._collisions.clear()
        self._converted.clear()

    def place_lost(self, old: Row) -> str:
        """What to say of a row that is not where it was left."""
        return f"checkpoint row of {self.settings.group}: expected position {old.position}, found another"
