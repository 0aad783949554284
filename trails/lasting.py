"""What a process has imported lasts as long as it does: Python's collector of cycles need not look through it.

At a process's end it would, twice, for a tenth of what a short process costs. Nothing that must be done is left to it:
files are closed and synced by name, and a process that is killed has no end at all. And rows hold no cycles: at the
default thresholds it looks through all of a block's rows ten times, and finds nothing.
"""

from __future__ import annotations

import atexit
import gc

THRESHOLDS = (100_000, 50, 50)


def keep_imports() -> None:
    """For a process that has imported what it begins with, and again once it has made what it works with."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    atexit.register(gc.freeze)
