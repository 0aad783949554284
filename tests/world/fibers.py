"""Processes and threads of the simulated world: real threads, of which exactly one runs at any time.

A fiber gives its turn back only at an edge: a call of a disk, a socket, a clock, a target. So the product's programs
run as they are, loops and all, and the scheduler says at each edge who goes on. A process that is killed finds `Crash`
raised at the edge where each of its fibers stands, and at every edge that its `finally` clauses still try.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tests.world.processes import TICK_US
from trails.runtime.home.home import MANAGER
from trails.testing import Crash

if TYPE_CHECKING:
    from tests.world.machines import Machine
    from tests.world.network import SimSocket
    from tests.world.world import World

Ready = Callable[[], Any]
NAMES: Mapping[str, str] = MappingProxyType({"extract": "EXT1", "pump": "PMP1", "replicat": "REP1", "manager": MANAGER})
KINDS: Mapping[str, str] = MappingProxyType(
    {"extract": "EXTRACT", "pump": "EXTRACT", "replicat": "REPLICAT", "manager": "MANAGER"}
)


class Proc:
    """A process: its fibers die together, and what a system takes back at a death is taken back then."""

    def __init__(self, world: World, kind: str, machine: Machine, arguments: Sequence[str] = ()) -> None:
        self.world, self.kind, self.machine = world, kind, machine
        self.arguments = arguments
        """Its command line, where a Manager has started it."""
        self.pid, self.born = machine.number(self), f"{(world.now - machine.booted) // TICK_US} of boot {machine.boots}"
        self.parent: Proc | None = None
        """The Manager that will ask how it ended."""
        self.pipe: Any = None
        """To that one, for its first word."""
        self.code: int | None = None
        """Its exit code, once it is dead; minus the signal that ended it."""
        self.name = f"{kind}#{world.number()}"
        self.fibers: list[Fiber] = []
        self.sockets: list[SimSocket] = []
        self.dying = self.dead = False
        self.vanished = False
        """Its machine lost power: no peer is told."""
        self.die_in: int | None = None
        """Edges that it has left to live."""
        self.frozen_until = 0
        self.superseded = False
        """Another was started in its place while it lived."""
        self.error: BaseException | None = None
        self.orders: list[tuple[str, dict[str, Any]]] = []
        """What it is asked, and by what name."""
        self.process: Any = None
        """The product's, once it is built."""
        self.stop: Any = Wish(world)
        self.lock: Any = None
        """Its group's."""
        self.standing: Any = None
        """Who sees to it that its lock and files stay; no Collector has it."""
        self.group: Any = None
        """Its group's registration, as it was read at its start."""
        self.note: Any = None
        """What its process file says."""
        self.asked = ""
        """The group that it is told to KILL."""
        self.held: set[str] = set()
        """Groups that it was told to hold down, and has noted."""

    @property
    def group_name(self) -> str:
        """As its home knows it."""
        return NAMES.get(self.kind, self.kind)

    @property
    def group_kind(self) -> str:
        """The same."""
        return KINDS[self.kind]

    def spawn(self, what: str, main: Callable[[], None]) -> Fiber:
        """One more thread."""
        fiber = Fiber(self, what, main)
        self.fibers.append(fiber)
        self.world.fibers.append(fiber)
        return fiber


class Wish:
    """As loop.Stop: that a process ends."""

    def __init__(self, world: World) -> None:
        self.requested = self.forced = False
        self.error: Any = None
        self._number = world.descriptor(self)

    def request(self, *, forced: bool = False, error: Any = None) -> None:
        """See loop.Stop."""
        self.requested, self.forced, self.error = True, self.forced or forced, self.error or error

    def readable(self) -> bool:
        return self.requested

    def fileno(self) -> int:
        return self._number

    def clear(self) -> None: ...


class Fiber:
    """One thread of a process. `until`: what it waits for; `deadline`: when it goes on anyhow, in us."""

    def __init__(self, proc: Proc, name: str, main: Callable[[], None]) -> None:
        self.proc, self.name, self.main = proc, name, main
        self.world = proc.world
        self.done = False
        self.until: Ready | None = None
        self.deadline: int | None = None
        self._thread: _Thread | None = None

    def ready(self, now: int) -> bool:
        """Whether it could go on."""
        if now < self.proc.frozen_until:
            return False
        if self.until is None or (self.deadline is not None and now >= self.deadline):
            return True
        return bool(self.until())

    def resume(self) -> None:
        """Let it run until its next pause; called by the scheduler."""
        if self._thread is None:
            self._thread = _IDLE.pop() if _IDLE else _Thread()
            self._thread.fiber = self
        world = self.world
        world.current = self
        self._thread.turn.release()
        world.turn.acquire()
        world.current = None

    def pause(self, until: Ready | None = None, deadline: int | None = None) -> None:
        """Give the turn back; called by the fiber itself. Raises Crash where its process was killed meanwhile."""
        if self.proc.dying:
            raise Crash("dead")
        self.until, self.deadline = until, deadline
        assert self._thread is not None
        self.world.turn.release()
        self._thread.turn.acquire()
        self.until = self.deadline = None
        if self.proc.dying:
            raise Crash("killed while it waited")

    def live(self) -> None:
        """Its whole life; called by its thread."""
        try:
            if not self.proc.dying:
                self.main()
        except Crash:
            pass
        except BaseException as error:  # noqa: BLE001  -- the world judges it
            self.proc.error = self.proc.error or error


class _Thread(threading.Thread):
    """Lives fiber after fiber: to start a thread costs more than a short life in it."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.turn = threading.Lock()
        self.turn.acquire()
        self.fiber: Fiber | None = None
        self.start()

    def run(self) -> None:
        while True:
            self.turn.acquire()
            assert self.fiber is not None
            fiber, self.fiber = self.fiber, None
            fiber.live()
            fiber.done = True
            _IDLE.append(self)
            fiber.world.turn.release()


_IDLE: list[_Thread] = []
