"""What a trail, or an ordinary user of the source, makes a target do by changes of shape: these changes, no more."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings

from demo.mariadb import MariaServer
from demo.servers import PostgresServer
from replicat.ddl.definition import CannotError
from replicat.ddl.shapes import MappedTable, carry
from replicat.model.mapparams import MapRule
from replicat.model.target import RefusedError, TargetColumn, TargetTable
from replicat.params import ReplicatParams
from replicat.targets.contract import TargetSettings
from replicat.targets.kinds import kind_of, open_target
from tests.support.ddl_hostile import (
    BEFORE,
    HOSTILE,
    INTO,
    TRAP,
    Victim,
    adding,
    column,
    creating,
    hostile_columns,
    plain_columns,
)
from tests.support.ddl_target import definition, table_shape
from trails.ddl import DROP, DdlChange, DdlColumn, TableShape
from trails.errors import GateError, OperatorError
from trails.record import Op
from trails.runtime.language.params import parse_text

pytestmark = pytest.mark.e2e

KINDS = ["postgresql", "sqlite", "mysql"]


@pytest.fixture
def victim(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Victim]:
    """An empty target of each kind; of PostgreSQL as a superuser, who can do most harm."""
    (tmp_path / "dirdat").mkdir(mode=0o700)
    with contextlib.ExitStack() as stack:
        if request.param == "postgresql":
            url = request.getfixturevalue("target_db")
            conn: Any = stack.enter_context(psycopg.connect(url, autocommit=True))
            made = Victim(tmp_path, url, "public", lambda text: _fetched(conn.execute(text)))
        elif request.param == "sqlite":
            lite = stack.enter_context(contextlib.closing(sqlite3.connect(tmp_path / "t.db", isolation_level=None)))
            made = Victim(
                tmp_path, f"sqlite:///{tmp_path / 't.db'}", "main", lambda text: lite.execute(text).fetchall()
            )
        else:
            server: MariaServer = request.getfixturevalue("mariadb")
            name = request.getfixturevalue("maria_db")
            made = Victim(tmp_path, server.url(name), name, lambda text: [tuple(row) for row in server.sql(text)])
        stack.callback(made.feed.close)
        yield made


def _fetched(cursor: Any) -> list[tuple[Any, ...]]:
    return cursor.fetchall() if cursor.description else []


postgres_only = pytest.mark.parametrize("victim", ["postgresql"], indirect=True)
every_kind = pytest.mark.parametrize("victim", KINDS, indirect=True)


@every_kind
def test_a_hostile_trail_runs_nothing_of_its_own(victim: Victim):
    """I11: types, defaults, what generates, values: each a part of the one statement it belongs to, or left out."""
    victim.query(f"CREATE TABLE {victim.schema}.t (id varchar(9) PRIMARY KEY, keep varchar(9))")
    victim.query(f"INSERT INTO {victim.schema}.t VALUES ('1', 'kept')")
    drops = [adding(column(), BEFORE).new]
    for change in HOSTILE:
        back = DdlChange("ALTER", drops[0], BEFORE, "ALTER TABLE ...") if change.op == "ALTER" else None
        victim.apply(change, *([back] if back else []))
    assert victim.query(f"SELECT id, keep FROM {victim.schema}.t") == [("1", "kept")]
    if victim.url.startswith("postgresql"):
        assert victim.query("SELECT 1 FROM pg_roles WHERE rolname = 'intruder'") == []
        assert victim.query("SELECT 1 FROM pg_class WHERE relname IN ('t1', 't2', 't4', 't5', 'y')") == []
        assert sum("is left out by DDLERROR" in note for note in victim.notes) >= 9
    else:
        with pytest.raises(Exception, match=r"no such table|doesn't exist"):
            victim.query(f"SELECT * FROM {victim.schema}.y")


@every_kind
def test_hostile_names_are_only_names(victim: Victim):
    """Whatever a table or column is called is what it is called then."""
    names = ['a"; DROP TABLE chk; --', "b`; DROP TABLE chk; -- x", "c'); --", "d\\", "%s%(x)s", "e/*"]
    columns = [DdlColumn(i, name, "text", "text") for i, name in enumerate(names, 2)]
    victim.apply(*(creating(name, *columns) for name in names), more="")
    for name in names:
        quote = "`" if victim.url.startswith("mysql") else '"'
        quoted = quote + name.replace(quote, quote * 2) + quote
        assert victim.query(f"SELECT * FROM {victim.schema}.{quoted}".replace("%", "%")) == []
    shape = creating("x", *columns).new
    assert shape is not None
    victim.apply(*(DdlChange(DROP, TableShape("s", name, shape.columns), None) for name in names), more="")
    assert victim.query(f"SELECT count(*) FROM {victim.schema}.chk") in ([(1,)], [("1",)])


@every_kind
def test_hostile_labels_of_an_enum_are_only_values(victim: Victim):
    """A label is renamed in the rows that have it, whatever quotes and backslashes it is made of."""
    victim.query(f"CREATE TABLE {victim.schema}.t (id varchar(9) PRIMARY KEY, keep varchar(99), c varchar(99))")
    labels = ["\\", ", keep = id -- ", "'", "\\'", ", keep = id, c = '\\", "%s"]
    victim.query(f"INSERT INTO {victim.schema}.t VALUES ('1', 'kept', 'first')")

    def labelled(label: str) -> TableShape:
        mood = DdlColumn(3, "c", "enum", "public.mood", inner=((99999, label),))
        return replace(BEFORE, columns=(*BEFORE.columns, mood))

    steps = [labelled(label) for label in ["first", *labels, "last"]]
    changes = [DdlChange("ALTER", old, new, "ALTER TYPE") for old, new in itertools.pairwise(steps)]
    victim.apply(*changes, more="")
    assert victim.query(f"SELECT id, keep, c FROM {victim.schema}.t") == [("1", "kept", "last")]


@every_kind
def test_without_the_parameter_a_trail_changes_no_table(victim: Victim):
    """A Replicat applies changes of shape only where its own parameter file says so."""
    victim.apply(creating("t"), ddl="", more="")
    assert any("is not applied: no DDL INCLUDE" in note for note in victim.notes)
    with pytest.raises(Exception, match=r"no such table|doesn't exist|does not exist"):
        victim.query(f"SELECT * FROM {victim.schema}.t")


@postgres_only
def test_an_ordinary_user_of_the_source_becomes_no_superuser(victim: Victim):
    """Functions, operators, casts and domains that he has at the target too are not called in Replicat's name."""
    for statement in TRAP:
        victim.query(statement)
    try:
        victim.query("CREATE TABLE public.proof (id int, g int GENERATED ALWAYS AS (public.evil(id)) STORED)")
        victim.query("BEGIN; INSERT INTO public.proof VALUES (1)")
        assert _supers(victim) == [(True,)]  # the trap works: this is what must not happen
        victim.query("ROLLBACK")
        text = {"native": "text", "kind": "text"}
        attacks = [
            column(default="public.evil(id)", generated=True),
            column(default="public.evil(1)"),
            column(default="now_bad()"),
            column(**text, default="lower('x'::text)"),
            column(**text, default="lower((id)::text)", generated=True),
            column(**text, default="(('a'::text) || 'b'::text)", missing="ab"),
            column(default="(id + 1)", generated=True),
            column("public.dom", missing="1", default="1"),
            column("public.own", "composite", default="1", missing="(1)"),
            column("public.own", "composite", default="'(1)'::public.own", missing="(1)"),
            column("public.own", "composite", default="(1)::public.own"),
        ]
        victim.query("CREATE TABLE public.t (id int PRIMARY KEY, keep text, i int)")
        victim.query("INSERT INTO public.t VALUES (1, 'kept', 5)")
        before = TableShape("s", "t", (_id(), BEFORE.columns[1], DdlColumn(3, "i", "integer", "integer")), ("id",))
        for number, attack in enumerate(attacks):
            victim.apply(creating(f"n{number}", attack), adding(attack, before), adding(column(), before))
            victim.query("ALTER TABLE public.t DROP COLUMN IF EXISTS c")
        retyped = TableShape("s", "t", (*before.columns[:2], DdlColumn(3, "i", "composite", "public.own")), ("id",))
        victim.apply(DdlChange("ALTER", before, retyped, "ALTER TABLE ..."))
        for number in range(len(attacks)):
            victim.query(f"INSERT INTO public.t VALUES ({number + 10}, 'x', 1)")
            with contextlib.suppress(psycopg.errors.UndefinedTable):
                victim.query(f"INSERT INTO public.n{number} VALUES (1)")
        assert _supers(victim) == [(False,)]
        assert any("belongs to app" in note for note in victim.notes)
        # What the database brings itself is carried, and means the database's own.
        assert victim.query("SELECT c FROM public.n4") == [("1",)]
        assert victim.query("SELECT c FROM public.n6") == [(2,)]
    finally:
        victim.query("ROLLBACK")
        victim.query("DROP OWNED BY app CASCADE; DROP ROLE app")


