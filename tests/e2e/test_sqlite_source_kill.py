"""A real Extract on an SQLite file, killed at random times while several connections write.

Each of the application's transactions moves an amount between two accounts, so the sum is the same wherever one ends: a
transaction of the trail that had only a part of one would show another sum. A change that came too early, twice or not
at all would show in the mirror, which is strict.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from demo.patience import PATIENCE
from ggsci.commands.session import OperatorSession
from tests.support.homes import good, make_home
from tests.support.killing import kill_at_random, report, run_until, start
from tests.support.mirror import Mirror
from tests.support.sqlite_bank import ACCOUNTS, SCHEMA, TABLES, writing
from tests.support.sqlite_source import SourceFile
from trails.errors import EXIT_OPERATOR
from trails.fs import RealFs
from trails.position import TrailName
from trails.runtime.home.home import Home

pytestmark = pytest.mark.e2e

KILLS = int(os.environ.get("SQLITE_KILLS", "12"))


def capturing(tmp_path: Path) -> tuple[Home, SourceFile]:
    """A home with an Extract that was never started, and its source."""
    home = make_home(tmp_path / "gate")
    file = SourceFile(tmp_path / "shop.db")
    file.run("PRAGMA journal_mode = WAL", *SCHEMA)
    session_lines = [f"DBLOGIN SOURCEDB {file.url}", "ADD TRANDATA main.*", "ADD EXTRACT ext1, TRANLOG, BEGIN NOW",
                     "ADD EXTTRAIL ./dirdat/lt, EXTRACT ext1, MEGABYTES 1", "REGISTER EXTRACT ext1"]  # fmt: skip
    session = OperatorSession(home.root)
    for line in session_lines:
        good(home, line, session)
    Path(home.prm("ext1")).write_text(
        f"EXTRACT ext1\nSOURCEDB {file.url}\nEXTTRAIL ./dirdat/lt\nBLOCKSIZE 16\nTABLE main.*;\n"
    )
    Path(home.prm("ext1")).chmod(0o600)
    return home, file


def is_released(file: SourceFile) -> bool:
    """Whether the queue has nothing but its last row."""
    return file.rows("SELECT min(id) = max(id) FROM trailgate_log") == [(1,)]


@pytest.mark.soak
def test_CW_29_CW_31_killed_at_random_times_while_others_write(tmp_path: Path) -> None:
    """I1, I3, I7, I10: nothing lost, nothing doubled, no transaction torn; checkpoint files are deleted as well."""
    home, file = capturing(tmp_path)
    with writing(file):
        kill_at_random(home, KILLS, random.Random(7))
    run_until(home, lambda: is_released(file))
    check(home, file)


class Sums(Mirror):
    """A mirror that looks at the sum of the accounts wherever a transaction ends."""

    def _apply(self, record, tables) -> None:  # type: ignore[no-untyped-def]
        super()._apply(record, tables)
        if record[0] == 6 and len(self.tables.get("account", {})) == ACCOUNTS:
            assert sum(int(row[1]) for row in self.tables["account"].values()) == 100 * ACCOUNTS, self.csns[-1]


def check(home: Home, file: SourceFile) -> None:
    """The trail is the source, row by row, and at each of its transactions' ends a state that the source had."""
    mirror = Sums.of(RealFs(), TrailName.parse("./dirdat/lt", home.root))
    for table in TABLES:
        rows = [tuple(None if v is None else str(v) for v in row) for row in file.rows(table)]
        assert sorted(rows, key=repr) == mirror.sorted(table), table
    assert len(mirror.csns) > KILLS // 4  # some were killed before they had any
    assert sum(mirror.changes) > 50 * KILLS


def test_BEGIN_NOW_is_not_obeyed_again_where_the_whole_trail_was_deleted(tmp_path: Path) -> None:
    """What was captured, and what was committed while nothing ran, would be left out without a word."""
    home, file = capturing(tmp_path)
    good(home, "ALTER EXTRACT ext1, BEGIN NOW!", OperatorSession(home.root))
    file.run("INSERT INTO account VALUES (1, 100, 'before')")
    run_until(home, lambda: is_released(file))
    shutil.rmtree(home.folder("dirdat"))
    good(home, "CREATE SUBDIRS", OperatorSession(home.root))
    file.run("INSERT INTO account VALUES (2, 100, 'while nothing ran')")
    process = start(home)
    assert process.wait(timeout=PATIENCE) == EXIT_OPERATOR
    assert "the ALTER that says where it begins was obeyed before" in report(home).read_text()
    assert not os.listdir(home.folder("dirdat"))
