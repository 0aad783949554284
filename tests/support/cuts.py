"""Links that are cut at any byte and in any way. All of it heals: by itself, or behind an end with exit code 3.

An exercise goes over its link once in `run`. It is run uncut to learn how many bytes that takes; then with each cut,
and after each once more without one, as AUTORESTART would. Times after which a silent peer is lost are short meanwhile.
The links are in cut_links.py.
"""

from __future__ import annotations

import faulthandler
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from demo.patience import PATIENCE
from demo.proxy import Cut, Proxy
from trails.errors import EXIT_AWAY
from trails.runtime.process.startup import exit_of


class Cutter:
    """Cuts one link once, at a byte that is counted over all its connections, also those to several ports."""

    def __init__(self) -> None:
        self._proxies: list[Proxy] = []
        self._at: int | None = None

    def before(self, port: int, listen: tuple[str, int] = ("127.0.0.1", 0)) -> int:
        """One more proxy, before that port; its own port."""
        self._proxies.append(Proxy(lambda: ("127.0.0.1", port), self._left, listen))
        return self._proxies[-1].port

    @property
    def forwarded(self) -> int:
        """All bytes so far, both ways."""
        return sum(proxy.forwarded for proxy in self._proxies)

    @property
    def cuts(self) -> int:
        """How often a connection was cut."""
        return sum(proxy.cuts for proxy in self._proxies)

    def arm(self, at: int | None, cut: Cut = Cut.RESET) -> None:
        """Cut the connections that begin from now on, after so many bytes; None: do not."""
        self._at = None if at is None else self.forwarded + at
        self._before = self.cuts
        for proxy in self._proxies:
            proxy.cut = cut

    def _left(self) -> int | None:
        return None if self._at is None or self.cuts > self._before else max(1, self._at - self.forwarded)

    def close(self) -> None:
        """Cut all."""
        for proxy in self._proxies:
            proxy.close()


@contextmanager
def cutting() -> Iterator[Cutter]:
    """A Cutter that is closed in the end."""
    made = Cutter()
    try:
        yield made
    finally:
        made.close()


@dataclass
class Exercise:
    """What goes over a link, and what must hold behind each run.

    `hasty` sets short times after which a silent peer is lost. `heals`: it may not even raise what is exit code 3.
    """

    cutter: Cutter
    run: Callable[[], object]
    holds: Callable[[], object] = lambda: None
    hasty: Callable[[pytest.MonkeyPatch], object] = lambda _: None
    heals: bool = False
    faults: list[str] = field(default_factory=list)

    def length(self) -> int:
        """Its bytes; the first run makes what later ones find."""
        for _ in range(2):
            before = self.cutter.forwarded
            self.run()
            self.holds()
        return self.cutter.forwarded - before

    def cut(self, at: int, cut: Cut) -> bool:
        """One run with a cut, and one without. Whether anything was cut: a run may be shorter than the one before."""
        where, before = f"byte {at}, {cut.value}", self.cutter.cuts
        self.cutter.arm(at, cut)
        with pytest.MonkeyPatch.context() as patch:
            if cut in (Cut.SILENT, Cut.HALF_OPEN):
                self.hasty(patch)
            error = _bounded(self.run, where)
        if error is not None:
            code, text = exit_of(error)
            if code != EXIT_AWAY or self.heals:
                self.faults.append(f"{where}: exit code {code}: {text}")
        was_cut = self.cutter.cuts > before
        self.cutter.arm(None)
        error = _bounded(self.run, f"behind {where}") or _bounded(self.holds, f"behind {where}")
        if error is not None:
            self.faults.append(f"behind {where}: {error!r}")
        return was_cut

    def sweep(self, places: Iterable[int], cuts: Iterable[Cut]) -> list[str]:
        """What was wrong."""
        for cut in cuts:
            for at in places:
                while not self.cut(at, cut):
                    assert at > 1, f"{cut.value}: no place of the link is ever cut"
                    at //= 2  # noqa: PLW2901  -- behind the run's end; half of it is inside
        return self.faults

    def drawn(self, count: int, seed: int) -> list[str]:
        """A few cuts of each kind, at bytes that are the same each time."""
        chance, length = random.Random(seed), self.length()
        for cut in Cut:
            self.sweep(sorted(chance.randrange(1, length) for _ in range(count)), [cut])
        return self.faults


def _bounded(do: Callable[[], object], what: str) -> BaseException | None:
    """What it raises. One that does not end is told with what its thread does, and ends the test."""
    raised: list[BaseException] = []

    def work() -> None:
        try:
            do()
        except BaseException as error:  # noqa: BLE001  -- told by the other thread
            raised.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if thread.is_alive():
        faulthandler.dump_traceback()
        raise AssertionError(f"{what}: it waits without a bound (see the threads above)")
    return raised[0] if raised else None
