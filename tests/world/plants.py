"""Faults to plant in the product, one at a time: the world must find each. See test_world_can_fail.py.

Each takes a pytest.MonkeyPatch, names the invariants of the design that it breaks, and says what a careless build would
do. One file, however long: it is a list, and whoever adds to it sees what is there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from collector.collector import Collector
from collector.door import PumpDoor
from extract.assemble import Assembler
from extract.extract import Extract
from ggsci.manager import collectors
from ggsci.manager.children import Children
from ggsci.manager.collectors import Collectors
from pump.places import PumpPlaces
from pump.pump import Pump
from pump.window import Window
from replicat.apply.discardfile import DiscardFile
from replicat.batches import planning, startup
from replicat.ddl import shapes
from replicat.run.replicat import Replicat
from tests.support.ddl_target import DdlTarget
from tests.support.list_target import ListTarget
from tests.world.disk import Disk, DiskFile
from trails import crypt, recovery, trailfile
from trails.errors import GateError, OperatorError
from trails.format import DURABLE_OFFSET, BlockKind, make_durable_end
from trails.link import wire
from trails.link.channel import Channel
from trails.plan import Planner
from trails.reader import BlockReader
from trails.recovery import Mark
from trails.runtime.home import purge, status
from trails.segment import Segment
from trails.trailfile import TrailFile
from trails.writer import TrailWriter

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Plant:
    """One fault; `breaks`: invariants; `do` plants it."""

    name: str
    breaks: str
    do: Callable[[Patch], None]


PLANTS: list[Plant] = []


def _plant(breaks: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def note(do: Callable[[Patch], None]) -> Callable[[Patch], None]:
        PLANTS.append(Plant(do.__name__, breaks, do))
        return do

    return note


# --- the trail's writer -----------------------------------------------------------------------------------------------


@_plant("I2 I4 I10")
def no_sync(patch: Patch) -> None:
    """The durable end moves, the data was never synced."""

    def sync(self: Any, end: int, twice: bool = False) -> None:
        self._file.write_at(DURABLE_OFFSET, make_durable_end(end, self._seed))
        if twice:
            self._file.datasync()

    patch.setattr(TrailFile, "sync", sync)


@_plant("I2 I4")
def durable_end_before_data(patch: Patch) -> None:
    """The durable end is written before the data is synced, not after."""

    def sync(self: Any, end: int, twice: bool = False) -> None:
        self._file.write_at(DURABLE_OFFSET, make_durable_end(end, self._seed))
        self._file.datasync()

    patch.setattr(TrailFile, "sync", sync)


@_plant("I2 I10")
def no_folder_sync(patch: Patch) -> None:
    """The next file gets its name, the folder is not synced."""
    patch.setattr(Disk, "sync_dir", lambda self, folder: self.called("sync_dir", folder))


@_plant("I5 I10")
def end_not_twice(patch: Patch) -> None:
    """A file is left before its durable end is synced."""
    before = TrailFile.sync
    patch.setattr(TrailFile, "sync", lambda self, end, twice=False: before(self, end))


@_plant("I2 I10")
def new_file_not_synced(patch: Patch) -> None:
    """The next file gets its name before its header is on the disk."""
    before = trailfile.begin

    def begin(fs: Any, *rest: Any) -> TrailFile:
        with patch.context() as inner:
            inner.setattr(DiskFile, "datasync", lambda self: self._called("datasync"))
            return before(fs, *rest)

    patch.setattr("trails.writer.begin", begin)


@_plant("I2")
def failed_sync_tried_again(patch: Patch) -> None:
    """CW-08: a failed sync is tried again, and believed the second time."""
    before = TrailFile.sync

    def sync(self: Any, end: int, twice: bool = False) -> None:
        for _ in range(5):
            try:
                return before(self, end, twice)
            except OperatorError:
                continue
        return before(self, end, twice)

    patch.setattr(TrailFile, "sync", sync)


@_plant("I2")
def sync_covers_what_came_later(patch: Patch) -> None:
    """When a sync in the background has ended, all that was appended meanwhile counts as durable too."""
    before = TrailWriter.sync_done

    def sync_done(self: Any, *, wait: bool = False) -> bool:
        done = before(self, wait=wait)
        if done:
            self.durable = self.position
        return done

    patch.setattr(TrailWriter, "sync_done", sync_done)


@_plant("I10")
def tail_not_rewritten(patch: Patch) -> None:
    """CW-08, CW-10: recovery believes that the tail's pages are on the disk."""

    def rewrite(self: Any, start: int, end: int) -> None:
        if self.file.size() > end:
            self.file.truncate(end)

    patch.setattr(Segment, "rewrite", rewrite)


