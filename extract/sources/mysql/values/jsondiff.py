"""Partial JSON: what an UPDATE by JSON_SET, JSON_REPLACE and JSON_REMOVE changed, applied to the whole value before it.

    operation u8 (0 replace, 1 insert, 2 remove); path: length, text; unless removed: length, binary JSON

Lengths are length-encoded numbers. A path is `$`, then `.key`, `."any key"` or `[index]`, as the server prints it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from extract.sources.mysql.events import packed
from extract.sources.mysql.values.binaryjson import Tree, printed, tree_of
from extract.sources.mysql.values.unread import UnreadValueError

_REPLACE, _INSERT, _REMOVE = range(3)
_LEG: Final = re.compile(r'\[(\d+)\]|\.(?:("(?:[^"\\]|\\.)*")|([^."\[\]\s]+))')


def changed(before: bytes, diffs: bytes) -> str:
    """The text of the value after it. Raises UnreadValueError where the diffs don't fit the value before."""
    tree, at = tree_of(before), 0
    try:
        while at < len(diffs):
            operation = diffs[at]
            path, at = _sized(diffs, at + 1)
            value: Tree = None
            if operation != _REMOVE:
                raw, at = _sized(diffs, at)
                value = tree_of(raw)
            tree = _apply(tree, operation, _legs(path.decode()), value)
    except (IndexError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise UnreadValueError(f"expected changes of the JSON before, found others ({error!r})") from error
    return printed(tree)


def _sized(diffs: bytes, at: int) -> tuple[bytes, int]:
    size, at = packed(diffs, at)
    if at + size > len(diffs):
        raise UnreadValueError(f"expected changes of JSON in {len(diffs)} bytes, found one up to {at + size}")
    return diffs[at : at + size], at + size


def _legs(path: str) -> list[int | str]:
    legs: list[int | str] = []
    at = 1
    while at < len(path) or path[:1] != "$":
        found = _LEG.match(path, at)
        if found is None or path[0] != "$":
            raise UnreadValueError(f"expected a path in JSON, found {path[:60]!r}")
        index, quoted, key = found.groups()
        legs.append(int(index) if index is not None else json.loads(quoted, strict=False) if quoted else key)
        at = found.end()
    return legs


def _apply(tree: Tree, operation: int, legs: list[int | str], value: Tree) -> Tree:
    if not legs:
        if operation != _REPLACE:
            raise UnreadValueError(f"expected the whole JSON to be replaced, found operation {operation}")
        return value
    *way, last = legs
    inside = tree
    for leg in way:
        inside = inside[leg]
    if isinstance(inside, list) != isinstance(last, int):
        raise UnreadValueError(f"expected a member of the JSON before, found none at {last!r}")
    if operation == _INSERT:
        _insert(inside, last, value)
    elif operation == _REPLACE:
        _ = inside[last]
        inside[last] = value
    elif operation == _REMOVE:
        del inside[last]
    else:
        raise UnreadValueError(f"expected a change of JSON, found operation {operation}")
    return tree


def _insert(inside: Any, last: int | str, value: Tree) -> None:
    """An object's keys stay in the server's order: shorter ones first, then by their bytes."""
    if isinstance(last, int):
        inside.insert(last, value)
        return
    if last in inside:
        raise UnreadValueError("expected a new key of the JSON before, found one that is there")
    inside[last] = value
    ordered = sorted(inside.items(), key=lambda item: (len(item[0].encode()), item[0].encode()))
    inside.clear()
    inside.update(ordered)
