"""The real Replicat process on PostgreSQL, killed at random while a trail grows; with Spark where that has a part."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import random
import re
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from demo.patience import PATIENCE
from demo.proxy import Proxy
from demo.servers import PostgresServer
from replicat.admin import answer
from replicat.batches.scratch import sweep
from replicat.targets.kinds import admin_for
from replicat.work.net.part import SPILL_BYTES
from tests.support.fake_java import SLEEP, take_its_place
from tests.support.pipelines import folder
from tests.support.replicat_trail import TrailFeed, table
from trails.errors import AwayError
from trails.fs import RealFs
from trails.position import TrailName
from trails.record import Op
from trails.runtime.home import registration
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration
from trails.runtime.process.control import ask

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.xdist_group("spark")]

ROOT = Path(__file__).parents[2]
SPARKLESS = "tests.support.sparkless"
ACCOUNT = table("src", "account", "id owner n", "id")
ENTRY = table("src", "entry", "id account n", "id")
LOG = table("src", "log", "note")
TABLES = (
    "CREATE TABLE account (id int PRIMARY KEY, owner text UNIQUE, n int)",
    "CREATE TABLE entry (id int PRIMARY KEY, account int NOT NULL REFERENCES account, n int)",
    "CREATE TABLE log (note text)",
)


MOST_WAITING = 100
"""Transactions that are fed ahead of what is applied."""


class Group:
    """A home with one Replicat and its trail."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url
        self.home = Home(str(folder / "home"))
        Path(self.home.root).mkdir(mode=0o700)
        self.home.create_subdirs()
        self.feed = TrailFeed(RealFs(), TrailName.parse("./dirdat/rt", self.home.root), max_bytes=300_000)
        self.add_row_table()
        self.register()
        self.parameters()
        self.process: subprocess.Popen[bytes] | None = None
        self._link: psycopg.Connection[Any] | None = None

    def add_row_table(self) -> None:
        """ADD CHECKPOINTTABLE."""
        admin_for(self.url).add_row_table(self.url, ("gg", "chk"))

    def register(self, **fields: Any) -> None:
        """As ADD and ALTER write it."""
        made = {"trail": "./dirdat/rt", "checkpoint_table": "gg.chk", "group_key": 11, "added_us": 1} | fields
        registration.save(self.home, Registration("REP1", "REPLICAT", "TRAIL", **made))

    def parameters(self, *lines: str) -> None:
        """The parameter file."""
        text = ["REPLICAT rep1", f"TARGETDB '{self.url}'", *lines, "MAP src.*, TARGET public.*;", ""]
        Path(self.home.prm("REP1")).write_text("\n".join(text))

    def start(self, *program: str) -> None:
        """Start the process; it runs on its own."""
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-P", "-m", *(program or ("replicat",)), "--home", self.home.root, "REP1"]
        self.process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """End it; (exit code, what it printed)."""
        assert self.process is not None
        assert self.process.stderr is not None
        self.process.send_signal(number)
        code = self.process.wait(timeout=PATIENCE)
        text = self.process.stderr.read().decode()
        self.process.stderr.close()
        self.process = None
        return code, text

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """A query in the target."""
        if self._link is None:
            self._link = psycopg.connect(self.url, autocommit=True)
        cursor = self._link.execute(statement)
        return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        """End everything."""
        if self.process is not None:
            self.stop(signal.SIGKILL)
        if self._link is not None:
            self._link.close()
        self.feed.close()
        sweep()  # a killed process leaves its folder to the next Replicat of this host

    def notes(self) -> int:
        """How many rows the table without a key has."""
        ((count,),) = self.sql("SELECT count(*) FROM log")
        return int(count)

    def at_end(self) -> bool:
        """Whether the process runs and has read all there is."""
        try:
            return bool(ask(self.home, "REP1", "LOGEND")["logend"])
        except AwayError:
            return False

    def wait(self, reached: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Until it is so."""
        deadline = time.monotonic() + seconds
        while not reached():
            assert self.process is None or self.process.poll() is None, self.stop()
            assert time.monotonic() < deadline, Path(self.home.report("REP1")).read_text()[-3000:]
            time.sleep(0.05)


@pytest.fixture
def group(tmp_path: Path, target_db: str) -> Iterator[Group]:
    """A group, ended with the test."""
    made = Group(tmp_path, target_db)
    for statement in TABLES:
        made.sql(statement)
    yield made
    made.close()


class Model:
    """A small bank that makes random transactions and knows what the target must hold."""

    def __init__(self, feed: TrailFeed, seed: int) -> None:
        self.feed = feed
        self.random = random.Random(seed)
        self.account: dict[int, tuple[str, int]] = {}
        self.entry: dict[int, tuple[int, int]] = {}
        self.log: list[str] = []
        self.next = 0

    def transaction(self, size: int, pieces: int = 1) -> None:
        """Some changes, committed together."""
        changes = [change for _ in range(size) for change in self._change()]
        note = f"tx {self.feed.number}"
        self.log.append(note)
        self.feed.tx(*changes, (Op.INSERT, LOG, [note]), pieces=pieces)

    def _change(self) -> list[tuple[Any, ...]]:
        kind = self.random.random()
        if kind < 0.35 or len(self.account) < 3:
            return self._open_account()
        if kind < 0.65:
            self.next += 1
            owner = self.random.choice(list(self.account))
            self.entry[self.next] = (owner, kind_of(kind))
            return [(Op.INSERT, ENTRY, _image(self.next, *self.entry[self.next]))]
        if kind < 0.8:
            return self._swap_owners()
        if kind < 0.9 and self.entry:
            return self._move_entry()
        return self._close_account()

    def _open_account(self) -> list[tuple[Any, ...]]:
        self.next += 1
        self.account[self.next] = (f"owner {self.next}", 0)
        return [(Op.INSERT, ACCOUNT, _image(self.next, *self.account[self.next]))]

    def _swap_owners(self) -> list[tuple[Any, ...]]:
        one, two = self.random.sample(list(self.account), 2)
        (a, n), (b, m) = self.account[one], self.account[two]
        self.account[one], self.account[two] = (b, n + 1), (a, m + 1)
        return [
            (Op.UPDATE, ACCOUNT, _image(one, f"tmp {one}", n)),
            (Op.UPDATE, ACCOUNT, _image(two, a, m + 1)),
            (Op.UPDATE, ACCOUNT, _image(one, b, n + 1)),
        ]

    def _move_entry(self) -> list[tuple[Any, ...]]:
        old = self.random.choice(list(self.entry))
        self.next += 1
        self.entry[self.next] = self.entry.pop(old)
        return [(Op.UPDATE, ENTRY, _image(self.next, *self.entry[self.next]), _image(old, *self.entry[self.next]))]

    def _close_account(self) -> list[tuple[Any, ...]]:
        gone = self.random.choice(list(self.account))
        found: list[tuple[Any, ...]] = [(Op.DELETE, ACCOUNT, _image(gone, *self.account.pop(gone)))]
        orphans = [number for number, (account, _) in self.entry.items() if account == gone]
        return found + [(Op.DELETE, ENTRY, _image(number, *self.entry.pop(number))) for number in orphans]

    def check(self, group: Group) -> None:
        """Row by row."""
        accounts = sorted((number, *values) for number, values in self.account.items())
        assert group.sql("SELECT id, owner, n FROM account ORDER BY id") == accounts
        assert group.sql("SELECT id, account, n FROM entry ORDER BY id") == sorted(
            (k, *v) for k, v in self.entry.items()
        )
        assert sorted(group.sql("SELECT note FROM log")) == sorted((note,) for note in self.log)


def kind_of(number: float) -> int:
    """Some value."""
    return int(number * 1000)


def _image(*values: object) -> list[str]:
    return [str(value) for value in values]


@pytest.mark.soak
def test_killed_at_random_points_under_load(group: Group):
    """I10: SIGKILL again and again; unique swaps, key changes, foreign keys and a table without a key end right."""
    model = Model(group.feed, 7)
    dice = random.Random(11)
    group.parameters("BATCHROWS 300", "CHECKPOINTSECS 1")
    _live(group, model, dice, "replicat", starting=True)
    _live(group, model, dice, "replicat")
    for _ in range(5):
        _live(group, model, dice, SPARKLESS)
    group.start()
    group.wait(lambda: group.notes() == len(model.log))
    group.wait(group.at_end)
    code, text = group.stop()
    assert (code, text) == (0, "")
    model.check(group)


def _live(group: Group, model: Model, dice: random.Random, program: str, *, starting: bool = False) -> None:
    """One life under load: killed while it starts, or at some moment after it has applied something."""
    before = group.notes()
    group.start(program)
    deadline = time.monotonic() + PATIENCE  # Spark starts in it
    while not starting and group.notes() == before:
        assert time.monotonic() < deadline, Path(group.home.report("REP1")).read_text()[-3000:]
        _load(group, model, dice)
    end = time.monotonic() + dice.random() * (4 if starting else 1.5)
    while time.monotonic() < end:
        _load(group, model, dice)
    group.stop(signal.SIGKILL)


def _load(group: Group, model: Model, dice: random.Random) -> None:
    """One more transaction; not for a process that is far behind: then it would have more to do the slower it is."""
    assert group.process is not None
    assert group.process.poll() is None, group.stop()
    if len(model.log) - group.notes() < MOST_WAITING:
        large = dice.random() < 0.02
        model.transaction(400 if large else dice.randint(1, 20), pieces=8 if large else 1)
    time.sleep(0.01)


def test_a_started_process_answers_and_stops(group: Group):
    """STATUS, STATS, LAG and LOGEND over the control socket; the checkpoint file after a stop."""
    group.feed.tx((Op.INSERT, LOG, ["before"]))
    group.start()
    group.wait(lambda: group.notes() == 1)
    for number in range(6):
        group.feed.tx((Op.INSERT, LOG, [str(number)]), time_us=time.time_ns() // 1000)
        group.wait(lambda n=number + 2: group.notes() == n)
    group.wait(group.at_end)
    assert ask(group.home, "REP1", "STATUS")["status"] == "At EOF"
    lag = ask(group.home, "REP1", "GETLAG")
    assert (lag["lag_us"], lag["at_eof"]) == (0, True)
    found = ask(group.home, "REP1", "METRICS")
    assert (found["program"], found["operations"], found["transactions"]) == ("REPLICAT", 7, 7)
    assert (found["backlog_bytes"], found["lag_us"], found["backlog_us"]) == (0, 0, 0)
    assert (found["extra"]["batches"], found["extra"]["rows_discarded"]) == (7, 0)
    assert group.process is not None
    loaded = Path(f"/proc/{group.process.pid}/maps").read_text()
    assert not [name for name in ("numpy", "pandas", "pyarrow") if f"/{name}/" in loaded]  # no MAP needs them
    report = Path(group.home.report("REP1")).read_text()
    assert "Database Version:\nPostgreSQL" in report
    assert "MAP resolved (entry src.*): MAP src.log, TARGET public.log. Key columns: none" in report
    (stats,) = ask(group.home, "REP1", "STATS")["tables"]
    assert (stats["from"], stats["to"], stats["inserts"]) == ("src.log", "public.log", 7)
    group.wait(lambda: _shares(group))
    code, text = group.stop()
    assert (code, text) == (0, "")
    from trails.checkpoint import load

    saved = load(RealFs(), group.home.checkpoint("REP1", "REPLICAT"))[0]
    assert saved.stop_status == "G"
    assert (saved.reads[0].needed.seqno, saved.reads[0].needed.rba) == group.sql("SELECT seqno, rba FROM gg.chk")[0]


@pytest.fixture
def no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java that only fails: who starts Spark ends by that."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nexit 9\n")
    java.chmod(0o700)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))


def test_a_stop_is_obeyed_while_spark_starts(group: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A JVM that never comes up, as one that is stopped: the group stops all the same, and leaves nothing behind."""
    begun = tmp_path / "begun"
    monkeypatch.setenv("JAVA_HOME", take_its_place(tmp_path, f"touch {begun}; {SLEEP}"))
    group.start()
    group.wait(begun.exists)
    assert group.stop() == (0, "")
    assert "REPLICAT REP1 stopped normally" in Path(group.home.report("REP1")).read_text()


@pytest.mark.parametrize("busy", [True, False], ids=["with a batch", "idle"])
def test_a_stop_ends_it_over_a_silent_link(group: Group, pg_target: PostgresServer, busy: bool):
    """What the target's system acknowledges and nobody answers holds up no STOP for ever; and nothing is doubled."""
    proxy = Proxy(lambda: ("127.0.0.1", pg_target.port))
    direct = pg_target.url(urlsplit(group.url).path[1:], tcp=True)
    straight, group.url = group.url, direct.replace(f":{pg_target.port}/", f":{proxy.port}/")
    try:
        group.parameters()
        group.start("tests.support.hasty", "replicat")
        group.feed.tx((Op.INSERT, LOG, ["one"]))
        group.wait(lambda: group.notes() == 1 and group.at_end())
        proxy.stall.set()
        if busy:
            group.feed.tx((Op.INSERT, LOG, ["two"]))
            report = Path(group.home.report("REP1"))
            group.wait(lambda: "has not answered" in report.read_text())
        code, told = group.stop()
        assert code in (0, 3), told
    finally:
        proxy.close()
    group.url = straight
    group.parameters()
    group.start(SPARKLESS)
    group.wait(lambda: group.notes() == 1 + busy and group.at_end())
    assert group.stop() == (0, "")


@pytest.mark.usefixtures("no_spark")
def test_at_its_end_already_a_process_needs_no_spark(group: Group):
    """END at a CSN that is applied: told, and done."""
    group.feed.tx((Op.INSERT, LOG, ["one"]))
    group.parameters("END CSN 1")
    for program in (SPARKLESS, "replicat"):
        group.start(program)
        assert group.process is not None
        assert group.process.wait(timeout=PATIENCE) == 0, group.stop()
        assert group.stop()[1] == ""
    assert "CSN 0000000000000001 is applied already" in Path(group.home.report("REP1")).read_text()


def _shares(group: Group) -> bool:
    """Feeds a row, and looks whether METRICS tells that there was work in the seconds before, and whose."""
    group.feed.tx((Op.INSERT, LOG, ["more"]))
    found = ask(group.home, "REP1", "METRICS")
    return found["busy"] is not None and 0 < found["extra"]["output_share"] <= found["busy"] <= 1


@pytest.mark.parametrize(
    ("lines", "code", "message"),
    [
        (["TARGETDB postgresql://postgres:wrong@127.0.0.1:1/x"], 2, "TARGETDB: expected once"),
        (["BATCHROW 5"], 2, "did you mean BATCHROWS"),
        (["BATCHROWS many", "MAP a.b, c.d;"], 2, "BATCHROWS: expected a whole number"),
        (["CHECKPOINTTABLE gg.none"], 2, "ADD CHECKPOINTTABLE gg.none"),
        (["MAP src.log, TARGET public.none;"], 2, "target table public.none does not exist"),
        ([], 3, "Spark does not start"),
    ],
)
@pytest.mark.usefixtures("no_spark")
def test_what_is_wrong_at_start_is_said(group: Group, lines: list[str], code: int, message: str):
    """One clear message and an exit code, without the seconds of a start of Spark before it."""
    group.feed.tx((Op.INSERT, LOG, ["one"]))
    group.parameters(*lines)
    group.start()
    assert group.process is not None
    assert group.process.wait(timeout=PATIENCE) == code
    assert message in group.stop()[1]


def test_admin_verbs(group: Group):
    """One request, one reply; errors are replies."""

    def ask_admin(verb: str, **fields: Any) -> Any:
        return answer({"verb": verb, "url": group.url, **fields})

    request = json.dumps({"verb": "add_checkpointtable", "url": group.url, "table": "ops.chk"})
    for reply in ('{"ok": true}', "already exists"):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "replicat.admin"], input=request, capture_output=True, text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert reply in done.stdout
    assert ask_admin("dblogin")["user"] == "postgres"
    assert "already exists" in ask_admin("add_checkpointtable", table="ops.chk")["error"]
    found = ask_admin("info_checkpointtable", table="ops.chk")
    assert 0 < found.pop("created_us") <= time.time_ns() // 1000
    assert found == {"ok": True, "exists": True, "rows": []}
    assert ask_admin("delete_row", table="ops.chk", group="REP1", group_key=1) == {"ok": True, "deleted": False}
    assert ask_admin("delete_checkpointtable", table="ops.chk") == {"ok": True}
    assert ask_admin("info_checkpointtable", table="ops.chk")["exists"] is False
    assert "expected one table" in ask_admin("delete_row", table="ops.*", group="REP1", group_key=1)["error"]
    assert "unknown verb" in ask_admin("fly")["error"]