@_plant("I1 I5 I10")
def torn_tail_kept(patch: Patch) -> None:
    """CW-11: recovery keeps a block of the tail by its header alone, whatever became of its payload."""
    before = Segment.plain

    def plain(self: Any, rba: int, header: Any, *, sealed: bool = False) -> Any:
        return (header, b"") if sealed else before(self, rba, header)

    patch.setattr(Segment, "plain", plain)


@_plant("I3 I10")
def place_of_the_header(patch: Patch) -> None:
    """Recovery takes its place from the last file's header, and not from the blocks behind it."""
    patch.setattr(Mark, "after", lambda self, header: dataclasses.replace(self, open=header.indicator.value in (1, 2)))


@_plant("I10")
def lock_not_taken(patch: Patch) -> None:
    """CW-24: nobody looks if another holds a trail."""

    def lock(self: Any, path: str) -> Any:
        self.owners.pop(path, None)
        return before(self, path)

    before = Disk.lock
    patch.setattr(Disk, "lock", lock)
    patch.setattr(DiskFile, "hold", lambda self: None)


# --- its readers ------------------------------------------------------------------------------------------------------


@_plant("I4 I5")
def reads_past_durable(patch: Patch) -> None:
    """CW-10: readers go to the file's end."""
    kept, mend = Segment.read_durable_end, recovery._Scan.mend
    patch.setattr(Segment, "read_durable_end", lambda self: self.file.size())

    def mended(self: Any) -> int:
        with patch.context() as inner:
            inner.setattr(Segment, "read_durable_end", kept)
            return mend(self)

    patch.setattr(recovery._Scan, "mend", mended)


@_plant("I1 I4")
def next_file_too_soon(patch: Patch) -> None:
    """CW-09: at a file's durable end a reader goes on in the next one, if there is one, without an END."""

    def look(self: Any, segment: Any, _start: Any) -> None:
        self._enter_next(segment)

    patch.setattr(BlockReader, "_look_past_end", look)


@_plant("I1 I7")
def restart_passed_over(patch: Patch) -> None:
    """CW-04: readers keep the open part of a transaction at a RESTART."""
    before = Planner._ended

    def ended(self: Any, block: Any) -> Any:
        kept = list(self._open)
        found = before(self, block)
        if block.header.kind == BlockKind.RESTART and kept:
            self._open = kept
            return None
        return found

    patch.setattr(Planner, "_ended", ended)


# --- Extract ----------------------------------------------------------------------------------------------------------


@_plant("I2")
def early_release(patch: Patch) -> None:
    """The source is told what is appended, and not what is synced."""
    before = Extract._sync

    def sync(self: Any) -> None:
        before(self)
        self._source.release(self._writer.last.origin)

    patch.setattr(Extract, "_sync", sync)


@_plant("I1 I10")
def no_restart(patch: Patch) -> None:
    """CW-04: an Extract that died inside a large transaction goes on without a RESTART."""
    before = TrailWriter._begin_file

    def begin(self: Any, seqno: int, last: Any, *, restart: bool = False, hole: Any = None) -> None:
        before(self, seqno, last, hole=hole)

    patch.setattr(TrailWriter, "_begin_file", begin)


@_plant("I1")
def nothing_abandoned(patch: Patch) -> None:
    """What was gathered of a transaction stays when its source is lost inside it."""
    patch.setattr(Assembler, "abandon", lambda self: None)


@_plant("I3")
def place_taken_back(patch: Patch) -> None:
    """A large transaction's first block bears the place of the last transaction, not the one said since."""
    before = Assembler.put_place

    def put(self: Any) -> bool:
        written = self._written
        found = before(self)
        self._written = written
        return found

    patch.setattr(Assembler, "put_place", put)


