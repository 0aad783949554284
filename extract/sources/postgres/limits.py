"""WALWARN and WALCRITICAL: their defaults, and what they mean in bytes. No driver is imported here, as in kind.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from extract.source import SourceSettings
from trails.runtime.language.freespace import Bound

WARN: Final = Bound(10 << 30), Bound(50, percent=True)
CRITICAL: Final = Bound(50 << 30), Bound(80, percent=True)
"""Of the log that is kept back; the lesser one counts, and a percentage only where there is a limit to it."""


@dataclass(frozen=True, slots=True)
class WalLimits:
    """WALWARN and WALCRITICAL. A percentage is of max_slot_wal_keep_size, and says nothing where that is unlimited."""

    warn: tuple[Bound, ...] = WARN
    critical: tuple[Bound, ...] = CRITICAL

    @classmethod
    def of(cls, settings: SourceSettings) -> WalLimits:
        """As the parameter file says; what it does not say is as it is without it."""
        usual, warn, critical = cls(), settings.own.get("WALWARN"), settings.own.get("WALCRITICAL")
        return cls((warn,) if warn else usual.warn, (critical,) if critical else usual.critical)

    def bytes_of(self, limit: int | None) -> tuple[int, int]:
        """Both in bytes, where the server keeps at most `limit` (None: any amount); 0 is never."""
        return _least(self.warn, limit), _least(self.critical, limit)


def _least(bounds: tuple[Bound, ...], limit: int | None) -> int:
    usable = [bound.bytes_of(limit or 0) for bound in bounds if bound.amount and (limit or not bound.percent)]
    return min(usable, default=0)
