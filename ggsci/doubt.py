"""Why a lag is not believed, and how old the last truth behind it is.

Rule: a process knows only what has reached it. One that has done all of it says that it is not behind, whatever stands
still before it. So what it says is held against the last truth: a lag that is shorter than the time since then is
contradicted by it. One that is as long already tells of what stands still, and is shown.
"""

from __future__ import annotations

from dataclasses import dataclass

LEAST_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Doubt:
    """`why` nobody can tell, and how long ago somebody could; None: nobody knows that either.

    `stands`: something is known to stand still; else it is only not seen.
    """

    why: str
    age_us: int | None = None
    stands: bool = False

    def contradicts(self, lag_us: int) -> bool:
        """Is such a lag shorter than what is not seen? None at all always is."""
        return lag_us < max(self.age_us or 0, LEAST_US)


def believed(lag_us: int | None, doubt: Doubt | None) -> int | None:
    """The lag, unless it is contradicted."""
    return None if lag_us is None or (doubt is not None and doubt.contradicts(lag_us)) else lag_us


def older(one: int | None, other: int | None) -> int | None:
    """The greater of two ages, either of which may be unknown."""
    return max((age for age in (one, other) if age is not None), default=None)