@_plant("I2 I12")
def checkpoint_before_its_data(patch: Patch) -> None:
    """Extract saves its checkpoint with what is appended, and does not sync it first."""

    def flush(self: Any) -> Any:
        self._assembler.cut()
        found = self._checkpoint()
        place = self._writer.position
        write = dataclasses.replace(found.writes[0], seqno=place.seqno, rba=place.rba)
        return dataclasses.replace(found, writes=(write,))

    patch.setattr(Extract, "flush", flush)


# --- pump and Collector -----------------------------------------------------------------------------------------------


@_plant("I2")
def early_ack(patch: Patch) -> None:
    """The Collector acknowledges what it has appended."""
    before = Collector.acknowledge

    def acknowledge(self: Any) -> Any:
        before(self)
        return wire.Ack(self._origin, self._alive().position) if self._unsynced or self._covered else None

    patch.setattr(Collector, "acknowledge", acknowledge)


@_plant("I2")
def farewell_without_sync(patch: Patch) -> None:
    """A Collector that is told to stop acknowledges all that it has, and does not sync it."""

    def sync(self: Any) -> wire.Ack:
        return wire.Ack(self._origin, self._alive().position)

    patch.setattr(Collector, "sync", sync)


@_plant("I3")
def begin_for_an_end(patch: Patch) -> None:
    """CW-02: the Collector notes where a block begins in the local trail, not where it ends."""
    before = Collector.take

    def take(self: Any, block: Any) -> None:
        before(self, dataclasses.replace(block, end=block.start) if block.start.seqno else block)

    patch.setattr(Collector, "take", take)


@_plant("I1 I10")
def open_part_dropped(patch: Patch) -> None:
    """CW-03: a Collector that finds an open transaction in its trail drops it, though the pump goes on inside it."""
    before = TrailWriter._recover
    patch.setattr(
        TrailWriter, "_recover", lambda self, alter, start, _restart, find: before(self, alter, start, True, find)
    )


@_plant("I2 I3")
def pump_counts_what_is_under_way(patch: Patch) -> None:
    """When a link is lost, the pump's checkpoint counts what was under way as arrived."""
    before = Pump._drop_link

    def drop(self: Any, event: Any) -> None:
        if self._window._sent:
            last = self._window._sent[-1]
            self._places.passed_on(last, last.end, None)
        before(self, event)

    patch.setattr(Pump, "_drop_link", drop)


@_plant("I2")
def one_ack_for_all(patch: Patch) -> None:
    """Any acknowledgement settles all that is under way."""
    before = Window.settle

    def settle(self: Any, _origin: Any, now: float) -> Any:
        return before(self, self._sent[-1].end, now) if self._sent else []

    patch.setattr(Window, "settle", settle)


@_plant("I3")
def goes_on_where_it_was(patch: Patch) -> None:
    """CW-02: the pump goes on at its own place, whatever the Collector says."""
    before = Pump._welcomed

    def welcomed(self: Any, welcome: Any) -> None:
        known = self._places._current
        at = type(welcome.origin)(known.seqno, known.rba) if known is not None else welcome.origin
        before(self, dataclasses.replace(welcome, origin=at))

    patch.setattr(Pump, "_welcomed", welcomed)


@_plant("I2 I10")
def open_transaction_not_needed(patch: Patch) -> None:
    """A filtering pump lets the begin of its open transaction be purged."""
    before = PumpPlaces.checkpoint

    def checkpoint(self: Any, *given: Any) -> Any:
        self._recovery = None
        return before(self, *given)

    patch.setattr(PumpPlaces, "checkpoint", checkpoint)


# --- Replicat ---------------------------------------------------------------------------------------------------------


@_plant("I3 I7 I10")
def no_compare(patch: Patch) -> None:
    """CW-01: the checkpoint row is written without a look at its old position."""
    patch.setattr(ListTarget, "_check", lambda self, old: None)


@_plant("I3 I10")
def row_from_memory(patch: Patch) -> None:
    """CW-01, CW-16: after a lost connection Replicat goes on from what it remembers of its row."""
    find, commit, kept = startup.find_row, Replicat._commit, {}

    def find_row(target: Any, *rest: Any, **more: Any) -> Any:
        found = find(target, *rest, **more)
        return kept.get(id(target), found)

    def committed(self: Any, running: Any) -> None:
        commit(self, running)
        kept[id(self._target)] = self._row

    patch.setattr(startup, "find_row", find_row)
    patch.setattr(Replicat, "_commit", committed)


