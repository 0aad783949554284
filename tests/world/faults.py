"""What goes wrong, and what an operator does: each line of a plan, carried out.

A fault that meets nobody (no link to cut, no process to kill) waits for a victim, for a while; then it is forgotten.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from tests.world import strangers
from tests.world.machines import PLENTY
from tests.world.manager import Visitor
from tests.world.network import Said
from tests.world.operator import alter_rollover, delete_and_add, kill, renew_master_key, start_again, stop
from tests.world.plan import HEADER, Fault
from tests.world.programs import GROUPS, MAINS
from tests.world.windows import TRAILS
from trails.link.tls import Shown

if TYPE_CHECKING:
    from tests.world.fibers import Proc
    from tests.world.machines import Machine
    from tests.world.world import World

Draw = random.Random
Act = Callable[["World", Draw], bool]
"""Does it; False where there was nobody to meet."""


def _victim(world: World, draw: Draw, kinds: tuple[str, ...] = tuple(MAINS)) -> Proc | None:
    found = [proc for proc in world.procs if proc.kind in kinds and not proc.dying]
    return draw.choice(found) if found else None


def _machine(world: World, draw: Draw) -> Machine:
    return draw.choice((world.near, world.far))


def _kill(world: World, draw: Draw) -> bool:
    victim, edges = _victim(world, draw), draw.randint(1, 40)
    if victim is None or victim.die_in is not None:
        return False
    victim.die_in = edges
    return True


def _kill_at_start(world: World, draw: Draw) -> bool:
    """The next one of its kind, soon after it began."""
    world.doomed[draw.choice(tuple(MAINS))] = draw.randint(1, 60)
    return True


def _kill_at_greeting(world: World, draw: Draw) -> bool:
    """One end of the next link, soon after it was made."""
    world.doomed[draw.choice(("near end", "far end"))] = draw.randint(1, 40)
    return True


def _freeze(world: World, draw: Draw) -> bool:
    victim, seconds = _victim(world, draw), draw.random() * 4
    if victim is None:
        return False
    victim.frozen_until = world.now + int(seconds * 1e6)
    world.tell(victim.name, f"is frozen for {seconds:.3f} s")
    return True


def _zombie(world: World, draw: Draw) -> bool:
    """Frozen, and thawed beside its successor: its locks' files are removed, and its link goes on."""
    victim, seconds = _victim(world, draw), 0.2 + draw.random() * 3
    if victim is None or victim.process is None:
        return False
    victim.frozen_until = world.now + int(seconds * 1e6)
    world.tell(victim.name, f"is frozen for {seconds:.3f} s, its locks are removed, and another is started")
    victim.superseded = True
    world.windows.zombie(victim)
    for folder in ("dirdat", "dirpcs"):
        victim.machine.fs.forget_locks(victim.machine.home.folder(folder))
    if victim.kind == "collector":
        _forget_collectors(world, victim.machine)
        for link in world.links:
            link.near.reset = True
    else:
        world.start(victim.kind, victim.machine)
    return True


def _forget_collectors(world: World, machine: Machine) -> None:
    """The next Manager knows of none: it could only end it."""
    machine.fs.take_away(f"{machine.home.folder('dirpcs')}/MGR.collectors")
    for proc in list(world.procs):
        if proc.kind == "manager" and proc.machine is machine:
            world.kill(proc, "and what it noted of Collectors is removed")


def _sync_fails(world: World, draw: Draw) -> bool:
    _machine(world, draw).fs.next_sync_fails = True
    return True


def _power(world: World, draw: Draw) -> bool:
    machine, seconds = _machine(world, draw), draw.random() * 2
    if not machine.up:
        return False
    world.lose_power(machine, seconds)
    return True


def _cut(world: World, draw: Draw) -> bool:
    links = [link for link in world.links if link.is_open]
    if not links:
        return False
    world.tell("network", "the link is cut")
    draw.choice(links).cut()
    return True


