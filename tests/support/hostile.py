"""How many inputs a parser is given that nobody should ever send it: a few in each test run, the same each time, and as
many new ones as TRAILGATE_HOSTILE says in `make soak`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import settings

Test = TypeVar("Test", bound=Callable[..., None])

MANY = int(os.environ.get("TRAILGATE_HOSTILE", "0"))


def hostile(few: int = 150) -> Callable[[Test], Test]:
    """Marks a test of hypothesis as one of them; `few`: its inputs in each test run."""
    budget = settings(max_examples=MANY or few, derandomize=not MANY)

    def marked(test: Test) -> Test:
        return pytest.mark.hostile(budget(test))

    return marked
