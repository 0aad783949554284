"""What a task came to: steps and counts, small enough to send, or with its large blobs in files.

Rule: a part's files belong to whoever holds the part; `discard` removes them.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from dataclasses import dataclass, field, replace

from replicat.target import Blob, Step, Truncate, Work

# Results from this size on go through a file.
SPILL_BYTES = 1 << 20


@dataclass(slots=True)
class Part:
    """What a Task came to. `counts`: (source, target) -> inserts, updates, deletes, truncates."""

    steps: tuple[Step, ...] = ()
    counts: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    xid: str = ""


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
            replace(r, deletes=spilled(r.deletes), upserts=spilled(r.upserts), inserts=spilled(r.inserts))
            for r in old.rows
        ]
        bags = [replace(b, runs=tuple(spilled(r) if isinstance(r, Blob) else r for r in b.runs)) for b in old.bags]
        return Work(tuple(rows), tuple(bags))

    return replace(part, steps=tuple(step(old) for old in part.steps))


def discard(part: Part) -> None:
    """Remove the files of a part that was applied, or never will be."""
    for step in part.steps:
        if isinstance(step, Work):
            blobs = [blob for rows in step.rows for blob in (rows.deletes, rows.upserts, rows.inserts)]
            blobs += [run for bag in step.bags for run in bag.runs if isinstance(run, Blob)]
            for blob in blobs:
                if blob.path:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(blob.path)