def _silence(world: World, draw: Draw) -> bool:
    """Half open: nothing arrives any more, and nobody is told."""
    links, seconds = [link for link in world.links if link.is_open], draw.random() * 5
    if not links:
        return False
    draw.choice(links).silent_until = world.now + int(seconds * 1e6)
    world.tell("network", f"the link is silent for {seconds:.3f} s")
    return True


def _unreachable(world: World, draw: Draw) -> bool:
    seconds = draw.random() * 2
    world.unreachable_until = world.now + int(seconds * 1e6)
    world.tell("network", f"nobody reaches far for {seconds:.3f} s")
    return True


def _target_crash(world: World, draw: Draw) -> bool:
    world.tell("target", "crashes: what it had not flushed is gone")
    world.windows.target_crash()
    world.server.crash(draw.random())
    return True


def _target_away(world: World, draw: Draw) -> bool:
    world.tell("target", "closes all connections")
    world.server.break_connections()
    return True


def _disk(world: World, draw: Draw) -> bool:
    machine, what = _machine(world, draw), draw.choice(("full", "EIO"))
    seconds, share = draw.random() * 0.5, draw.choice((0.05, 0.5, 1.0))
    machine.fs.trouble = (what, world.now + int(seconds * 1e6), share)
    world.tell(machine.name, f"its disk has trouble ({what}) in {share:.0%} of calls for {seconds:.3f} s")
    return True


def _checkpoints_lost(world: World, draw: Draw) -> bool:
    machine = _machine(world, draw)
    if not (gone := machine.fs.empty(machine.home.folder("dirchk"))):
        return False
    world.tell(machine.name, f"somebody removes {', '.join(gone)}")
    return True


def _checkpoints_restored(world: World, draw: Draw) -> bool:
    """GG-18: an older copy of all checkpoint files is put back."""
    machine, seconds = _machine(world, draw), draw.random() * 2
    folder = machine.home.folder("dirchk")
    if not (kept := machine.fs.files_of(folder)):
        return False

    def restore() -> None:
        if world.hostile:
            machine.fs.put_back(kept)
            world.rules.forgets(machine)
            world.tell(machine.name, f"the files of {seconds:.3f} s ago are put back into {folder}")

    world.later(seconds, restore)
    return True


def _trail_file(world: World, draw: Draw) -> tuple[Machine, str] | None:
    """One that has something durable in it."""
    machine = _machine(world, draw)
    trail = TRAILS[machine.name]
    found = [path for path in machine.fs.names if path.startswith(str(trail)) and path[-1].isdigit()]
    return (machine, draw.choice(sorted(found))) if found else None


def _byte_flipped(world: World, draw: Draw) -> bool:
    """CW-22: below the durable end of an old file or of the newest."""
    found = _trail_file(world, draw)
    if found is None:
        return False
    machine, path = found
    durable = len(machine.fs.names[path].disk)
    if durable <= HEADER:
        return False
    rba, bit = draw.randrange(HEADER, durable), 1 << draw.randrange(8)

    def flip(data: bytearray) -> None:
        data[rba] ^= bit

    machine.fs.corrupt(path, flip)
    world.tampered.add(os.path.basename(path))
    world.windows.met("CW-22")
    world.tell(machine.name, f"a bit flips in {path}, RBA {rba}")
    return True


def _file_removed(world: World, draw: Draw) -> bool:
    """An old one, or the one that is written."""
    found = _trail_file(world, draw)
    if found is None:
        return False
    machine, path = found
    machine.fs.take_away(path)
    world.tampered.add(os.path.basename(path))
    world.tell(machine.name, f"somebody removes {path}")
    return True


