"""Net effects to rows ready for a target: in the form that the layout names, in the order of the target's index.

Rule: pure; what must be filled from the target, or checked there, is set apart and said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from replicat.model.copytext import render
from replicat.model.plan import TablePlan
from replicat.model.target import Bag, Blob, Fill, Match, Patch, Rows, UnmappedError
from replicat.work.net.compact import BORN, Net
from replicat.work.net.heap import Heap
from replicat.work.net.overlay import ABSENT, EITHER, THERE, Entry, Overlay
from trails.record import MISSING, Image, Value


def net_rows(plan: TablePlan, net: Net) -> Rows:
    """A net effect in the layout's form, with what must be filled from the target set apart."""
    if not (net.old or net.gone or net.void or net.base or any(net.collisions)):  # new rows alone
        return Rows(plan.layout, inserts=blob(map(net.new.__getitem__, plan.in_key_order(net.new)), plan))
    fills, again = _moved(plan, net) if net.base else ([], {})
    updates, patches = _updates(plan, map(net.old.__getitem__, plan.in_key_order(net.old)))
    born = net.new | again if again else net.new
    return Rows(
        plan.layout,
        deletes=keys_blob([*net.gone, *again], plan),
        updates=updates,
        patches=patches,
        inserts=blob(map(born.__getitem__, plan.in_key_order(born)), plan),
        fills=tuple(fills),
        void=keys_blob(net.void, plan),
        collisions=(net.collisions[0], net.collisions[1], net.collisions[2]),
    )


def _moved(plan: TablePlan, net: Net) -> tuple[list[Fill], dict[Any, Image]]:
    """Takes out of the net effect: rows that need the target's row at another key, and rows to be made again."""
    pick, extras = picker(plan), bool(plan.layout.extras)
    fills: list[Fill] = []
    again: dict[Any, Image] = {}
    for key, origin in net.base.items():
        there = key in net.old
        rows = net.old if there else net.new
        if origin is BORN:
            if extras:  # columns of the target's own begin anew with the new row
                again[key] = rows.pop(key)
        elif extras or MISSING in pick(rows[key]):
            fills.append(Fill(_parts(origin), pick(rows.pop(key)), there=there))
    return fills, again


def overlay_rows(plan: TablePlan, net: Overlay) -> Rows:
    """As net_rows(), where a row may be there or not."""
    sorter, entries = _Sorter(plan), net.entries
    either = sorter.whole[EITHER]
    for key in plan.in_key_order(entries):
        entry = entries[key]
        if isinstance(entry, Entry):
            sorter.take(key, entry)
        else:
            either.append(entry)
    return sorter.rows((net.collisions[0], net.collisions[1], net.collisions[2]))


class _Sorter:
    """Puts each key's formula into the part of Rows that does it. `whole`: rows by what was before."""

    def __init__(self, plan: TablePlan) -> None:
        self._plan = plan
        self._pick = picker(plan)
        self._keys: dict[str, list[Any]] = {THERE: [], ABSENT: [], EITHER: []}
        self.whole: dict[str, list[Image]] = {THERE: [], ABSENT: [], EITHER: []}
        self._patched: dict[bool, list[Image]] = {True: [], False: []}
        self._fills: list[Fill] = []

    def take(self, key: Any, entry: Entry) -> None:
        """One key."""
        layout = self._plan.layout
        if not entry.partly and len(entry.alts) == 1 and entry.alts[0][1] is entry.sure and entry.alts[0][0] == key:
            self.whole[entry.before].append(entry.sure)  # what most are: one whole row
        elif entry.known_absent:
            self._gone(key, entry)
        elif not entry.alts:
            assert entry.sure is not None
            if layout.extras:  # deleted and made again: columns of the target's own begin anew
                self._keys[entry.before].append(key)
                self.whole[ABSENT].append(entry.sure)
            else:
                self.whole[entry.before].append(entry.sure)
        elif len(entry.alts) == 1 and entry.alts[0][0] == key and (entry.sure is None or self._same(entry)):
            self._in_place(entry)
        elif entry.sure is not None and not layout.extras and not layout.overlays and self._same(entry):
            self.whole[entry.before].append(entry.sure)
        else:
            self._fill(key, entry)

    def _gone(self, key: Any, entry: Entry) -> None:
        # Where a missing row is no error, one that moved away is missed by the fill that needs it.
        before = EITHER if entry.left and self._plan.layout.overlays else entry.before
        self._keys[before].append(key)

    def _in_place(self, entry: Entry) -> None:
        (_, row), layout = entry.alts[0], self._plan.layout
        if entry.sure is None or (entry.partly and layout.insert_missing and not layout.collisions and not entry.may):
            self._patched[not entry.may].append(row)
        else:
            self.whole[entry.before].append(entry.sure)

    @staticmethod
    def _same(entry: Entry) -> bool:
        """Whether the row is the same, whichever key it comes from."""
        return all(list(row) == list(entry.sure or ()) for _, row in entry.alts)

    def _fill(self, key: Any, entry: Entry) -> None:
        (base, row), *others = entry.alts
        stays = any(other == key for other, _ in entry.alts)
        if not stays:  # whatever is here is not what the row becomes of
            self._gone(key, entry)
        self._fills.append(
            Fill(
                _parts(base),
                self._pick(row),
                there=stays and entry.before == THERE,
                must=not entry.may,
                others=tuple((_parts(other), self._pick(image)) for other, image in others),
                new=None if entry.sure is None else self._pick(entry.sure),
            )
        )

    def rows(self, collisions: tuple[int, int, int]) -> Rows:
        """Everything taken."""
        plan = self._plan
        updates, patches = _updates(plan, self.whole[THERE])
        _, firm = _updates(plan, self._patched[True], apart=True)
        _, loose = _updates(plan, self._patched[False], apart=True, must=False)
        return Rows(
            plan.layout,
            deletes=keys_blob(self._keys[THERE], plan),
            void=keys_blob(self._keys[ABSENT], plan),
            removes=keys_blob(self._keys[EITHER], plan),
            updates=updates,
            inserts=blob(self.whole[ABSENT], plan),
            upserts=blob(self.whole[EITHER], plan),
            patches=patches + firm + loose,
            fills=tuple(self._fills),
            collisions=collisions,
        )


