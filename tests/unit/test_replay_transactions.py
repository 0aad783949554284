"""REPLAY DISCARDS of a discarded transaction: whole or not at all, whatever part of it a discard file holds.

The discard file is written as Replicat writes it, by one process (life) after the other; the target is an SQLite file.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from replicat.apply.discard import Discards
from replicat.apply.discardfile import DiscardFile
from replicat.apply.discardrecord import Reason
from replicat.apply.replay import Replay
from replicat.model.plan import TablePlan
from replicat.model.target import Layout
from replicat.targets.contract import TargetSettings
from replicat.targets.kinds import admin_for, open_target
from replicat.work.decode import Spot
from replicat.work.net.part import MappedChange
from tests.support.homes import bad, make_home
from trails.errors import OperatorError
from trails.fs import Fs, RealFs
from trails.position import Position
from trails.runtime.home import registration
from trails.runtime.home.registration import Registration
from trails.runtime.report.stats import DISCARDS
from trails.testing import FakeClock, FaultFs

PATH, OTHER = "/home/dirdsc/REP1.dsc", "/home/dirdsc/REP1.0.dsc"
PLAN = TablePlan(
    "s.kv", "main.kv", Layout("main", "kv", ("k", "v"), ("text", "text"), ("k",), logical=("text", "text")), (0,)
)
WHOLE, SINGLE = Reason("TRANSDISCARD", "error 23514", "main.kv: no", whole=True), Reason("DISCARD", "error 23514", "no")
NOT_WHOLE = "its transaction is replayed whole or not at all: "


def place(csn: int) -> Position:
    """Of the block with the transaction of this CSN."""
    return Position(0, csn * 4096)


class Life:
    """One process of the group, and what it writes before it ends; nothing is committed unless `done` is said."""

    def __init__(self, fs: Fs, position: Position, path: str = PATH, *, purge: bool = False) -> None:
        file = DiscardFile(fs, path, 1, purge=purge)
        self.discards = Discards("REP1", (), file, clock=FakeClock())
        self.discards.attach(position)

    def write(self, csn: int, *numbers: int, reason: Reason = WHOLE, size: int = 1) -> None:
        """The records of these changes of a transaction: a row, the same row as it becomes, another row."""
        row, other = (f"{csn}", "a" * size), (f"{csn}", "b" * size)
        images = (("insert", None, row), ("update", row, other), ("insert", None, (f"{csn}x", "c" * size)))
        for number in numbers:
            op, before, after = images[number]
            spot = Spot(place(csn), f"{csn:04}", number, "s.kv", op, "", "main.kv", ("k", "v"), before, after)
            self.discards.write(spot, reason, b"\xab", [MappedChange(PLAN, op, before, after)])
            self.discards.because(DISCARDS, "s.kv", "23514")

    def done(self) -> None:
        """As before a commit, and the process ends."""
        self.discards.sync()
        self.discards.close()


def life(fs: Fs, *csns: int, path: str = PATH, purge: bool = False) -> None:
    """A process that discards these transactions whole."""
    one = Life(fs, place(csns[0]), path, purge=purge)
    for csn in csns:
        one.write(csn, 0, 1, 2)
    one.done()


def killed(fs: Fs, csn: int, *numbers: int, reason: Reason = WHOLE) -> None:
    """A process that ends behind these records of a transaction."""
    one = Life(fs, place(csn))
    one.write(csn, *numbers, reason=reason)
    one.discards.close()


class Target:
    """An SQLite file with table kv, and replays into it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "target.db"
        self.url = f"sqlite:///{self.path}"
        self.sql("CREATE TABLE kv (k text PRIMARY KEY, v text)")
        admin_for(self.url).add_row_table(self.url, ("main", "chk"))
        self.settings = TargetSettings(self.url, ("main", "chk"), "REP1", 1)

    def sql(self, statement: str) -> list[tuple[str, ...]]:
        with sqlite3.connect(self.path) as conn:
            return conn.execute(statement).fetchall()

    def rows(self) -> set[str]:
        """As key=value."""
        return {f"{k}={v[0]}" for k, v in self.sql("SELECT k, v FROM kv")}

    def replay(self, fs: Fs, path: str = PATH) -> list[tuple[str, str]]:
        """What became of each record; a dry run says the same before."""
        found = []
        for dry in (True, False):
            outcomes = Replay(open_target(self.settings), "REP1", 1, dry=dry).run(fs.open(path))
            found.append([(one.outcome, one.why) for one in outcomes])
        assert found[0] == found[1]
        return found[1]


@pytest.fixture
def fs() -> FaultFs:
    return FaultFs()


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(tmp_path)


def look_for(csn: int) -> str:
    """What a reason ends with."""
    return f"Look for CSN {csn:04} in the group's other discard files: replay one with all of it, or all joined"


def endless(csn: int, number: int) -> tuple[str, str]:
    """The outcome of a record of a transaction whose end was never written."""
    return "kept", f"{NOT_WHOLE}its end is not in this file, which has {number} of its records. {look_for(csn)}"


