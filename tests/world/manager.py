"""What the Managers of the two homes decide: which Collector serves the pump, what is purged, what is started again.

Starting a Collector and answering the pump are done here in the Manager's own order (ggsci/manager/collectors.py);
purging is the product's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collector.collector import refuse
from ggsci.manager import purge
from ggsci.manager.rules import PurgeRule
from pump.link import LinkRequest
from tests.world.fibers import Proc
from tests.world.network import Link, SimListener
from trails.errors import AwayError, GateError, OperatorError

if TYPE_CHECKING:
    from tests.world.machines import Machine
    from tests.world.world import World

TERM_SECONDS = 0.3
START_SECONDS = 2.0
ANSWER_SECONDS = 10.0
RULE = PurgeRule("./dirdat/*", min_files=1)


class Managers:
    """The far one, whose port the pump knows, and the purging of both."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.far = self._begin()
        self._known: Proc | None = None
        """The Collector that the far one has started; one that began later knows of none."""
        self._listeners: dict[Proc, SimListener] = {}

    def _begin(self) -> Proc:
        proc = Proc(self.world, "manager", self.world.far)
        self.world.procs.append(proc)
        return proc

    def restart(self) -> None:
        """Another one, which finds out anew."""
        self._known = None
        self.far = self._begin()

    def ready(self, proc: Proc, listener: SimListener) -> None:
        """A Collector listens."""
        self._listeners[proc] = listener

    # the pump's side

    def dial(self, request: LinkRequest, timeout: float) -> Any:
        """See pump.link.dial; in the pump's own process."""
        world, manager = self.world, self.far
        self._reach(request.manager, timeout)
        answer: list[Proc | GateError] = []
        manager.spawn("request", lambda: answer.append(self._serve()))
        if not world.wait(lambda: answer or manager.dead, ANSWER_SECONDS):
            raise AwayError(f"{request.manager} took the connection and said nothing")
        if not answer:
            raise AwayError(f"{request.manager} closed the link before it answered")
        found = answer[0]
        if isinstance(found, GateError):
            raise found
        return self._connect(found)

    def _reach(self, who: str, timeout: float) -> None:
        world = self.world
        world.edge("connect", "link")
        if not world.far.up or self.far.dead or world.now < world.unreachable_until:
            world.wait(lambda: False, timeout)
            raise AwayError(f"{who} can't be reached: timed out")

    def _connect(self, collector: Proc) -> Any:
        world, pump = self.world, self.world.running
        self._reach("Collector at far", 0.5)
        listener = self._listeners[collector]
        if collector.dead or listener.closed:
            raise AwayError("Collector at far can't be reached: Connection refused")
        link = Link(world, pump.machine, world.far)
        world.links.append(link)
        listener.queue.append(link.far)
        collector.sockets.append(link.far)
        pump.sockets.append(link.near)
        return link.near

    # the Manager's side

    def _serve(self) -> Proc | GateError:
        """START COLLECTOR: end the older one, start another, wait until it listens."""
        world = self.world
        world.wait(lambda: False, world.draws["manager"].random() * 0.05)
        older = self._known
        if older is not None and not older.dead:
            older.stop.request()
            if not world.wait(lambda: older.dead, TERM_SECONDS):
                world.kill(older, "by its Manager")
                world.wait(lambda: older.dead, TERM_SECONDS)
        new = self._known = world.start("collector")
        world.wait(lambda: new in self._listeners or new.dead, START_SECONDS)
        if new in self._listeners:
            return new
        error = new.error
        text = f"Manager at far refused: {error}"
        if isinstance(error, GateError) and refuse(error).permanent:
            return OperatorError(text, hint="See its message")
        return AwayError(text)

    # purging

    def purge(self, machine: Machine) -> None:
        """PURGEOLDEXTRACTS, in a process of its own."""
        world = self.world
        proc = Proc(world, "purge", machine)

        def main() -> None:
            world.windows.purge(machine)
            for verdict in purge.purge(proc.machine.home, [RULE], machine.now_us()):
                world.count("files purged")
                world.tell(proc.name, f"removes {verdict.path}: {verdict.reason}")

        world.procs.append(proc)
        proc.spawn("main", main)