def _supers(victim: Victim) -> list[tuple[Any, ...]]:
    return victim.query("SELECT rolsuper FROM pg_roles WHERE rolname = 'app'")


def _id() -> DdlColumn:
    return DdlColumn(1, "id", "integer", "integer", not_null=True)


SYSTEM_TABLES = [
    ("pg_catalog", "pg_authid", "1:rolname 2:rolsuper", "rolname", ["app", "true"]),
    ("mysql", "global_priv", "1:User 2:Priv", "User", ["app", "{}"]),
]


@pytest.mark.parametrize("victim", ["postgresql", "mysql"], indirect=True)
@pytest.mark.parametrize("place", SYSTEM_TABLES, ids=lambda place: place[1])
def test_no_row_goes_to_the_database_systems_own_tables(victim: Victim, place: Any):
    """Wildcards take whatever a peer names: who writes pg_authid is superuser."""
    schema, name, columns, key, row = place
    if victim.url.startswith("postgres") != (schema == "pg_catalog"):
        schema, name = "information_schema", "tables"
    shape = table_shape(schema, name, columns, key=key)
    victim.feed.tx((Op.UPDATE, definition(shape), row))
    if schema == "pg_catalog":
        victim.query("CREATE ROLE app")
    try:
        with pytest.raises(GateError, match=rf"{schema}\.{name} is a table of the database system itself"):
            victim.apply(maps="MAP *.*, TARGET *.*;")
        assert schema != "pg_catalog" or _supers(victim) == [(False,)]
    finally:
        victim.query("DROP ROLE IF EXISTS app")


