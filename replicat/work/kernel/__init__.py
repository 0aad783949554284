"""The compiled form of a task's work, where it was built: README.md has its rules."""

from __future__ import annotations

from typing import Any

from trails import kernels

_FOUND: Any = kernels.loaded("replicat.work.kernel.apply")
Net: Any = _FOUND and _FOUND.Net
Taker: Any = _FOUND and _FOUND.Taker
WIDEST: int = _FOUND.MOST_COLUMNS if _FOUND else 0