def test_CW_18_what_becomes_of_the_row(group: Group):
    """Its row gone, a group does not begin anew: keyless rows would come twice. CW-19's part: an ALTER places the row
    once, however often START comes, whether the row is there or not. Added again, a group goes on at its row.
    """
    group.feed.tx((Op.INSERT, LOG, ["one"]))
    group.start(SPARKLESS)
    group.wait(lambda: group.notes() == 1)
    group.stop()
    group.sql("DELETE FROM gg.chk")  # or the target was restored to a time before the group
    for _ in range(2):
        group.start()
        assert group.process is not None
        assert group.process.wait(timeout=PATIENCE) == 2
        assert "no row of group REP1, which had one" in group.stop()[1]
    assert group.sql("SELECT * FROM log") == [("one",)]
    group.register(alter_no=1, alter={"seqno": 0, "rba": 0})
    group.start(SPARKLESS)
    group.wait(lambda: group.notes() == 2)
    assert group.stop()[0] == 0
    group.register(alter_no=4, alter={"seqno": 0, "rba": 0})
    for _ in range(2):
        group.start(SPARKLESS)
        group.wait(lambda: group.at_end() and group.notes() == 3)
        group.stop(signal.SIGKILL)
    group.register(added_us=99)
    group.feed.tx((Op.INSERT, LOG, ["two"]))
    group.start(SPARKLESS)
    group.wait(lambda: group.notes() == 4)
    assert group.stop()[0] == 0
    assert group.sql("SELECT alter_no, added_us FROM gg.chk") == [(0, 99)]