@every_kind
def test_nothing_of_a_trail_goes_to_the_checkpoint_table(victim: Victim):
    """Neither a row nor a change of shape: it holds the places of all groups."""
    dropped = DdlChange(DROP, table_shape("s", "chk", "1:group_name", key="group_name"), None)
    with pytest.raises(OperatorError, match=r"chk is the checkpoint table"):
        victim.apply(dropped)
    assert victim.query(f"SELECT count(*) FROM {victim.schema}.chk") in ([(1,)], [("1",)])


# --- any text ---------------------------------------------------------------------------------------------------------


def _rule() -> MapRule:
    text = "REPLICAT rep1\nTARGETDB postgresql://x/y\nMAP s.*, TARGET s.*;\n"
    return ReplicatParams.from_statements(parse_text(text, "p")).maps[0]


def _statements(column: DdlColumn, kind: str, schema: str) -> tuple[str, ...] | None:
    """What becomes of the column added to s.t; None where it is refused."""
    place = (schema, "t")
    present = TargetTable(*place, (TargetColumn("id", "text"), TargetColumn("keep", "text")), (frozenset(("id",)),))
    mapped = [MappedTable(_rule(), place)]
    try:
        (found,) = carry(
            adding(column, BEFORE), mapped, mapped, {place: present}.get, kind_of(kind).dialect(kind_of("postgresql"))
        )
    except CannotError:
        return None
    return found.statements


def test_any_text_of_a_column_adds_that_column_or_nothing_at_postgresql(target_db: str):
    """Run at a live server: one statement each, and the table has its old columns and at most the one of that name."""
    seen = {"added": 0, "refused": 0}
    wrong: list[Any] = []  # the values may be, the grammar never
    with psycopg.connect(target_db, autocommit=True) as conn:
        conn.execute("CREATE TABLE t (id text PRIMARY KEY, keep text)")
        conn.execute("CREATE TYPE mood AS ENUM ('x')")
        conn.execute("SET search_path = pg_catalog, pg_temp")

        @settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
        @given(hostile_columns() | plain_columns())
        def check(column: DdlColumn) -> None:
            nonlocal wrong
            statements = _statements(column, "postgresql", "public")
            if not statements:
                seen["refused"] += 1
                return
            conn.execute("BEGIN")
            try:
                for statement in statements:
                    parsed = conn.pgconn.prepare(b"", statement.encode(), None)
                    assert parsed.status == psycopg.pq.ExecStatus.COMMAND_OK, (statement, parsed.error_message)
                    conn.execute(statement, binary=True)
                found = conn.execute(
                    "SELECT array_agg(attname::text ORDER BY attnum) FROM pg_attribute "
                    "WHERE attrelid = 'public.t'::regclass AND attnum > 0 AND NOT attisdropped"
                ).fetchone()
                assert found == (["id", "keep", column.name],)
                assert conn.execute("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace "
                                    "AND relkind = 'r'").fetchone() == (1,)  # fmt: skip
                seen["added"] += 1
            except psycopg.Error as error:
                wrong += [(statements, error)] if error.sqlstate == "42601" else []
            finally:
                conn.execute("ROLLBACK")

        check()
    assert seen["added"] > 20
    assert seen["refused"] > 20
    assert wrong == []


