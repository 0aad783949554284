"""The text of a discard record: for people, and in its last line but one for REPLAY DISCARDS.

Rule: a record says exactly what was not applied (images, place, the database's words), in lines that no value can
break. The line that begins `Operation failed` names the change among all others, and with the target also its MAP.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from replicat.decode import Spot
from replicat.net.part import Mapped
from replicat.refused.discardfile import BEGINS
from trails.record import MISSING, Image, Value
from trails.runtime.clock import local_text

TARGET = "Target record: "
VERSION = 1


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a change was given up: the action, the error's SQLSTATE or the conflict, and what the database said."""

    action: str
    label: str
    message: str


def record(
    spot: Spot, reason: Reason, group: str, trail_id: bytes, now_us: int, mapped: Sequence[Mapped] = ()
) -> list[str]:
    """A discard record's lines; `mapped` is the change as its target table gets it."""
    place = (
        f"Operation failed at seqno {spot.position.seqno} rba {spot.position.rba}, CSN {spot.csn}, "
        f"change {spot.index} of its transaction, group {group}, trail {trail_id.hex()}"
    )
    lines = [
        f"{BEGINS.decode()}{local_text(now_us)}",
        f"Discarding record on action {reason.action} on {reason.label}",
        " ".join(reason.message.split()),
        place + _which_map(spot),
        "Discarding record...",
        f"Problem replicating {_flat(spot.table)} to {_flat(spot.target)}",
        f"Error occurred with {spot.op} record (source format)...",
    ]
    for title, image in (("Before image", spot.before), ("After image", spot.after)):
        if image is not None:
            lines += [f"{title}:", "*", *_image(spot.columns, image), "*"]
    return [*lines, *(TARGET + json.dumps(_target(one), separators=(",", ":")) for one in mapped)]


def _which_map(spot: Spot) -> str:
    """Where several MAPs take one table, its changes have a record for each of them."""
    if not spot.shared:
        return ""
    return f", to {json.dumps(spot.target)}" + (f" by MAP {spot.twin + 1} of it" if spot.twin else "")


def _target(mapped: Mapped) -> dict[str, Any]:
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
    return json.dumps(value, ensure_ascii=False)


def _flat(name: str) -> str:
    """A name on one line; a name can hold anything, a record's lines can't."""
    return name if name.isprintable() else json.dumps(name)
