"""With this folder in PYTHONPATH a Python process has a slow disk: each of its syncs takes 20 ms more."""

import os
import time
from collections.abc import Callable

SECONDS = 0.02


def _slow(sync: Callable[[int], None]) -> Callable[[int], None]:
    def slower(fd: int) -> None:
        time.sleep(SECONDS)
        sync(fd)

    return slower


os.fsync, os.fdatasync = _slow(os.fsync), _slow(os.fdatasync)
