"""The text of a discard record: for people, and in its last line but one for REPLAY DISCARDS.

Rule: a record says exactly what was not applied (images, place, the database's words), in lines that no value can
break. The line that begins `Operation failed` names the change among all others, and with the target also its MAP.
The records of a transaction that is discarded whole are followed by one that says how many they are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from replicat.apply.discardfile import BEGINS, ENDING, FAILED
from replicat.apply.replayed import identity
from replicat.work.decode import Spot
from replicat.work.net.part import MappedChange
from trails.clock import local_text
from trails.position import Position
from trails.record import MISSING, Image, Value
from trails.taming import tame_json

TARGET = "Target record: "
NO_TARGET = "No target record: "
ACTION = "Discarding record on action "
WHOLE = " (of its whole transaction)"
_ROWLESS = {"truncate": "it is a TRUNCATE", "ddl": "it changes the shape of a table"}
VERSION = 1


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a change was given up: the action, the error's SQLSTATE or the conflict, and what the database said.

    `unmade`: why there is no row of the target; `whole`: its whole transaction is given up.
    """

    action: str
    label: str
    message: str
    unmade: str = ""
    whole: bool = False


@dataclass(slots=True)
class Whole:
    """What a batch gives up of one transaction that is discarded whole: the range of its changes, and its records.

    `sum` is the XOR of the records' identities: it does not depend on the order in which they are read.
    """

    csn: str
    trail_id: bytes
    position: Position
    first: int
    last: int
    records: int = 0
    sum: int = 0

    @classmethod
    def begun(cls, spot: Spot, trail_id: bytes) -> Whole:
        """By its first change."""
        return cls(spot.csn, trail_id, spot.position, spot.index, spot.index)

    def take(self, spot: Spot, lines: Sequence[str]) -> None:
        """One more record."""
        self.position = max(self.position, spot.position)
        self.first, self.last = min(self.first, spot.index), max(self.last, spot.index)
        self.records += 1
        self.sum ^= identity(next(line for line in lines if line.startswith(FAILED.decode())))


def ending(whole: Whole, group: str, now_us: int) -> list[str]:
    """The record that ends a transaction: a file with exactly these records has all of it."""
    place = (
        f"{ENDING.decode()}{_place(whole.position, whole.csn)}"
        f"changes {whole.first} to {whole.last} in {whole.records} records of sum {whole.sum:016x}, "
        f"{_origin(group, whole.trail_id)}"
    )
    return [f"{BEGINS.decode()}{local_text(now_us)}", place]


def record(
    spot: Spot, reason: Reason, group: str, trail_id: bytes, now_us: int, mapped: Sequence[MappedChange] = ()
) -> list[str]:
    """A discard record's lines; `mapped` is the change as its target table gets it."""
    place = (
        f"{FAILED.decode()}{_place(spot.position, spot.csn)}change {spot.index} of its transaction, "
        f"{_origin(group, trail_id)}"
    )
    lines = [
        f"{BEGINS.decode()}{local_text(now_us)}",
        f"{ACTION}{reason.action} on {reason.label}{WHOLE if reason.whole else ''}",
        " ".join(reason.message.split()),
        place + _which_map(spot),
        "Discarding record...",
        f"Problem replicating {_flat(spot.table)} to {_flat(spot.target)}",
        f"Error occurred with {spot.op} record (source format)...",
    ]
    for title, image in (("Before image", spot.before), ("After image", spot.after)):
        if image is not None:
            lines += [f"{title}:", "*", *_image(spot.columns, image), "*"]
    if not mapped and (why := reason.unmade or _ROWLESS.get(spot.op, "")):
        lines.append(NO_TARGET + " ".join(why.split()))
    return [*lines, *(TARGET + json.dumps(_target(one), separators=(",", ":")) for one in mapped)]


def _place(position: Position, csn: str) -> str:
    return f"seqno {position.seqno} rba {position.rba}, CSN {csn}, "


def _origin(group: str, trail_id: bytes) -> str:
    return f"group {group}, trail {trail_id.hex()}"


def _which_map(spot: Spot) -> str:
    """Where several MAPs take one table, its changes have a record for each of them."""
    if not spot.shared:
        return ""
    return f", to {json.dumps(spot.target)}" + (f" by MAP {spot.twin + 1} of it" if spot.twin else "")


def _target(mapped: MappedChange) -> dict[str, Any]:
    layout = mapped.plan.layout
    return {
        "version": VERSION,
        "table": [layout.schema, layout.name],
        "op": mapped.op,
        "columns": list(layout.columns),
        "logical": list(layout.logical),
        "key": list(layout.key),
        "before": _values(mapped.before),
        "after": _values(mapped.after),
    }


def _values(image: Image | None) -> list[Any] | None:
    return None if image is None else [_value(value) for value in image]


def _value(value: Value) -> Any:
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def image_of(values: list[Any] | None) -> Image | None:
    """Inverse of what a target record holds; ValueError on anything else."""
    return None if values is None else tuple(_value_of(value) for value in values)


def _value_of(value: Any) -> Value:
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"])
    if value is None or value is MISSING or isinstance(value, str):
        return value
    raise ValueError(f"a value of kind {type(value).__name__}")


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
    return tame_json(value)


def _flat(name: str) -> str:
    """A name on one line; a name can hold anything, a record's lines can't."""
    return name if name.isprintable() else json.dumps(name)