def counted(csn: int, number: int) -> tuple[str, str]:
    """The outcome of a record of a transaction whose end says 3."""
    return "kept", f"{NOT_WHOLE}{number} of its 3 records are in this file. {look_for(csn)}"


APPLIED, BEFORE = [("applied", "")] * 3, [("applied before", "")] * 3
FULL = {"1=b", "1x=c"}


@pytest.mark.parametrize("written", [(0,), (0, 1), (0, 1, 2)])
def test_killed_inside_it_and_then_applied_from_the_trail(fs: FaultFs, target: Target, written: tuple[int, ...]):
    """Also where only its end is missing; what stands behind it is replayed."""
    killed(fs, 1, *written)
    life(fs, 2)
    assert target.replay(fs) == [endless(1, len(written))] * len(written) + APPLIED
    assert target.rows() == {"2=b", "2x=c"}


def test_the_limit_of_the_file_is_reached_inside_it(fs: FaultFs, target: Target):
    """MEGABYTES: the operator moves the file away, and START writes all of it anew. The part is never applied."""
    one = Life(fs, place(1))
    one.write(1, 0, 1, 2, size=75_000)
    one.discards.sync()
    with pytest.raises(OperatorError, match="would exceed its MEGABYTES 1"):
        one.write(2, 0, 1, 2, size=75_000)
    one.discards.close()
    fs.rename(PATH, OTHER)
    one = Life(fs, place(2))
    one.write(2, 0, 1, 2, size=75_000)
    one.done()
    assert target.replay(fs, OTHER) == [*APPLIED, endless(2, 1)]
    assert target.rows() == FULL
    assert target.replay(fs) == APPLIED
    assert target.replay(fs, OTHER) == BEFORE + BEFORE[:1]
    assert target.rows() == FULL | {"2=b", "2x=c"}


def test_a_full_disk_inside_it_and_a_new_file_by_purge(fs: FaultFs, target: Target):
    """DISCARDFILE ..., PURGE: START gives the file with the part another name, as it holds something else too."""
    life(fs, 1)
    one = Life(fs, place(2))
    one.write(2, 0, 1)
    fs.fail = lambda operation, _path: no_space(operation == "write")
    with pytest.raises(OperatorError, match="No space left"):
        one.write(2, 2)
    one.discards.close()
    fs.fail = lambda *_: None
    life(fs, 2, purge=True)
    assert target.replay(fs, OTHER) == [*APPLIED, *[endless(2, 2)] * 2]
    assert target.replay(fs) == APPLIED
    assert target.rows() == FULL | {"2=b", "2x=c"}


def no_space(wanted: bool) -> None:
    if wanted:
        raise OperatorError("No space left on device", hint="Make space")


@pytest.mark.parametrize(("cut", "number"), [(5, 3), (200, 2)])
def test_a_tail_that_a_power_loss_tore(fs: FaultFs, target: Target, cut: int, number: int):
    """Its end is torn, or a record of a change too."""
    life(fs, 1, 2)
    fs.corrupt(PATH, lambda data: data.__delitem__(slice(len(data) - cut, None)))
    assert target.replay(fs) == APPLIED + [endless(2, number)] * number
    assert target.rows() == FULL


def halves(fs: FaultFs) -> tuple[bytes, bytes]:
    """The file cut behind the first record of the second of three transactions."""
    data = fs.content(PATH)
    at = data.index(b"Current time: ", data.index(b"CSN 0002, change 0 of"))
    return data[:at], data[at:]


def test_a_file_that_was_cut_inside_it(fs: FaultFs, target: Target):
    """Neither half applies it; both joined do, in any order."""
    life(fs, 1, 2, 3)
    first, second = halves(fs)
    for path, half in ((OTHER, first), (PATH, second)):
        fs.take_away(path, by=half)
    assert target.replay(fs, OTHER) == [*APPLIED, endless(2, 1)]
    assert target.replay(fs) == [*[counted(2, 2)] * 2, *APPLIED]
    assert target.rows() == FULL | {"3=b", "3x=c"}
    fs.take_away(PATH, by=second + first)
    assert target.replay(fs) == APPLIED[:2] + BEFORE + BEFORE + APPLIED[:1]
    assert target.rows() == FULL | {"2=b", "2x=c", "3=b", "3x=c"}


def test_discarded_again_after_a_crash_before_the_commit(fs: FaultFs, target: Target):
    """Not written twice; in two files, as the first was moved away, it is applied by one of them."""
    life(fs, 1)
    size = len(fs.content(PATH))
    life(fs, 1)
    assert len(fs.content(PATH)) == size
    fs.rename(PATH, OTHER)
    life(fs, 1)
    assert target.replay(fs) == APPLIED
    assert target.replay(fs, OTHER) == BEFORE
    assert target.rows() == FULL


@pytest.mark.parametrize("part_first", [True, False])
def test_a_part_and_all_of_it_in_a_joined_file(fs: FaultFs, target: Target, part_first: bool):
    """Applied once; what is there twice is none the less applied before."""
    killed(fs, 1, 0, 1)
    part = fs.content(PATH)
    fs.rename(PATH, OTHER)
    life(fs, 1)
    fs.take_away(PATH, by=part + fs.content(PATH) if part_first else fs.content(PATH) + part)
    twice = [("applied", "")] * 2 + [("applied before", "")] * 2
    assert target.replay(fs) == ([*twice, ("applied", "")] if part_first else APPLIED + BEFORE[:2])
    assert target.rows() == FULL


