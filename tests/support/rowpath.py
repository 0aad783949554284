"""Which of our functions one inserted row passes on its way, stage by stage, in the order in which they are called.

Real servers, real sockets, real files; every process's parts run in this one process, so that the interpreter's profile
hook sees them. How the way is cut:

- It begins where the row's bytes arrive, on a pipeline through which the table's first row has gone already: what that
  one needs (definitions, plans, connections) is start-up. Clocks stand still, so nothing is done because it is time.
- Right before the row a few turns are made in which nothing comes. A function that such a turn calls too is counted
  only while it calls, itself or further down, one that such a turn does not: so step() counts, and a look at a timer
  does not.
- What the main loop asks a process between two steps (what to wait for, how long) is not on the way.
- A def and a lambda count; comprehensions and what dataclasses generate do not. Threads that are not on the way (the
  guard of the slot) are not heard.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FrameType
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGES = ("extract", "pump", "collector", "replicat", "trails", "ggsci")
PASSED_OVER = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<module>")
OF_PLACES = (("trails/reader.py", "BlockReader._authenticate"),)
"""A block that only says how far the source was read may come beside the row's: when, is the server's matter."""
TEST_DOUBLES = "trails/testing.py"
THREADS = ("trail-sync", "spark", "resident")
"""In these whatever runs is on the way; in others what a stage's entries call, `Extract.step` for one."""

CAME = "something came"

Passed = tuple[str, str]
"""A function: its file below the root, and its qualified name there."""
Chain = tuple[Passed, ...]


class Profile:
    """Listens to calls of our functions, in all threads that begin after it."""

    def __init__(self) -> None:
        self._ours: dict[CodeType, Passed | None] = {}
        self.entries: tuple[str, ...] = ()
        """Of the stage that is looked at."""
        self.heard: set[Passed] = set()
        """In the idle turns, so far."""
        self._is_idle = False
        self._row: list[Chain] | None = None

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Put the hook in, and take it out again."""
        before = sys.getprofile()
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(before)
            threading.setprofile(before)  # type: ignore[arg-type]  # None is taken

    def quiet(self, idle: Callable[[], Any]) -> frozenset[Passed]:
        """What turns call in which nothing comes: again while `idle` says that something came all the same."""
        came, self._is_idle = True, True
        while came:
            self.heard.clear()
            came = idle() is CAME
        self._is_idle = False
        return frozenset(self.heard)

    def path(self, row: Callable[[], Any], quiet: frozenset[Passed]) -> list[Chain]:
        """What `row` calls on the row's way, in the order of the calls: each with those that are running then."""
        self._row = []
        row()
        chains, self._row = self._row, None
        return [chain for chain in chains if chain[-1] not in quiet]

    def _called(self, frame: FrameType, event: str, _arg: object) -> None:
        if event != "call" or not (self._is_idle or self._row is not None):
            return
        found = self._name(frame.f_code)
        if found is None:
            return
        chain = self._chain(frame)
        if chain[0][1] not in self.entries and not threading.current_thread().name.startswith(THREADS):
            return
        if self._is_idle:
            self.heard.add(found)
        elif self._row is not None:
            self._row.append(chain)

    def _chain(self, frame: FrameType | None) -> Chain:
        """Ours of the functions that are running, the outermost first."""
        found = []
        while frame is not None:
            if (name := self._name(frame.f_code)) is not None:
                found.append(name)
            frame = frame.f_back
        return tuple(reversed(found))

    def _name(self, code: CodeType) -> Passed | None:
        if code not in self._ours:
            path = os.path.relpath(code.co_filename, ROOT) if os.path.isabs(code.co_filename) else ""
            ours = path.split(os.sep)[0] in PACKAGES and path != TEST_DOUBLES and code.co_name not in PASSED_OVER
            ours = ours and (path, code.co_qualname) not in OF_PLACES
            self._ours[code] = (path, code.co_qualname) if ours else None
        return self._ours[code]


def functions(chains: Iterable[Chain]) -> list[Passed]:
    """Each function once, in the order of the first calls."""
    return list(dict.fromkeys(one for chain in chains for one in chain))


def path_in_the_page() -> dict[str, list[Passed]]:
    """The path of one row as ARCHITECTURE.md leads along it, by stage."""
    with open(os.path.join(ROOT, "ARCHITECTURE.md"), encoding="utf-8") as page:
        _, _, text = page.read().partition("\n## The path of one row\n")
    found: dict[str, list[Passed]] = {}
    for line in text.partition("\n## ")[0].splitlines():
        if heading := re.match(r"### (\w+): ", line):
            found[heading[1]] = []
        elif row := re.match(r"\| `([^`]+)` \| `([^`]+)` \|", line):
            list(found.values())[-1].append((row[1].replace(".", "/") + ".py", row[2]))
    return found
