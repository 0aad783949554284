"""docs/recovery.md: something is broken, the message leads to the page, and its commands, to the letter, mend it.

One pipeline goes through all of it. Each test breaks it, holds the message to the page's anchor, obeys the section,
and finds the target equal to the source, row by row, and no transaction applied twice: each one adds to a tally.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from demo.patience import wait_for
from demo.pipeline import Options, Pipeline
from demo.servers import PostgresServer
from tests.support import recovering
from tests.support.pipelines import folder
from tests.support.recovering import Reader

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240), pytest.mark.xdist_group("pipeline-recovery")]

TABLES = """
CREATE SCHEMA shop;
CREATE TABLE shop.customers (id bigint PRIMARY KEY, name text);
CREATE TABLE shop.orders (id bigint PRIMARY KEY, customer bigint REFERENCES shop.customers, state text);
"""


class Broken:
    """The pipeline, and what is done to it."""

    def __init__(self, pipeline: Pipeline, bindir: Path) -> None:
        self.pipeline = pipeline
        self.files = self.file = ""
        self.confirmed = ""
        self.last = 0
        words: dict[str, Callable[[], str]] = {
            "SOURCE": lambda: pipeline.source_url, "TARGET": lambda: pipeline.target_url,
            "TABLES": lambda: "shop.customers, shop.orders", "FILES": lambda: self.files,
            "FILE": lambda: self.file, "NEXT": lambda: str(self.seqnos("lt")[-1]),
            "FIRST": lambda: str(self.seqnos("rt")[0]),
            "LAST": lambda: str(self.seqnos("rt")[-1]), "CONFIRMED": lambda: self.confirmed,
        }  # fmt: skip
        hosts = {"source": pipeline.source, "target": pipeline.target}
        self.reader = Reader(hosts, words, f"{bindir}:{os.environ['PATH']}")

    def start(self) -> None:
        """Everything, the Replicat without Spark."""
        self.pipeline.source.run("START MANAGER", "START EXTRACT *")
        self.pipeline.target.run("START MANAGER")
        self.reader.start_replicat(self.pipeline.target, "REP1")

    def change(self) -> None:
        """A few transactions of all kinds; more each time."""
        n = self.last = self.last + 1
        with psycopg.connect(self.pipeline.source_url, autocommit=True) as link:
            link.execute("INSERT INTO shop.customers VALUES (%s, %s)", [n, f"customer {n}"])
            link.execute("INSERT INTO shop.orders SELECT %s * 100 + i, %s, 'new' FROM generate_series(1, 5) i", [n, n])
            link.execute("UPDATE shop.orders SET state = 'paid ' || %s::text WHERE id %% 3 = 0", [n])
            link.execute("DELETE FROM shop.orders WHERE id %% 100 = 5 AND id < %s * 100", [n])

    def source(self, *lines: str) -> str:
        """Commands at the source."""
        return self.reader.commands("source", "\n".join(lines))

    def target(self, *lines: str) -> str:
        """Commands at the target."""
        return self.reader.commands("target", "\n".join(lines))

    def roll(self, *groups: str) -> None:
        """One more file of what these groups write, with changes in it and in the one before."""
        running = "*" if "PMP1" in groups else "EXT1"
        self.change()
        self.source(f"WAIT EXTRACT {running}", *(f"SEND EXTRACT {group}, ROLLOVER" for group in groups))
        self.change()
        self.source(f"WAIT EXTRACT {running}")

    def files_of(self, prefix: str) -> list[Path]:
        """The files of a trail."""
        host = self.pipeline.source if prefix == "lt" else self.pipeline.target
        return sorted((host.home / "dirdat").glob(f"{prefix}?????????"))

    def seqnos(self, prefix: str) -> list[int]:
        """Their numbers."""
        return [int(path.name[2:]) for path in self.files_of(prefix)]

    def abends(self, group: str) -> str:
        """Why a group has ended, once it has."""
        host = self.pipeline.target if group == "REP1" else self.pipeline.source
        self.pipeline.wait_status(host, group, "ABENDED")
        (message,) = [found["message"] for found in host.json(f"INFO {group}")]
        return str(message)

    def replicat_abends(self) -> str:
        """What the Replicat says when it is started."""
        self.reader.start_replicat(self.pipeline.target, "REP1")
        return self.abends("REP1")

    def ends_equal(self) -> None:
        """All of the source, and nothing else, is in the target; and it goes on."""
        self.change()
        rows = self._rows(self.pipeline.source_url)
        wait_for(lambda: self._rows(self.pipeline.target_url) == rows, lambda: "\n".join(self.reader.said[-20:]))

    def compares(self) -> None:
        """The page's statement gives the same on both sides."""
        (statement,) = re.findall(r"^```sql\n(.*?)^```$", recovering.sections()["compare"], re.DOTALL | re.MULTILINE)
        found = []
        for url in (self.pipeline.source_url, self.pipeline.target_url):
            with psycopg.connect(url) as link:
                found.append(link.execute(statement).fetchall())
        assert found[0] == found[1]
        assert found[0][0][0] > 0

    @staticmethod
    def _rows(url: str) -> list[str]:
        """All of both tables."""
        with psycopg.connect(url) as link:
            query = "SELECT c::text FROM shop.customers c UNION ALL SELECT o::text FROM shop.orders o ORDER BY 1"
            return [text for (text,) in link.execute(query)]


