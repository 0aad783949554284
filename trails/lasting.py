"""What a process has imported lasts as long as it does: Python's collector of cycles need not look through it.

At a process's end it would, twice, for a tenth of what a short process costs. Nothing that must be done is left to it:
files are closed and synced by name, and a process that is killed has no end at all.
"""

from __future__ import annotations

import atexit
import gc


def keep_imports() -> None:
    """To be called once by a process that has imported what it begins with."""
    gc.freeze()
    atexit.register(gc.freeze)
