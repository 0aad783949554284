"""Changes of shape as nobody's database writes them: for tests of what a trail may do to a target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from replicat.params import ReplicatParams
from replicat.run.replicat import Replicat
from replicat.targets.contract import TargetSettings
from replicat.targets.kinds import admin_for, open_target
from tests.support.ddl_target import feed_ddl, table_shape
from tests.support.replicat_trail import InlineEngine, TrailFeed
from trails.clock import RealClock
from trails.ddl import ALTER, CREATE, DdlChange, DdlColumn, TableShape
from trails.fs import RealFs
from trails.position import TrailName
from trails.runtime.home.registration import Registration
from trails.runtime.language.params import parse_text

REG = Registration("REP1", "REPLICAT", "TRAIL", trail="./dirdat/rt", group_key=77, added_us=5)

PIECES = [
    "'", "''", '"', '""', "`", ";", "--", "/*", "*/", "\\", "$$", "(", ")", ",", "::", "[]", " ", "\n", "x", "\0", "é",
    "%s",
    "{}", "E'", "1", "-1", "1.5", "true", "NULL", "integer", "text", "numeric(8,2)", "public.mood", '"a b"."c"',
    "now()",
    "pg_catalog.lower('A')", "lower('A'::text)", "nextval('q'::regclass)", "pg_read_file('/etc/passwd'::text)",
    "(1 + 2)", "'a'::text", "'x'::public.mood", " OPERATOR(public.+) ", "id", "keep", "CURRENT_USER",
    "(id || 'x'::text)",
    ", DROP COLUMN keep", "; DROP TABLE t", ") STORED, ADD x int", "'); DROP TABLE t; --", "1, DROP COLUMN keep",
    "\\x00ff", "\\x'); DROP TABLE t; --", "NaN", "Infinity", "1e400", "character varying(9)", "bytea", "select",
]  # fmt: skip
"""What statements are made of, and what would break out of one."""
TEXT = st.lists(st.sampled_from(PIECES), max_size=5).map("".join) | st.text(max_size=12)
TYPES = [
    "integer",
    "bigint",
    "text",
    "char",
    "decimal",
    "boolean",
    "bytes",
    "date",
    "timestamptz",
    "enum",
    "real",
    "what",
]


GOOD_TYPES = st.sampled_from(["integer", "text", "numeric(8,2)", "bytea", "date", "public.mood", "text[]"])
GOOD_FORMULAS = st.sampled_from(["now()", "5", "'x'::text", "(id || 'x'::text)", "'x'::public.mood", "lower(keep)"])


def hostile_columns() -> st.SearchStrategy[DdlColumn]:
    """One column: any texts, among good ones."""
    return st.builds(
        DdlColumn, st.just(9), st.just("c") | TEXT, st.sampled_from(TYPES), GOOD_TYPES | GOOD_TYPES | TEXT,
        st.booleans(), st.none() | GOOD_FORMULAS | TEXT, st.none() | st.sampled_from(["5", "x"]) | TEXT,
        st.sampled_from(["", "", "a", "d"]), st.booleans(),
    )  # fmt: skip


def plain_columns() -> st.SearchStrategy[DdlColumn]:
    """One column that nothing is wrong with but, it may be, its name: enough of these are added, whatever is drawn."""
    return st.builds(DdlColumn, st.just(9), st.just("c") | TEXT, st.just("integer"), st.just("integer"))


def adding(column: DdlColumn, before: TableShape) -> DdlChange:
    """ALTER TABLE ... ADD COLUMN."""
    after = TableShape(before.schema, before.name, (*before.columns, column), before.key)
    return DdlChange(ALTER, before, after, "ALTER TABLE ...")


def creating(name: str, *columns: DdlColumn) -> DdlChange:
    """CREATE TABLE."""
    first = DdlColumn(1, "id", "integer", "integer", not_null=True)
    return DdlChange(CREATE, None, TableShape("s", name, (first, *columns), ("id",)), "CREATE TABLE ...")


BEFORE = table_shape("s", "t", "1:id 2:keep")


DO = "CREATE ROLE intruder SUPERUSER"
INTO = f"int); {DO}; CREATE TABLE y (z int"


def column(native: str = "integer", kind: str = "integer", **more: Any) -> DdlColumn:
    """What is added, whatever is said of it."""
    return DdlColumn(9, "c", kind, native, **more)


HOSTILE = [
    creating("t1", column(INTO)),
    creating("t2", column(INTO, "text")),
    creating("t3", column(default=f"1); {DO}; --")),
    creating("t4", column(default="evil()")),
    creating("t5", column(default="evil(id)", generated=True)),
    creating("t6", column(default="(id OPERATOR(public.+) 1)", generated=True)),
    creating("t7", column("text", "text", default="pg_read_file('/etc/passwd'::text)")),
    creating("t8", column("public.evil", "integer", missing="1")),
    creating("t9", column("text", "text", default="lo_import('/etc/passwd'::text)")),
    creating("t\udcff"),
    creating("t\0"),
    creating("t10", DdlColumn(9, "c\udcff", "text", "text")),
    *(
        adding(column(native, kind, missing=missing), BEFORE)
        for native, kind in (("integer", "integer"), ("text", "text"), ("bytea", "bytes"), ("numeric", "decimal"))
        for missing in (
            f"1'); {DO}; --",
            "1, DROP COLUMN keep",
            f"\\x'); {DO}; --",
            "1) , DROP COLUMN keep, ADD d (int",
        )
    ),
]
"""What a trail may say to run statements of its own, and must not."""


TRAP = [
    "CREATE ROLE app LOGIN; GRANT CREATE ON SCHEMA public TO app; SET ROLE app",
    """CREATE FUNCTION public.now_bad() RETURNS int LANGUAGE plpgsql VOLATILE AS
    'BEGIN ALTER ROLE app SUPERUSER; RETURN 1; END'""",
    """CREATE FUNCTION public.evil(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
    'BEGIN RETURN (SELECT public.now_bad()); END'""",
    "CREATE FUNCTION public.lower(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT public.evil(1)::text'",
    """CREATE FUNCTION public.join_bad(text, text) RETURNS text LANGUAGE sql IMMUTABLE AS
    'SELECT public.evil(1)::text'""",
    "CREATE OPERATOR public.|| (LEFTARG = text, RIGHTARG = text, FUNCTION = public.join_bad)",
    "CREATE FUNCTION public.sum_bad(int, int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT public.evil(1)'",
    "CREATE OPERATOR public.+ (LEFTARG = int, RIGHTARG = int, FUNCTION = public.sum_bad)",
    "CREATE DOMAIN public.dom AS int CHECK (public.evil(VALUE) = 1)",
    "CREATE TYPE public.own AS (a int)",
    """CREATE FUNCTION public.to_own(int) RETURNS public.own LANGUAGE sql IMMUTABLE AS
    'SELECT ROW(public.evil($1))::public.own'""",
    "CREATE CAST (int AS public.own) WITH FUNCTION public.to_own(int) AS IMPLICIT",
    "RESET ROLE",
]  # fmt: skip
"""What an ordinary user app makes at a PostgreSQL target: whoever calls it as a superuser makes him one."""


class Victim:
    """A target of some kind, and a Replicat that applies what a trail says to it."""

    def __init__(self, home: Path, url: str, schema: str, query: Callable[[str], list[tuple[Any, ...]]]) -> None:
        self.home, self.url, self.schema, self.query = home, url, schema, query
        self.notes: list[str] = []
        admin_for(url).add_row_table(url, (schema, "chk"))
        self.feed = TrailFeed(RealFs(), TrailName(str(home / "dirdat"), "rt"))

    def apply(
        self,
        *changes: DdlChange,
        more: str = "DDLERROR DEFAULT IGNORE",
        ddl: str = "DDL INCLUDE MAPPED",
        maps: str = "",
    ) -> None:
        """Each change in a transaction of its own, applied by a whole process."""
        for change in changes:
            feed_ddl(self.feed, change)
        self.apply_trail(self.feed.trail, more=more, ddl=ddl, maps=maps)

    def apply_trail(self, trail: TrailName, *, more: str = "", ddl: str = "DDL INCLUDE MAPPED", maps: str = "") -> None:
        """All that waits in a trail of anybody's."""
        maps = maps or f"MAP s.*, TARGET {self.schema}.*;"
        text = f"REPLICAT rep1\nTARGETDB '{self.url}'\n{ddl}\n{more}\n{maps}\n"
        target = open_target(TargetSettings(self.url, (self.schema, "chk"), "REP1", 77, str(self.home)))
        process = Replicat(
            ReplicatParams.from_statements(parse_text(text, "rep1.prm")), REG, trail, fs=RealFs(),
            clock=RealClock(), target=target, engine=InlineEngine(), note=self.notes.append,
        )  # fmt: skip
        try:
            while process.step():
                pass
            process.flush()
        finally:
            process.close()
