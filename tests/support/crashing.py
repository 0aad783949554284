"""One sweep for all crash tests: a life runs once, and from whatever a crash at any of its calls would leave, another
life goes on.

What a call that only reads leaves is what the call before it left, and right after a sync all ways to lose what was not
synced are one: so states are gathered as the life goes, and only those that differ, in the files or in what the world
outside them knows, are lived on from. A crash is no exception here that code could handle: the next process finds what
is left.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol, Self, TypeVar

from trails.testing import After, FaultFs


class World(Protocol):
    """A file system that may crash, and whatever else outlives a process."""

    fs: FaultFs

    def outside(self) -> Hashable:
        """What the next process finds outside the file system, and what a check looks at."""

    def with_fs(self, fs: FaultFs) -> Self:
        """The same with another file system, and with an outside of its own that nothing here changes."""


W = TypeVar("W", bound=World)
Live = Callable[[W], object]


class Crashes:
    """What crashes left; `note` is called where one may happen."""

    def __init__(self, world: W, ways: Sequence[After]) -> None:
        self._world, self._ways = world, ways
        self.left: dict[Hashable, tuple[str, World]] = {}

    def note(self, where: str) -> None:
        """A crash here would leave this."""
        outside = self._world.outside()
        for how in self._ways:
            fs = self._world.fs.left(how)
            if (key := (fs.image(), outside)) not in self.left:
                self.left[key] = f"{where}, {how.name}", self._world.with_fs(fs)


def crash_everywhere(
    world: W,
    live: Callable[[W], object],
    check: Callable[[W], None],
    *,
    found: Callable[[W], None] = lambda _world: None,
    again: Callable[[int], int] | None = None,
    ways: Sequence[After] = tuple(After),
    hook: Callable[[W, Callable[[str], None]], None] | None = None,
) -> int:
    """`live`: a process's life, to its end, however it finds the world; then `check` holds. How many states there were.

    `found`: what holds already of what a crash left. `again`: at which call the life behind the n-th state crashes too.
    `hook`: lets crashes happen at other calls than those of the file system as well.
    """
    states = _states(world, live, check, ways, hook)
    for number, (where, one) in enumerate(states):
        try:
            found(one)
            _live_on(one, live, check, ways, again and again(number))
        except BaseException as error:
            error.add_note(f"after a crash at {where}")
            raise
    return len(states)


def _states(world, live, check, ways, hook):  # type: ignore[no-untyped-def]  # as crash_everywhere
    crashes = Crashes(world, ways)
    world.fs.watch = crashes.note
    if hook is not None:
        hook(world, crashes.note)
    live(world)
    world.fs.watch = None
    check(world)
    return list(crashes.left.values())


def _live_on(one, live, check, ways, at):  # type: ignore[no-untyped-def]  # as crash_everywhere
    if not at:
        live(one)
        check(one)
        return
    calls = iter(range(1, at + 1))
    crashes = Crashes(one, ways)

    def note(where: str) -> None:
        if next(calls, at + 1) == at:
            crashes.note(where)

    one.fs.watch = note
    live(one)
    one.fs.watch = None
    check(one)
    for where, other in crashes.left.values():
        try:
            live(other)
            check(other)
        except BaseException as error:
            error.add_note(f"after a second crash at {where}")
            raise
