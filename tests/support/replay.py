"""Serial replay, said as plainly as can be: what a batch must come to, one change after the other.

A change is (kind, key), kind I or D, or ("U", key, new key, given columns). A table is a dict from key to its row: key,
`a`, `b`, and a column that only the target has, which is None in a new row and else tells which row it began as.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from replicat.work.net.compact import Net
from replicat.work.net.overlay import Overlay
from trails.record import MISSING

KEYS = ("1", "2", "3")
Change = tuple[Any, ...]
Table = dict[str, tuple[Any, ...]]

WHOLE = [
    *(("I", k) for k in KEYS),
    *(("D", k) for k in KEYS),
    *(("U", k, to, "ab") for k in KEYS for to in KEYS),
]
PARTLY = [("U", k, to, "a") for k in KEYS for to in KEYS]


def starts() -> list[Table]:
    """All sets of rows that may be there before."""
    return [
        {k: (k, f"old-a{k}", f"old-b{k}", f"own-{k}") for k, there in zip(KEYS, choice, strict=True) if there}
        for choice in product((False, True), repeat=len(KEYS))
    ]


def after_image(to: str, number: int, given: str) -> tuple[Any, ...]:
    """The row that change `number` brings."""
    return (to, *(f"{c}{number}" if c in given else MISSING for c in "ab"))


def laid(row: tuple[Any, ...], after: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row with an image laid over it."""
    return (*(old if new is MISSING else new for old, new in zip(row, after, strict=False)), row[3])


def strictly(table: Table, number: int, change: Change) -> Table | None:
    """One change; None if the source could not have done it."""
    kind, key, *rest = change
    to, given = rest or (key, "ab")
    if (key in table) == (kind == "I") or (kind == "U" and to != key and to in table):
        return None
    table = dict(table)
    if kind == "D":
        del table[key]
    elif kind == "I":
        table[key] = (*after_image(key, number, "ab"), None)
    else:
        table[to] = laid(table.pop(key), after_image(to, number, given))
    return table


def overlaid(table: Table, number: int, change: Change) -> Table:
    """One change as HANDLECOLLISIONS has it (replicat.work.net.overlay)."""
    kind, key, *rest = change
    to, given = rest or (key, "ab")
    table = dict(table)
    if kind == "D":
        table.pop(key, None)
        return table
    after = after_image(to, number, given)
    if kind == "U" and key in table:
        table[to] = laid(table.pop(key), after)
    elif to in table:
        table[to] = laid(table[to], after)
    elif MISSING not in after:
        table[to] = (*after, None)
    return table


def feed(net: Net | Overlay, number: int, change: Change, *, old: bool = False) -> None:
    """Give a change to what compacts. `old`: the image before is given even where the key stays."""
    kind, key, *rest = change
    to, given = rest or (key, "ab")
    after = after_image(to, number, given)
    if kind == "I":
        net.insert(after)
    elif kind == "D":
        net.delete((key, MISSING, MISSING))
    else:
        net.update(after, None if to == key and not old else (key, MISSING, MISSING))
