"""START EXTRACT with ATCSN or AFTERCSN: from which transaction on an Extract captures.

Rule: the place is the trail's own, as ever; the order only leaves transactions out, whole, by their CSN. So nothing can
be captured twice or missed by it, wherever the source begins to read, and however often the process dies: the order
holds until the trail has a transaction behind it. What it leaves out is a hole, which the trail tells of. A CSN that
the trail has already is refused, and so is one before the place where a new trail begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trails.csn import like
from trails.errors import OperatorError

AT, AFTER = "at_csn", "after_csn"


@dataclass(frozen=True, slots=True)
class Since:
    """`csn` in the trail's own form; `after`: its own transaction is left out too."""

    csn: str
    after: bool

    @classmethod
    def of(cls, order: Mapping[str, Any], sample: str) -> Since | None:
        """What START ordered, if it did. `sample`: a CSN of the source. Raises OperatorError."""
        key = next((key for key in (AT, AFTER) if key in order), "")
        if not key:
            return None
        word = "AFTERCSN" if key == AFTER else "ATCSN"
        try:
            return cls(like(str(order[key]), sample), key == AFTER)
        except ValueError as error:
            raise OperatorError(f"START EXTRACT: {word}: expected {error}", hint="logdump shows CSNs") from None

    def __str__(self) -> str:
        return f"{'AFTERCSN' if self.after else 'ATCSN'} {self.csn}"

    def leaves_out(self, csn: str) -> bool:
        """Whether the transaction of that CSN is left out."""
        return csn <= self.csn if self.after else csn < self.csn

    def goes_on_behind(self, last: str) -> bool:
        """Whether a trail that ends with that transaction goes on without a hole."""
        return self.after and last == self.csn

    def check(self, group: str, last: str) -> None:
        """Raise OperatorError where the trail, whose last transaction is `last`, has what is to be captured."""
        if last and not self.leaves_out(last):
            raise OperatorError(
                f"START EXTRACT {group}, {self}: the trail has transactions up to {last}, which would come twice",
                hint=f"START EXTRACT {group}, AFTERCSN {last} goes on behind them. To read older ones again, ALTER the "
                "trail's readers",
            )

    def check_new(self, group: str, first: str) -> None:
        """Raise OperatorError where a trail that is new begins behind that CSN."""
        if self.csn < first:
            raise OperatorError(
                f"START EXTRACT {group}, {self}: the new trail begins at {first}; what lies between would be missing",
                hint=f"START EXTRACT {group}, ATCSN {first}. ALTER EXTRACT {group}, CSN n begins earlier, where the "
                "source still can",
            )
