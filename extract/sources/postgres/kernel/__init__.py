"""The compiled form of pgoutput's decoder, where it was built: README.md has its rules."""

from __future__ import annotations

from typing import Any

from trails import kernels

_FOUND: Any = kernels.loaded("extract.sources.postgres.kernel.capture")
PackedDecoder: Any = _FOUND and _FOUND.PackedDecoder
PackedRecords: Any = _FOUND and _FOUND.PackedRecords
