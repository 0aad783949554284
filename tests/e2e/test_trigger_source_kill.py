"""A real Extract with TRIGGERLOG, killed at random times while several connections write.

Each of the application's transactions moves an amount between two accounts, so the sum is the same wherever one ends: a
transaction of the trail that had only a part of one would show another sum. Some stay open for a while, so numbers are
given in one order and committed in another. A change that came too early, twice or not at all would show in the mirror.
"""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import psycopg
import pytest

from ggsci.commands.session import OperatorSession
from tests.support.homes import good, make_home
from tests.support.killing import kill_at_random, run_until
from tests.support.mirror import Mirror
from tests.support.trigger_source import TriggeredDb
from trails.fs import RealFs
from trails.position import TrailName
from trails.runtime.home.home import Home

pytestmark = pytest.mark.e2e

KILLS = int(os.environ.get("TRIGGER_KILLS", "8"))
ACCOUNTS = 20
SCHEMA = (
    "CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL)",
    "CREATE TABLE ticket (n int, writer int, note text, PRIMARY KEY (n, writer))",
    "CREATE TABLE counter (writer int PRIMARY KEY, n int NOT NULL)",
)


class Writer(threading.Thread):
    """An application: transfers in transactions, with rollbacks, savepoints, upserts and changes of keys."""

    def __init__(self, db: TriggeredDb, number: int, end: threading.Event) -> None:
        super().__init__()
        self._db, self._number, self._end = db, number, end
        self._dice = random.Random(number)

    def run(self) -> None:
        """Write until the end."""
        with psycopg.connect(self._db.url) as conn:
            conn.execute("INSERT INTO counter VALUES (%s, 0)", (self._number,))
            conn.commit()
            while not self._end.is_set():
                try:
                    self._transact(conn)
                    if self._number == 0:  # its numbers are old by the time that it commits
                        time.sleep(self._dice.random() * 0.2)
                    conn.commit() if self._dice.random() < 0.8 else conn.rollback()
                except psycopg.errors.DeadlockDetected:
                    conn.rollback()
                time.sleep(self._dice.random() * 0.01)

    def _transact(self, conn: psycopg.Connection[tuple[object, ...]]) -> None:
        dice, me = self._dice, self._number
        one, other = dice.sample(range(1, ACCOUNTS + 1), 2)
        n, note = dice.randrange(30), f"note {dice.randrange(40)}"
        conn.execute("UPDATE counter SET n = n + 1 WHERE writer = %s", (me,))
        conn.execute("UPDATE account SET balance = balance - 7 WHERE id = %s", (one,))
        conn.execute("UPDATE account SET balance = balance + 7 WHERE id = %s", (other,))
        conn.execute("SAVEPOINT s")
        conn.execute("DELETE FROM ticket")
        conn.execute("ROLLBACK TO s")
        conn.execute(
            "INSERT INTO ticket VALUES (%s, %s, %s) ON CONFLICT (n, writer) DO UPDATE SET note = excluded.note",
            (n, me, note),
        )
        conn.execute("SAVEPOINT s")
        conn.execute("DELETE FROM ticket WHERE n = %s AND writer = %s", (n + 30, me))
        conn.execute("UPDATE ticket SET n = n + 30 WHERE n = %s AND writer = %s", (n, me))
        conn.execute("RELEASE s")
        conn.execute("DELETE FROM ticket WHERE n = %s AND writer = %s", (dice.randrange(60), me))


def capturing(tmp_path: Path, db: TriggeredDb) -> Home:
    """A home with an Extract that was never started."""
    home = make_home(tmp_path / "gate")
    session = OperatorSession(home.root)
    for line in (
        f"DBLOGIN SOURCEDB {db.url}", "ADD TRANDATA public.*, TRIGGERLOG", "ADD EXTRACT ext1, TRIGGERLOG, BEGIN NOW",
        "ADD EXTTRAIL ./dirdat/lt, EXTRACT ext1, MEGABYTES 1", "REGISTER EXTRACT ext1",
    ):  # fmt: skip
        good(home, line, session)
    Path(home.prm("ext1")).write_text(
        f"EXTRACT ext1\nSOURCEDB {db.url}\nEXTTRAIL ./dirdat/lt\nBLOCKSIZE 16\nTABLE public.*;\n"
    )
    Path(home.prm("ext1")).chmod(0o600)
    return home


@pytest.mark.soak
def test_CW_29_CW_30_CW_31_killed_at_random_times_while_others_write(tmp_path: Path, plain_db: str) -> None:
    """I1, I3, I7, I10: nothing lost, nothing doubled, no transaction torn; checkpoint files are deleted as well."""
    db = TriggeredDb(plain_db)
    db.run(*SCHEMA)
    home = capturing(tmp_path, db)
    db.run(f"INSERT INTO account SELECT g, 100 FROM generate_series(1, {ACCOUNTS}) g")
    end = threading.Event()
    writers = [Writer(db, number, end) for number in range(3)]
    for writer in writers:
        writer.start()
    try:
        kill_at_random(home, KILLS, random.Random(7))
    finally:
        end.set()
        for writer in writers:
            writer.join()
    run_until(home, lambda: db.rows("SELECT count(*) FROM trailgate_queue.log") == [(0,)])
    check(home, db)


class Sums(Mirror):
    """A mirror that looks at the sum of the accounts wherever a transaction ends."""

    def _apply(self, record, tables) -> None:  # type: ignore[no-untyped-def]
        super()._apply(record, tables)
        if record[0] == 6 and len(self.tables.get("account", {})) == ACCOUNTS:
            assert sum(int(row[1]) for row in self.tables["account"].values()) == 100 * ACCOUNTS, self.csns[-1]


def check(home: Home, db: TriggeredDb) -> None:
    """The trail is the source, row by row, and at each of its transactions' ends a state that the source had."""
    mirror = Sums.of(RealFs(), TrailName.parse("./dirdat/lt", home.root))
    for table in ("account", "ticket", "counter"):
        rows = [tuple(None if v is None else str(v) for v in row) for row in db.rows(table)]
        assert sorted(rows, key=repr) == mirror.sorted(table), table
    assert len(mirror.csns) > KILLS // 4  # some were killed before they had any
    assert sum(mirror.changes) > 50 * KILLS
