"""What the Manager notes on disk for the next one: a small JSON file in dirpcs, replaced durably.

Rule: each costs little. What can't be read begins anew, and what can't be written (a full disk) holds for this Manager
only; whoever keeps the note says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, TypeVar

from trails.errors import GateError
from trails.fs import read_bytes, replace_durably
from trails.runtime.home.home import Home

T = TypeVar("T")


class Noted:
    """One such file."""

    def __init__(self, home: Home, name: str) -> None:
        self._fs = home.fs
        self.path = os.path.join(home.folder("dirpcs"), name)

    def load(self, understood: Callable[[Any], T], nothing: T, tell: Callable[[str], None] = lambda _: None) -> T:
        """What it holds; `nothing` where there is none. Why it can't be read is told."""
        try:
            return understood(json.loads(read_bytes(self._fs, self.path)))
        except FileNotFoundError:
            return nothing
        except (GateError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            tell(f"{self.path} can't be read ({error})")
            return nothing

    def save(self, value: Any) -> None:
        """Replace it. Raises GateError."""
        replace_durably(self._fs, self.path, json.dumps(value).encode())
