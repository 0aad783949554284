"""One life of the whole pipeline: two machines, a source and a target in one process, and a scheduler under one seed.

The product's own programs run here, unchanged. At each turn the scheduler draws who goes on: one of the threads that
could, or some bytes of a link that arrive. When nobody could, time jumps to the next moment that somebody waits for.
The same number gives the same life, byte for byte: nothing here asks the real machine for anything.
"""

from __future__ import annotations

import heapq
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tests.world import faults, operator
from tests.world.fibers import Fiber, Proc, Ready
from tests.world.machines import PLENTY, Machine
from tests.world.network import Link, Said
from tests.world.plan import Plan
from tests.world.programs import GROUPS, MAINS
from tests.world.rules import Rules
from tests.world.source import SourceLog, Workload
from tests.world.target import Server
from tests.world.windows import Windows
from trails.errors import EXIT_OPERATOR, EXIT_STOPPED
from trails.runtime.home import registration
from trails.runtime.process.startup import exit_of
from trails.runtime.secrets import masterkeys
from trails.testing import Crash

CALM_SECONDS = 90
"""So long after the last fault all must be equal."""
MAX_EDGES = 40_000
"""A life that has more does not end: somebody goes round in a circle without waiting."""
MAX_ALONE = 512
"""Edges that one fiber may have in one turn."""
LOOK_EDGES = 400
"""So often it is looked what a loss of power would leave, whatever goes on."""
VICTIM_US = 1_000_000
"""How long a fault waits for a victim."""

DRAWS = ("turns", "link", "disk", "source", "target", "manager", "looks", "ids")


