"""batches/scratch.py: one folder a group, that nobody else can have first, and none of a dead process for long."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.patience import wait_for
from replicat.batches import engine, scratch
from replicat.batches.jvm import Jvm
from replicat.batches.scratch import Scratch, sweep
from tests.support.fake_java import SLEEP, take_its_place
from trails.errors import OperatorError

HOLDER = """
import os, sys, time
from replicat.batches import scratch
scratch.MEMORY, scratch.MEMORY_NEEDED = sys.argv[1], 0
made = scratch.Scratch("/home/one", "/home/one/dirtmp", "REP1")
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
    assert sweep() == [] and made.in_memory
    made.release()
    assert list(memory.iterdir()) == []


def test_a_worker_that_still_writes_leaves_nothing(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its JVM was killed, and it hears of that a moment later: a file in memory would stay for ever."""
    made = Scratch("/home/one", "/home/one/dirtmp", "REP1")
    writes = iter(range(3))
    rmdir = os.rmdir

    def removed_meanwhile(path: str, **more: int | None) -> None:
        for number in itertools.islice(writes, 1):
            Path(made.folder, str(number)).touch()
        rmdir(path, **more)

    monkeypatch.setattr(os, "rmdir", removed_meanwhile)
    made.release()
    assert list(memory.iterdir()) == [] and not list(writes)


ANOTHER = 65534


TAKER = """
import os, sys
os.setuid(int(sys.argv[1]))
for taken in sys.argv[2:]:
    os.mkdir(taken, 0o777)
    open(taken + ".lock", "w").close()
    os.symlink("/etc", taken + "link")
print("taken", flush=True)
sys.stdin.read()
"""


def taken_by_another(*folders: str) -> subprocess.Popen[str]:
    """Another account has these names, a lock and a link beside them, and stays alive; as root only, else as we are."""
    uid = str(ANOTHER if os.geteuid() == 0 else os.geteuid())
    command = [sys.executable, "-P", "-c", TAKER, uid, *folders]
    taker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")
    assert taker.stdout is not None and taker.stdout.readline() == "taken\n"
    return taker


@pytest.fixture
def shared() -> Iterator[Path]:
    """A place where everybody may write, as /dev/shm and /tmp."""
    place = Path(tempfile.mkdtemp(prefix="tg-shared-"))
    place.chmod(0o1777)
    yield place
    shutil.rmtree(place)


def test_another_account_can_neither_have_our_folder_nor_keep_us_out(shared: Path, monkeypatch) -> None:
    """It takes every name that can be known before: ours is another, for us alone, and its own stay."""
    monkeypatch.setattr(scratch, "MEMORY", str(shared))
    monkeypatch.setattr(scratch, "MEMORY_NEEDED", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    long_home = f"{shared}/{'h' * 60}"
    stem, _ = scratch.stems_of("/home/one", "/home/one/dirtmp", "REP1")
    elsewhere, _ = scratch.stems_of(long_home, f"{long_home}/dirtmp", "REP1")
    taker = taken_by_another(stem, stem.rstrip("-"), elsewhere, elsewhere.rstrip("-"))
    try:
        before = {path.name for path in shared.iterdir()}
        made = [Scratch(home, f"{home}/dirtmp", "REP1") for home in ("/home/one", long_home)]
        monkeypatch.setattr(scratch, "MEMORY_NEEDED", 1 << 60)
        made.append(Scratch(long_home, f"{long_home}/dirtmp", "REP2"))
        for one in made:
            found = os.lstat(one.folder)
            assert stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o700
            assert found.st_uid == os.geteuid() and os.path.basename(one.folder) not in before
            engine._empty(one.folder)
        assert made[0].folder.startswith(stem) and made[1].folder.startswith(elsewhere)
        for one in made:
            one.release()
        assert os.geteuid() != 0 or {path.name for path in shared.iterdir()} == before
        assert os.listdir("/etc")
    finally:
        taker.communicate()


def test_where_no_folder_can_be_made_no_name_that_others_know_is_used(monkeypatch) -> None:
    """/tmp takes no folder, and the home's path is too long for Spark: told, not guessed."""
    monkeypatch.setattr(scratch, "MEMORY_NEEDED", 1 << 60)
    monkeypatch.setattr(tempfile, "tempdir", "/nosuch")
    with pytest.raises(OperatorError, match="no scratch folder can be made in /nosuch"):
        Scratch(f"/{'h' * 60}", f"/{'h' * 60}/dirtmp", "REP1")


def test_a_folder_that_is_not_ours_is_never_emptied(shared: Path) -> None:
    """Whoever is told a folder by somebody else refuses a link, and another account's folder."""
    (shared / "precious").mkdir()
    (shared / "precious" / "file").touch()
    (shared / "link").symlink_to("precious")
    os.chown(shared / "precious", ANOTHER, ANOTHER) if os.geteuid() == 0 else None
    for name in ("link", "precious") if os.geteuid() == 0 else ("link",):
        with pytest.raises(OperatorError, match="belongs to another account, or is a link"):
            engine._empty(str(shared / name))
    assert (shared / "precious" / "file").exists()


def test_a_folder_swept_before_it_was_locked_is_made_again(memory: Path, monkeypatch) -> None:
    """Two Replicats start at once."""
    folders, make = [], tempfile.mkdtemp

    def made_and_swept(**options: str) -> str:
        folders.append(make(**options))
        if len(folders) < 3:
            assert sweep() == folders[-1:]
        return folders[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", made_and_swept)
    made = Scratch("/home/one", "/home/one/dirtmp", "REP1")
    assert made.folder == folders[2] and sweep() == []
    made.release()


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


@pytest.mark.parametrize(("of_memory", "on_disk", "there"), [(40, 39, True), (40, 40, False), (500, 64, False)])
def test_on_a_full_disk_a_little_memory_is_better(
    memory: Path, monkeypatch: pytest.MonkeyPatch, of_memory: int, on_disk: int, there: bool
) -> None:
    """A container's /dev/shm has 64 MB; the Replicat that would make space on the disk must start all the same."""
    monkeypatch.setattr(scratch, "MEMORY_NEEDED", 512 << 20)
    (memory / "dirtmp").mkdir()
    free = {str(memory): of_memory << 20, str(memory / "dirtmp"): on_disk << 20}
    monkeypatch.setattr(scratch, "_free", free.__getitem__)
    made = Scratch("/tmp/h", str(memory / "dirtmp"), "REP1")
    assert made.in_memory == there or made.folder == str(memory / "dirtmp" / "spark-REP1")
    assert (os.path.dirname(made.folder) == str(memory)) == there
    made.release()


def test_a_folder_stays_for_a_jvm_that_has_lost_its_replicat(memory: Path, tmp_path_factory, monkeypatch) -> None:
    """It is just starting, and will notice: without the folder it could not say where it listens, and would not end."""
    place = tmp_path_factory.mktemp("java")
    monkeypatch.setenv("JAVA_HOME", take_its_place(place, SLEEP))
    made = Scratch("/home/one", "/home/one/dirtmp", "REP1")
    with open(place / "log", "wb") as output:
        jvm = Jvm([], made.folder, output, str(place / "log"), [made.lock])
    os.close(made.lock)  # as SIGKILL does
    assert sweep() == []
    jvm.kill()
    wait_for(lambda: sweep() == [made.folder])  # what its start scripts run has the descriptor too, and ends with it
