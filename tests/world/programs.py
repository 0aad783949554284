"""The product's programs, as they run in the world: built as their own `build` does, and driven by the real loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from collector.collector import Collector
from collector.door import PumpDoor
from collector.server import Server
from extract.extract import Ears, Extract, Settings
from extract.longtrans import LongSetting
from pump.job import PumpJob
from pump.params import PumpParams
from pump.pump import Pump
from replicat.params import ReplicatParams
from replicat.run.replicat import Replicat
from tests.support.replicat_trail import InlineEngine
from tests.world.network import SimListener
from tests.world.source import SimSource
from tests.world.target import SimTarget
from trails import checkpoint
from trails.checkpoint import Checkpoint
from trails.errors import DamageError, OperatorError
from trails.link import wire
from trails.position import TrailName
from trails.runtime.home import obeyed, registration
from trails.runtime.home.registration import Registration, TrailReg
from trails.runtime.home.status import ProcessFile
from trails.runtime.language.params import parse_text
from trails.runtime.process.loop import run
from trails.runtime.process.standing import Standing

if TYPE_CHECKING:
    from tests.world.fibers import Proc
    from tests.world.world import World

LOCAL, REMOTE = TrailName("/near/dirdat", "lt"), TrailName("/far/dirdat", "rt")
EXT1 = Registration("EXT1", "EXTRACT", "TRANLOG", trails=(TrailReg("./dirdat/lt", "EXTTRAIL"),), added_us=5)
PMP1 = Registration(
    "PMP1", "EXTRACT", "TRAIL", trail="./dirdat/lt", trails=(TrailReg("./dirdat/rt", "RMTTRAIL"),), added_us=5
)
REP1 = Registration("REP1", "REPLICAT", "TRAIL", trail="./dirdat/rt", group_key=1, added_us=5)
GROUPS: Mapping[str, Registration] = MappingProxyType({"extract": EXT1, "pump": PMP1, "replicat": REP1})
DEAD_SECONDS = 2
PATIENCE = 5.0


class QuietLog:
    """As report.Log; the story has what is said."""

    report = None

    def __init__(self, proc: Proc) -> None:
        self._proc = proc

    def info(self, _code: str, text: str, /, *, alike: str = "", **_fields: object) -> None:
        """See Log."""
        self._proc.world.tell(self._proc.name, text, aside=True)

    warning = error = info


@cache
def pump_params(decode: bool, only_kv: bool) -> PumpParams:
    """Its parameter file, read."""
    text = f"EXTRACT pmp1\nRMTHOST far, MGRPORT 7809, NOTLS, TIMEOUT {DEAD_SECONDS}\nRMTTRAIL ./dirdat/rt\n"
    mode = "NOPASSTHRU" if decode or only_kv else "PASSTHRU"
    mode += "\nTABLEEXCLUDE s.notes;" if only_kv else ""
    return PumpParams.from_statements(parse_text(f"{text}RETRYDELAY 1\n{mode}\nTABLE *.*;\n", "pmp1.prm"))


@cache
def replicat_params(batch: int) -> ReplicatParams:
    """The same."""
    lines = f"BATCHROWS {batch}\nRECONNECTSECS 30\nMAP s.*, TARGET s.*;"
    return ReplicatParams.from_statements(
        parse_text(f"REPLICAT rep1\nTARGETDB postgresql://x/y\n{lines}\n", "rep1.prm")
    )


class HomeStanding(Standing):
    """Its lock and its registration; there is no process file and no control socket here."""

    def _renew_process_file(self) -> bool:
        return False


class _NoControl:
    def renew(self) -> bool:
        """See ControlServer."""
        return False


NO_CONTROL: Any = _NoControl()


def drive(world: World, proc: Proc, process: Any) -> None:
    """As startup drives it: saves through the machine's disk, and orders between two steps."""
    group, machine = proc.group, proc.machine
    path, began = proc.machine.home.checkpoint(group.name, group.kind), machine.now_us()
    proc.process = process
    standing = HomeStanding(
        machine.home, "", machine, QuietLog(proc), proc.lock, lambda: ProcessFile(0, 0), group, NO_CONTROL, proc.stop,
    )  # fmt: skip

    def save(point: Checkpoint) -> None:
        standing.hold()
        done = dataclasses.replace(point, started_us=began, saved_us=machine.now_us(), record_source="A")
        checkpoint.save(machine.fs, path, done)
        world.rules.saved(proc, done)

    def obey(_now: float) -> None:
        while proc.orders:
            order = proc.orders.pop(0)
            if order == "STATUS":
                world.rules.answered(proc, process.status())
                continue
            try:
                process.command(order, {})
            except OperatorError as error:  # who asks is answered with it
                world.tell(proc.name, f"answers: {error}", aside=True)

    sizes = world.plan.sizes
    run(
        process,
        save,
        proc.stop,
        clock=machine,
        checkpoint_every=sizes.checkpoint,
        chores=[standing, obey],
        host=machine,
    )


