"""A machine of the world: its disk, its clocks, and what its processes wait with. See trails.host.Host.

Time is the world's and moves only between two turns; each machine's wall clock may be wrong by its own `skew`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tests.world.disk import Disk
from tests.world.network import SimEpoll
from trails.fs import replace_durably
from trails.host import Wait
from trails.runtime.home.home import SUBDIRS, Home
from trails.runtime.process.diskguard import Limits, Space
from trails.testing import Crash

if TYPE_CHECKING:
    from tests.world.fibers import Proc
    from tests.world.manager import SimDoor
    from tests.world.network import SimListener
    from tests.world.world import World

PLENTY = 50
MOST_PIDS = 14
HOME_IDS = MappingProxyType({"near": "0e" * 16, "far": "fa" * 16})
"""The homes of all lives: their certificates are made once."""
EPOCH_US = 1_700_000_000_000_000


class Machine:
    """See Host. `up`: it has power. `home`: the one that is on it."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.up, self.skew = True, 0
        self.pids: dict[int, Proc] = {}
        """Who has which number."""
        self._last_pid = 0
        self.boots = self.booted = 0
        self.door: SimDoor | None = None
        """The Manager's port, once a Manager has listened there."""
        self.listeners: dict[int, SimListener] = {}
        """Where its Collectors listen, or have listened, by port."""
        self.free = PLENTY
        """Free space of its disk, of 100."""
        root = f"/{name}"
        self.folders = frozenset((root, *(f"{root}/{folder}" for folder in SUBDIRS)))
        self.fs = Disk(self)
        self.home = Home(root, self.fs)
        replace_durably(self.fs, f"{root}/dirpcs/HOME", HOME_IDS[name].encode() + b"\n")
        self.home.create_subdirs()
        self.fs.sync_dir(f"{root}/dirpcs")
        self.id = self.home.id  # kept from now on: its lock must not be met by two fibers

    def number(self, proc: Proc) -> int:
        """A process id for it."""
        while True:
            self._last_pid = self._last_pid % MOST_PIDS + 1
            if self._last_pid not in self.pids:
                self.pids[self._last_pid] = proc
                return self._last_pid

    def boot(self) -> None:
        """It has power again, and no process yet; numbers begin anew."""
        self.up = True
        self.boots, self.booted = self.boots + 1, self.world.now
        self.pids.clear()
        self._last_pid = 0

    def forget(self, proc: Proc) -> None:
        """A dead process, of which nobody will ask any more; its dead children too, if it was a Manager."""
        if proc.parent is None or proc.parent.dead:
            self.pids.pop(proc.pid, None)
        for child in list(self.pids.values()):
            if child.parent is proc and child.dead:
                del self.pids[child.pid]

    # clocks

    def now_us(self) -> int:
        return EPOCH_US + self.world.now + self.skew

    def monotonic(self) -> float:
        return self.world.now / 1e6

    def sleep(self, seconds: float) -> None:
        self.world.wait(lambda: False, seconds)

    # the rest of Host

    def cpu_seconds(self) -> float:
        """Work takes no time here."""
        return 0.0

    def random_bytes(self, size: int) -> bytes:
        return self.world.draws["ids"].randbytes(size)

    def birth(self, pid: int) -> str | None:
        self.world.edge("birth", "")
        found = self.pids.get(pid)
        return None if found is None or found.dead else found.born

    def poll(self, waits: Sequence[Wait], seconds: float) -> list[tuple[int, int]]:
        numbers = [item if isinstance(item, int) else item[0] for item in waits]
        ends = [(number, self.world.ends[number]) for number in numbers]  # one that is closed is a bug
        self.world.edge("poll", "")
        found = [(number, 1) for number, end in ends if end.readable()]
        if not found and seconds > 0:
            self.world.wait(lambda: _any_readable(ends), seconds)
            found = [(number, 1) for number, end in ends if end.readable()]
        return found

    def epoll(self) -> SimEpoll:
        return SimEpoll(self.world)

    def signal(self) -> SimSignal:
        return SimSignal(self.world)

    def executor(self, name: str) -> Any:
        return SimExecutor(self.world.running, name)

    def thread(self, name: str, work: Callable[[], None]) -> None:
        self.world.running.spawn(name, work)

    def wait(self, future: Future[Any], seconds: float | None = None) -> bool:
        if not future.done():
            self.world.wait(future.done, seconds)
        return future.done()


class SimLimits(Limits):
    """DISKWARN 10 and DISKSTOP 2, of 100, on a machine of the world."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        object.__setattr__(self, "machine", machine)

    def look(self, folders: Iterable[str]) -> list[Space]:
        del folders  # they are all on one disk
        machine: Machine = self.machine  # type: ignore[attr-defined]
        machine.world.edge("statvfs", "")
        return [Space(f"{machine.home.root}/dirdat", machine.free, 100, 10, 2)]


def _any_readable(ends: Sequence[tuple[int, Any]]) -> bool:
    """Asked at each turn of the world: a loop is quicker than any() here."""
    for _, end in ends:  # noqa: SIM110
        if end.readable():
            return True
    return False


class SimSignal:
    """See Signal."""

    def __init__(self, world: World) -> None:
        self._world, self._is_set = world, False
        self._number = world.descriptor(self)

    def readable(self) -> bool:
        return self._is_set

    def fileno(self) -> int:
        return self._number

    def set(self, _done: object = None, /) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def close(self) -> None:
        self._world.ends.pop(self._number, None)
        self._number = -1


class SimExecutor:
    """See Host.executor: each work is a fiber of the process, interleaved with the others at every edge."""

    def __init__(self, proc: Proc, name: str) -> None:
        self._proc, self._name = proc, name
        self._last: Future[Any] | None = None

    def submit(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def main() -> None:
            try:
                found = work(*args)
            except Crash:
                raise
            except BaseException as error:  # noqa: BLE001  -- as a pool does
                future.set_exception(error)
            else:
                future.set_result(found)

        self._proc.spawn(self._name, main)
        self._last = future
        return future

    def shutdown(self, wait: bool = True) -> None:
        if wait and self._last is not None and not self._last.done():
            self._proc.world.wait(self._last.done, None)
