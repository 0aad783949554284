"""The net effect of many changes on one target table, one entry a key. Pure: no trail, no database, no text.

A `Net` takes a table's changes in source order and keeps what they come to. What is known of a key:

    state    found in    meaning                                     applied as
    born     new         absent before, present now                  insert (COPY; an upsert where that is refused)
    present  old         present before (or unknown), present now    upsert; where columns are missing or the row came
                                                                     from another key, filled from the target first
    absent   gone        absent now                                  delete

    change        born             present              absent               unknown
    insert        born, new row    present, new row     present, new row     born
    update        born, merged     present, merged      present              present
    delete        absent           absent               absent               absent
    key change    the old key becomes absent, its row (merged) arrives at the new key: born if it was born and the new
                  key is unknown, else present with its origin remembered

So every key ever named, also in the middle of a chain of key changes, ends as an insert, an upsert or a delete (I6).
A row as it became replaces the one before; only columns that it misses are taken from that one.
Deletes are applied before inserts and upserts, fills are read before deletes: that makes swaps and chains come right.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from trails.record import MISSING, Image, Value

Key = Any  # one column's value, or a tuple of several


class Net:
    """What a run of changes comes to for one table with a key."""

    __slots__ = ("base", "gone", "key", "new", "old")

    def __init__(self, key: Sequence[int]) -> None:
        """`key`: indexes of the key columns in an image."""
        self.key = itemgetter(*key)
        self.new: dict[Key, Image] = {}
        self.old: dict[Key, Image] = {}
        self.gone: dict[Key, None] = {}
        self.base: dict[Key, Key] = {}  # present key -> the key its row had in the target before

    def __bool__(self) -> bool:
        return bool(self.new or self.old or self.gone)

    def insert(self, row: Image) -> None:
        """A new row."""
        key = self.key(row)
        if (self.gone and key in self.gone) or (self.old and key in self.old):
            self.gone.pop(key, None)
            self.base.pop(key, None)
            self.old[key] = row
        else:
            self.new[key] = row

    def update(self, after: Image, before: Image | None) -> None:
        """A row as it became; `before` is None where the key did not change."""
        key = self.key(after)
        if before is not None:
            was = self.key(before)
            if was != key and (was := _known(was, key)) != key:
                self._move(was, key, after)
                return
        prev = self.old.setdefault(key, after)
        if prev is not after:
            if not whole(after):
                after = merge(prev, after)
            self.old[key] = after
        elif self.new or self.gone:
            self._settle(key, after)

    def delete(self, before: Image) -> None:
        """A row that is gone; only its key is looked at."""
        key = self.key(before)
        self.new.pop(key, None)
        self.old.pop(key, None)
        self.base.pop(key, None)
        self.gone[key] = None

    def _settle(self, key: Key, after: Image) -> None:
        """`after` was just filed as present; mend that if the key was born or absent."""
        if key in self.new:
            del self.old[key]
            self.new[key] = merge(self.new[key], after)
        else:
            self.gone.pop(key, None)

    def _move(self, was: Key, key: Key, after: Image) -> None:
        born = was in self.new
        prev = self.new.pop(was, None) if born else self.old.pop(was, None)
        origin = self.base.pop(was, was)
        self.gone[was] = None
        row = after if prev is None else merge(prev, after)
        if born and key not in self.gone and key not in self.old:
            self.new[key] = row
            return
        self.gone.pop(key, None)
        self.new.pop(key, None)
        self.old[key] = row
        if born:
            self.base.pop(key, None)
        else:
            self.base[key] = origin


def whole(row: Image) -> bool:
    """Whether no column is missing. Joining is the fastest test of the usual case: all columns are text."""
    try:
        "".join(row)  # type: ignore[arg-type]  # what is no text is what it is here to find
    except TypeError:
        return MISSING not in row
    return True


def merge(prev: Image, after: Image) -> Image:
    """`after`, with its missing columns taken from `prev`."""
    if whole(after):
        return after
    return [old if new is MISSING else new for old, new in zip(prev, after, strict=True)]


def _known(was: Key, key: Key) -> Key:
    """The old key, with parts that the source did not give taken from the new one."""
    if isinstance(was, tuple):
        return tuple(_value(old, new) for old, new in zip(was, key, strict=True))
    return _value(was, key)


def _value(old: Value, new: Value) -> Value:
    return new if old is MISSING else old