@_plant("I2 I3")
def unflushed_checkpoint(patch: Patch) -> None:
    """CW-16: what the target has committed and may still forget is let go."""
    before = Replicat._checkpoint

    def checkpoint(self: Any) -> Any:
        found = before(self)
        return dataclasses.replace(found, reads=(dataclasses.replace(found.reads[0], recovery=None),))

    patch.setattr(Replicat, "_checkpoint", checkpoint)


@_plant("I2 I3")
def row_not_flushed(patch: Patch) -> None:
    """CW-16: the row is called flushed, and the target was not asked to."""

    def flush(self: Any, pipeline: Any) -> None:
        position = max(pipeline.idle_position or self._row.position, self._row.position)
        self._row = dataclasses.replace(self._row, flushed=position)

    patch.setattr(Replicat, "_flush_row", flush)


@_plant("I3 I7 I10")
def lost_answer_is_a_yes(patch: Patch) -> None:
    """CW-01: a COMMIT whose answer is lost counts as done."""
    before = Replicat._commit

    def commit(self: Any, running: Any) -> None:
        try:
            before(self, running)
        except GateError:
            self._row = self._next_row

    patch.setattr(Replicat, "_commit", commit)


# --- purging ----------------------------------------------------------------------------------------------------------


@_plant("I2")
def purge_too_far(patch: Patch) -> None:
    """One file too far."""
    before = purge._oldest_needed

    def oldest(*given: Any) -> Any:
        seqno, why = before(*given)
        return seqno + 1, why

    patch.setattr(purge, "_oldest_needed", oldest)


@_plant("I2")
def purge_without_a_checkpoint(patch: Patch) -> None:
    """CW-17: a reader whose checkpoint is gone needs nothing."""
    before = purge._oldest_needed

    def oldest(*given: Any) -> Any:
        seqno, why = before(*given)
        return (1 << 30, why) if "no checkpoint" in why else (seqno, why)

    patch.setattr(purge, "_oldest_needed", oldest)


# --- what is given up -------------------------------------------------------------------------------------------------


@_plant("I8 I3")
def discards_not_synced(patch: Patch) -> None:
    """A discarded change's record may be lost with the power, and its commit is there."""
    patch.setattr(DiscardFile, "sync", lambda self: None)


@_plant("I8 I3")
def discards_written_again(patch: Patch) -> None:
    """A change that comes again is written into the discard file again."""
    patch.setattr(DiscardFile, "_know", lambda self, place: None)


@_plant("I3 I7")
def ddl_beside_the_row(patch: Patch) -> None:
    """A change of a table's shape is there at once, whatever becomes of its transaction."""
    before = DdlTarget.ddl

    def ddl(self: Any, statements: tuple[str, ...]) -> None:
        before(self, statements)
        self._own.shapes = dict(self.shapes)

    patch.setattr(DdlTarget, "ddl", ddl)


# --- TLS and encryption -----------------------------------------------------------------------------------------------


@_plant("I10")
def certificate_asked_late(patch: Patch) -> None:
    """The peer's certificate is asked for with its first message, when its link may have ended already."""

    def check_home(self: Any, said: str) -> None:
        if self._tls is not None:
            self._tls.getpeercert()

    patch.setattr(Channel, "check_home", check_home)


@_plant("I10")
def copy_is_plain(patch: Patch) -> None:
    """A Collector forgets that what it writes is to be encrypted."""
    before = Collector.greet
    patch.setattr(Collector, "greet", lambda self, hello: before(self, dataclasses.replace(hello, encrypt=False)))


@_plant("I10")
def newest_key_for_all(patch: Patch) -> None:
    """An older trail file is opened under the master key that is current now."""

    def master_key(fs: Any, folder: str, key_id: str, where: str) -> crypt.MasterKey:
        wallet = crypt.load_wallet(fs, folder)
        assert wallet is not None
        return wallet.current

    patch.setattr(crypt, "_master_key", master_key)


# --- a batch that comes again -----------------------------------------------------------------------------------------


