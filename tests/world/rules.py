"""What must hold at every moment of a life; the first thing that does not ends it.

what somebody was told         would survive a loss of power at this very moment (its own trail, mended, reaches it)
what the target shows          is the source after the transaction that the checkpoint row names: a prefix, each
                               once, none torn
places                         never go back
a process                      ends because it was told to, because its peer is away, or by a failing disk
in the end                     all is equal
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replicat.model.target import CheckpointRow
from tests.world.disk import INJECTED, WAYS
from tests.world.programs import GROUPS
from tests.world.source import CHANGE_BYTES, NOTES, Commit
from tests.world.windows import TRAILS
from trails.checkpoint import Checkpoint
from trails.errors import EXIT_AWAY, GateError, LockedError
from trails.position import START, Position
from trails.reader import last_header
from trails.recovery import Found, recover
from trails.runtime.home import status
from trails.runtime.report.answers import StatusAnswer

if TYPE_CHECKING:
    from pump.window import Window
    from tests.world.fibers import Proc
    from tests.world.machines import Machine
    from tests.world.world import World

LOOKS = 0.25
"""The share of the moments at which somebody is told something that are looked behind: the dearest rule of all."""


CAUSES = (*(f"{trail}0" for trail in TRAILS.values()), "the trail ends at")
"""What an error names that ends a process for good once somebody has changed a trail file: a file, or its end."""


class ViolationError(Exception):
    """Something does not hold."""


class Rules:
    """Of one world. `violation`: the first, if there was one."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.violation: ViolationError | None = None
        self._needed: dict[str, Position] = {}
        self._told = {"near": START, "far": START}

    def broken(self, text: str, cause: BaseException | None = None) -> None:
        """One does not hold."""
        if self.violation is None:
            self.world.tell("VIOLATION", text)
            self.violation = ViolationError(text)
            self.violation.__cause__ = cause

    # what is told survives

    def source_told(self, origin: Position) -> None:
        """The source may let go of what stands before."""
        self._tell(self.world.near, origin)

    def acknowledged(self, origin: Position) -> None:
        """The Collector is about to tell the pump."""
        self._tell(self.world.far, origin)

    def _tell(self, machine: Machine, origin: Position) -> None:
        self._told[machine.name] = max(origin, self._told[machine.name])
        if self.world.draws["looks"].random() < LOOKS:
            self._look_behind(machine)

    def look(self) -> None:
        """Now and then, whatever goes on."""
        for machine in (self.world.near, self.world.far):
            if machine.up:
                self._look_behind(machine)

    def _look_behind(self, machine: Machine) -> Found | None:
        """What recovery would find there after a loss of power now; it must reach what anybody was told of it."""
        world = self.world
        if self.violation is not None or world.tampered or (world.current is not None and world.current.proc.dying):
            return None
        world.count("looks behind a loss of power")
        trail, told = TRAILS[machine.name], self._told[machine.name]
        current, world.current = world.current, None
        try:
            fs = machine.fs.left(world.draws["looks"].choice(WAYS))
            header = last_header(fs, trail)
            found = recover(fs, trail, header.copies if header else b"")
            if found.mark.origin < told:
                self.broken(f"{machine.name} has told {told}; a loss of power now leaves {found.mark.origin}")
            return found
        except GateError as error:
            self.broken(f"{machine.name} has told {told}; after a loss of power now: {error}", error)
            return None
        finally:
            world.current = current

    def welcomes(self, origin: Position) -> None:
        """A Collector says where to go on; what somebody has removed from its trail is sent again."""
        if origin < self._told["far"] and not self.world.tampered:
            self.broken(f"a Collector goes on at {origin}; {self._told['far']} was acknowledged")
        self._tell(self.world.far, origin)

    # what is held

    def gathered(self, size: int) -> None:
        """I9: Extract holds two blocks and the largest single change, however large a transaction is."""
        if size > 2 * self.world.plan.sizes.block + CHANGE_BYTES:
            self.broken(f"Extract has gathered {size} bytes, with blocks of {self.world.plan.sizes.block}")

    def in_flight(self, window: Window) -> None:
        """I9: of what is not acknowledged a pump sends WINDOW, and the block that outgrows it."""
        if len(window._sent) > 1 and window.bytes - window._sent[-1].size >= window.size:
            self.broken(f"{window.bytes} bytes are in flight, with a WINDOW of {window.size}")

    # the target

    def committed(self, before: CheckpointRow | None) -> None:
        """A COMMIT has landed."""
        row = self.world.server.store.row
        if before is not None and row is not None and row.csn < before.csn:
            self.broken(f"the checkpoint row goes back from CSN {before.csn} to {row.csn}")
        self.shows("commit")
        if row is not None:
            self._given_up(int(row.csn or 0))

    def _given_up(self, number: int) -> None:
        """I8: each change that was discarded stands in the discard file, which a loss of power leaves so, and once."""
        world = self.world
        if world.tampered:
            return
        home = world.far.home
        discards = world.far.fs.synced_names.get(home.discard("REP1"))
        text = bytes(discards.disk) if discards is not None else b""
        for key, transaction in world.log.odd.items():
            found = text.count(b'id = "%s"\n' % key.encode())
            if transaction <= number and not found:
                self.broken(f"row {key} of transaction {transaction} was given up; the discard file does not have it")
            if found > 1:
                self.broken(f"row {key} stands {found} times in the discard file")

    def shows(self, what: str) -> None:
        """What anybody would see in the target now."""
        store = self.world.server.store
        number = int(store.row.csn or 0) if store.row is not None else 0
        if number < self.world.server.ahead or (store.row is not None and store.row.split):
            self.world.count("states that were ahead of their row")
            return  # what was committed apart from the row comes again; or a change of shape cuts a transaction in two
        self.world.count("states held against the source")
        tables = {name: store.tables.get(("s", name), {}) for name in ("kv", "odds")}
        tables["notes"] = sorted(store.tables.get(("s", "notes"), []))
        tables["shaped"] = {
            name: (tuple(column.name for column in shape.columns), store.tables.get((schema, name), {}))
            for (schema, name), shape in store.shapes.items()
            if name not in tables
        }
        source = self.world.log.states[number]
        if tables != ({**source, "notes": []} if self.world.plan.sizes.only_kv else source):
            self.broken(f"{what}: the target is not as the source was after transaction {number}")

    @property
    def equal(self) -> bool:
        """Whether the target's row names the source's last transaction that is sent, or one behind it."""
        row = self.world.server.store.row
        last = next((commit.number for commit in reversed(self.world.log.commits) if self._is_carried(commit)), 0)
        return row is not None and int(row.csn or 0) >= last and self._alters_obeyed

    def _is_carried(self, commit: Commit) -> bool:
        """Whether the pump sends anything of it."""
        return not self.world.plan.sizes.only_kv or any(change.table is not NOTES for change in commit.changes)

    @property
    def _alters_obeyed(self) -> bool:
        """CW-19: of each ALTER the trail bears the number."""
        ordered = self.world.ordered
        for machine, kind in ((self.world.near, "extract"), (self.world.far, "pump")):
            if kind in ordered and not self.world.tampered:
                header = last_header(machine.fs, TRAILS[machine.name])
                if header is None or header.alter < ordered[kind]:
                    return False
        return True

    # checkpoints

    def saved(self, proc: Proc, point: Checkpoint) -> None:
        """A checkpoint was saved. What it lets be purged never comes back, and what it says stands on a disk."""
        if not point.reads:
            return
        needed = Position(point.reads[0].needed.seqno, point.reads[0].needed.rba)
        if not proc.superseded:  # such a one may save last; and its successor may have begun before it saved more
            before = self._needed.get(proc.kind, START)
            if needed < before:
                self.broken(f"{proc.name} needs {needed} on; it had said that it needs nothing before {before}")
            self._needed[proc.kind] = max(needed, before)
        if proc.kind == "replicat":
            self._check_flushed(needed)
        elif self.world.draws["looks"].random() < LOOKS and (machine := self._writes_to(proc)).up:
            self._check_written(proc, point, self._look_behind(machine))

    def answered(self, proc: Proc, status: StatusAnswer) -> None:
        """What a group says of itself is so: what it has read is in its output, what it has written is on the disk."""
        world = self.world
        if proc.superseded or world.tampered or status.read is None:
            return
        read = Position(status.read.seqno, status.read.rba)
        if proc.kind == "pump" and read > (told := self._told["far"]):
            self.broken(f"{proc.name} says that it has passed on all before {read}; {told} is acknowledged")
        if proc.kind == "replicat" and proc.process._target.is_connected:
            row = world.server.store.row
            if row is not None and read > row.position:
                self.broken(f"{proc.name} says that it has applied all before {read}; the row is at {row.position}")
        if proc.kind == "extract" and (found := self._look_behind(world.near)) is not None and found.file is not None:
            end = Position(found.file.header.seqno, found.file.end)
            for write in status.write:
                if Position(write.seqno, write.rba) > end:
                    self.broken(f"{proc.name} says that it wrote up to {write}; after a loss of power it is {end}")

    def deleted(self, kind: str) -> None:
        """A group is no more, and what it had saved and was ordered neither."""
        self._needed.pop(kind, None)
        self.world.ordered.pop(kind, None)

    def forgets(self, machine: Machine) -> None:
        """Older checkpoint files were put back there: who starts from them needs more, which costs nothing."""
        for kind in list(self._needed):
            if self.world.machine_of(kind) is machine:
                del self._needed[kind]

    def _check_flushed(self, needed: Position) -> None:
        flushed = self.world.server.store.flushed
        row = flushed[1] if flushed else None
        if needed > (row.position if row is not None else START):
            self.broken(f"the Replicat lets go of all before {needed}; the target would forget all behind {row}")

    def _writes_to(self, proc: Proc) -> Machine:
        return self.world.near if proc.kind == "extract" else self.world.far

    def _check_written(self, proc: Proc, point: Checkpoint, found: Found | None) -> None:
        """What stands in the trail that it writes, and what it has read by that."""
        if found is None:
            return
        read, stands = point.reads[0].needed, found.mark.origin
        if Position(read.seqno, read.rba) > stands:
            self.broken(f"{proc.name} has saved that it has written all before {read}; its trail reaches {stands}")
        current, sizes = point.reads[0].current, self.world.plan.sizes
        inside = found.mark.open and found.mark.origin == Position(current.seqno, current.rba)
        if proc.kind == "pump" and (sizes.decode or sizes.only_kv) and inside and read == current:
            self.broken(f"{proc.name} stands inside a transaction at {current}, and lets its begin be purged")
        for write in point.writes:
            end = Position(found.file.header.seqno, found.file.end) if found.file is not None else START
            if Position(write.seqno, write.rba) > end:
                self.broken(f"{proc.name} has saved that it wrote up to {write}; after a loss of power it is {end}")

    # Managers

    def spawns(self, manager: Proc, name: str) -> None:
        """It starts a group, or a Collector."""
        if name in manager.held:
            self.broken(f"{manager.name} starts {name}, which it was told to hold down")

    def signals(self, manager: Proc, proc: Proc) -> None:
        """It sends a signal: to a Collector, or to the group that it is told to KILL."""
        if proc.kind != "collector" and manager.asked != proc.group_name:
            self.broken(f"{manager.name} sends a signal to {proc.name}, a stranger")

    def shows_alive(self, kind: str) -> bool:
        """Whether INFO shows a group as starting or running."""
        current, self.world.current = self.world.current, None
        try:
            return bool(status.status_of(self.world.machine_of(kind).home, GROUPS[kind]).status.is_alive)
        finally:
            self.world.current = current

    def info(self) -> None:
        """What INFO shows as running runs."""
        world = self.world
        current, world.current = world.current, None
        try:
            for kind, group in GROUPS.items():
                machine = world.machine_of(kind)
                found = status.status_of(machine.home, group)
                if found.status is status.Status.RUNNING:
                    proc = machine.pids.get(found.pid or 0)
                    if proc is None or proc.dead or proc.kind != kind:
                        self.broken(f"INFO shows {group.name} as running by process {found.pid}, and nobody is there")
        finally:
            world.current = current

    # ends

    def ended(self, proc: Proc) -> None:
        """A process is over, and not killed."""
        error = proc.error
        if error is None or (proc.superseded and isinstance(error, GateError)):
            return  # what became of one in whose place another runs is told, and nobody acts on it
        if not isinstance(error, GateError):
            self.broken(f"a bug ended {proc.name}: {error!r}", error)
        elif self.world.tampered and any(name in str(error) for name in CAUSES):
            self.world.over = True
            self.world.tell("world", "and nobody else can go on: it has stopped with an error that names the cause")
            self.world.count("stopped by what was done to a trail file")
        elif isinstance(error, LockedError) or (proc.kind == "manager" and "PORT" in str(error)):
            self.world.count("found a lock or a port held")
        elif self._is_deleted(proc):
            self.world.count("was started while its group was deleted")
        elif error.exit_code != EXIT_AWAY and INJECTED not in str(error):
            self.broken(f"{proc.name} needs an operator: {type(error).__name__}: {error}", error)

    @staticmethod
    def _is_deleted(proc: Proc) -> bool:
        """Whether an operator has deleted its group, between its start and its first look."""
        return proc.kind in GROUPS and proc.machine.home.registration(proc.group_name) not in proc.machine.fs.names
