"""The compiled form of a task's work, where it was built: README.md has its rules."""

from __future__ import annotations

from typing import Any

from trails import kernels

_FOUND: Any = kernels.loaded("replicat.work.kernel.apply")
Net: Any = _FOUND and _FOUND.Net
Taker: Any = _FOUND and _FOUND.Taker
Asked: Any = _FOUND and _FOUND.Asked
Mapped: Any = _FOUND and _FOUND.Mapped
Operands: Any = _FOUND and _FOUND.Operands
OperandRows: Any = _FOUND and _FOUND.OperandRows
Results: Any = _FOUND and _FOUND.Results
WIDEST: int = _FOUND.MOST_COLUMNS if _FOUND else 0
UNCHECKED, DECIMAL, TIME = (_FOUND.UNCHECKED, _FOUND.DECIMAL, _FOUND.TIME) if _FOUND else (0, 1, 2)
"""What is asked of an operand, so that Spark gets it as it is."""
UNCHANGED, SHORTENED, MOMENT = (_FOUND.UNCHANGED, _FOUND.SHORTENED, _FOUND.MOMENT) if _FOUND else (0, 1, 2)
"""What is done to a result."""
