"""A discard file read again: its records of changes, and what of them is replayed together.

    a record                                                 is replayed
    that the end of a transaction discarded whole covers     with all that this end covers, and not without them
    of a transaction discarded whole, whose end is missing   not at all
    any other                                                by itself

Rule: a transaction is whole if the file has just the records that its end counts, wherever they stand. A
part of one is there after a limit (MEGABYTES), a full disk, a kill or a power cut inside it, or where a file was begun
anew, cut or moved away; the rest is in another file, or was applied. Of two ends of the same changes the newer counts:
the older is of a try that was not committed.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from replicat.apply.discardfile import ENDING, FAILED, whole_records
from replicat.apply.discardrecord import ACTION, NO_TARGET, TARGET, VERSION, WHOLE, image_of
from replicat.apply.replayed import FREE, identity
from trails.fs import File
from trails.position import Position

INSERT, UPDATE, DELETE, UPSERT, REMOVE = OPS = "insert", "update", "delete", "upsert", "remove"
_PLACE = re.compile(
    r"Operation failed at seqno (\d+) rba (\d+), CSN (\S+), change (\d+) of its transaction, group (\S+), "
    r"trail ([0-9a-f]*)"
)
_ENDING = re.compile(
    r"Whole transaction discarded at seqno \d+ rba \d+, CSN (\S+), changes (\d+) to (\d+) in (\d+) records of "
    r"sum ([0-9a-f]{16}), group (\S+), trail ([0-9a-f]*)"
)

Transaction = tuple[bytes, str, str]
"""Trail, CSN, group."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A record of a discard file, read. `why`: what makes it one that can't be replayed, or empty."""

    number: int
    place: str
    position: Position
    csn: str
    index: int
    group: str
    trail_id: bytes
    table: tuple[str, str] = ("", "")
    op: str = ""
    columns: tuple[str, ...] = ()
    logical: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    before: Any = None
    after: Any = None
    why: str = ""
    whole: bool = False  # its transaction was discarded whole

    @property
    def transaction(self) -> Transaction:
        """Which one it is of."""
        return self.trail_id, self.csn, self.group

    @property
    def identity(self) -> int:
        """What its row in the checkpoint table is found by."""
        return identity(self.place)


@dataclass(frozen=True, slots=True)
class DiscardedUnit:
    """Records that are replayed together, in the order of their changes; a record can be there twice.

    `whole`: they are a transaction that was discarded whole. `lacks`: why they can't be applied, or empty.
    """

    records: Sequence[Recorded]
    whole: bool = False
    lacks: str = ""


@dataclass(frozen=True, slots=True, order=True)
class _Ending:
    """Of a transaction (or of a part of it that was committed by itself): see discardrecord.Whole."""

    first: int
    last: int
    records: int
    sum: int


@dataclass(slots=True)
class _RecordedParts:
    """What was found of a transaction so far."""

    records: list[Recorded] = field(default_factory=list)
    known: set[int] = field(default_factory=set)
    sum: int = 0

    def add(self, one: Recorded) -> None:
        self.records.append(one)
        if (known := one.identity) not in self.known:
            self.known.add(known)
            self.sum ^= known

    def is_all(self, ending: _Ending) -> bool:
        return (len(self.known), self.sum) == (ending.records, ending.sum)


def units(file: File) -> Iterator[DiscardedUnit]:
    """A transaction where the last of its records stands; those that are not whole at last."""
    endings = _endings(file)
    gathered: dict[tuple[Transaction, _Ending | None], _RecordedParts] = {}
    done = set()
    for one in read_records(file):
        ending = _covering(endings.get(one.transaction, ()), one.index)
        if ending is None and not one.whole:
            yield DiscardedUnit((one,))
            continue
        key = one.transaction, ending
        some = gathered.setdefault(key, _RecordedParts())
        some.add(one)
        if ending is not None and some.is_all(ending):
            done.add(key)
            yield DiscardedUnit(sorted(gathered.pop(key).records, key=lambda each: each.index), whole=True)
    for key, some in gathered.items():
        lacks = "it stands in the file twice" if key in done else _lacks(key[0][1], key[1], len(some.known))
        yield DiscardedUnit(some.records, whole=True, lacks=lacks)


def _endings(file: File) -> dict[Transaction, list[_Ending]]:
    """In order of their changes, which no two of a transaction share."""
    found: dict[Transaction, list[_Ending]] = {}
    for _, line, *_ in whole_records(file):
        if match := _ENDING.match(line.decode("utf-8", "replace")):
            csn, first, last, records, total, group, trail = match.groups()
            new = _Ending(int(first), int(last), int(records), int(total, 16))
            transaction = bytes.fromhex(trail), csn, group
            apart = (each for each in found.get(transaction, ()) if each.last < new.first or each.first > new.last)
            found[transaction] = sorted([*apart, new])
    return found


def _covering(endings: Sequence[_Ending], index: int) -> _Ending | None:
    at = bisect_right(endings, index, key=lambda each: each.first) - 1
    return endings[at] if at >= 0 and index <= endings[at].last else None


def _lacks(csn: str, ending: _Ending | None, number: int) -> str:
    if ending is None:
        here = f"its end is not in this file, which has {number} of its records"
    elif number < ending.records:
        here = f"{number} of its {ending.records} records are in this file"
    else:
        return f"its {number} records in this file are not the {ending.records} discarded; apply CSN {csn} by hand"
    return f"{here}. Look for CSN {csn} in the group's other discard files: replay one with all of it, or all joined"


def read_records(file: File) -> Iterator[Recorded]:
    """The whole records of changes in a file, in order."""
    for number, raw in enumerate((each for each in whole_records(file) if not each[1].startswith(ENDING)), 1):
        lines = [line.decode("utf-8", "replace") for line in raw]
        place = next(line for line in lines if line.startswith(FAILED.decode()))
        match = _PLACE.match(place)
        if match is None:
            yield Recorded(number, place, FREE, "?", 0, "?", b"", why="its place can't be read")
            continue
        seqno, rba, csn, index, group, trail = match.groups()
        made = Recorded(number, place, Position(int(seqno), int(rba)), csn, int(index), group, bytes.fromhex(trail))
        action = next((line for line in lines if line.startswith(ACTION)), "")
        yield _with_target(replace(made, whole=action.endswith(WHOLE)), lines)


def _with_target(made: Recorded, lines: Sequence[str]) -> Recorded:
    texts = [line.removeprefix(TARGET) for line in lines if line.startswith(TARGET)]
    if len(texts) > 1:
        return replace(made, why="the record holds several rows of its target")
    if not texts:
        told = [line.removeprefix(NO_TARGET) for line in lines if line.startswith(NO_TARGET)]
        return replace(made, why=told[-1] if told else "the record does not hold the row of its target")
    try:
        known = json.loads(texts[0])
        if known["version"] != VERSION:
            return replace(made, why=f"it is of version {known['version']}; this program knows {VERSION}")
        if known["op"] not in OPS:
            return replace(made, why=f"its operation is {known['op']!r}; this program knows {', '.join(OPS)}")
        schema, name = known["table"]
        op = DELETE if known["op"] == REMOVE else known["op"]
        return replace(
            made, table=(schema, name), op=op, columns=tuple(known["columns"]), key=tuple(known["key"]),
            logical=tuple(known["logical"]), before=image_of(known["before"]), after=image_of(known["after"]),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        return replace(made, why=f"its target record can't be read: {error}")
