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
from tests.world.programs import LOCAL, REMOTE
from trails.checkpoint import Checkpoint
from trails.errors import EXIT_AWAY, GateError, LockedError
from trails.position import START, Position
from trails.reader import last_header
from trails.recovery import Found, recover

if TYPE_CHECKING:
    from tests.world.fibers import Proc
    from tests.world.machines import Machine
    from tests.world.world import World

LOOKS = 0.25
"""The share of the moments at which somebody is told something that are looked behind: the dearest rule of all."""
TRAILS = {"near": LOCAL, "far": REMOTE}


class ViolationError(Exception):
    """Something does not hold."""


class Rules:
    """Of one world. `violation`: the first, if there was one."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.violation: ViolationError | None = None
        self._acknowledged = START
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
        if self.violation is not None or (world.current is not None and world.current.proc.dying):
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

    def pump_told(self, origin: Position) -> None:
        """An acknowledgement has arrived."""
        self._acknowledged = max(self._acknowledged, origin)

    def welcomed(self, origin: Position) -> None:
        """A Collector says where to go on."""
        if origin < self._acknowledged:
            self.broken(f"a Collector goes on at {origin}; {self._acknowledged} was acknowledged")

    # the target

    def committed(self, before: CheckpointRow | None) -> None:
        """A COMMIT has landed."""
        row = self.world.server.store.row
        if before is not None and row is not None and row.csn < before.csn:
            self.broken(f"the checkpoint row goes back from CSN {before.csn} to {row.csn}")
        self.shows("commit")

    def shows(self, what: str) -> None:
        """What anybody would see in the target now."""
        store = self.world.server.store
        number = int(store.row.csn or 0) if store.row is not None else 0
        tables = {"kv": store.tables.get(("s", "kv"), {}), "notes": sorted(store.tables.get(("s", "notes"), []))}
        if tables != self.world.log.states[number]:
            self.broken(f"{what}: the target is not as the source was after transaction {number}")

    @property
    def equal(self) -> bool:
        """Whether the target's row names the source's last transaction."""
        row = self.world.server.store.row
        return row is not None and int(row.csn or 0) == len(self.world.log.commits)

    # checkpoints

    def saved(self, proc: Proc, point: Checkpoint) -> None:
        """A checkpoint was saved. What it lets be purged never comes back, and what it says stands on a disk."""
        if not point.reads:
            return
        needed = Position(point.reads[0].needed.seqno, point.reads[0].needed.rba)
        before = self._needed.get(proc.kind, START)
        if needed < before and not proc.superseded:
            self.broken(f"{proc.name} needs {needed} on; it had said that it needs nothing before {before}")
        self._needed[proc.kind] = max(needed, before)
        if proc.kind == "replicat":
            self._check_flushed(needed)
        elif self.world.draws["looks"].random() < LOOKS and (machine := self._writes_to(proc)).up:
            self._check_written(proc, point, self._look_behind(machine))

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
        for write in point.writes:
            end = Position(found.file.header.seqno, found.file.end) if found.file is not None else START
            if Position(write.seqno, write.rba) > end:
                self.broken(f"{proc.name} has saved that it wrote up to {write}; after a loss of power it is {end}")

    # ends

    def ended(self, proc: Proc) -> None:
        """A process is over, and not killed."""
        error = proc.error
        if error is None or (proc.superseded and isinstance(error, GateError)):
            return  # what became of one in whose place another runs is told, and nobody acts on it
        if not isinstance(error, GateError):
            self.broken(f"a bug ended {proc.name}: {error!r}", error)
        elif isinstance(error, LockedError):
            self.world.count("found a lock held")
        elif error.exit_code != EXIT_AWAY and INJECTED not in str(error):
            self.broken(f"{proc.name} needs an operator: {type(error).__name__}: {error}", error)
