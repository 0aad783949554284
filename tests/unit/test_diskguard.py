"""The disk guard: bounds, warnings with hysteresis, who ends at which bound, and how the main loop ends for it."""

from __future__ import annotations

import errno
import os

import pytest

from ggsci.manager.children import Child, Children
from ggsci.manager.disk import Disk
from ggsci.manager.params import ManagerParams
from tests.support.homes import good, group, make_home
from trails.checkpoint import Checkpoint
from trails.clock import RealClock
from trails.errors import EXIT_AWAY, DiskFullError, OperatorError, ParamError
from trails.fs import RealFs
from trails.position import TrailName
from trails.runtime.language import freespace
from trails.runtime.language import globals as globals_file
from trails.runtime.language.freespace import Bound
from trails.runtime.language.params import parse_text
from trails.runtime.process import diskguard
from trails.runtime.process.diskguard import DiskGuard, Limits, Space
from trails.runtime.process.loop import Process, Stop, run
from trails.runtime.process.startup import exit_of
from trails.runtime.report.report import Log
from trails.testing import FakeClock
from trails.writer import TrailWriter, WriterIdentity

GB = 1 << 30


@pytest.fixture
def home(tmp_path):
    return make_home(tmp_path / "home")


def log_of(home) -> Log:
    """A process's log."""
    return Log(home, "Trailgate Capture", "ext1.prm", RealClock())


def log_text(home) -> str:
    """ggserr.log."""
    return open(home.ggserr).read() if os.path.exists(home.ggserr) else ""


def limits(home, text: str) -> Limits:
    """What GLOBALS with this text says."""
    with open(home.globals, "w") as file:
        file.write(text)
    return Limits.of(globals_file.read(home))


class Disk100(Limits):
    """A file system of 100 GB whose free space a test sets; bounds of 10 GB and 2 GB."""

    free = 50 * GB

    def look(self, folders):
        return [Space("dirdat", type(self).free, 100 * GB, 10 * GB, 2 * GB)]


# --- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "warn", "stop"),
    [
        ("", 10 * GB, 2 * GB),
        ("DISKWARN 20%\nDISKSTOP 5%\n", 20 * GB, 5 * GB),
        ("DISKWARN 500M\nDISKSTOP 100k\n", 500 << 20, 100 << 10),
        ("DISKWARN 7 GB\nDISKSTOP 1024\n", 7 * GB, 1024),
        ("DISKWARN 0\nDISKSTOP 0\n", 0, 0),
    ],
)
def test_bounds_are_bytes_or_a_share(home, text, warn, stop):
    """GLOBALS' DISKWARN and DISKSTOP; the defaults are shares."""
    found = limits(home, text)
    assert (found.warn.bytes_of(100 * GB), found.stop.bytes_of(100 * GB)) == (warn, stop)


def test_default_bounds_fit_small_and_huge_disks():
    """A tenth of a disk of 16 MB, 64 MB of 2 GB, and no terabyte kept free on a huge one."""
    assert (freespace.DEFAULT_WARN.bytes_of(16 << 20), freespace.DEFAULT_STOP.bytes_of(16 << 20)) == (1677721, 1677721)
    assert freespace.DEFAULT_STOP.bytes_of(2 * GB) == 64 << 20
    assert (freespace.DEFAULT_WARN.bytes_of(1 << 50), freespace.DEFAULT_STOP.bytes_of(1 << 50)) == (20 * GB, 4 * GB)


@pytest.mark.parametrize("text", ["DISKWARN", "DISKWARN 100%", "DISKSTOP -1", "DISKSTOP 5 apples", "DISKWARN 1.5G"])
def test_a_wrong_bound_is_told(home, text):
    """File, line, what was expected."""
    with pytest.raises(ParamError, match=r"GLOBALS:1.*(bytes such as|percentage)"):
        limits(home, text)


def test_a_bound_that_can_never_be_met_is_refused(home):
    """Else every start would end at once, as if waiting could mend it."""
    with pytest.raises(OperatorError, match=r"DISKSTOP 9\d+\.\d TB in GLOBALS: the file system of .* has only"):
        limits(home, "DISKSTOP 999T").check([home.folder("dirdat")])


def test_the_real_file_systems_are_seen_once_each(home):
    """dirdat, dirchk and dirtmp of one disk are one; a folder not there yet is left out; the figures are df's."""
    spaces = Limits().look([*diskguard.folders_of(home), "/nowhere"])
    system = os.statvfs(home.root)
    assert {space.path for space in spaces} == {home.folder("dirdat")}
    assert [space.unit for space in spaces] in (["bytes"], ["bytes", "files"])
    assert spaces[0].size <= system.f_blocks * system.f_frsize
    assert 0 < spaces[0].free < spaces[0].size


