"""CHECK PARAMS and START on wrong mappings: each mistake with file and line, before anything is applied."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from demo.patience import PATIENCE
from replicat.batches.engine import SparkEngine
from replicat.batches.scratch import stems_of
from replicat.run import checking
from replicat.targets.kinds import admin_for
from tests.support.homes import bad, make_home
from tests.support.replicat_trail import TrailFeed
from trails.fs import RealFs
from trails.position import TrailName
from trails.record import Column, Op, TableDef
from trails.runtime.home import registration
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.xdist_group("spark")]

ROOT = Path(__file__).parents[2]
ORDERS = TableDef(
    "s", "orders", (Column("id", "integer", "integer", key=True), Column("price", "decimal", "numeric(10,2)"),
                    Column("note", "text", "text"))
)  # fmt: skip
AZ = TableDef("s", "az", (Column("id", "integer", "integer", key=True),))
GOOD = """MAP s.orders, TARGET public.orders,
  COLMAP (USEDEFAULTS, total = round(price * 1.2, 2), label = @STRCAT (note, '-', id)),
  FILTER (price > 0);
MAP s.a*, TARGET public.*;
"""
WRONG = """MAP s.orders, TARGET public.orders,
  COLMAP (USEDEFAULTS,
     total = price +* 2,
     label = uper(note),
     nowhere = note),
  FILTER (prize > 0),
  KEYCOLS (order_no),
  MAPEXCEPTION (TARGET public.none);