@_plant("I6")
def comes_again_and_is_refused(patch: Patch) -> None:
    """CW-21: where rows are committed apart from the checkpoint row, what comes again is taken for the first time."""
    patch.setattr(planning, "loosened", lambda rule, kind: rule)


@_plant("I6")
def shape_that_comes_again_is_refused(patch: Patch) -> None:
    """A column that a change of shape is to add is not looked for first, where that commits by itself."""
    before = shapes._Carrier._add_column

    def add_column(self: Any, script: Any, place: Any, have: Any, column: Any, history: bool) -> None:
        if have.find(column.name) is not None:
            raise shapes.CannotError(f"column {column.name} exists")
        before(self, script, place, have, column, history)

    patch.setattr(shapes._Carrier, "_add_column", add_column)


# --- strangers, and what is held --------------------------------------------------------------------------------------


@_plant("I11")
def any_pump_is_served(patch: Patch) -> None:
    """A Collector does not ask for which pump it was started."""
    patch.setattr(PumpDoor, "_check_pump", lambda self, channel, hello: None)


@_plant("I11")
def noise_ends_a_collector(patch: Patch) -> None:
    """What a stranger says wrong is taken for an error of the process."""

    def drop(self: Any, caller: Any, error: GateError) -> None:
        raise error

    patch.setattr(PumpDoor, "_drop", drop)


@_plant("I11")
def asked_in_anothers_name(patch: Patch) -> None:
    """A Manager believes what a pump says of itself, whatever its certificate says."""
    patch.setattr(collectors, "_check_home", lambda visitor, asked: None)


@_plant("I9")
def window_not_looked_at(patch: Patch) -> None:
    """A pump sends what its socket takes."""
    patch.setattr(Window, "has_room", lambda self, unsent: True)


@_plant("I9")
def large_transaction_gathered_whole(patch: Patch) -> None:
    """A transaction goes out when it ends, however large it is."""

    def grew(self: Any, size: int) -> None:
        self._size += size

    patch.setattr(Assembler, "grew", grew)


# --- the Manager ------------------------------------------------------------------------------------------------------


@_plant("I10")
def nobody_is_started_again(patch: Patch) -> None:
    """CW-26: a group that dies stays down."""
    patch.setattr(Children, "_consider_restart", lambda self, name, child, *, wait: None)


@_plant("I10")
def nobody_is_adopted(patch: Patch) -> None:
    """CW-26: what an earlier Manager has started is not watched."""
    patch.setattr(Children, "_adopt", lambda self, group, pid, started_us: None)


@_plant("I10")
def gives_up_for_good(patch: Patch) -> None:
    """When its tries are used up a group is never tried again, though its peer comes back."""
    before = Children._give_up

    def give_up(self: Any, name: str, child: Any, rule: Any) -> None:
        before(self, name, child, rule)
        child.retry_at = None

    patch.setattr(Children, "_give_up", give_up)


@_plant("I10")
def a_held_group_is_started(patch: Patch) -> None:
    """What an operator had killed comes back by itself."""
    patch.setattr(Children, "hold", lambda self, name: None)


@_plant("I10")
def a_number_is_trusted(patch: Patch) -> None:
    """A Collector that an earlier Manager has started is known by its process id alone, which a stranger has now."""

    def is_gone(self: Any, running: Any) -> bool:
        if running.process is not None:
            return running.process.poll() is not None
        return self._home.fs.host.birth(running.pid) is None

    patch.setattr(Collectors, "_is_gone", is_gone)


@_plant("I12")
def running_by_its_word(patch: Patch) -> None:
    """INFO believes a process file without a look at the lock."""
    before = status._status

    def shown(home: Any, group: str, kind: str) -> Any:
        found, note = before(home, group, kind), status.read(home.fs, home.status(group, kind))
        if note is not None and note.state == "RUNNING":
            return status.GroupStatus(status.Status.RUNNING, note.pid, note.started_us)
        return found

    patch.setattr(status, "_status", shown)


@_plant("I12")
def status_of_what_was_not_acknowledged(patch: Patch) -> None:
    """SEND PMP1, STATUS shows as passed on what is under way."""
    before = Pump.status

    def shown(self: Any) -> Any:
        found = before(self)
        return dataclasses.replace(found, read=dataclasses.replace(found.read, rba=found.read.rba + 1))

    patch.setattr(Pump, "status", shown)
