"""The file `dirpcs/<GROUP>.remote`: which home takes a pump's trail. pump/pin.py says when it is written."""

from __future__ import annotations

import json
from dataclasses import dataclass

from trails.errors import DamageError
from trails.fs import Fs, read_bytes
from trails.runtime.home import plain


@dataclass(frozen=True, slots=True)
class Pin:
    """`place`: RMTHOST and RMTTRAIL, where `home` answered. `alter_no`: the last ALTER that led to it."""

    place: str
    home: str
    alter_no: int


def read(fs: Fs, path: str) -> Pin | None:
    """None where no home has taken the trail yet. Raises DamageError."""
    try:
        return plain.of(Pin, json.loads(read_bytes(fs, path)))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        hint = "If the right home answers at RMTHOST, remove the file, and START"
        raise DamageError(
            f"{path}: expected the remote home of a pump, found something else ({error})", hint=hint
        ) from None