def _trail_restored(world: World, draw: Draw) -> bool:
    """An older day's copy of a trail is put back whole: what came since is gone."""
    machine, seconds = _machine(world, draw), draw.random() * 2
    folder = machine.home.folder("dirdat")
    kept = {path: data for path, data in machine.fs.files_of(folder).items() if path[-1].isdigit()}
    if not kept:
        return False

    def restore() -> None:
        if not world.hostile:
            return
        newer = [path for path in machine.fs.files_of(folder) if path[-1].isdigit() and path not in kept]
        for path in newer:
            machine.fs.take_away(path)
        machine.fs.put_back(kept)
        world.tampered.update(map(os.path.basename, (*kept, *newer)))
        world.tell(machine.name, f"the trail of {seconds:.3f} s ago is put back into {folder}")

    world.later(seconds, restore)
    return True


def _file_replaced(world: World, draw: Draw) -> bool:
    """By an older state of itself, or by another of its trail."""
    found = _trail_file(world, draw)
    other = _trail_file(world, draw)
    if found is None or other is None:
        return False
    (machine, path), (source, by) = found, other
    data = bytes(source.fs.names[by].disk)
    cut = draw.randrange(len(data)) if data and (source, by) == (machine, path) else len(data)
    machine.fs.take_away(path, by=data[:cut])
    world.tampered.add(os.path.basename(path))
    world.tell(machine.name, f"somebody replaces {path} by {cut} bytes of {by}")
    return True


def _connected_twice(world: World, draw: Draw) -> bool:
    """All that the pump has said on a link is said again, to the next Collector."""
    links = [link for link in world.links if link.said.data]
    if not links:
        return False
    said = draw.choice(links).said
    size = draw.randint(1, len(said.data)) if draw.random() < 0.5 else len(said.data)
    world.echo = Said(list(said.greetings), said.data[:size])
    return True


def _strangers(world: World, draw: Draw) -> bool:
    """At the next Collector's door, up to more than it lets in at once; and some at the Manager's."""
    world.strangers = [strangers.to_a_collector(draw) for _ in range(draw.choice((1, 3, 10)))]
    door = world.far.door
    for _ in range(draw.choice((1, 4)) if door is not None and not door.closed else 0):
        line = strangers.to_a_manager(draw, world.plan.sizes)
        visitor = Visitor(line, world.now, Shown("x", (strangers.HOME,)) if world.plan.sizes.tls else None)
        visitor.is_stranger = True
        door.queue.append(visitor)
        world.tell("network", f"a stranger asks far's Manager: {line[:80]!r}")
    return True


def _renew_master_key(world: World, draw: Draw) -> bool:
    machine = _machine(world, draw)
    if not machine.up or not world.plan.sizes.encrypted:
        return False
    renew_master_key(world, machine)
    return True


def _locks_lost(world: World, draw: Draw) -> bool:
    machine = _machine(world, draw)
    gone = [path for folder in ("dirdat", "dirpcs") for path in machine.fs.forget_locks(machine.home.folder(folder))]
    if not gone:
        return False
    world.tell(machine.name, f"somebody removes {', '.join(gone)}")
    return True


def _clock_jumps(world: World, draw: Draw) -> bool:
    machine, seconds = _machine(world, draw), draw.randrange(-3600, 3600)
    machine.skew += seconds * 1_000_000
    world.tell(machine.name, f"its clock jumps by {seconds} s")
    return True


def _manager_killed(world: World, draw: Draw) -> bool:
    managers = [proc for proc in world.procs if proc.kind == "manager" and not proc.dying]
    if not managers:
        return False
    world.kill(draw.choice(managers), "of a sudden")
    return True


def _notes_lost(world: World, draw: Draw) -> bool:
    """What a Manager keeps for the next one."""
    machine = _machine(world, draw)
    gone = [path for path in machine.fs.names if os.path.basename(path).startswith("MGR.")]
    if not gone:
        return False
    for path in sorted(gone):
        machine.fs.take_away(path)
    world.tell(machine.name, f"somebody removes {', '.join(sorted(gone))}")
    return True