def extract(world: World, proc: Proc) -> None:
    """See extract.build."""
    machine, home, sizes, group = proc.machine, proc.machine.home, world.plan.sizes, proc.group
    settings = Settings(
        "EXT1", home.id, "near", LOCAL, "./dirdat/lt", sizes.near_file, group.alter_no, tuple(group.alter.items()),
        obeyed.read(home, "EXT1"), flush_seconds=0.02, block_bytes=sizes.block, long=LongSetting(after=0),
    )  # fmt: skip
    ears = Ears(obeyed=lambda number: obeyed.note(home, "EXT1", number))
    world.windows.extract_starts()
    made = Extract.start(machine.fs, settings, SimSource(world), machine, ears=ears)
    world.windows.extract_started()
    drive(world, proc, made)


def pump(world: World, proc: Proc) -> None:
    """See pump.build."""
    machine, home = proc.machine, proc.machine.home
    job = PumpJob(
        pump_params(world.plan.sizes.decode, world.plan.sizes.only_kv), home.id, "near", LOCAL, "./dirdat/lt", 1,
        home.pinned("PMP1"),
        alter_no=proc.group.alter_no, alter=proc.group.alter,
    )  # fmt: skip
    try:
        previous = checkpoint.load(machine.fs, home.checkpoint("PMP1", "EXTRACT"))
    except DamageError:
        previous = []
    log: Any = QuietLog(proc)
    drive(world, proc, HeardPump(world, job, machine.fs, log, machine, previous, world.manager.dial))


class HeardPump(Pump):
    """The world hears what it is told."""

    def __init__(self, world: World, *given: Any) -> None:
        super().__init__(*given)
        self._world = world

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
        welcome = super().greet(hello)
        self.world.rules.welcomes(welcome.origin)
        self._alive().max_bytes = self.world.plan.sizes.far_file
        return welcome


def collector(world: World, proc: Proc) -> None:
    """See collector.server: recover, listen, and only then say where."""
    machine = proc.machine
    made = SmallCollector(machine.fs, REMOTE, "./dirdat/rt", proc.machine.home.id)
    made.world = world
    log: Any = QuietLog(proc)
    listener: Any = SimListener(world)
    door = PumpDoor(listener, log, pump=f"{world.near.id}/PMP1", host=machine)
    stop: Any = proc.stop
    server = Server(made, door, log, stop, PATIENCE, machine)
    proc.process = server
    world.manager.ready(proc, listener)
    server.run()


def replicat(world: World, proc: Proc) -> None:
    """See replicat.build."""
    machine = proc.machine
    process = Replicat(
        replicat_params(world.plan.sizes.batch), proc.group, REMOTE, fs=machine.fs, clock=machine,
        target=SimTarget(world), engine=InlineEngine(machine.fs),
        note=lambda text: world.tell(proc.name, text, aside=True),
    )  # fmt: skip
    drive(world, proc, process)


def as_group(main: Callable[[World, Proc], None]) -> Callable[[World, Proc], None]:
    """Under the group's lock, as startup begins."""

    def begin(world: World, proc: Proc) -> None:
        home, name = proc.machine.home, GROUPS[proc.kind].name
        proc.lock = lock = proc.machine.fs.lock(home.lock(name))
        try:
            proc.group = registration.load(home, name)
            main(world, proc)
        finally:
            lock.release()

    return begin


MAINS: Mapping[str, Callable[[World, Proc], None]] = MappingProxyType({
    "extract": as_group(extract), "pump": as_group(pump), "replicat": as_group(replicat), "collector": collector,
})  # fmt: skip