def test_any_text_of_a_column_adds_that_column_or_nothing_at_mysql(mariadb: MariaServer, maria_db: str):
    """The same at MariaDB, where each statement commits by itself."""
    import pymysql

    from replicat.targets.mysql.link import connect

    added = 0
    wrong: list[Any] = []
    link = connect(mariadb.url(maria_db))
    with contextlib.closing(link), link.cursor() as cursor:

        @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
        @given(hostile_columns() | plain_columns())
        def check(column: DdlColumn) -> None:
            nonlocal added, wrong
            statements = _statements(column, "mysql", maria_db)
            if not statements:
                return
            cursor.execute("CREATE OR REPLACE TABLE t (id varchar(9) PRIMARY KEY, keep text)")
            try:
                for statement in statements:
                    cursor.execute(statement)
                added += 1
            except pymysql.MySQLError as error:
                wrong += [(statements, error)] if error.args[0] == 1064 else []
            cursor.execute("SHOW COLUMNS FROM t")
            assert [row[0] for row in cursor.fetchall()][:2] == ["id", "keep"]
            cursor.execute("SHOW TABLES")
            assert [row[0] for row in cursor.fetchall()] == ["t"]

        check()
    assert added > 10
    assert wrong == []


def test_one_call_takes_one_statement(target_db: str, tmp_path: Path):
    """The fence behind the fence: the server refuses a second statement, wherever it may come from."""
    (tmp_path / "dirdat").mkdir(mode=0o700)
    with psycopg.connect(target_db, autocommit=True) as conn:
        made = Victim(tmp_path, target_db, "public", lambda text: _fetched(conn.execute(text)))
        made.feed.close()
        target = open_target(TargetSettings(target_db, ("public", "chk"), "REP1", 77))
        target.connect()
        with contextlib.closing(target):
            target.database.run("BEGIN")  # type: ignore[attr-defined]
            with pytest.raises(RefusedError, match="multiple commands"):
                target.ddl(("CREATE TABLE public.a (b int); CREATE TABLE public.c (d int)",))


def test_replicat_needs_no_superuser(pg_target: PostgresServer, target_db: str, tmp_path: Path):
    """The role of docs/security.md is enough, also for changes of shape, and only a superuser is warned of."""
    (tmp_path / "dirdat").mkdir(mode=0o700)
    with psycopg.connect(target_db, autocommit=True) as conn:
        conn.execute(
            "CREATE ROLE gate LOGIN; GRANT SET ON PARAMETER session_replication_role TO gate; "
            "CREATE SCHEMA own AUTHORIZATION gate; GRANT CREATE ON SCHEMA public TO gate"
        )
        try:
            settings_ = TargetSettings(target_db, ("own", "chk"), "REP1", 77)
            made = Victim(tmp_path, target_db.replace("postgres@", "gate@"), "own", lambda t: _fetched(conn.execute(t)))
            made.apply(creating("t", column()), more="")
            made.feed.close()
            assert made.query("SELECT relowner::regrole::text FROM pg_class WHERE oid = 'own.t'::regclass") == [
                ("gate",)
            ]
            warned = []
            for url in (target_db, made.url):
                target = open_target(replace(settings_, url=url))
                target.connect()
                warned.append(target.cautions())
                target.close()
            assert ["is a superuser" in "".join(each) for each in warned] == [True, False]
        finally:
            conn.execute("DROP OWNED BY gate CASCADE; DROP ROLE gate")


def test_an_operator_error_is_all_that_comes_of_a_hostile_change(target_db: str, tmp_path: Path):
    """Without DDLERROR: the process ends with the column's name, and nothing of what the trail said is quoted."""
    (tmp_path / "dirdat").mkdir(mode=0o700)
    with psycopg.connect(target_db, autocommit=True) as conn:
        made = Victim(tmp_path, target_db, "public", lambda text: _fetched(conn.execute(text)))
        with contextlib.closing(made.feed), pytest.raises(OperatorError, match="column c is of a type") as told:
            made.apply(creating("t1", column(INTO)), more="")
        assert "intruder" not in str(told.value)