def test_between_two_tries_an_earlier_transaction_is_refused_too(fs: FaultFs, target: Target):
    """Its records then stand inside the later one's."""
    killed(fs, 2, 0, 1)
    life(fs, 1, 2)
    assert target.replay(fs) == APPLIED * 2
    assert target.rows() == FULL | {"2=b", "2x=c"}


def test_of_two_tries_only_the_later_gives_up_all_of_it(fs: FaultFs, target: Target):
    """Refused at its end, or another REPERROR at the next START: a record of one change is one of the whole then."""
    killed(fs, 1, 1, reason=SINGLE)
    life(fs, 1)
    target.sql("INSERT INTO kv VALUES ('1', 'a')")
    assert [outcome for outcome, _ in target.replay(fs)] == ["kept"] * 3
    assert target.rows() == {"1=a"}
    target.sql("DELETE FROM kv")
    assert target.replay(fs) == APPLIED
    assert target.rows() == FULL


def test_of_two_tries_the_later_gives_up_less(fs: FaultFs, target: Target):
    """Other MAPs at the next START: nobody knows by the file which of the records count, so none is applied."""
    killed(fs, 1, 1)
    one = Life(fs, place(1))
    one.write(1, 0, 2)
    one.done()
    why = "its 3 records in this file are not the 2 discarded; apply CSN 0001 by hand"
    assert target.replay(fs) == [("kept", NOT_WHOLE + why)] * 3
    assert target.rows() == set()


def test_a_transaction_that_is_committed_in_parts(fs: FaultFs, target: Target):
    """MAXTRANSOPS: each part that was discarded is replayed by itself, as it was given up."""
    for numbers in ((0,), (1, 2)):
        one = Life(fs, place(1))
        one.write(1, *numbers)
        one.done()
    target.sql("INSERT INTO kv VALUES ('1x', 'mine')")
    (first, _), (second, why), (third, _) = target.replay(fs)
    assert (first, second, third) == ("applied", "kept", "kept")
    assert why == f"{NOT_WHOLE}record 3: a row with key (1x) is there already"
    assert target.rows() == {"1=a", "1x=m"}


def test_a_record_that_somebody_changed_is_missing(fs: FaultFs, target: Target):
    """Its checksum is wrong, so it is none, and its transaction is not whole."""
    life(fs, 1)
    fs.corrupt(PATH, lambda data: data.__setitem__(slice(None), data.replace(b'"1x"', b'"7x"', 1)))
    assert target.replay(fs) == [counted(1, 2)] * 2
    assert target.rows() == set()


@pytest.mark.parametrize("call", ["add_row", "begin", "apply", "check_commit", "write", "commit"])
def test_a_replay_that_is_killed_applies_all_of_it_or_nothing(fs: FaultFs, target: Target, call: str):
    """At each of its calls of the target, before and behind it; the next replay does the rest, once."""
    life(fs, 1)
    for number in range(1, 9):
        link = open_target(target.settings)
        lossy = Lossy(getattr(link, call), number)
        setattr(link, call, lossy)
        try:
            Replay(link, "REP1", 1).run(fs.open(PATH))
        except KeyboardInterrupt:
            assert target.rows() in (set(), FULL)
        link.close()
    assert lossy.left > 0
    assert target.rows() == FULL
    assert target.replay(fs) == BEFORE


class Lossy:
    """A call of the target whose n-th half ends the process: before what it does (odd), or behind it."""

    def __init__(self, call: Callable[..., Any], half: int) -> None:
        self.call, self.left = call, half

    def __call__(self, *args: Any, **options: Any) -> Any:
        self._end()
        found = self.call(*args, **options)
        self._end()
        return found

    def _end(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def test_the_command_tells_a_transaction_in_one_line(tmp_path: Path, target: Target):
    """Which by its CSN, how many of how many records, and what to do; --json has each record."""
    home = make_home(tmp_path / "home")
    registration.save(home, Registration("REP1", "REPLICAT", "TRAIL", trail="./dirdat/rt", group_key=1, added_us=5))
    lines = f"REPLICAT rep1\nTARGETDB '{target.url}'\nCHECKPOINTTABLE main.chk\nMAP s.*, TARGET main.*;\n"
    Path(home.prm("rep1")).write_text(lines)
    life(RealFs(), 1, 2, path=home.discard("REP1"))
    file = Path(home.discard("REP1"))
    file.write_text(file.read_text().replace('"1x"', '"7x"', 1))
    text = bad(home, "REPLAY DISCARDS rep1")
    assert f"  records 1 to 2 (transaction CSN 0001): {counted(1, 2)[1]}\n" in text
    assert "5 records: 3 applied, 0 were applied before, 2 kept." in text
    answer = json.loads(bad(home, "REPLAY DISCARDS rep1 --json"))
    assert [record["outcome"] for record in answer["records"]] == ["kept"] * 2 + ["applied before"] * 3