ON_DISK = """
import runpy, sys
from replicat.batches import scratch
scratch.MEMORY_NEEDED = 1 << 60
runpy.run_module(sys.argv.pop(1), run_name="__main__")
"""
"""A Replicat where memory is short: its scratch folder is in the home, and so the next process has the same."""
LARGE = SPILL_BYTES // 100 * 2
"""Rows of a hundred letters whose result goes through a file."""


def test_CW_14_an_orphaned_worker_answers_late(target_db: str):
    """Replicat and Spark are killed while a worker has its task; the next Replicat applies the batch, and then that
    worker wakes and leaves its rows in the folder that both have. They are nobody's: each row is there once.
    """
    with folder() as place, adopting():
        group = Group(place, target_db)
        orphans: list[int] = []
        try:
            group.sql(TABLES[-1])
            scratch = Path(group.home.folder("dirtmp"), "spark-REP1")
            _start_on_disk(group, "replicat")
            group.feed.tx((Op.INSERT, LOG, ["warm"]))
            group.wait(lambda: group.notes() == 1)
            assert group.process is not None
            (daemon,) = {_parent(pid) for pid in _workers(group.process.pid)}
            orphans = [pid for pid in _workers(group.process.pid) if _parent(pid) == daemon]
            for pid in orphans:
                os.kill(pid, signal.SIGSTOP)
            group.feed.tx(*((Op.INSERT, LOG, [f"{n:0100}"]) for n in range(LARGE)))
            group.wait(lambda: any(_unread(pid) for pid in orphans))
            os.kill(daemon, signal.SIGKILL)  # it would take its workers along
            group.stop(signal.SIGKILL)
            assert group.notes() == 1
            _start_on_disk(group, SPARKLESS)
            group.wait(lambda: group.notes() == 1 + LARGE)
            assert _results(scratch) == set()
            for pid in orphans:
                os.kill(pid, signal.SIGCONT)
            group.wait(lambda: bool(_results(scratch)))
            group.feed.tx((Op.INSERT, LOG, ["after"]))
            group.wait(lambda: group.notes() == 2 + LARGE)
            assert group.sql("SELECT count(DISTINCT note) FROM log") == [(2 + LARGE,)]
            assert group.stop() == (0, "")
            assert not scratch.exists()
        finally:
            for pid in orphans:
                os.kill(pid, signal.SIGKILL)  # ours by now, so that its number is not another's
                os.waitpid(pid, 0)
            group.close()


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Orphans become our children; of nobody's the system would wake those that are stopped, by SIGHUP."""
    pr_set_child_subreaper, libc = 36, ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(pr_set_child_subreaper, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        libc.prctl(pr_set_child_subreaper, 0, 0, 0, 0)


def _start_on_disk(group: Group, program: str) -> None:
    command = [sys.executable, "-P", "-c", ON_DISK, program, "--home", group.home.root, "REP1"]
    group.process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE)


def _results(scratch: Path) -> set[str]:
    """Large results that lie there."""
    return {path.name for path in scratch.iterdir() if re.fullmatch("[0-9a-f]{32}", path.name)}


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _workers(pid: int) -> list[int]:
    """Spark's Python workers under this process: forked by the daemon, which the JVM has started."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"replicat.work.sparkdaemon" in (entry / "cmdline").read_bytes():
                above = _parent(int(entry.name))
                if (
                    b"replicat.work.sparkdaemon" in Path(f"/proc/{above}/cmdline").read_bytes()
                    and _parent(_parent(above)) == pid
                ):
                    found.append(int(entry.name))
    return found


def _unread(pid: int) -> bool:
    """Whether a socket of a stopped process holds what it has not read."""
    pidfd_getfd = 438
    process = os.pidfd_open(pid)
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            if entry.readlink().name.startswith("socket:"):
                fd = ctypes.CDLL(None).syscall(pidfd_getfd, process, int(entry.name), 0)
                assert fd >= 0, "not permitted to look at the worker's sockets"
                waiting = fcntl.ioctl(fd, termios.FIONREAD, bytes(4))
                os.close(fd)
                if any(waiting):
                    return True
    finally:
        os.close(process)
    return False