MAP s.a*, TARGET public.*;
MAP s.*z, TARGET public.*;
MAP s.later, TARGET public.later;
"""


class Group:
    """A home with a Replicat, its trail, and a target with some tables."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url
        self.home = make_home(folder / "home")
        feed = TrailFeed(RealFs(), TrailName.parse("./dirdat/rt", self.home.root))
        feed.tx((Op.INSERT, ORDERS, ["1", "2.50", "x"]))
        feed.tx((Op.INSERT, AZ, ["1"]))
        feed.close()
        admin_for(url).add_row_table(url, ("gg", "chk"))
        reg = Registration("REP1", "REPLICAT", "TRAIL", trail="./dirdat/rt", checkpoint_table="gg.chk", group_key=5)
        registration.save(self.home, reg)
        self.sql("CREATE TABLE orders (id int PRIMARY KEY, price numeric(10,2), note text, total numeric, label text)")
        self.sql("CREATE TABLE az (id int PRIMARY KEY)")

    @property
    def file(self) -> str:
        """The parameter file's path."""
        return self.home.prm("REP1")

    def parameters(self, maps: str, *lines: str) -> None:
        """The MAPs begin in line 3, if no more lines are given."""
        text = ["REPLICAT rep1", f"TARGETDB '{self.url}'", *lines, maps]
        Path(self.file).write_text("\n".join(text))

    def start(self) -> subprocess.CompletedProcess[str]:
        """The process, to its end."""
        return subprocess.run(
            [sys.executable, "-P", "-m", "replicat", "--home", self.home.root, "REP1"],
            env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        """A statement in the target."""
        with psycopg.connect(self.url, autocommit=True) as conn:
            cursor = conn.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def nothing_happened(self) -> bool:
        """No row, no checkpoint row, no folder of Spark's left."""
        rows = self.sql("SELECT (SELECT count(*) FROM orders) + (SELECT count(*) FROM az)")
        home = Home(self.home.root)
        memory, disk = stems_of(home.root, home.folder("dirtmp"), "REP1")
        left = [*Path(memory).parent.glob(f"{Path(memory).name}*"), *Path(disk).parent.glob(f"{Path(disk).name}*")]
        return rows == [(0,)] and not left


@pytest.fixture
def group(tmp_path: Path, target_db: str) -> Iterator[Group]:
    """A group that never applies anything here."""
    return Group(tmp_path, target_db)


EXPECTED = [
    (5, "COLMAP total: price +* 2"),
    (6, "COLMAP label: uper(note)"),
    (7, "MAP s.orders: COLMAP: target table public.orders has no column nowhere"),
    (8, "FILTER: prize > 0: there is no column prize; did you mean price?"),
    (3, "MAP s.orders: KEYCOLS: target table public.orders has no column order_no"),
    (10, "MAP s.orders: exceptions table public.none does not exist"),
    (12, "MAP s.az: ambiguous: s.a* of {file}:11 and s.*z of {file}:12"),
    (13, "MAP s.later: target table public.later does not exist"),
]


def test_every_mistake_of_the_maps_is_listed_with_its_line(group: Group) -> None:
    """By CHECK PARAMS, which does nothing else."""
    group.parameters(WRONG)
    text = bad(group.home, "CHECK PARAMS REP1")
    for line, words in EXPECTED:
        assert f"ERROR: {group.file}:{line}: {words.format(file=group.file)}" in text
    told = [line for line in text.splitlines() if line.startswith("ERROR: ")]
    assert [int(line.removeprefix(f"ERROR: {group.file}:").split(":")[0]) for line in told] == sorted(
        line for line, _ in EXPECTED
    )
    assert group.nothing_happened()


@pytest.mark.soak
def test_start_names_one_mistake_and_says_how_many_there_are(group: Group) -> None:
    """And does nothing, as CHECK PARAMS."""
    group.parameters(WRONG)
    done = group.start()
    assert done.returncode == 2, done.stderr
    assert f"{group.file}:" in done.stderr
    assert "more: CHECK PARAMS lists them" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert group.nothing_happened()


def test_a_right_file_is_said_to_be_right(group: Group, spark_engine: SparkEngine) -> None:
    """By the check itself, and by START with CHECKPARAMS, which then stops."""
    group.parameters(GOOD)
    found = checking.check_group(group.home, "REP1", sql=spark_engine.sql)
    assert found.mistakes == []
    assert any(note.startswith("Warning: TARGETDB's user postgres is a superuser") for note in found.notes)
    group.parameters("MAP s.a*, TARGET public.*;", "CHECKPARAMS")  # no expression: START needs no Spark to check it
    done = group.start()
    assert (done.returncode, done.stderr) == (0, "")
    assert "CHECKPARAMS: no mistakes found" in Path(group.home.report("REP1")).read_text()
    assert group.sql("SELECT * FROM gg.chk") == []
    assert group.nothing_happened()
    group.parameters(GOOD.replace("price > 0", "note"))
    (mistake,) = checking.check_group(group.home, "REP1", sql=spark_engine.sql).mistakes
    assert f"{group.file}:5: FILTER: note: expected a condition" in mistake


def test_triggers_that_fire_for_replicated_rows_are_mistakes(group: Group) -> None:
    """By name, with the MAP's line; plain ones do not fire; ALLOWTARGETTRIGGERS accepts them."""
    group.sql("CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NEW; END$$")
    for name in ("audit", "plain"):
        group.sql(f"CREATE TRIGGER {name} BEFORE INSERT ON az FOR EACH ROW EXECUTE FUNCTION look()")
    group.parameters("MAP s.az, TARGET public.*;")
    assert checking.check_group(group.home, "REP1").mistakes == []
    for enabled in ("ALWAYS", "REPLICA"):
        group.sql(f"ALTER TABLE az ENABLE {enabled} TRIGGER audit")
        (mistake,) = checking.check_group(group.home, "REP1").mistakes
        assert f"{group.file}:3: MAP: target table public.az has trigger audit:" in mistake
        assert "ALLOWTARGETTRIGGERS" in mistake
    group.parameters("MAP s.az, TARGET public.*;", "ALLOWTARGETTRIGGERS")
    assert checking.check_group(group.home, "REP1").mistakes == []


def test_what_can_not_be_reached_is_no_mistake(group: Group, spark_engine: SparkEngine) -> None:
    """Names in expressions are checked all the same; the note says what was not."""
    url, group.url = group.url, "postgresql://postgres@127.0.0.1:1/none"
    group.parameters(GOOD)
    found = checking.check_group(group.home, "REP1", sql=spark_engine.sql)
    assert "The target's tables were not checked: the target database can't be reached" in "".join(found.notes)
    assert found.mistakes == []
    group.parameters(WRONG)
    text = "\n".join(checking.check_group(group.home, "REP1", sql=spark_engine.sql).mistakes)
    assert f"{group.file}:8: FILTER: prize > 0: there is no column prize" in text
    assert "order_no" not in text
    group.url = url
    registration.delete(group.home, "REP1")
    group.parameters("MAP s.orders, TARGET public.gone;", "CHECKPOINTTABLE gg.chk")
    found = checking.check_group(group.home, "REP1")
    assert "The source's columns were not checked: the group is not added" in "".join(found.notes)
    assert f"{group.file}:4: MAP s.orders: target table public.gone does not exist" in "".join(found.mistakes)
