"""The real process on SQLite (a file in its home) and MariaDB: a kill, STATS; with Spark, an expression."""

from __future__ import annotations

import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from demo.mariadb import MariaServer
from demo.patience import PATIENCE
from replicat.targets.kinds import admin_for
from replicat.targets.sqlite.link import path_of
from tests.e2e.test_replicat_process import SPARKLESS, Group
from trails.record import Column, Op, TableDef
from trails.runtime.process.control import ask

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.xdist_group("spark")]

_ID, _F, _A = Column("id", "integer", "integer", True), Column("f", "double", "double"), Column("a", "text", "text")
KV = TableDef("src", "kv", (_ID, _F, _A))


class OtherGroup(Group):
    """A Group on another kind of target."""

    def __init__(self, folder: Path, url: str, schema: str, server: MariaServer | None) -> None:
        self.schema, self.server = schema, server
        super().__init__(folder, url)

    def add_row_table(self) -> None:
        """See Group; it is beside the rows."""
        where = f"sqlite:///{path_of(self.url, self.home.root)}" if self.server is None else self.url
        admin_for(where).add_row_table(where, (self.schema, "chk"))

    def register(self, **fields: Any) -> None:
        """See Group."""
        super().register(checkpoint_table=f"{self.schema}.chk", **fields)

    def parameters(self, *lines: str) -> None:
        """See Group; `lines` are those of the MAP behind its TARGET."""
        mapped = ", ".join([f"MAP src.kv, TARGET {self.schema}.kv", *lines])
        text = ["REPLICAT rep1", f"TARGETDB '{self.url}'", f"{mapped};", ""]
        Path(self.home.prm("REP1")).write_text("\n".join(text))

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """See Group; values as text."""
        if self.server is not None:
            return self.server.sql(statement, self.schema)
        conn = sqlite3.connect(path_of(self.url, self.home.root), isolation_level=None, timeout=PATIENCE)
        try:
            return [tuple(str(value) for value in row) for row in conn.execute(statement).fetchall()]
        finally:
            conn.close()


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["sqlite", "mysql"])
def test_a_process_is_killed_and_goes_on(kind: str, tmp_path: Path, request: pytest.FixtureRequest):
    """Each row once, however the process ended; an idle zero loses its sign, and STATS says so."""
    server = request.getfixturevalue("mariadb") if kind == "mysql" else None
    name = request.getfixturevalue("maria_db") if kind == "mysql" else "main"
    url = server.url(name, tcp=False) if server is not None else "sqlite:///target.db"
    group = OtherGroup(tmp_path, url, name, server)
    try:
        group.sql("CREATE TABLE kv (id bigint PRIMARY KEY, f double, a varchar(9), up varchar(40))")
        group.start(SPARKLESS)
        group.feed.tx((Op.INSERT, KV, ["1", "-0", "x"]))
        group.wait(lambda: group.sql("SELECT count(*) FROM kv") == [("1",)])
        tables = ask(group.home, "REP1", "STATS")["tables"]
        assert [(row["from"], row["inserts"], row["more"]) for row in tables] == [
            ("src.kv", 1, {"values converted": 1})
        ]
        group.stop(signal.SIGKILL)
        for number in range(2, 30):
            group.feed.tx((Op.INSERT, KV, [str(number), "1.5", "y"]), (Op.DELETE, KV, [str(number - 1), "0", ""]))
        group.parameters("COLMAP (USEDEFAULTS, up = upper(a) || '/' || change.operation)")
        group.start()
        group.wait(lambda: group.sql("SELECT id, up FROM kv") == [("29", "Y/INSERT")])
        assert group.stop()[0] == 0
    finally:
        group.close()
