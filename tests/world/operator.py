"""What an operator does with his commands: STOP, KILL, START, ALTER, DELETE and ADD of a group, in ggsci's own order.

What takes several steps is done in a process of its own, that may die as any other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ggsci.commands.choose import locked
from ggsci.commands.groups import _next_alter
from tests.world.fibers import NAMES, Proc
from tests.world.programs import GROUPS
from trails.checkpoint import reserve
from trails.errors import GateError
from trails.runtime.home import registration
from trails.runtime.secrets import masterkeys

if TYPE_CHECKING:
    from tests.world.machines import Machine
    from tests.world.world import World

STOP_SECONDS = 3.0
AGAIN_SECONDS = 1.0


def _in_a_process(world: World, machine: Machine, main: Callable[[], None]) -> None:
    """On a host."""
    proc = Proc(world, "operator", machine)
    world.procs.append(proc)
    proc.spawn("main", main)


def ask_manager(world: World, kind: str, order: str) -> bool:
    """START, KILL or HOLD of a group; False where there is no Manager to be asked."""
    manager = world.manager_on(world.machine_of(kind))
    if manager is None:
        return False
    manager.orders.append((order, {"name": NAMES[kind]}))
    return True


def stop(world: World, kind: str) -> None:
    """STOP of a group, as ggsci does it: its Manager is told first, so that it starts it no more."""
    world.tell("operator", f"STOP {NAMES[kind]}")
    world.stopped.add(kind)
    ask_manager(world, kind, "HOLD")
    for proc in world.procs:
        if proc.kind == kind:
            proc.stop.request()


def kill(world: World, kind: str) -> bool:
    """KILL of a group, which its Manager then leaves down."""
    if not ask_manager(world, kind, "KILL"):
        return False
    world.tell("operator", f"KILL {NAMES[kind]}")
    world.stopped.add(kind)
    start_again(world, kind)
    return True


def delete_and_add(world: World, kind: str) -> None:
    """STOP, DELETE, ADD and START: its row, or its trail, tells a group added again where to go on."""
    name, home = GROUPS[kind].name, world.machine_of(kind).home

    def main() -> None:
        stop(world, kind)
        world.wait(lambda: not world.runs(kind), STOP_SECONDS)
        try:
            with locked(home, name, "DELETE"):  # in the order of ggsci.commands.groups
                registration.delete(home, name)
                home.fs.remove(home.checkpoint(name, GROUPS[kind].kind))
                home.fs.remove(home.status(name, GROUPS[kind].kind))
            world.tell("operator", f"DELETE {name}")
            world.rules.deleted(kind)
        except GateError as error:
            world.tell("operator", f"DELETE {name} is refused: {error}")
        world.wait(lambda: False, world.draws["manager"].random())
        start_again(world, kind)

    _in_a_process(world, world.machine_of(kind), main)


def _add(world: World, kind: str) -> None:
    """ADD of a group that was deleted."""
    name, home = GROUPS[kind].name, world.machine_of(kind).home

    def main() -> None:
        try:
            with locked(home, name, "ADD"):
                if home.fs.exists(home.registration(name)):
                    return
                registration.save(home, replace(GROUPS[kind], added_us=world.machine_of(kind).now_us()))
                reserve(home.fs, home.checkpoint(name, GROUPS[kind].kind))
        except GateError as error:
            world.tell("operator", f"ADD {name} is refused: {error}")
            return
        world.tell("operator", f"ADD {name}")
        if kind == "replicat":
            world.windows.met("CW-18")

    _in_a_process(world, world.machine_of(kind), main)


def start_again(world: World, kind: str) -> None:
    """START, until INFO shows that it runs. After a boot AUTOSTART does it."""

    def act() -> None:
        runs = world.rules.shows_alive(kind)
        machine = world.machine_of(kind)
        if not machine.up or (runs and kind not in world.stopped):
            return
        if machine.home.registration(NAMES[kind]) not in machine.fs.names:
            _add(world, kind)
        elif not runs:
            world.tell("operator", f"START {NAMES[kind]}")
            ask_manager(world, kind, "START")
        world.later(AGAIN_SECONDS, act)

    world.later(world.draws["manager"].random() * 0.6, act)


def alter_rollover(world: World, kind: str) -> None:
    """ALTER EXTRACT ..., ETROLLOVER."""
    name, home = GROUPS[kind].name, world.machine_of(kind).home

    def main() -> None:
        stop(world, kind)
        world.wait(lambda: not world.runs(kind), STOP_SECONDS)
        try:
            with locked(home, name, "ALTER EXTRACT"):
                group = registration.load(home, name)
                number = _next_alter(home)
                registration.save(home, replace(group, alter={"etrollover": True}, alter_no=number))
                world.ordered[kind] = number
            world.tell("operator", f"ALTER EXTRACT {name}, ETROLLOVER: number {number}")
        except GateError as error:
            world.tell("operator", f"ALTER EXTRACT {name} is refused: {error}")
        start_again(world, kind)

    _in_a_process(world, world.machine_of(kind), main)


def renew_master_key(world: World, machine: Machine) -> None:
    """RENEW MASTERKEY: files begun from then on are encrypted under another key."""

    def main() -> None:
        try:
            version = masterkeys.renew(machine.home, machine.now_us())
        except GateError as error:
            world.tell("operator", f"RENEW MASTERKEY on {machine.name} is refused: {error}")
            return
        world.tell("operator", f"RENEW MASTERKEY on {machine.name}: version {version}")

    _in_a_process(world, machine, main)
