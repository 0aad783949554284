"""docs/recovery.md for sources that keep a log or a queue: what is lost of it is told, the message leads to the page.
Its commands, to the letter, mend it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from demo.guard import Guard
from demo.mariadb import MariaServer
from demo.patience import wait_for
from demo.pipeline import Host
from demo.ports import free_ports
from tests.support.mysql_source import purge
from tests.support.pipelines import folder
from tests.support.recovering import Reader

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

Rows = list[tuple[int, str]]


class Site:
    """A home with Extract and Replicat; `source` runs statements there, and gives the table's rows."""

    def __init__(self, place: Path, url: str, pattern: str, source: Callable[[str], Rows], guard: Guard) -> None:
        """Extract and Replicat, with a pump of the same home between them."""
        self.source, self.place = source, place
        self.host = Host(place / "home", (ports := free_ports(6))[0], guard.environment)
        self.host.home.mkdir()
        words = {"SOURCE": lambda: url, "PATTERN": lambda: pattern, "TABLES": lambda: "t"}
        words |= {"LOCAL": lambda: self.files("lt"), "FILES": lambda: self.files("rt")}
        self.reader = Reader({"source": self.host, "target": self.host}, words, os.environ["PATH"], copies=self.copy)
        self.target("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
        run, target = self.host.run, f"sqlite:///{place / 'copy.db'}"
        run("CREATE SUBDIRS")
        self.host.params("mgr", f"PORT {self.host.port}", f"DYNAMICPORTLIST {ports[1]}-{ports[-1]}")
        self.host.params("ext1", "EXTRACT ext1", f"SOURCEDB '{url}'", "EXTTRAIL ./dirdat/lt", f"TABLE {pattern};")
        self.host.params(
            "pmp1", "EXTRACT pmp1", f"RMTHOST 127.0.0.1, MGRPORT {self.host.port}", "RMTTRAIL ./dirdat/rt", "PASSTHRU",
            f"TABLE {pattern};",
        )  # fmt: skip
        self.host.params("rep1", "REPLICAT rep1", f"TARGETDB '{target}'", f"MAP {pattern}, TARGET main.*;")
        (self.host.home / "GLOBALS").write_text("CHECKPOINTTABLE main.gate\n")
        run(
            f"DBLOGIN SOURCEDB '{url}'", "ADD EXTRACT ext1, TRANLOG, BEGIN NOW",
            "ADD EXTTRAIL ./dirdat/lt, EXTRACT ext1", "REGISTER EXTRACT ext1", f"ADD TRANDATA {pattern}",
            "ADD EXTRACT pmp1, EXTTRAILSOURCE ./dirdat/lt", "ADD RMTTRAIL ./dirdat/rt, EXTRACT pmp1",
            f"DBLOGIN TARGETDB '{target}'", "ADD CHECKPOINTTABLE", "ADD REPLICAT rep1, EXTTRAIL ./dirdat/rt",
            "CREATE CERTIFICATES", "START MANAGER", "START EXTRACT *",
        )  # fmt: skip
        self.reader.start_replicat(self.host, "REP1")

    def files(self, prefix: str) -> str:
        """Those of a trail."""
        return " ".join(f"dirdat/{path.name}" for path in (self.host.home / "dirdat").glob(f"{prefix}?????????"))

    def target(self, sql: str) -> Rows:
        """The same at the target."""
        link = sqlite3.connect(self.place / "copy.db", isolation_level=None, timeout=60)
        try:
            return link.execute(sql).fetchall()
        finally:
            link.close()

    def copy(self) -> None:
        """What the page leaves to its reader."""
        self.target("DELETE FROM t")
        for number, text in self.source("SELECT id, v FROM t"):
            self.target(f"INSERT INTO t VALUES ({number}, '{text}')")

    def arrives(self, number: int) -> None:
        """One more row, and all that was there before; no more."""
        self.source(f"INSERT INTO t VALUES ({number}, 'row {number}')")
        rows = sorted(self.source("SELECT id, v FROM t"))
        wait_for(lambda: self.target("SELECT id, v FROM t ORDER BY id") == rows, lambda: str(self.reader.said[-12:]))

    def loses(self, lose: Callable[[], object], page: str, case: str = "") -> None:
        """Changes are made and lost while nothing is captured; START tells where the page is; the page mends it."""
        self.arrives(1)
        self.host.run("STOP EXTRACT ext1")
        self.source("INSERT INTO t VALUES (2, 'lost')")
        self.source("DELETE FROM t WHERE id = 1")
        lose()
        said = self.host.look("START EXTRACT ext1").text
        assert f"docs/recovery.md#{page}" in said, self.host.report("ext1")
        self.source("INSERT INTO t VALUES (3, 'lost too')")
        self.reader.do(page, case)
        self.arrives(4)
        self.arrives(5)


@pytest.fixture
def place() -> Iterator[Path]:
    """Where the home is, and the databases that are files."""
    with folder() as made:
        yield made


@pytest.fixture
def site(place: Path) -> Iterator[Callable[[str, str, Callable[[str], Rows]], Site]]:
    """Makes one; all that it started ends with the test."""
    guard, made = Guard(), list[Site]()

    def make(url: str, pattern: str, source: Callable[[str], Rows]) -> Site:
        made.append(Site(place, url, pattern, source, guard))
        return made[0]

    try:
        yield make
    finally:
        for one in made:
            one.host.run("STOP EXTRACT *", "STOP REPLICAT rep1", "STOP MANAGER!", check=False)
            for process in one.reader.started:
                process.wait()
        left = guard.kill_rest()
        guard.dismiss()
        assert not left, left


@pytest.mark.parametrize("how", ["purged", pytest.param("reset", marks=pytest.mark.soak)])
def test_a_binary_log_that_is_gone(
    site: Callable[..., Site], mariadb_source: MariaServer, mariadb_source_db: str, how: str
) -> None:
    """Of a stopped Extract: what only the log had is lost, and the copy brings the rows."""
    server, name = mariadb_source, mariadb_source_db

    def source(sql: str) -> Rows:
        return [(int(number), str(text)) for number, text in server.sql(sql, name)]

    def lose() -> None:
        if how == "purged":
            purge(server)
        else:
            server.sql("RESET MASTER")

    server.sql("CREATE TABLE t (id int PRIMARY KEY, v varchar(20))", name)
    case = "**It was deleted" if how == "purged" else "**The log was reset"
    site(server.url(name), f"{name}.*", source).loses(lose, "lost-log", case)


def test_a_queue_that_lacks_rows(site: Callable[..., Site], place: Path) -> None:
    """Somebody has emptied it, whatever else stands in the file."""

    def source(sql: str) -> Rows:
        link = sqlite3.connect(place / "shop.db", isolation_level=None, timeout=60)
        try:
            return link.execute(sql).fetchall()
        finally:
            link.close()

    source("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
    made = site(f"sqlite:///{place / 'shop.db'}", "main.*", source)
    made.loses(lambda: source("DELETE FROM trailgate_log"), "lost-queue")
