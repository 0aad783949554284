"""What the machine's own file system says where a folder is missing: a person must act, and is told which folder."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import IO

import pytest

from demo.patience import PATIENCE
from trails import watch
from trails.errors import AnewError, LockedError, OperatorError
from trails.fs import RealFs, read_bytes, replace_durably
from trails.inotify import InotifyWatch
from trails.position import Position, TrailName
from trails.watch import FolderWatch
from trails.writer import TrailWriter, WriterIdentity

IDENTITY = WriterIdentity("e" * 32, "EXT1", "here", {})


def test_a_trail_in_a_folder_that_does_not_exist_is_told(tmp_path):
    """EXTTRAIL ./dirdat/sub/lt: the writer names the folder; it is no bug (exit code 2)."""
    trail = TrailName.parse("./dirdat/sub/lt", str(tmp_path))
    with pytest.raises(OperatorError, match=r"dirdat/sub: there is no such folder.*mkdir"):
        TrailWriter.open(RealFs(), trail, IDENTITY, restart_open=True)


WATCHES = pytest.mark.parametrize("kind", [InotifyWatch, FolderWatch])


@WATCHES
def test_a_folder_that_does_not_exist_can_not_be_watched(tmp_path, kind):
    """Told as the operator's to mend, with the folder."""
    with pytest.raises(OperatorError, match="dirdat/sub can't be watched: No such file"):
        kind(str(tmp_path / "dirdat" / "sub"), print)


def woken(made, seconds=0.0):
    """Whether something was signalled; it is forgotten."""
    found = bool(select.select([made.fileno()], [], [], seconds)[0])
    made.clear()
    return found


@WATCHES
def test_what_changes_in_a_folder_wakes(tmp_path, kind):
    """Files that grow, are made, and come by a rename; not those that are read. Each is forgotten by clear()."""
    (tmp_path / "there").write_bytes(b"1")
    made = kind(str(tmp_path), print)
    assert not woken(made)
    changes = [
        lambda: (tmp_path / "there").write_bytes(b"12"),
        (tmp_path / "new").touch,
        lambda: (tmp_path / "new").rename(tmp_path / "newer"),
    ]
    for change in changes:
        change()
        assert woken(made, PATIENCE)
        while woken(made, 0.2):
            pass
    (tmp_path / "there").read_bytes()
    os.listdir(tmp_path)
    assert not woken(made, 0.2)
    made.close()
    made.close()


def test_a_trails_reader_wakes_once_a_sync(tmp_path):
    """Not at the write before, of which there is nothing to read yet."""
    writer = TrailWriter.open(RealFs(), TrailName(str(tmp_path), "lt"), IDENTITY, restart_open=True)
    made = InotifyWatch(str(tmp_path), print)
    for number in range(1, 4):
        writer.append_place(Position(0, number))
        assert not woken(made, 0.1)
        writer.sync()
        assert woken(made, PATIENCE)
        assert not woken(made, 0.1)
    made.close()
    writer.close()


def test_many_changes_are_forgotten_at_once(tmp_path):
    """More than one look takes."""
    made = InotifyWatch(str(tmp_path), print)
    for number in range(500):
        (tmp_path / f"{number:0250}").touch()
    assert woken(made)
    assert not woken(made)
    made.close()


def test_linux_is_asked_itself(tmp_path, monkeypatch):
    """And watchdog where there is no inotify."""
    found = RealFs().watch_folder(str(tmp_path), print)
    assert isinstance(found, InotifyWatch)
    found.close()
    monkeypatch.setattr("trails.inotify.has_inotify", lambda: False)
    found = RealFs().watch_folder(str(tmp_path), print)
    assert isinstance(found, FolderWatch)
    found.close()


def _no_more(*_):
    raise OSError(errno.EMFILE, "inotify instance limit reached")


@WATCHES
def test_where_too_many_are_watched_it_goes_on_without(tmp_path, monkeypatch, kind):
    """Others of the same user may have taken all of inotify for a while: a watch is only a hint."""
    told = []
    monkeypatch.setattr(watch.Observer, "start", _no_more)
    monkeypatch.setattr("trails.inotify._watched", _no_more)
    made = kind(str(tmp_path), told.append)
    made.clear()
    (tmp_path / "file").touch()
    assert not select.select([made.fileno()], [], [], 0)[0]
    made.close()
    (said,) = told
    assert "can't be watched: inotify instance limit reached. It is looked at once a second instead" in said


