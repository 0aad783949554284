"""The product's programs, as they run in the world: built as their own `build` does, and driven by the real loop."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from collector.collector import Collector, refuse
from collector.door import PumpDoor
from collector.params import CollectorParams
from collector.server import Server
from extract.extract import Ears, Extract, Settings
from extract.longtrans import LongSetting
from pump.job import PumpJob
from pump.params import PumpParams
from pump.pump import Pump
from replicat.apply.discard import Discards
from replicat.apply.discardfile import DiscardFile
from replicat.params import ReplicatParams
from replicat.run.replicat import Replicat
from tests.support.replicat_trail import InlineEngine
from tests.world.log import LifeLog
from tests.world.machines import SimLimits
from tests.world.manager import LifeManager, SimDoor, dial, params_of
from tests.world.network import SimListener
from tests.world.processes import SimProcesses
from tests.world.source import SimSource
from tests.world.target import SimTarget
from tests.world.tls import answer
from trails import checkpoint
from trails.checkpoint import Checkpoint
from trails.errors import (
    EXIT_OPERATOR,
    EXIT_STOPPED,
    DamageError,
    DiskFullError,
    GateError,
    LockedError,
    OperatorError,
)
from trails.link import tls, wire
from trails.position import TrailName
from trails.runtime.home import obeyed, registration, status
from trails.runtime.home.home import MANAGER
from trails.runtime.home.registration import Registration, TrailReg
from trails.runtime.home.status import ProcessFile
from trails.runtime.language.params import parse_text
from trails.runtime.process.diskguard import DiskGuard
from trails.runtime.process.loop import run
from trails.runtime.process.standing import Standing
from trails.runtime.process.startup import Context, exit_of

if TYPE_CHECKING:
    from tests.world.fibers import Proc
    from tests.world.machines import Machine
    from tests.world.world import World

LOCAL, REMOTE = TrailName("/near/dirdat", "lt"), TrailName("/far/dirdat", "rt")
EXT1 = Registration("EXT1", "EXTRACT", "TRANLOG", trails=(TrailReg("./dirdat/lt", "EXTTRAIL"),), added_us=5)
PMP1 = Registration(
    "PMP1", "EXTRACT", "TRAIL", trail="./dirdat/lt", trails=(TrailReg("./dirdat/rt", "RMTTRAIL"),), added_us=5
)
REP1 = Registration("REP1", "REPLICAT", "TRAIL", trail="./dirdat/rt", group_key=1, added_us=5)
GROUPS: Mapping[str, Registration] = MappingProxyType({"extract": EXT1, "pump": PMP1, "replicat": REP1})
KIND_OF = MappingProxyType({group.name: kind for kind, group in GROUPS.items()})
DEAD_SECONDS = 2
PATIENCE = 5.0


@cache
def pump_params(decode: bool, only_kv: bool, secure: bool, encrypted: bool) -> PumpParams:
    """Its parameter file, read."""
    plain = "" if secure else ", NOTLS"
    text = f"EXTRACT pmp1\nRMTHOST far, MGRPORT 7809, TIMEOUT {DEAD_SECONDS}{plain}\nRMTTRAIL ./dirdat/rt\n"
    text += "ENCRYPTTRAIL AES256\nDECRYPTTRAIL AES256\n" if encrypted else ""
    mode = "NOPASSTHRU" if decode or only_kv else "PASSTHRU"
    mode += "\nTABLEEXCLUDE s.notes;" if only_kv else ""
    return PumpParams.from_statements(parse_text(f"{text}RETRYDELAY 1\n{mode}\nTABLE *.*;\n", "pmp1.prm"))


@cache
def replicat_params(batch: int) -> ReplicatParams:
    """The same."""
    lines = [
        "REPLICAT rep1", "TARGETDB postgresql://x/y", "DDL INCLUDE MAPPED", "REPERROR (DEFAULT, DISCARD)",
        f"BATCHROWS {batch}", "RECONNECTSECS 30", "MAP s.*, TARGET s.*;", "",
    ]  # fmt: skip
    return ReplicatParams.from_statements(parse_text("\n".join(lines), "rep1.prm"))


class _NoControl:
    def renew(self) -> bool:
        """See ControlServer."""
        return False


NO_CONTROL: Any = _NoControl()


def drive(world: World, proc: Proc, process: Any) -> None:
    """As startup drives it: saves through the machine's disk, and orders between two steps."""
    group, machine = proc.group, proc.machine
    guards = [] if group is None else [disk_guard(proc, bool(group.writes))]
    proc.process = process
    path = machine.home.status(proc.group_name, proc.group_kind)
    proc.standing = standing = Standing(
        machine.home, path, machine, LifeLog(proc), proc.lock, lambda: proc.note, group, NO_CONTROL, proc.stop,
    )  # fmt: skip
    for guard in guards:
        guard.written = lambda: process.counters().bytes_out
        process.before_file(guard.look)

    def save(point: Checkpoint) -> None:
        standing.hold()
        done = dataclasses.replace(point, started_us=proc.note.started_us, saved_us=machine.now_us(), record_source="A")
        try:
            checkpoint.save(machine.fs, machine.home.checkpoint(group.name, group.kind), done)
        except DiskFullError:
            if group.writes:
                raise
            return  # a later save does for this one
        world.rules.saved(proc, done)

    note(proc, state="RUNNING")
    run(
        process,
        save,
        proc.stop,
        clock=machine,
        checkpoint_every=world.plan.sizes.checkpoint,
        chores=[*guards, standing, lambda _now: obey(world, proc)],
        host=machine,
    )


