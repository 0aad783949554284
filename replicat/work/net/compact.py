"""The net effect of many changes on one target table, one entry a key. Pure: no trail, no database, no text.

A `Net` takes a table's changes in source order and keeps what they come to. The first change that names a key says
whether its row was there before; all later ones are known to fit, or cannot be.

    state    found in    before        now          applied as (replicat/model/target.py, Rows)
    born     new         not there     there        insert
    present  old         there         there        update; where columns are missing or the row came from another key,
                                                    a patch, or filled from the target first
    gone     gone        there         not there    delete
    void     void        not there     not there    nothing, but the key must not be there

    change        unknown      born             present            gone                 void
    insert        born         collision        collision          present, new row     born
    update        present      born, merged     present, merged    collision            collision
    delete        gone         void             gone               collision            collision
    key change    from it: as delete, and the row (merged) arrives at the new key with its origin remembered
                  to it: as insert

A collision is a change that no source can have made after the ones before it: counted, and the target refuses them.
Where they are to be overlaid instead, net/overlay.py takes the place of this.
A row as it became replaces the one before; only columns that it misses are taken from that one.
Deletes are applied before updates and inserts, fills are read before deletes: that makes swaps and chains come right.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

from trails.record import MISSING, Image, Value

Key = Any  # one column's value, or a tuple of several

BORN: Final = object()
"""In `base`: the row at a key that was there before is a new one, not what became of the old one."""


class Net:
    """What a run of changes comes to for one table with a key."""

    __slots__ = ("base", "collisions", "gone", "key", "new", "old", "void")

    def __init__(self, key: Sequence[int]) -> None:
        """`key`: indexes of the key columns in an image."""
        self.key = itemgetter(*key)
        self.new: dict[Key, Image] = {}
        self.old: dict[Key, Image] = {}
        self.gone: dict[Key, None] = {}
        self.void: dict[Key, None] = {}
        self.base: dict[Key, Key] = {}  # key -> the key its row had in the target before, or BORN
        self.collisions = [0, 0, 0]  # inserts, updates, deletes

    def __bool__(self) -> bool:
        return bool(self.new or self.old or self.gone or self.void or any(self.collisions))

    def insert(self, row: Image) -> None:
        """A new row."""
        key = self.key(row)
        if self.gone and key in self.gone:
            del self.gone[key]
            self.old[key] = row
            self.base[key] = BORN
        elif key in self.new or (self.old and key in self.old):
            self.collisions[0] += 1
        else:
            self.new[key] = row
            if self.void:
                self.void.pop(key, None)

    def update(self, after: Image, before: Image | None) -> None:
        """A row as it became; `before` is None where the key did not change."""
        key = self.key(after)
        if before is not None:
            was = self.key(before)
            if was != key and (was := known(was, key)) != key:
                self._move(was, key, merge(before, after))
                return
        prev = self.old.setdefault(key, after)
        if prev is not after:
            if not whole(after):
                after = merge(prev, after)
            self.old[key] = after
        elif self.new or self.gone or self.void:
            self._settle(key, after)

    def delete(self, before: Image) -> None:
        """A row that is gone; only its key is looked at."""
        key = self.key(before)
        if self.new and key in self.new:
            del self.new[key]
            self.base.pop(key, None)
            self.void[key] = None
            return
        if self.old and self.old.pop(key, None) is not None:
            self.base.pop(key, None)
        elif key in self.gone or (self.void and key in self.void):
            self.collisions[2] += 1
            return
        self.gone[key] = None

    def _settle(self, key: Key, after: Image) -> None:
        """`after` was just filed as present; mend that if the key was born, gone or void."""
        if key in self.new:
            del self.old[key]
            self.new[key] = merge(self.new[key], after)
        elif key in self.gone or key in self.void:
            del self.old[key]
            self.collisions[1] += 1

    def _move(self, was: Key, key: Key, after: Image) -> None:
        if was in self.new:
            row, origin = merge(self.new.pop(was), after), self.base.pop(was, BORN)
            self.void[was] = None
        elif was in self.gone or was in self.void:
            self.collisions[1] += 1
            return
        else:
            prev = self.old.pop(was, None)
            row, origin = after if prev is None else merge(prev, after), self.base.pop(was, was)
            self.gone[was] = None
        self._arrive(key, row, origin)

    def _arrive(self, key: Key, row: Image, origin: Key) -> None:
        if key in self.new or key in self.old:
            self.collisions[1] += 1
        elif key in self.gone:
            del self.gone[key]
            self.old[key] = row
            if origin is BORN or origin != key:
                self.base[key] = origin
        else:
            self.void.pop(key, None)
            self.new[key] = row
            if origin is not BORN:
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


def known(was: Key, key: Key) -> Key:
    """The old key, with parts that the source did not give taken from the new one."""
    if isinstance(was, tuple):
        return tuple(_value(old, new) for old, new in zip(was, key, strict=True))
    return _value(was, key)


def _value(old: Value, new: Value) -> Value:
    return new if old is MISSING else old
