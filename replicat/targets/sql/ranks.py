"""In which order tables are written so that foreign keys hold: parents before children."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def ranks(edges: Iterable[tuple[Node, Node]]) -> dict[Node, int]:
    """Each table's rank from (child, parent) pairs: higher than that of every parent.

    Tables that hang on each other in a circle share one rank: no order of them would do.
    """
    parents: dict[Node, set[Node]] = {}
    for child, parent in edges:
        parents.setdefault(child, set()).add(parent)
        parents.setdefault(parent, set())
    group = _circles(parents)
    found: dict[int, int] = {}
    for node in group:  # in the order in which circles were closed: parents come first
        above = [found[group[parent]] + 1 for parent in parents[node] if group[parent] != group[node]]
        found[group[node]] = max([found.get(group[node], 0), *above])
    return {node: found[number] for node, number in group.items()}


def _circles(parents: dict[Node, set[Node]]) -> dict[Node, int]:
    """The number of each node's strongly connected component, in the order of their closing (Tarjan, no recursion)."""
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    stack: list[Node] = []
    group: dict[Node, int] = {}
    count = 0
    for root, first in parents.items():
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        walk = [(root, iter(first))]
        while walk:
            node, rest = walk[-1]
            step = next(rest, None)
            if step is None:
                walk.pop()
                if walk:
                    low[walk[-1][0]] = min(low[walk[-1][0]], low[node])
                if low[node] == index[node]:
                    while True:
                        member = stack.pop()
                        group[member] = count
                        if member == node:
                            break
                    count += 1
            elif step not in index:
                index[step] = low[step] = len(index)
                stack.append(step)
                walk.append((step, iter(parents[step])))
            elif step not in group:
                low[node] = min(low[node], index[step])
    return group