class Inodes:
    """What statvfs says of a file system with plenty of bytes and `free` inodes."""

    f_frsize = 4096
    f_blocks = f_bfree = f_bavail = 100 * GB // 4096

    def __init__(self, free: int, files: int = 1_000_000):
        self.f_files, self.f_ffree, self.f_favail = files, free, free


@pytest.mark.parametrize(("free", "warns", "writer_ends"), [(20_000, 0, False), (9_999, 1, False), (999, 1, True)])
def test_inodes_are_guarded_too(home, monkeypatch, free, warns, writer_ends):
    """No new trail file without them, however many bytes are free; a file system without a number of them is well."""
    monkeypatch.setattr(os, "statvfs", lambda _folder: Inodes(free))
    guard = DiskGuard([home.root], Limits(), log_of(home), writes_trail=True, stop=lambda _error: None)
    error = guard.check()
    assert (error is not None) == writer_ends
    assert log_text(home).count(f"{free:,} of 1,000,000 files free, less than DISKWARN (10,000 files)") == warns
    if error:
        assert "999 of 1,000,000 files free, less than DISKSTOP (1,000 files)" in str(error)
    assert limits(home, "DISKWARN 0\nDISKSTOP 0\n").look([home.root])[1].state == "OK"
    monkeypatch.setattr(os, "statvfs", lambda _folder: Inodes(0, 0))
    assert [space.unit for space in Limits().look([home.root])] == ["bytes"]


# --- who ends when ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free", "writer_ends", "reader_ends"),
    [(11 * GB, False, False), (3 * GB, False, False), (2 * GB - 1, True, False), (0, True, False)],
)
def test_readers_go_on_where_writers_end(home, free, writer_ends, reader_ends):
    """What readers are past can be purged: the space below DISKSTOP is theirs, to the last byte."""
    Disk100.free = free
    for writes_trail, ends in ((True, writer_ends), (False, reader_ends)):
        guard = DiskGuard(["x"], Disk100(), log_of(home), writes_trail=writes_trail, stop=lambda _error: None)
        error = guard.check()
        assert (error is not None) == ends
        if error:
            assert error.exit_code == EXIT_AWAY
            assert "DISKSTOP" in str(error)
            assert "Make space" in str(error)


def test_no_writer_outruns_its_bound_between_two_looks(home):
    """At any speed it looks in time: by what it has written, and by how fast the space goes, whoever takes it."""
    for own in (True, False):
        Disk100.free, ended, written = 2 * GB + (64 << 20), [], [0]
        guard = DiskGuard(["x"], Disk100(), log_of(home), writes_trail=True, stop=ended.append)
        guard.written = lambda written=written: written[0]
        now, least = 0.0, Disk100.free
        while not ended and least > 0:
            guard(now)
            written[0] += (256 << 10) if own else 0  # a gulp of 256 KB each millisecond; or somebody else's
            Disk100.free -= (256 << 10) if own else 32 << 10
            now, least = now + 0.001, Disk100.free
        assert ended and least > 2 * GB - (2 << 20)


def test_who_writes_a_trail_looks_before_each_new_file(home):
    """However soon it is since the last look, and before the file is there; the process ends once for it."""
    files, ended = [], []
    fs, trail = RealFs(), TrailName.parse("./dirdat/lt", home.root)
    Disk100.free = 50 * GB
    guard = DiskGuard(["x"], Disk100(), log_of(home), writes_trail=True, stop=ended.append)
    guard(0.0)
    writer = TrailWriter.open(fs, trail, WriterIdentity(home.id, "EXT1", "here", {}), restart_open=True)
    writer.before_file = lambda: (files.append(len(fs.listdir(home.folder("dirdat")))), guard.look())
    before = len(fs.listdir(home.folder("dirdat")))
    writer.roll()
    assert not ended
    Disk100.free = GB
    guard(0.5)
    assert not ended
    writer.roll()
    writer.roll()
    writer.close()
    assert files == [before, before + 1, before + 2]
    assert [error.exit_code for error in ended] == [EXIT_AWAY]


def test_a_warning_comes_once_for_each_shortage(home):
    """DISKWARN: once, and again only after a tenth more than it was free."""
    guard = DiskGuard(["x"], Disk100(), log_of(home), writes_trail=True, stop=lambda _error: None)
    for now, free in enumerate((50, 9, 8, 10.5, 9, 11.5, 9)):
        Disk100.free = int(free * GB)
        guard(now * 10.0)
    lines = [line.split()[3] for line in log_text(home).splitlines()]
    assert lines == [diskguard.LOW, diskguard.ENOUGH, diskguard.LOW]
    assert "GETPURGEOLDEXTRACTS" in log_text(home)