@pytest.fixture(scope="module")
def broken(postgres16: PostgresServer, postgres18: PostgresServer) -> Iterator[Broken]:
    """The pipeline, all of it running."""
    servers = {"recovery_source": postgres16, "recovery_target": postgres18}
    for name, server in servers.items():
        server.start()
        server.sql(f"CREATE DATABASE {name}")
        with psycopg.connect(server.url(name), autocommit=True) as link:
            link.execute(TABLES)
    source, target = (server.url(name) for name, server in servers.items())
    with folder() as homes:
        pipeline = Pipeline(homes, source, target, Options(restart_seconds=None, checkpoint_seconds=1))
        made = Broken(pipeline, postgres18.bindir)
        try:
            pipeline.create()
            made.start()
            made.ends_equal()
            yield made
        finally:
            pipeline.abandon()
            for process in made.reader.started:
                process.wait()
    slots = "pg_replication_slots WHERE database = 'recovery_source'"
    wait_for(lambda: not postgres16.sql(f"SELECT 1 FROM {slots} AND active"))
    postgres16.sql(f"SELECT pg_drop_replication_slot(slot_name) FROM {slots}")
    for name, server in servers.items():
        server.sql(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_lost_slot_and_a_dropped_publication(broken: Broken) -> None:
    """What was committed while nothing was captured arrives by the copy; the hole stands in both trails."""
    broken.source("STOP EXTRACT EXT1")
    with psycopg.connect(broken.pipeline.source_url, autocommit=True) as link:
        (name,) = link.execute("SELECT pubname FROM pg_publication").fetchone() or ("",)
        link.execute(f"DROP PUBLICATION {name}")  # type: ignore[arg-type]
        link.execute("SELECT pg_drop_replication_slot(%s)", [name])
    broken.change()
    said = broken.pipeline.source.look("START EXTRACT EXT1").text
    assert "docs/recovery.md#lost-slot" in said
    assert "docs/recovery.md#dropped-publication" in said
    broken.reader.do("dropped-publication")
    broken.ends_equal()


def test_a_missing_remote_file(broken: Broken) -> None:
    """The local trail has all of it: it is sent again, and nothing is applied twice."""
    broken.target("STOP REPLICAT REP1")
    broken.roll("EXT1", "PMP1")
    broken.files_of("rt")[-2].unlink()
    assert "docs/recovery.md#missing-trail-file" in broken.replicat_abends()
    broken.files = "dirdat/" + broken.files_of("rt")[-1].name
    broken.reader.do("missing-trail-file", "**A file of the remote")
    broken.ends_equal()


def test_a_truncated_remote_file(broken: Broken) -> None:
    """The last one, which no Collector goes on behind; and no Replicat reads."""
    broken.target("STOP REPLICAT REP1")
    broken.change()
    broken.source("WAIT EXTRACT *", "STOP EXTRACT PMP1")
    last = broken.files_of("rt")[-1]
    os.truncate(last, last.stat().st_size - 200)
    assert "docs/recovery.md#truncated-trail-file" in broken.replicat_abends()
    broken.pipeline.source.look("START EXTRACT PMP1")
    assert "docs/recovery.md#truncated-trail-file" in broken.abends("PMP1")
    broken.files = f"dirdat/{last.name}"
    broken.reader.do("truncated-trail-file", "**A file of the remote")
    broken.ends_equal()


def test_a_truncated_local_file(broken: Broken) -> None:
    """The pump sends what stands before the damage; the remote trail tells of the hole."""
    broken.source("STOP EXTRACT PMP1")
    broken.roll("EXT1")
    damaged = broken.files_of("lt")[-2]
    os.truncate(damaged, damaged.stat().st_size - 200)
    broken.pipeline.source.look("START EXTRACT PMP1")
    assert "docs/recovery.md#truncated-trail-file" in broken.abends("PMP1")
    broken.files = f"dirdat/{damaged.name}"
    broken.reader.do("truncated-trail-file", "**A file of the local")
    broken.ends_equal()


def test_a_purged_place_of_the_replicat(broken: Broken) -> None:
    """Neither trail has it any more, as the page finds out: pump and Replicat go on behind, and the copy brings it."""
    broken.target("STOP REPLICAT REP1")
    broken.roll("EXT1", "PMP1")
    for path in (*broken.files_of("rt")[:-1], *broken.files_of("lt")[:-1]):
        path.unlink()
    assert "docs/recovery.md#missing-trail-file" in broken.replicat_abends()
    broken.files = "dirdat/" + broken.files_of("rt")[-1].name
    broken.reader.do("missing-trail-file", "**A file of the remote", blocks=3)
    assert "START EXTRACT PMP1" in recovering.steps("missing-trail-file", "**A file of the remote")[3].text
    broken.pipeline.source.look("START EXTRACT PMP1")
    assert "dirdat/lt" in broken.abends("PMP1")
    broken.reader.do("purged-place", "**The pump", blocks=1)
    broken.reader.do("purged-place", "**The Replicat")
    broken.ends_equal()


def test_a_missing_local_file(broken: Broken) -> None:
    """What the pump had not sent is gone: the remote trail tells of the hole."""
    broken.source("STOP EXTRACT PMP1")
    broken.roll("EXT1")
    broken.files_of("lt")[-2].unlink()
    broken.pipeline.source.look("START EXTRACT PMP1")
    assert "docs/recovery.md#missing-trail-file" in broken.abends("PMP1")
    broken.reader.do("purged-place", "**The pump")
    broken.ends_equal()


def test_a_target_without_its_row(broken: Broken) -> None:
    """Nobody knows what its tables hold: they are copied anew."""
    broken.target("STOP REPLICAT REP1")
    broken.change()
    with psycopg.connect(broken.pipeline.target_url, autocommit=True) as link:
        link.execute("DELETE FROM gate.checkpoint")
        link.execute("DELETE FROM shop.orders WHERE id % 7 = 0")
    assert "docs/recovery.md#target-restored" in broken.replicat_abends()
    broken.reader.do("target-restored")
    broken.ends_equal()


def test_a_target_restored_with_its_row(broken: Broken, postgres18: PostgresServer) -> None:
    """From a backup that was made a while ago: START is enough, and what is older is not applied twice."""
    broken.change()
    broken.source("WAIT EXTRACT *")
    broken.target("WAIT REPLICAT REP1", "STOP REPLICAT REP1")
    postgres18.sql("CREATE DATABASE recovery_backup TEMPLATE recovery_target")
    broken.reader.start_replicat(broken.pipeline.target, "REP1")
    broken.ends_equal()
    broken.target("STOP REPLICAT REP1")
    postgres18.sql("DROP DATABASE recovery_target WITH (FORCE)")
    postgres18.sql("ALTER DATABASE recovery_backup RENAME TO recovery_target")
    assert "If its checkpoint row was restored with it, START is enough" in recovering.sections()["target-restored"]
    broken.target("START REPLICAT REP1")
    broken.ends_equal()
    broken.compares()


def test_a_file_deleted_under_its_collector(broken: Broken) -> None:
    """The pump finds another Collector, and nothing is lost."""
    broken.files_of("rt")[-1].unlink()
    broken.change()
    assert "asks for another Collector by itself" in recovering.sections()["deleted-under-writer"]
    broken.source("WAIT EXTRACT *, SECONDS 600")
    broken.ends_equal()


def test_a_deleted_and_a_replaced_file_under_their_extract(broken: Broken) -> None:
    """It acknowledges nothing more, and writes the file anew, or beside: nothing is lost."""
    broken.files_of("lt")[-1].unlink()
    broken.change()
    assert "was removed while it was written; nothing more was acknowledged" in broken.abends("EXT1")
    broken.reader.do("deleted-under-writer", "**The Extract's")
    last = broken.files_of("lt")[-1]
    shutil.copy(last, other := last.with_name("other"))
    other.rename(last)
    broken.change()
    said = broken.abends("EXT1")
    assert f"mv it to {last}" in said
    assert "docs/recovery.md#deleted-under-writer" in said
    broken.file = last.name
    broken.reader.do("deleted-under-writer", "**A file was kept")
    broken.reader.do("deleted-under-writer", "**The Extract's")
    assert not last.with_name(f"{last.name}.kept").exists()
    broken.ends_equal()


def test_the_newest_local_file_is_gone_and_was_acknowledged(broken: Broken) -> None:
    """Neither the server nor the trail has what was in it: the Extract goes on behind, and both trails say so."""
    broken.roll("EXT1")
    broken.source("STOP EXTRACT EXT1")
    broken.files_of("lt")[-1].unlink()
    said = broken.pipeline.source.look("START EXTRACT EXT1").text
    assert "docs/recovery.md#deleted-under-writer" in said
    (broken.confirmed,) = re.findall(r"is confirmed up to ([0-9A-F]+/[0-9A-F]+)", said)
    broken.reader.do("deleted-under-writer", "**The slot is")
    broken.ends_equal()


def test_a_full_disk(broken: Broken) -> None:
    """Who writes ends before it is full (here DISKSTOP is more than what is free), and goes on once there is space."""
    settings, disk = broken.pipeline.source.home / "GLOBALS", os.statvfs(broken.pipeline.source.home)
    broken.source("STOP EXTRACT EXT1")
    asked = disk.f_bavail + disk.f_blocks - disk.f_bfree - 1  # as good as all of it: others may free what is theirs
    settings.write_text(f"DISKSTOP {asked * disk.f_frsize >> 10}K\n")
    broken.change()
    broken.pipeline.source.look("START EXTRACT EXT1")
    try:
        assert "docs/recovery.md#full-disk" in broken.abends("EXT1")
    finally:
        settings.unlink()
    broken.reader.do("full-disk")
    broken.ends_equal()


def test_no_file_of_the_local_trail(broken: Broken) -> None:
    """A new trail, a new remote trail, and a hole at its beginning."""
    broken.source("STOP EXTRACT EXT1")
    for path in broken.files_of("lt"):
        path.unlink()
    broken.change()
    said = broken.pipeline.source.look("START EXTRACT EXT1").text
    assert "docs/recovery.md#missing-trail-file" in said
    broken.files = " ".join(f"dirdat/{path.name}" for path in broken.files_of("rt"))
    broken.reader.do("missing-trail-file", "**All files of the local")
    broken.ends_equal()
