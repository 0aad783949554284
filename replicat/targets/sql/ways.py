"""Names for conversions of canonical text that are usual, and that a kernel does by itself (kernel/README.md).

Rule: a way takes fewer texts than the rule that names it, and makes of each the same as that rule's function.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Usual(IntEnum):
    """What becomes of a text: first those that are text again, then from INT on values."""

    KEPT = 0
    """Any text, as it is."""
    WHOLE = 1
    """A whole number, as it is."""
    NUMBER = 2
    """What ends in a digit, as it is."""
    FLOAT = 3
    """The same; a zero's sign is counted as lost."""
    TRUTH = 4
    """true as 1, false as 0."""
    MOMENT = 5
    """A timestamp, as it is."""
    UTC = 6
    """A timestamp with an offset of zero, without it."""
    DATE = 7
    """A date, as it is."""
    TIME = 8
    """A time, as it is."""
    STRIPPED = 9
    """A text without the blanks at its end."""
    UNPADDED = 10
    """A text that has none there, as it is."""
    INT = 11
    """A whole number as an int."""
    DOUBLE = 12
    """A number as a float; a zero's sign is counted as lost."""
    DECIMAL = 13
    """A number as an int, or where it has a fraction as a float; idle zeros behind the point are counted as lost."""
    BIT = 14
    """true as the int 1, false as 0."""
    BYTES = 15
    r"""`\x` and hexadecimal digits as bytes."""


@dataclass(frozen=True, slots=True)
class Way:
    """A usual conversion. Of moments: how many `digits` of a second the column keeps; `since`: it begins in 1970."""

    usual: Usual
    digits: int = 0
    since: bool = False


KEPT = Way(Usual.KEPT)
WHOLE = Way(Usual.WHOLE)
NUMBER = Way(Usual.NUMBER)
FLOAT = Way(Usual.FLOAT)
TRUTH = Way(Usual.TRUTH)
DATE = Way(Usual.DATE)
STRIPPED = Way(Usual.STRIPPED)
UNPADDED = Way(Usual.UNPADDED)
INT = Way(Usual.INT)
DOUBLE = Way(Usual.DOUBLE)
DECIMAL = Way(Usual.DECIMAL)
BIT = Way(Usual.BIT)
BYTES = Way(Usual.BYTES)