def test_what_is_not_known_stops_nobody(home):
    """A statvfs that fails is told once; a write that fails will end the process."""

    class Blind(Limits):
        def look(self, folders):
            raise OSError(errno.EIO, "Input/output error")

    guard = DiskGuard(["x"], Blind(), log_of(home), writes_trail=True, stop=lambda _error: None)
    assert [guard.check(), guard.check()] == [None, None]
    assert log_text(home).count("Free space is not known") == 1


class Writer(Process):
    """Does one unit of work a step, and notes what happened to it."""

    def __init__(self) -> None:
        self.steps, self.events = 0, []

    def step(self) -> bool:
        self.steps += 1
        return True

    def flush(self) -> Checkpoint | None:
        self.events.append("flush")
        return Checkpoint("EXT1", "EXTRACT")

    def close(self) -> None:
        self.events.append("close")

    def command(self, verb, args):
        return {}


def test_below_diskstop_a_process_saves_and_ends_with_exit_code_3(home):
    """CW-28: flush, checkpoint with stop status A, close, and only then the error."""
    Disk100.free = GB
    stop, process, saved = Stop(), Writer(), []
    guard = DiskGuard(["x"], Disk100(), log_of(home), writes_trail=True, stop=lambda error: stop.request(error=error))
    with pytest.raises(DiskFullError) as error:
        run(process, saved.append, stop, clock=RealClock(), chores=[guard])
    assert (process.steps, process.events) == (1, ["flush", "close"])
    assert [save.stop_status for save in saved] == ["A"]
    assert exit_of(error.value)[0] == EXIT_AWAY


# --- the Manager's part -----------------------------------------------------------------------------------------------


def test_the_manager_purges_at_once_and_again_while_it_is_low(home):
    """Below DISKWARN: at the crossing, then each minute; not while all is well."""
    clock = FakeClock()
    disk = Disk(home, Disk100(), log_of(home), clock)
    asked = []
    for free in (50, 9, 9, 9, 50, 9):
        Disk100.free = free * GB
        clock.sleep(31)
        asked.append(disk.step())
    assert asked == [False, True, False, True, False, True]


def test_the_manager_starts_no_writer_on_a_full_disk(home):
    """Below DISKSTOP no Extract and no Collector; a pump may, for what it has read can be purged."""
    good(home, "ADD EXTRACT ext1, TRANLOG")
    good(home, "ADD EXTTRAIL ./dirdat/lt, EXTRACT ext1")
    good(home, "ADD EXTRACT pmp1, EXTTRAILSOURCE ./dirdat/lt")
    disk = Disk(home, Disk100(), log_of(home), FakeClock())
    Disk100.free = GB
    assert "DISKSTOP" in disk.no_space()
    assert "DISKSTOP" in disk.no_space(group(home, "EXT1"))
    assert disk.no_space(group(home, "PMP1")) == ""
    Disk100.free = 3 * GB
    assert disk.no_space() == ""


def test_a_writer_that_is_refused_is_remembered_at_once(home):
    """Before the next look: the Manager may be killed by then, and where no byte is left nothing can be noted."""
    disk = Disk(home, Disk100(), log_of(home), FakeClock())
    full = os.path.join(home.folder("dirpcs"), "MGR.full")
    Disk100.free = GB
    assert not os.path.exists(full)
    assert "DISKSTOP" in disk.no_space()
    assert os.path.exists(full)


def test_after_a_full_disk_readers_start_before_writers(home):
    """A reader of its trail that is about to run keeps a writer back, until all is well again."""
    good(home, "ADD EXTRACT ext1, TRANLOG")
    good(home, "ADD EXTTRAIL ./dirdat/lt, EXTRACT ext1")
    good(home, "ADD EXTRACT pmp1, EXTTRAILSOURCE ./dirdat/lt")
    log, clock = log_of(home), FakeClock()
    disk, children = Disk(home, Disk100(), log, clock), Children(home, ManagerParams(), log, clock)
    disk.reader_to_come = children.reader_to_come
    trail = TrailName.parse("./dirdat/lt", home.root)
    children.children["PMP1"] = Child("EXTRACT", 0, 0, 0.0, alive=False, retry_at=clock.monotonic() + 5)
    for free, waits in ((50, False), (1, True), (5, True), (50, True), (50, False)):
        Disk100.free = free * GB
        clock.sleep(31)
        disk.step()
        for why in (disk.no_space(group(home, "EXT1")), disk.no_space(trail=trail)):
            assert bool(why) == waits
            assert free != 5 or "EXTRACT PMP1, which reads this trail, starts first" in why
        assert disk.no_space(group(home, "PMP1")) == ""
    Disk100.free = GB
    clock.sleep(31)
    disk.step()
    Disk100.free = 5 * GB
    children.children["PMP1"].retry_at = None  # given up, or held: it is not waited for
    assert disk.no_space(trail=trail) == ""


