"""The machine's time zone, as a test wants it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def machine_in(zone: str) -> Iterator[None]:
    """Local times are of this zone, for this process and those that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        yield
    time.tzset()
