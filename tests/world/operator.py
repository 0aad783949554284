"""What an operator does with several commands: STOP, ALTER and START of a group, in ggsci's own order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ggsci.commands.choose import locked
from ggsci.commands.groups import _next_alter
from tests.world.fibers import Proc
from tests.world.programs import GROUPS
from trails.errors import GateError
from trails.runtime.home import registration

if TYPE_CHECKING:
    from tests.world.world import World

STOP_SECONDS = 3.0


def alter_rollover(world: World, kind: str) -> None:
    """ALTER EXTRACT ..., ETROLLOVER; in a process of its own, that may die as any other."""
    proc = Proc(world, "operator", world.machine_of(kind))
    name, home = GROUPS[kind].name, proc.machine.home

    def main() -> None:
        for running in [other for other in world.procs if other.kind == kind]:
            running.stop.request()
        world.wait(lambda: not any(other.kind == kind for other in world.procs), STOP_SECONDS)
        try:
            with locked(home, name, "ALTER EXTRACT"):
                group = registration.load(home, name)
                number = _next_alter(home)
                registration.save(home, replace(group, alter={"etrollover": True}, alter_no=number))
                world.ordered[kind] = number
        except GateError as error:
            world.tell("operator", f"ALTER EXTRACT {name} is refused: {error}")
            return
        world.tell("operator", f"ALTER EXTRACT {name}, ETROLLOVER: number {number}")

    world.procs.append(proc)
    proc.spawn("main", main)
