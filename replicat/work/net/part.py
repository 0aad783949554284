"""What a task came to: steps and counts, small enough to send, or with its large blobs in files.

Rule: a part's files belong to whoever holds the part; `discard` removes them.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

from replicat.model.plan import TablePlan
from replicat.model.target import Bag, Blob, Compare, Match, Patch, RefusedError, Rows, Step, Work
from trails.record import Image

T = TypeVar("T")
# Results from this size on go through a file.
SPILL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class MappedChange:
    """One change as its target table gets it: `op` is insert, update or delete, the rows are in the layout's order.

    `op` is upsert or remove where it is not known whether the row is there.
    `before` is None for an insert, and for an update where the source did not give it.
    """

    plan: TablePlan
    op: str
    before: Image | None
    after: Image | None


@dataclass(slots=True)
class Part:
    """What a Task came to. `counts`: (source, target) -> inserts, updates, deletes, truncates.

    `mapped`: the changes one by one, where the builder was told to keep them. `ends`: the last transaction is complete.
    `filtered`: what filters left out, as `counts`, which is without it; `skipped`: (source, target) -> changes with
    columns that the target lacks; `zeroed`: (source, target) -> dates that became NULL. `waits`: transactions that
    changed tables which are being loaded.
    """

    steps: tuple[Step, ...] = ()
    counts: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    xid: str = ""
    mapped: tuple[MappedChange, ...] = ()
    ends: bool = False
    filtered: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    skipped: dict[tuple[str, str], int] = field(default_factory=dict)
    zeroed: dict[tuple[str, str], int] = field(default_factory=dict)
    waits: frozenset[str] = frozenset()
    error: RefusedError | None = None  # of a single change that could not be mapped
    files: tuple[str, ...] = ()
    """Where its large blobs are."""


@dataclass(frozen=True, slots=True)
class Unmapped:
    """In place of a part: an expression fails on some row of it, with this SQLSTATE; or, without one, no row of the
    target can be made of some change. Nobody knows yet which.
    """

    sqlstate: str
    message: str
    shown: str = ""
    files = ()


def spilled(value: T, folder: str, files: list[str] | None = None) -> T:
    """A part, or what stands in one, with its large blobs as files: Spark's own channels cost ten times as much."""
    files = [] if files is None else files
    if isinstance(value, Blob) and len(value.data) >= SPILL_BYTES:
        path = os.path.join(folder, uuid.uuid4().hex)
        with open(path, "xb") as file:
            file.write(value.data)
        files.append(path)
        return replace(value, data=b"", path=path)
    if isinstance(value, tuple):
        return type(value)(spilled(one, folder, files) for one in value)
    if isinstance(value, Part):
        return replace(value, steps=spilled(value.steps, folder, files), files=tuple(files))
    if isinstance(value, Work | Rows | Patch | Compare | Bag | Match):
        return replace(value, **{one.name: spilled(getattr(value, one.name), folder, files) for one in fields(value)})
    return value


def discard(part: Part | Unmapped) -> None:
    """Remove the files of a part that was applied, or never will be."""
    for path in part.files:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