def obey(world: World, proc: Proc) -> None:
    """What it was asked since."""
    while proc.orders:
        order, given = proc.orders.pop(0)
        name = given.get("name", "")
        try:
            if order == "STATUS":
                world.rules.answered(proc, proc.process.status())
                continue
            if order == "START":
                proc.held.discard(name)
                world.stopped.discard(KIND_OF[name])
            proc.asked = name if order == "KILL" else ""
            proc.process.command(order, given)
            if order in ("HOLD", "KILL"):
                proc.held.add(name)
        except GateError as error:  # who asks is answered with it
            world.tell(proc.name, f"answers {order} {name}: {error}", aside=True)
        else:
            world.tell(proc.name, f"has obeyed {order} {name}".rstrip(), aside=True)


def disk_guard(proc: Proc, writes_trail: bool) -> DiskGuard:
    """Raises DiskFullError where there is no space to begin with."""
    end = lambda error: proc.stop.request(error=error)  # noqa: E731
    guard = DiskGuard(["dirdat"], SimLimits(proc.machine), LifeLog(proc), writes_trail=writes_trail, stop=end)
    guard.at_start()
    return guard


def note(proc: Proc, **changes: Any) -> None:
    """Its process file says so; on a full disk only its end must be written."""
    proc.note = dataclasses.replace(proc.note, **changes)
    home = proc.machine.home
    try:
        status.write(home.fs, home.status(proc.group_name, proc.group_kind), proc.note)
    except DiskFullError:
        if proc.note.state == "ENDED":
            raise


def extract(world: World, proc: Proc) -> None:
    """See extract.build."""
    machine, home, sizes, group = proc.machine, proc.machine.home, world.plan.sizes, proc.group
    settings = Settings(
        "EXT1", home.id, "near", LOCAL, "./dirdat/lt", sizes.near_file, group.alter_no, tuple(group.alter.items()),
        obeyed.read(home, "EXT1"), flush_seconds=0.02, block_bytes=sizes.block, long=LongSetting(after=0),
        encrypt=sizes.encrypted,
    )  # fmt: skip
    ears = Ears(obeyed=lambda number: obeyed.note(home, "EXT1", number))
    world.windows.extract_starts()
    made = Extract.start(machine.fs, settings, SimSource(world), machine, ears=ears)
    world.windows.extract_started()
    drive(world, proc, made)


def pump(world: World, proc: Proc) -> None:
    """See pump.build."""
    machine, home, sizes = proc.machine, proc.machine.home, world.plan.sizes
    params = pump_params(sizes.decode, sizes.only_kv, sizes.tls, sizes.encrypted)
    params = dataclasses.replace(params, window_bytes=sizes.window)
    trail = dataclasses.replace(LOCAL, sealed=params.decrypt)
    job = PumpJob(
        params, home.id, "near", trail, "./dirdat/lt", 1, home.pinned("PMP1"),
        tls=tls.folder_of(home.root) if params.remote.tls else "",
        alter_no=proc.group.alter_no, alter=proc.group.alter,
    )  # fmt: skip
    try:
        previous = checkpoint.load(machine.fs, home.checkpoint("PMP1", "EXTRACT"))
    except DamageError:
        previous = []
    call: Any = lambda request, timeout: dial(world, request, timeout)  # noqa: E731
    drive(world, proc, HeardPump(world, job, machine.fs, LifeLog(proc), machine, previous, call))


class HeardPump(Pump):
    """The world hears what it is told."""

    def __init__(self, world: World, *given: Any) -> None:
        super().__init__(*given)
        self._world = world

    def _fill(self, now: float) -> bool:
        filled = super()._fill(now)
        self._world.rules.in_flight(self._window)
        return filled

    def _handle(self, event: wire.Event) -> None:
        if isinstance(event, wire.Welcome):
            self._world.windows.welcomed(event)
        super()._handle(event)


class SmallCollector(Collector):
    """Its files are smaller than a megabyte, and the world hears what it acknowledges."""

    world: World

    def acknowledge(self) -> wire.Ack | None:
        """See Collector."""
        ack = super().acknowledge()
        if ack is not None:
            self.world.rules.acknowledged(ack.origin)
        return ack

    def sync(self) -> wire.Ack:
        """See Collector."""
        ack = super().sync()
        self.world.rules.acknowledged(ack.origin)
        return ack

    def take(self, block: wire.BlockMessage) -> None:
        """See Collector."""
        super().take(block)
        self.world.windows.taken(block, self._hello)

    def greet(self, hello: wire.Hello) -> wire.Welcome:
        """See Collector."""
        if hello.pump != f"{self.world.near.id}/PMP1":
            self.world.rules.broken(f"a Collector serves {hello.pump}, a stranger")
        welcome = super().greet(hello)
        self.world.rules.welcomes(welcome.origin)
        self._alive().max_bytes = self.world.plan.sizes.far_file
        return welcome