class World:
    """Made from a plan, it lives once: `live`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.draws = {name: random.Random(f"{plan.seed} {name}") for name in DRAWS}
        self.now = 0
        """Virtual time, us."""
        self.turn = threading.Lock()
        self.turn.acquire()
        self.current: Fiber | None = None
        self.ends: dict[int, Any] = {}
        """What can be polled, by descriptor."""
        self.story: list[tuple[int, str, str, bool]] = []
        self.counts: Counter[str] = Counter()
        self.deaths: Counter[str] = Counter()
        """The calls at which processes were killed."""
        self.edges = 0
        self.turns = 0
        self.hostile = False
        self.tampered: set[str] = set()
        """Trail files that somebody has changed or removed, by their base names."""
        self.over = False
        """A process has stopped with an error that names one of them."""
        self.doomed: dict[str, int] = {}
        """Edges to live of the next process of a kind, or at an end of the next link."""
        self.unreachable_until = 0
        self.echo: Said | None = None
        """What somebody says once more to the next Collector that a pump comes to."""
        self.strangers: list[bytes] = []
        """What others say who are at the next Collector's door together with the pump."""
        self.fibers: list[Fiber] = []
        self.procs: list[Proc] = []
        self.links: list[Link] = []
        self._numbers = 0
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._waiting = list(plan.faults)
        self._pause = plan.sizes.pause
        self.rules = Rules(self)
        self.near, self.far = Machine(self, "near"), Machine(self, "far")
        self.log = SourceLog()
        self.workload = Workload(plan.seed, self.log)
        self.server = Server(self)
        self.windows = Windows(self)
        self.stopped: set[str] = set()
        """Groups that an operator has stopped, and not started again."""
        self.ordered: dict[str, int] = {}
        """The number of the last ALTER of a group, by its kind."""
        for kind, group in GROUPS.items():
            registration.save(self.machine_of(kind).home, group)
        self.counts["with TLS"] += plan.sizes.tls
        self.counts["encrypted"] += plan.sizes.encrypted
        if plan.sizes.encrypted:
            for machine in (self.near, self.far):
                masterkeys.add(machine.home, machine.now_us())
                machine.fs.sync_dir(machine.home.folder("dirwlt"))

    # what edges use

    def number(self) -> int:
        """One that was never given out."""
        self._numbers += 1
        return self._numbers

    def descriptor(self, end: Any) -> int:
        """For what can be polled."""
        number = 1000 + self.number()
        self.ends[number] = end
        return number

    @property
    def running(self) -> Proc:
        """Whose turn it is."""
        assert self.current is not None
        return self.current.proc

    def chance(self, share: float) -> bool:
        """Drawn for a disk."""
        return self.draws["disk"].random() < share

    def piece(self, size: int) -> int:
        """How many of so many bytes arrive: often all."""
        draw = self.draws["link"]
        return size if size < 2 or draw.random() < 0.6 else draw.randint(1, size)

    def tell(self, who: str, what: str, *, aside: bool = False) -> None:
        """One line of the story; `aside`: what a process says of itself."""
        self.story.append((self.now, who, what, aside))

    def count(self, what: str) -> None:
        """For the sum of all lives."""
        self.counts[what] += 1

    def met(self, fault: str) -> None:
        """A fault has met somebody."""
        self.counts[f"fault: {fault}"] += 1

    def edge(self, what: str, where: str) -> None:
        """A call that leaves a process: it may die here, or others may go on first."""
        fiber = self.current
        if fiber is None:
            return
        proc = fiber.proc
        if proc.dying:
            raise Crash("dead")
        self.edges += 1
        self.now += 5
        if proc.die_in is not None:
            proc.die_in -= 1
            if proc.die_in <= 0:
                self._die(proc, fiber, what, where)
        if self.edges % LOOK_EDGES == 0:
            self.rules.look()
        if self.edges % MAX_ALONE == 0 or (self._pause and self.draws["turns"].random() < self._pause):
            fiber.pause()

    def _die(self, proc: Proc, fiber: Fiber, what: str, where: str) -> None:
        self.deaths[f"{proc.kind} {fiber.name}: {what} {where.rpartition('/')[2][:2]}".rstrip()] += 1
        self.met("kill")
        self.windows.killed(proc)
        self.tell(proc.name, f"is killed at {what} {where}".rstrip())
        proc.dying = True
        raise Crash(what)

    def wait(self, until: Ready, seconds: float | None) -> bool:
        """Until that is so, or so long; whether it is so."""
        fiber = self.current
        assert fiber is not None
        if fiber.proc.dying:
            raise Crash("dead")
        if not until():
            fiber.pause(until, None if seconds is None else self.now + int(seconds * 1e6) + 1)
        return bool(until())

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Do it then."""
        heapq.heappush(self._timers, (self.now + int(seconds * 1e6), self.number(), act))

    # processes

    def machine_of(self, kind: str) -> Machine:
        """Where it runs."""
        return self.near if kind in ("extract", "pump") else self.far

    def start(self, kind: str, machine: Machine, arguments: Sequence[str] = ()) -> Proc:
        """Begin a process."""
        proc = Proc(self, kind, machine, arguments)
        proc.die_in = self.doomed.pop(kind, None)
        proc.spawn("main", lambda: MAINS[kind](self, proc))
        self.procs.append(proc)
        self.tell(proc.name, "starts")
        return proc

    def manager_on(self, machine: Machine) -> Proc | None:
        """One that can be asked."""
        found = [p for p in self.procs if p.kind == "manager" and p.machine is machine and p.process and not p.dying]
        return found[-1] if found else None

    def greets(self, end: str, proc: Proc) -> None:
        """It has just got its end of a link."""
        proc.die_in = self.doomed.pop(end, proc.die_in)

    def runs(self, kind: str) -> bool:
        """Whether a process of a group lives."""
        return any(proc.kind == kind for proc in self.procs)

    def kill(self, proc: Proc, why: str) -> None:
        """SIGKILL."""
        if not proc.dying:
            self.tell(proc.name, f"is killed {why}")
            proc.dying = True
            if self.current is None:
                self._bury(proc)

    def lose_power(self, machine: Machine, seconds: float) -> None:
        """All of its processes are gone, and what its disk was not asked to keep may be."""
        self.tell(machine.name, f"loses power for {seconds:.3f} s")
        self.windows.power(machine)
        machine.up = False
        lost = [proc for proc in self.procs if proc.machine is machine]
        for proc in lost:
            proc.dying = proc.vanished = True
            for sock in proc.sockets:
                sock.vanished = True
        for proc in lost:
            self._bury(proc)
        for line in machine.fs.lose_power():
            self.tell(machine.name, line, aside=True)
        self.later(seconds, lambda: self._boot(machine))

    def _boot(self, machine: Machine) -> None:
        self.tell(machine.name, "is up again")
        machine.boot()
        self.serve(machine)
        for kind, group in GROUPS.items():
            if self.machine_of(kind) is machine and machine.home.registration(group.name) not in machine.fs.names:
                operator.start_again(self, kind)

    def serve(self, machine: Machine) -> None:
        """The system starts its service, the Manager, and that one the groups."""
        if machine.up and not any(proc.kind == "manager" and proc.machine is machine for proc in self.procs):
            self.start("manager", machine)

    def _bury(self, proc: Proc) -> None:
        """Let a dying process's fibers unwind; then the system takes back what it had."""
        for fiber in proc.fibers:
            while not fiber.done:
                fiber.resume()
        self.fibers = [fiber for fiber in self.fibers if not fiber.done]
        if proc.dead:
            return
        proc.dead = True
        if proc.code is None:
            proc.code = exit_of(proc.error)[0] if proc.error is not None else -signal.SIGKILL
        for sock in proc.sockets:
            sock.vanished = sock.vanished or proc.vanished
            sock.close()
        proc.machine.fs.died(proc)
        self.procs.remove(proc)
        if proc.kind == "replicat" and self.server.under_way is not None:
            self.server.settle_later()
        self._over(proc)

    def _over(self, proc: Proc) -> None:
        """Who starts it again: the system a Manager, that one a group, and an operator what he stopped or must mend."""
        if proc.error is not None:
            self.tell(proc.name, f"ends: {type(proc.error).__name__}: {proc.error}")
        elif not proc.dying:
            self.tell(proc.name, "has ended in order")
        self.rules.ended(proc)
        machine = proc.machine
        machine.forget(proc)
        if not machine.up:
            return
        if proc.kind == "manager":
            self.later(self.draws["manager"].random() * 0.6, lambda: self.serve(machine))
        elif proc.kind in GROUPS and (proc.code in (EXIT_STOPPED, EXIT_OPERATOR) or self._is_held(proc)):
            operator.start_again(self, proc.kind)

    def _is_held(self, proc: Proc) -> bool:
        manager = self.manager_on(proc.machine)
        return manager is not None and proc.group_name in manager.process._children._held

    # the scheduler

    def live(self) -> None:
        """The whole life. Raises ViolationError."""
        try:
            self._live()
        finally:
            self.hostile = False
            for proc in list(self.procs):
                proc.dying = True
            for fiber in self.fibers:
                while not fiber.done:
                    fiber.resume()
        if self.rules.violation is not None:
            raise self.rules.violation

    def _live(self) -> None:
        for machine in (self.near, self.far):
            self.serve(machine)
        self.hostile = True
        commits = list(reversed(self.plan.commits))
        end = max(self.plan.commits[-1], max((fault.at for fault in self.plan.faults), default=0) + VICTIM_US)
        while self._goes_on and self.now < end:
            while commits and commits[-1] <= self.now:
                commits.pop()
                made = self.workload.commit()
                self.tell("source", f"commits transaction {made.number} of {len(made.changes)} changes", aside=True)
            self._turn([commits[-1]] if commits else [end])
        if self._goes_on:
            self._calm()
        end = self.now + CALM_SECONDS * 1_000_000
        while self._goes_on and not self.rules.equal:
            self._turn([end])
            if self.now >= end:
                row = self.server.store.row
                self.rules.broken(f"not equal {CALM_SECONDS} s after the last fault: the target's row is {row}")
        if self.edges > MAX_EDGES:
            self.rules.broken(f"{MAX_EDGES} calls in {self.now / 1e6:.1f} s: somebody goes round in a circle")
        if self.rules.violation is None:
            self.rules.shows("the end")

    @property
    def _goes_on(self) -> bool:
        return self.rules.violation is None and self.edges <= MAX_EDGES and not self.over

    def _calm(self) -> None:
        """From here on nothing fails any more."""
        self.tell("world", "no more faults")
        self.hostile = False
        self._waiting.clear()
        self.doomed.clear()
        self.unreachable_until, self.server.down_until, self.echo = 0, 0, None
        self.strangers.clear()
        for proc in self.procs:
            proc.die_in, proc.frozen_until = None, 0
        for link in self.links:
            link.silent_until = 0
        for machine in (self.near, self.far):
            machine.fs.trouble, machine.fs.next_sync_fails, machine.free = None, False, PLENTY

    def _turn(self, moments: list[int]) -> None:
        """One goes on. `moments`: when else something is to be done."""
        draw = self.draws["turns"]
        self.turns += 1
        self.now += int(draw.random() * 300)
        while self._timers and self._timers[0][0] <= self.now:
            heapq.heappop(self._timers)[2]()
        if self._waiting and self._waiting[0].at <= self.now:
            self._strike()
        now, random = self.now, draw.random
        waiting: list[Any] = [*self.fibers]
        for link in self.links:
            waiting += link.moving()
        while waiting:  # asked in any order, the first that is ready is any of them
            at = int(random() * len(waiting))
            pick = waiting[at]
            if type(pick) is not Fiber:
                pick.link.deliver(pick)
                return
            if pick.ready(now):
                pick.resume()
                self._look_after(pick)
                return
            waiting[at] = waiting[-1]
            waiting.pop()
        self._let_time_go_by(moments)

    def _strike(self) -> None:
        """Carry out the faults whose moment has come."""
        for fault in [fault for fault in self._waiting if fault.at <= self.now]:
            if faults.carry_out(self, fault) or self.now - fault.at > VICTIM_US:
                self._waiting.remove(fault)

    def _look_after(self, fiber: Fiber) -> None:
        """Of whom it was the turn, and whom that may have killed."""
        for proc in [proc for proc in self.procs if proc.dying]:
            self._bury(proc)
        if fiber.done:
            self.fibers = [other for other in self.fibers if not other.done]
            if not fiber.proc.dead and fiber is fiber.proc.fibers[0]:
                self._end(fiber.proc)
        if len(self.links) > 1:
            self.links = [link for link in self.links if link.is_open]

    def _end(self, proc: Proc) -> None:
        """Its main thread is over, and so is the process, with whatever still runs in it."""
        others = [fiber for fiber in proc.fibers if not fiber.done]
        proc.dying = bool(others)
        self._bury(proc)

    def _let_time_go_by(self, moments: list[int]) -> None:
        """To the next moment at which anything happens."""
        now = self.now
        found = [moment for moment in moments if moment > now]
        for fiber in self.fibers:
            thawed = fiber.proc.frozen_until
            if fiber.deadline is not None:
                found.append(max(fiber.deadline, thawed))
            if thawed > now:
                found.append(thawed)
        found += [link.silent_until for link in self.links if link.silent_until > now]
        found += [moment for moment, *_ in self._timers[:1]]
        found += [fault.at for fault in self._waiting[:1] if fault.at > now]
        self.now = max(now, min(found))
