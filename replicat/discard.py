"""What becomes of a change that the target refuses even by itself: ABEND, or a record in the discard file.

Rule (I8): the record is durable before the commit that skips its change, and only what is committed counts. A record
whose commit failed stays; when its change comes again it is not written twice, and may be applied after all.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Sequence

from replicat.batch import Batch, begun_before
from replicat.decode import Spot, Task
from replicat.discardfile import BEGINS, DiscardFile
from replicat.ladder import Refused, abend
from replicat.part import Part
from replicat.refusals import DISCARD, ErrorRule, action_of
from replicat.target import RefusedError
from trails.position import Position
from trails.record import MISSING, Image, Op, Value
from trails.runtime.clock import Clock, RealClock, local_text
from trails.runtime.stats import DISCARDS, Stats

OPS = (Op.INSERT, Op.UPDATE, Op.DELETE, Op.TRUNCATE)


class Discards:
    """The rules of one group, its discard file, and what the open batch has discarded."""

    def __init__(
        self,
        group: str = "",
        rules: Sequence[ErrorRule] = (),
        file: DiscardFile | None = None,
        *,
        clock: Clock | None = None,
        warn: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """`file` is None where no rule says DISCARD."""
        self._group = group
        self._rules = rules
        self._file = file
        self._clock = clock or RealClock()
        self._warn = warn
        self._counts: list[dict[tuple[str, str], list[int]]] = []
        self._errors: Counter[tuple[str, str]] = Counter()

    def attach(self, position: Position) -> None:
        """A new connection: nothing is open, and all from `position` on comes again."""
        self._forget()
        if self._file is not None:
            self._file.look(position)

    def handler(self, batch: Batch) -> Refused:
        """For the ladder: returns when the change is to be skipped, else raises."""

        def refused(task: Task, spot: Spot, error: RefusedError, part: Part) -> None:
            if not spot.csn:
                csn, done = begun_before(batch, task.blocks[0])
                spot = dataclasses.replace(spot, csn=csn, index=spot.index + done)
            if self._file is None or action_of(self._rules, error.sqlstate) != DISCARD:
                abend(task, spot, error, part)
            else:
                self._file.add(record(spot, error, self._group, task.trail_id, self._clock.now_us()))
                self._counts.append(part.counts)
                self._errors[spot.table, error.sqlstate or "(none)"] += 1

        return refused

    def sync(self) -> None:
        """Before the commit."""
        if self._counts and self._file is not None:
            self._file.sync()

    def committed(self, stats: Stats, position: Position) -> None:
        """After the commit, which moved the row to `position`: count, and say so once."""
        counts, errors = self._counts, self._errors
        self._counts, self._errors = [], Counter()
        if self._file is None:
            return
        self._file.committed(position)
        for tables in counts:
            for (source, target), numbers in tables.items():
                for op, number in zip(OPS, numbers, strict=True):
                    if number:
                        stats.count(source, target, op, -number)
                        stats.count(source, target, DISCARDS, number)
        if errors:
            what = ", ".join(f"{table} SQLSTATE {code}: {number}" for (table, code), number in errors.most_common(5))
            more = f", and {len(errors) - 5} more kinds" if len(errors) > 5 else ""
            self._warn(f"Changes that the target refused were discarded ({what}{more}); see {self._file.path}")

    def close(self) -> None:
        """Let the file go."""
        self._forget()
        if self._file is not None:
            self._file.close()

    def _forget(self) -> None:
        self._counts, self._errors = [], Counter()


def record(spot: Spot, error: RefusedError, group: str, trail_id: bytes, now_us: int) -> list[str]:
    """A discard record's lines; the one that begins `Operation failed` names the change among all others."""
    place = (
        f"Operation failed at seqno {spot.position.seqno} rba {spot.position.rba}, CSN {spot.csn}, "
        f"change {spot.index} of its transaction, group {group}, trail {trail_id.hex()}"
    )
    lines = [
        f"{BEGINS.decode()}{local_text(now_us)}",
        f"Discarding record on action {DISCARD} on error {error.sqlstate or '(none)'}",
        " ".join(error.message.split()),
        place,
        "Discarding record...",
        f"Problem replicating {_flat(spot.table)} to {_flat(spot.target)}",
        f"Error occurred with {spot.op} record (source format)...",
    ]
    for title, image in (("Before image", spot.before), ("After image", spot.after)):
        if image is not None:
            lines += [f"{title}:", "*", *_image(spot.columns, image), "*"]
    return lines


def _image(columns: Sequence[str], image: Image) -> list[str]:
    names = [*columns, *(f"column {n + 1}" for n in range(len(columns), len(image)))]
    return [f"{_flat(name)} = {shown(value)}" for name, value in zip(names, image, strict=False)]


def shown(value: Value) -> str:
    """Exactly, in one line: text as a JSON string, bytes in hex, NULL, or that the trail does not have it."""
    if value is None:
        return "NULL"
    if value is MISSING:
        return "(not in the trail)"
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    return json.dumps(value, ensure_ascii=False)


def _flat(name: str) -> str:
    """A name on one line; a name can hold anything, a record's lines can't."""
    return name if name.isprintable() else json.dumps(name)