def collector(world: World, proc: Proc) -> None:
    """See collector.server: recover, listen, and only then say where. Its command line is the Manager's."""
    machine, given = proc.machine, CollectorParams.from_arguments(proc.arguments)
    try:
        guard = disk_guard(proc, True)
        made = SmallCollector(machine.fs, given.trail_name(machine.home.root), given.trail, machine.id)
        listener, port = listen(world, machine, given.ports)
    except GateError as error:
        say(proc, error=str(error), permanent=refuse(error).permanent)
        raise
    made.world = world
    guard.written = lambda: made.written_bytes
    made.before_file(guard.look)
    say(proc, port=port)
    folder = "" if given.notls else tls.folder_of(machine.home.root)
    door = PumpDoor(listener, LifeLog(proc), folder, given.peer, given.pump, machine, answer)
    proc.process = server = Server(made, door, LifeLog(proc), proc.stop, PATIENCE, machine)
    server.guard = guard
    server.run()
    proc.code = EXIT_STOPPED


def listen(world: World, machine: Machine, ports: Sequence[int]) -> tuple[Any, int]:
    """The first port that nobody listens on."""
    for port in ports:
        if port not in machine.listeners or machine.listeners[port].closed:
            made = machine.listeners[port] = SimListener(world)
            return made, port
    raise OperatorError(f"no port of {ports[0]}-{ports[-1]} is free", hint="Widen the Manager's DYNAMICPORTLIST")


def say(proc: Proc, **said: object) -> None:
    """To the Manager, if it still lives; see tell_ready."""
    proc.world.edge("write", "pipe")
    proc.pipe.data += json.dumps(said).encode() + b"\n"
    proc.pipe.writers.remove(proc)


def replicat(world: World, proc: Proc) -> None:
    """See replicat.build."""
    machine = proc.machine
    params = replicat_params(world.plan.sizes.batch)
    warn = lambda text: world.tell(proc.name, text, aside=True)  # noqa: E731
    file = DiscardFile(machine.fs, params.discard_path(machine.home), params.discard_file.megabytes)
    trail = dataclasses.replace(REMOTE, sealed=world.plan.sizes.encrypted)
    process = Replicat(
        params, proc.group, trail, fs=machine.fs, clock=machine,
        target=SimTarget(world), engine=InlineEngine(machine.fs),
        note=warn, discards=Discards("REP1", params.error_rules, file, clock=machine, warn=warn), early_rows=3,
    )  # fmt: skip
    drive(world, proc, process)


def manager(world: World, proc: Proc) -> None:
    """See ggsci.manager.manager.build."""
    machine, home = proc.machine, proc.machine.home
    log: Any = LifeLog(proc)
    context = Context(
        home, home.fs, MANAGER, "MANAGER", [], None, log, log, machine, proc.stop, proc.note.started_us, "mgr.prm"
    )
    door = lambda params, *_: SimDoor(world, params)  # noqa: E731
    world.windows.manager_starts(proc)
    drive(world, proc, LifeManager(context, proc, params_of(world.plan.sizes), SimProcesses(proc), door))


def as_group(main: Callable[[World, Proc], None]) -> Callable[[World, Proc], None]:
    """From its lock to its exit code, as startup does it."""

    def begin(world: World, proc: Proc) -> None:
        home = proc.machine.home
        proc.lock = proc.machine.fs.lock(home.lock(proc.group_name))
        proc.note = ProcessFile(proc.pid, proc.machine.now_us(), birth=proc.born)
        code, message = EXIT_STOPPED, ""
        try:
            note(proc, state="STARTING")
            proc.group = registration.load(home, proc.group_name) if proc.kind in GROUPS else None
            main(world, proc)
        except Exception as error:  # noqa: BLE001  -- the world judges it
            code, message = exit_of(error)
            proc.error = error
        proc.code = record(proc, code, message)

    return begin


def record(proc: Proc, code: int, message: str) -> int:
    """The exit code into its process file; then the group is let go."""
    stop = "G" if code == EXIT_STOPPED else "A"
    try:
        proc.standing.hold() if proc.standing else proc.lock.keep()
        note(proc, state="ENDED", stop=stop, exit_code=code, message=message, ended_us=proc.machine.now_us())
    except LockedError:
        pass
    except GateError:
        code = code or EXIT_OPERATOR
    proc.lock.release()
    return code


MAINS: Mapping[str, Callable[[World, Proc], None]] = MappingProxyType({
    "extract": as_group(extract), "pump": as_group(pump), "replicat": as_group(replicat), "collector": collector,
    "manager": as_group(manager),
})  # fmt: skip
