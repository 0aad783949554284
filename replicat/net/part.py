"""What a task came to: steps and counts, small enough to send, or with its large blobs in files.

Rule: a part's files belong to whoever holds the part; `discard` removes them.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from dataclasses import dataclass, field, replace

from replicat.plan import TablePlan
from replicat.target import Blob, RefusedError, Step, Truncate, Work
from trails.record import Image

# Results from this size on go through a file.
SPILL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Mapped:
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
    columns that the target lacks.
    """

    steps: tuple[Step, ...] = ()
    counts: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    xid: str = ""
    mapped: tuple[Mapped, ...] = ()
    ends: bool = False
    filtered: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    skipped: dict[tuple[str, str], int] = field(default_factory=dict)
    error: RefusedError | None = None  # of a single change that could not be mapped


@dataclass(frozen=True, slots=True)
class Unmapped:
    """In place of a part: an expression fails on some row of it, with this SQLSTATE; or, without one, no row of the
    target can be made of some change. Nobody knows yet which.
    """

    sqlstate: str
    message: str
    shown: str = ""


def spill_part(part: Part, folder: str) -> Part:
    """Large blobs as files: through Spark's own channels they cost ten times as much."""

    def spilled(blob: Blob) -> Blob:
        if len(blob.data) < SPILL_BYTES:
            return blob
        path = os.path.join(folder, uuid.uuid4().hex)
        with open(path, "xb") as file:
            file.write(blob.data)
        return Blob(b"", blob.rows, path)

    def step(old: Step) -> Step:
        if isinstance(old, Truncate):
            return old
        rows = [
            replace(
                r,
                deletes=spilled(r.deletes),
                removes=spilled(r.removes),
                void=spilled(r.void),
                updates=spilled(r.updates),
                upserts=spilled(r.upserts),
                inserts=spilled(r.inserts),
                patches=tuple(replace(patch, rows=spilled(patch.rows)) for patch in r.patches),
            )
            for r in old.rows
        ]
        bags = [
            replace(
                b,
                matches=tuple(replace(match, rows=spilled(match.rows)) for match in b.matches),
                inserts=spilled(b.inserts),
            )
            for b in old.bags
        ]
        return Work(tuple(rows), tuple(bags))

    return replace(part, steps=tuple(step(old) for old in part.steps))


def discard(part: Part | Unmapped) -> None:
    """Remove the files of a part that was applied, or never will be."""
    for step in part.steps if isinstance(part, Part) else ():
        if isinstance(step, Work):
            blobs = [blob for rows in step.rows for blob in rows.blobs()]
            blobs += [blob for bag in step.bags for blob in bag.blobs()]
            for blob in blobs:
                if blob.path:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(blob.path)