def test_a_manager_that_is_started_on_an_enlarged_disk_starts_readers_first(home):
    """The one before it saw the disk full: nobody has read yet, and a writer would fill it anew."""
    good(home, "ADD EXTRACT ext1, TRANLOG")
    good(home, "ADD EXTTRAIL ./dirdat/lt, EXTRACT ext1")
    good(home, "ADD EXTRACT pmp1, EXTTRAILSOURCE ./dirdat/lt")
    log, clock = log_of(home), FakeClock()
    Disk100.free = GB
    Disk(home, Disk100(), log, clock).step()
    Disk100.free = 50 * GB
    disk = Disk(home, Disk100(), log, clock)
    rules = ManagerParams.from_statements(parse_text("PORT 7809\nAUTOSTART ER *\n", "mgr.prm"), "mgr.prm")
    sleeper = lambda _home, _group: ["/bin/sleep", "100"]  # noqa: E731  -- a process that has not taken its lock yet
    children = Children(home, rules, log, clock, sleeper)
    children.no_space, disk.reader_to_come = disk.no_space, children.reader_to_come
    disk.step()
    children._automatic_at = 0.0
    children.adopt_and_start()
    reader = children.children["PMP1"]
    try:
        assert reader.alive
        writer = children.children["EXT1"]
        assert "EXTRACT PMP1, which reads this trail, starts first" in writer.waits_for
        assert not writer.alive
    finally:
        reader.process.kill()
        reader.process.wait()
    reader.alive = False  # it ended: nobody waits for it
    assert disk.no_space(group(home, "EXT1")) == ""
    clock.sleep(61)
    disk.step()
    assert not os.path.exists(os.path.join(home.folder("dirpcs"), "MGR.full"))


def test_where_a_registration_cannot_be_read_no_reader_is_waited_for(home):
    """The Manager asks this also for a pump that wants a Collector: no error may come out of it."""
    children = Children(home, ManagerParams(), log_of(home), FakeClock())
    with open(home.registration("BAD"), "w") as file:
        file.write("{")
    assert children.reader_to_come(TrailName.parse("./dirdat/lt", home.root)) == ""


# --- ENOSPC itself ----------------------------------------------------------------------------------------------------


def test_a_write_that_finds_no_space_is_a_named_error_of_its_own(home, monkeypatch):
    """ENOSPC and a quota: DiskFullError, exit code 3, with path and hint; another refusal is not."""
    for number, kind in ((errno.ENOSPC, DiskFullError), (errno.EDQUOT, DiskFullError), (errno.EFBIG, OperatorError)):
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", lambda *_, number=number: (_ for _ in ()).throw(OSError(number, "no")))
            file = RealFs().create(os.path.join(home.root, f"x{number}"))
            with pytest.raises(OperatorError, match=r"cannot write .*START again") as error:
                file.write_at(0, b"x")
        assert type(error.value) is kind
    assert exit_of(OSError(errno.ENOSPC, "No space left on device"))[0] == EXIT_AWAY


def test_a_bound_reads_as_it_is_written():
    """For messages."""
    assert [str(Bound(5, percent=True)), str(Bound(5 * GB)), freespace.human(100), freespace.human(1536)] == [
        "5%", "5.0 GB", "100 bytes", "1.5 KB",
    ]  # fmt: skip


def test_a_disk_that_shrinks_is_a_full_disk_and_no_mistake_in_globals(home):
    """A pool that others fill too: the bound was right at the start; exit code 3, and the Manager goes on."""
    found = limits(home, "DISKSTOP 999T")
    guard = DiskGuard([home.folder("dirdat")], found, log_of(home), writes_trail=True, stop=lambda _error: None)
    assert isinstance(guard.check(), DiskFullError)
    with pytest.raises(OperatorError, match="has only") as error:
        guard.at_start()
    assert not isinstance(error.value, DiskFullError)
    disk = Disk(home, found, log_of(home), FakeClock())
    disk.step()
    assert "DISKSTOP" in disk.no_space()


def test_what_ended_for_want_of_space_starts_when_there_is_a_little_more(home):
    """A tenth more, at most 256 MB: a disk just at its bound does not start and end it in turns."""
    disk = Disk(home, Disk100(), log_of(home), FakeClock())
    for free, starts in ((2 * GB, False), (2 * GB + (204 << 20), False), (2 * GB + (205 << 20), True)):
        Disk100.free = free
        assert (disk.no_space() == "") == starts