def heap_bag(plan: TablePlan, heap: Heap) -> Bag:
    """What a table without a key comes to. Rows in the heap are what is written, not images."""
    matches: dict[tuple[tuple[int, ...], bool], list[Image]] = {}
    for was in heap.deletes:
        group = matches.setdefault((_nulls(was), False), [])
        group.append((str(len(group)), *_without_nulls(was)))
    for now, origins in heap.updates.items():
        for was in origins:
            group = matches.setdefault((_nulls(was), True), [])
            group.append((str(len(group)), *_without_nulls(was), *now))
    made = [Match(nulls, _given(plan, rows), update) for (nulls, update), rows in matches.items()]
    made.sort(key=lambda match: match.update)
    inserts, partial = plan.layout.blob(heap.inserts())
    if partial:
        raise _not_whole(plan, "the new row", partial[0])
    return Bag(plan.layout, tuple(made), inserts)


def _nulls(row: Image) -> tuple[int, ...]:
    return tuple(i for i, value in enumerate(row) if value is None)


def _without_nulls(row: Image) -> list[Value]:
    return [value for value in row if value is not None]


def _updates(
    plan: TablePlan, rows: Iterable[Image], *, apart: bool = False, must: bool = True
) -> tuple[Blob, tuple[Patch, ...]]:
    """Whole rows, and those that lack columns by which they give; with `apart` all are patches."""
    pick = picker(plan)
    made, partial = (Blob(), list(rows)) if apart else plan.layout.blob(rows, None if plan.pick is None else pick)
    groups: dict[tuple[int, ...], list[Image]] = {}
    for row in map(pick, partial):
        given = tuple(i for i, value in enumerate(row) if value is not MISSING)
        groups.setdefault(given, []).append([row[i] for i in given])
    return made, tuple(Patch(given, _given(plan, members), must) for given, members in groups.items())


def blob(rows: Iterable[Image], plan: TablePlan) -> Blob:
    """Whole rows; UnmappedError if one lacks a column."""
    data, count, partial = render(rows, None if plan.pick is None else picker(plan))
    if partial:
        raise _not_whole(plan, f"the new row with key ({', '.join(str(partial[0][i]) for i in plan.key)})", partial[0])
    return Blob(data, count)


def keys_blob(keys: Iterable[Any], plan: TablePlan) -> Blob:
    """Keys, in the order of the target's index."""
    made, partial = plan.layout.blob(map(_parts, plan.in_key_order(keys)))
    if partial:
        raise _not_whole(plan, "the key of a row", partial[0])
    return made


def _not_whole(plan: TablePlan, what: str, row: Image) -> UnmappedError:
    columns = plan.columns or plan.layout.columns
    named = zip(columns if len(columns) == len(row) else plan.layout.key, row, strict=False)
    lacking = [name for name, value in named if value is MISSING]
    return UnmappedError(
        plan.source,
        f"{what} came without {', '.join(lacking) or 'all its columns'}",
        hint="ADD TRANDATA for this table at the source, and load the table again",
    )


def _given(plan: TablePlan, rows: Sequence[Image]) -> Blob:
    made, partial = plan.layout.blob(rows)
    if partial:
        raise TypeError("a value that is neither text, bytes nor NULL among those that a change gives")
    return made


def picker(plan: TablePlan) -> Callable[[Image], Image]:
    """What of an image is written."""
    if plan.pick is None:
        return _same
    if len(plan.pick) == 1:
        (only,) = plan.pick
        return lambda row: (row[only],)
    return itemgetter(*plan.pick)


def _same(row: Image) -> Image:
    return row


def _parts(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)
