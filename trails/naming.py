"""Columns as parameter files name them, and rows as messages name them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from trails.record import Image, TableDef

TOKEN: Final = "token"
"""The logical type of a token's column."""

_SHOWN = 60


@dataclass(frozen=True, slots=True)
class ColumnName:
    """A column as a parameter file names it: in "quotes" exactly so, else in any case (its exact spelling first)."""

    name: str
    quoted: bool = False

    def __str__(self) -> str:
        return f'"{self.name}"' if self.quoted else self.name

    def find(self, names: Sequence[str]) -> list[int]:
        """The indexes of what it means: one, none, or several that differ in case only."""
        exact = [i for i, name in enumerate(names) if name == self.name]
        if exact or self.quoted:
            return exact
        folded = self.name.lower()
        return [i for i, name in enumerate(names) if name.lower() == folded]


def shown_key(table: TableDef, image: Image) -> str:
    """Which row an image is of."""
    return ", ".join(f"{table.columns[i].name}={_shown(image[i])}" for i in table.key) or "(no key)"


def _shown(value: Any) -> str:
    """A key value for people: text that a source gave as bytes, a wrapped binary value, or what a reader has."""
    data = getattr(value, "data", None)  # the wrapping of trails.codec.binary
    if isinstance(data, bytes):
        return f"0x{data[:_SHOWN].hex()}"
    text = str(value, "utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text[:_SHOWN]
