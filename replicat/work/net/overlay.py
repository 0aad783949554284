"""The net effect where a row may be there or not: HANDLECOLLISIONS, INSERTMISSINGUPDATES, UPDATEINSERTS, row filters.

What serial replay does by these rules, a batch must come to as well, whatever rows the target has:

    change        row is there                    row is not there
    insert        overlaid                        inserted
    update        overlaid                        inserted if the row is whole, else left out
    delete        deleted                         nothing
    key change    it moves, onto whatever is      overlaid or inserted at the new key if it is whole; else the row at
                  at the new key                  the new key, if there is one, is overlaid

Strategy: a key's state is a formula over the rows that the target has. `alts`: (key, columns) tried in order: the first
key at which the target has a row gives the row, with these columns laid over it. `sure`: the row if none has one;
None: then there is none either. An untouched key is [(itself, nothing)]; a deleted one has no alternatives. No two
formulas name the same key, because a row that moves takes its alternatives along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from replicat.work.net.compact import Key, known, merge, whole
from trails.record import Image

ABSENT, THERE, EITHER = "absent", "there", "either"


@dataclass(slots=True)
class Entry:
    """What a key's row is a function of. `before`: what the first change of the key took for granted.

    `partly`: that change was an update which lacked columns; `left`: it took the row to another key;
    `may`: none of `alts` need have a row. `firm`: a row is here, as the target refuses the batch if it is not.
    """

    before: str
    alts: list[tuple[Key, Image]]
    sure: Image | None = None
    partly: bool = False
    left: bool = False
    may: bool = False
    firm: bool = False

    @property
    def known_there(self) -> bool:
        """Whether a row is here, whatever the target has."""
        return self.firm or self.sure is not None

    @property
    def known_absent(self) -> bool:
        """Whether no row can be here, whatever the target has."""
        return not self.alts and self.sure is None

    def lay(self, after: Image) -> None:
        """Overlay what is here; a whole row is here from now on in any case."""
        self.alts = [(base, _over(row, after)) for base, row in self.alts]
        if self.sure is not None:
            self.sure = merge(self.sure, after)
        elif whole(after):
            self.sure = after

    def empty(self) -> None:
        """No row is here any more."""
        self.alts, self.sure, self.firm = [], None, False


class Overlay:
    """What a run of changes comes to for one table with a key; as compact.Net, and upsert() and remove()."""

    __slots__ = ("collisions", "entries", "key", "tolerant")

    def __init__(self, key: Sequence[int], *, tolerant: bool = True) -> None:
        """`key`: indexes of the key columns in an image. `tolerant`: an update whose row is missing may be left out."""
        self.key = itemgetter(*key)
        self.tolerant = tolerant
        self.entries: dict[Key, Entry | Image] = {}  # an image: all that came were whole rows that may be there or not
        self.collisions = [0, 0, 0]  # inserts, updates, deletes

    def __bool__(self) -> bool:
        return bool(self.entries)

    def insert(self, row: Image) -> None:
        """A new row; one that is there already is overlaid."""
        key = self.key(row)
        entry = self._found(key)
        if entry is None:
            self.entries[key] = Entry(ABSENT, [(key, row)], row)
            return
        self.collisions[0] += entry.known_there
        entry.lay(row)

    def update(self, after: Image, before: Image | None, *, may: bool = False) -> None:
        """A row as it became. `may`: it may be missing, as upsert()."""
        if may and before is None:
            self.upsert(after)
            return
        key = self.key(after)
        was = key if before is None else known(self.key(before), key)
        if before is not None and was != key:
            self._move(was, key, merge(before, after), may=may)
        else:
            self._change(key, after, may=may)

    def upsert(self, row: Image) -> None:
        """A row that may be there or not: not counted as a collision."""
        key = self.key(row)
        if type(self.entries.get(key)) is not Entry and whole(row):
            self.entries[key] = row  # what nearly all are, at a third of the cost of a formula
        else:
            self._change(key, row, may=True)

    def delete(self, before: Image, *, may: bool = False) -> None:
        """A row that is gone; `may`: it may have been missing, as remove()."""
        entry = self._entry(self.key(before), EITHER if may else THERE)
        if entry.known_absent:
            self.collisions[2] += not may
        entry.empty()

    def remove(self, before: Image) -> None:
        """A row that is gone, if it was there at all."""
        self.delete(before, may=True)

    def _change(self, key: Key, after: Image, *, may: bool) -> None:
        entry = self._found(key)
        if entry is None:
            sure = after if whole(after) else None
            before, firm = (EITHER, False) if may else (THERE, not self.tolerant)
            self.entries[key] = Entry(before, [(key, after)], sure, partly=sure is None, may=may, firm=firm)
            return
        if entry.known_absent:
            self._missing(after, may=may)
        entry.lay(after)
        entry.firm = entry.firm or not (may or self.tolerant)

    def _missing(self, after: Image, *, may: bool) -> None:
        """An update whose row is known to be missing: one that lacks columns can't be put right by making the row."""
        self.collisions[1 if self.tolerant or whole(after) else 2] += not may

    def _found(self, key: Key) -> Entry | None:
        found = self.entries.get(key)
        if found is not None and not isinstance(found, Entry):
            found = self.entries[key] = Entry(EITHER, [(key, found)], found, may=True)
        return found

    def _entry(self, key: Key, before: str) -> Entry:
        found = self._found(key)
        if found is None:
            found = self.entries[key] = Entry(before, [(key, ())])
        return found

    def _move(self, was: Key, key: Key, after: Image, *, may: bool) -> None:
        new = key not in self.entries
        old = self._entry(was, EITHER if may else THERE)
        old.left = old.left or old.alts == [(was, ())]
        here = self._entry(key, EITHER if may else ABSENT)
        if old.known_absent or (not new and here.known_there):
            self._missing(after, may=may)
        moved = [(base, _over(row, after)) for base, row in old.alts]
        sure = None if old.sure is None else merge(old.sure, after)
        if sure is None:
            here.lay(after)
            here.alts = moved + here.alts
            here.may = here.may or old.may or may
        else:
            here.alts, here.sure = moved, sure
        here.firm = here.firm or not (may or self.tolerant)
        old.empty()


def _over(row: Image, after: Image) -> Image:
    """`after` laid over what is known of a row: at first that is nothing."""
    return merge(row, after) if row else after