def test_the_limits_of_inotify_are_told_by_name(tmp_path, monkeypatch):
    """The system's own words for them are those of a full disk, and of too many open files."""
    libc = SimpleNamespace(inotify_init1=lambda _flags: -1, inotify_add_watch=lambda *_: -1)
    monkeypatch.setattr("trails.inotify.ctypes.CDLL", lambda *_, **__: libc)
    monkeypatch.setattr("trails.inotify.ctypes.get_errno", lambda: errno.EMFILE)
    told = []
    InotifyWatch(str(tmp_path), told.append).close()
    libc.inotify_init1 = lambda _flags: os.dup(0)
    monkeypatch.setattr("trails.inotify.ctypes.get_errno", lambda: errno.ENOSPC)
    InotifyWatch(str(tmp_path), told.append).close()
    assert [text.partition(": ")[2].partition(".")[0] for text in told] == [
        "inotify instance limit reached", "inotify watch limit reached"
    ]  # fmt: skip


_EVENT_AT_CLOSE = """
import sys
from trails.watch import FolderWatch

watch = FolderWatch(sys.argv[1], print)
(emitter,) = watch._observer.emitters
emitter.on_thread_stop()
emitter.queue_events(0)
watch.close()
"""


def test_an_event_in_the_moment_of_close_prints_nothing(tmp_path):
    """Who stops a Replicat while its trail grows saw a line of watchdog's on its standard error."""
    done = subprocess.run([sys.executable, "-c", _EVENT_AT_CLOSE, tmp_path], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_folder_that_is_emptied_again_and_again_is_told(tmp_path, monkeypatch):
    """Once or twice costs nothing; behind that it heals by a restart, and is no bug (exit code 3)."""
    fs, path, rename = RealFs(), str(tmp_path / "EXT1.cpe"), RealFs.rename
    left = [2]

    def emptied(self, source, target):
        if left[0]:
            left[0] -= 1
            os.remove(source)
        rename(self, source, target)

    monkeypatch.setattr(RealFs, "rename", emptied)
    replace_durably(fs, path, b"1")
    assert read_bytes(fs, path) == b"1"
    left[0] = 100
    with pytest.raises(AnewError, match="emptied again and again") as caught:
        replace_durably(fs, path, b"2")
    assert caught.value.exit_code == 3
    assert read_bytes(fs, path) == b"1"


def test_a_file_in_the_place_of_a_folder_is_told(tmp_path):
    """ENOTDIR is no bug either."""
    (tmp_path / "dirdat").write_text("")
    with pytest.raises(OperatorError, match="cannot read folder"):
        RealFs().listdir(str(tmp_path / "dirdat"))


def test_looking_at_a_lock_keeps_nobody_from_taking_it(tmp_path, monkeypatch):
    """INFO ALL while ALTER or a start takes the lock: who only looks is waited for, who holds it is not."""
    path, fs = str(tmp_path / ".EXT1.lock"), RealFs()
    monkeypatch.setattr("trails.fs.LOCK_SECONDS", 60.0)  # who looks may be stopped in the middle of it
    fs.lock(path).release()
    done = threading.Event()
    looks = [threading.Thread(target=_look, args=(path, done)) for _ in range(2)]
    for thread in looks:
        thread.start()
    try:
        for _ in range(300):
            fs.lock(path).release()
    finally:
        done.set()
        for thread in looks:
            thread.join()
    monkeypatch.undo()
    held = fs.lock(path)
    with pytest.raises(LockedError, match=str(os.getpid())):
        fs.lock(path)
    held.release()


def test_half_a_start_is_not_seen(tmp_path, monkeypatch):
    """The lock is held a moment before its file says by whom: STARTING never shows process 0, or a dead one."""
    monkeypatch.setattr("trails.fs.NUMBER_SECONDS", PATIENCE)
    path = tmp_path / ".EXT1.lock"
    path.write_text("4194305\n")  # no process of Linux has this number
    with path.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        looked = threading.Event()
        monkeypatch.setattr("trails.fs._lives", lambda pid: looked.set() or pid == os.getpid())
        late = threading.Thread(target=_write_number, args=(file, looked))
        late.start()
        assert RealFs().lock_holder(str(path)) == os.getpid()
        late.join()


def test_a_lock_whose_holder_could_write_no_number_is_held_all_the_same(tmp_path, monkeypatch):
    """As on a full disk."""
    monkeypatch.setattr("trails.fs.NUMBER_SECONDS", 0.0)
    path = tmp_path / ".EXT1.lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert RealFs().lock_holder(str(path)) == 0


def _look(path: str, done: threading.Event) -> None:
    while not done.is_set():
        RealFs().lock_holder(path)
        time.sleep(0.0002)


def _write_number(file: IO[str], looked: threading.Event) -> None:
    """Once somebody has looked and found the last holder's."""
    assert looked.wait(PATIENCE)
    os.ftruncate(file.fileno(), os.pwrite(file.fileno(), f"{os.getpid()}\n".encode(), 0))