def _space_low(world: World, draw: Draw) -> bool:
    """Below DISKWARN, or below DISKSTOP: others fill the disk, and make space again."""
    machine, free, seconds = _machine(world, draw), draw.choice((1, 5)), draw.random() * 4
    machine.free = free
    world.tell(machine.name, f"{free} % of its disk are free for {seconds:.3f} s")

    def make_space() -> None:
        machine.free = PLENTY

    world.later(seconds, make_space)
    return True


def _rollover(world: World, draw: Draw) -> bool:
    victim = _victim(world, draw, ("extract", "pump"))
    if victim is None or victim.process is None:
        return False
    world.tell("operator", f"SEND {victim.name}, ROLLOVER")
    victim.orders.append(("ROLLOVER", {}))
    return True


def _info(world: World, draw: Draw) -> bool:
    """INFO, and SEND ..., STATUS: what they answer must be true."""
    world.rules.info()
    victim = _victim(world, draw, tuple(GROUPS))
    if victim is None or victim.process is None:
        return False
    victim.orders.append(("STATUS", {}))
    return True


def _alter(world: World, draw: Draw) -> bool:
    """STOP, ALTER ..., ETROLLOVER and START, by ggsci."""
    kind = draw.choice(("extract", "pump"))
    if not world.machine_of(kind).up or any(proc.kind == "operator" for proc in world.procs):
        return False
    alter_rollover(world, kind)
    return True


def _delete_and_add(world: World, draw: Draw) -> bool:
    """CW-18: DELETE and ADD of a group, by ggsci."""
    kind = draw.choice(tuple(GROUPS))
    if not world.machine_of(kind).up or any(proc.kind == "operator" for proc in world.procs):
        return False
    delete_and_add(world, kind)
    return True


def _stop(world: World, draw: Draw) -> bool:
    victim = _victim(world, draw)
    if victim is None:
        return False
    if victim.kind in GROUPS:
        stop(world, victim.kind)
        start_again(world, victim.kind)
    else:
        world.tell("operator", f"STOP {victim.name}")
        victim.stop.request()
    return True


def _kill_by_name(world: World, draw: Draw) -> bool:
    """KILL, by the Manager, which then leaves it down."""
    victim = _victim(world, draw, tuple(GROUPS))
    return victim is not None and kill(world, victim.kind)


ACTS: Mapping[str, Act] = MappingProxyType({
    "kill": _kill, "kill at start": _kill_at_start, "kill at greeting": _kill_at_greeting,
    "freeze": _freeze, "zombie": _zombie, "sync fails": _sync_fails,
    "power": _power, "cut": _cut,
    "silence": _silence, "unreachable": _unreachable, "target crash": _target_crash, "target away": _target_away,
    "disk": _disk, "checkpoints lost": _checkpoints_lost, "checkpoints restored": _checkpoints_restored,
    "byte flipped": _byte_flipped, "trail file removed": _file_removed,
    "trail restored": _trail_restored, "trail file replaced": _file_replaced, "connected twice": _connected_twice,
    "strangers": _strangers,
    "locks lost": _locks_lost, "clock jumps": _clock_jumps,
    "manager killed": _manager_killed, "notes lost": _notes_lost, "space low": _space_low, "rollover": _rollover,
    "info": _info, "alter": _alter, "stop": _stop, "kill by name": _kill_by_name,
    "delete and add": _delete_and_add, "renew master key": _renew_master_key,
})  # fmt: skip
LATER = frozenset(("kill", "kill at start", "kill at greeting", "disk", "sync fails", "connected twice", "strangers"))
"""What meets its victim only later, and counts then."""


def carry_out(world: World, fault: Fault) -> bool:
    """Whether it met anybody."""
    if not ACTS[fault.kind](world, random.Random(fault.seed)):
        return False
    if fault.kind not in LATER:
        world.met(fault.kind)
    return True
