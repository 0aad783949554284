"""replicat/scratch.py: one folder a group, and none of a dead process for long."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from replicat import scratch
from replicat.scratch import Scratch, sweep

HOLDER = """
import os, sys, time
from replicat import scratch
scratch.MEMORY, scratch.MEMORY_NEEDED = sys.argv[1], 0
made = scratch.Scratch("/home/one", "/home/one/dirtmp", "REP1")
os.makedirs(made.folder)
print(made.folder, flush=True)
time.sleep(60)
"""


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for /dev/shm."""
    monkeypatch.setattr(scratch, "MEMORY", str(tmp_path))
    monkeypatch.setattr(scratch, "MEMORY_NEEDED", 0)
    return tmp_path


def test_released_folder_is_gone(memory: Path) -> None:
    """A graceful end leaves nothing, neither folder nor lock."""
    made = Scratch("/home/one", "/home/one/dirtmp", "REP1")
    os.makedirs(made.folder)
    assert sweep() == [] and made.in_memory
    made.release()
    assert list(memory.iterdir()) == []


def test_a_worker_that_still_writes_leaves_nothing(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its JVM was killed, and it hears of that a moment later: a file in memory would stay for ever."""
    made = Scratch("/home/one", "/home/one/dirtmp", "REP1")
    os.makedirs(made.folder)
    writes = iter(range(3))
    rmdir = os.rmdir

    def removed_meanwhile(path: str, **more: int | None) -> None:
        for number in itertools.islice(writes, 1):
            Path(made.folder, str(number)).touch()
        rmdir(path, **more)

    monkeypatch.setattr(os, "rmdir", removed_meanwhile)
    made.release()
    assert list(memory.iterdir()) == [] and not list(writes)


def test_a_link_put_where_the_lock_goes_is_not_followed(memory: Path) -> None:
    """/dev/shm is everybody's, and the lock's name can be guessed."""
    lock = Path(scratch.folders_of("/home/one", "/home/one/dirtmp", "REP1")[0] + ".lock")
    lock.symlink_to(memory / "elsewhere")
    Scratch("/home/one", "/home/one/dirtmp", "REP1").release()
    assert not (memory / "elsewhere").exists()


def test_names_that_another_account_took_are_left_alone(memory: Path, tmp_path: Path) -> None:
    """It can keep us out of /dev/shm, and that is all: the folder is made in the home."""
    home = str(tmp_path / "h")
    os.makedirs(f"{home}/dirtmp")
    in_memory, on_disk = scratch.folders_of(home, f"{home}/dirtmp", "REP1")
    Path(in_memory).write_text("not a folder: rmtree can't remove it, as it could not another account's")
    made = Scratch(home, f"{home}/dirtmp", "REP1")
    assert made.folder == on_disk and not made.in_memory
    made.release()
    assert os.listdir(f"{home}/dirtmp") == []
    assert Path(in_memory).exists()


def test_a_lock_of_another_account_says_nothing(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who made it could let it go, and have our folder taken for a dead process's."""
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    in_memory, on_disk = scratch.folders_of("/home/one", "/home/one/dirtmp", "REP1")
    Path(in_memory + ".lock").touch()
    os.makedirs(in_memory)
    assert sweep() == [] and os.path.isdir(in_memory)
    os.rmdir(in_memory)
    assert Scratch("/home/one", "/home/one/dirtmp", "REP1").folder == on_disk


def test_folder_of_a_killed_process_is_swept_by_another_group(memory: Path) -> None:
    """While its process lives it stays; after SIGKILL the next Replicat on this host removes it."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(memory)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    folder = holder.stdout.readline().strip()
    try:
        assert sweep() == []
        assert os.path.isdir(folder)
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    other = Scratch("/home/two", "/home/two/dirtmp", "REP2")
    assert not os.path.exists(folder)
    other.release()
    assert list(memory.iterdir()) == []


def test_folder_goes_to_the_home_where_memory_is_short(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results and Spark's files then lie in dirtmp."""
    monkeypatch.setattr(scratch, "MEMORY_NEEDED", 1 << 60)
    (memory / "dirtmp").mkdir()
    made = Scratch(str(memory), "/tmp/h/dirtmp", "REP1")
    assert made.folder == "/tmp/h/dirtmp/spark-REP1"
    made.release()
