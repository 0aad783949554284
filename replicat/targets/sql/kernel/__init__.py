"""The compiled form of a codec's usual conversions, where it was built: README.md has its rules."""

from __future__ import annotations

from typing import Any

from trails import kernels

_FOUND: Any = kernels.loaded("replicat.targets.sql.kernel.convert")
Converter: Any = _FOUND and _FOUND.Converter
WIDEST: int = _FOUND.MOST_COLUMNS if _FOUND else 0
