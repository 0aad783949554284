"""A hole: somebody had a writer of the trail go on further ahead in its source, or in one of another history, and what
lay between is not in the trail.

It stands in a HOLE block of its own, in the opening of the file that spends the ALTER, or the START with a CSN: so it
is there exactly if that was obeyed, whatever crashed. Pumps and Collectors pass it on. Whoever applies changes, or
hands them out, stops before it or says that it goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Hole:
    """`by`: what made it, such as `ALTER EXTRACT EXT1`; `last` and `next`: where its writer stood, and went on."""

    by: str
    last: str
    next: str

    def __str__(self) -> str:
        return f"changes between {self.last or 'an unknown place'} and {self.next} are not in the trail ({self.by})"

    def to_wire(self) -> list[str]:
        """Plain values for msgpack."""
        return [self.by, self.last, self.next]

    @classmethod
    def from_wire(cls, wire: Any) -> Hole:
        """Inverse of to_wire. Raises ValueError or TypeError on a wrong shape."""
        if not isinstance(wire, list) or not all(isinstance(part, str) for part in wire):
            raise TypeError("a hole is three texts")
        by, last, following = wire
        return cls(by, last, following)
