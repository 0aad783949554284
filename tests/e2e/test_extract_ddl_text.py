"""What of a client's text leaves the source with a change of shape: its own statement, without literals, or less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from replicat.ddl.definition import CannotError
from replicat.ddl.shapes import MappedTable, carry
from replicat.model.target import TargetColumn, TargetTable
from replicat.params import ReplicatParams
from replicat.targets.kinds import kind_of
from tests.support.capturing import Capture
from tests.support.ddl_capturing import capture_with_trigger, ddls
from trails.fs import RealFs, read_bytes
from trails.runtime.language.params import parse_text

pytestmark = pytest.mark.e2e


@pytest.fixture
def capture(source_db: str, tmp_path: Path) -> Capture:
    """A group with DDL on an empty database that has the event trigger."""
    made = capture_with_trigger(source_db, tmp_path)
    made.ddl = "INCLUDE ALL"
    return made


SECRETS = ("s3cret", "hunter2", "row value")
TEXTS = [
    ("ALTER TABLE t ADD c int", "ALTER TABLE", "ALTER TABLE t ADD c int"),
    ("CREATE ROLE x PASSWORD 's3cret'; ALTER TABLE t ADD c int;", "ALTER TABLE", "ALTER TABLE t ADD c int"),
    ("alter table t add d text default 's3cret' ; INSERT INTO u VALUES ('row value')", "ALTER TABLE",
     "alter table t add d text default '...'"),
    ("/* a */ ALTER TABLE t ADD e int -- b", "ALTER TABLE", "/* a */ ALTER TABLE t ADD e int -- b"),
    ("SELECT 'ALTER TABLE x; s3cret'; ALTER TABLE t ADD f text DEFAULT E'a\\';s3cret'", "ALTER TABLE",
     "ALTER TABLE t ADD f text DEFAULT '...'"),
    ("ALTER TABLE t ADD g text DEFAULT $q$s3cret; $x$ ; ' $q$", "ALTER TABLE",
     "ALTER TABLE t ADD g text DEFAULT '...'"),
    ("ALTER TABLE t ADD h text DEFAULT $$s3cret$$, ADD \"i;'\" int", "ALTER TABLE",
     "ALTER TABLE t ADD h text DEFAULT '...', ADD \"i;'\" int"),
    ("ALTER ROLE x PASSWORD 's3cret'; CREATE TEMP TABLE u (a int); CREATE UNLOGGED TABLE w (b int)", "CREATE TABLE",
     "CREATE TEMP TABLE u (a int); CREATE UNLOGGED TABLE w (b int)"),
    ("DO $$ BEGIN EXECUTE 's3cret'; END $$", "ALTER TABLE", "ALTER TABLE"),
    ("SELECT f('s3cret')", "ALTER TABLE", "ALTER TABLE"),
    ("SELECT 1 AS a INTO t", "SELECT INTO", "SELECT INTO"),
    ("CREATE TABLE x AS SELECT 'row value' AS v", "CREATE TABLE AS", "CREATE TABLE x AS SELECT '...' AS v"),
    ("ALTER TABLE t ADD a$b$c int; SELECT 'hunter2', 'a$b$c'", "ALTER TABLE", "ALTER TABLE t ADD a$b$c int"),
    ("/* /* */ s3cret */ ALTER TABLE t ADD c int", "ALTER TABLE", "ALTER TABLE"),
    ("ALTER TABLE t ADD c int; SELECT 's3cret", "ALTER TABLE", "ALTER TABLE"),
    ("ALTER TABLE t ADD n numeric(8,2) CHECK (n > -1.5 / 2)", "ALTER TABLE",
     "ALTER TABLE t ADD n numeric(...,...) CHECK (n > -... / ...)"),
    ("/* user=app trace='row value' */ ALTER TABLE t1 -- was: PASSWORD 's3cret'\n ADD c int /* no replication */",
     "ALTER TABLE", "ALTER TABLE t1  \n ADD c int /* no replication */"),
    ("-- hunter2\nCREATE TABLE x AS SELECT * FROM u2 WHERE ssn IN (4711, .5e3, 0x1f)", "CREATE TABLE AS",
     "CREATE TABLE x AS SELECT * FROM u2 WHERE ssn IN (..., ...., ...)"),
    ("ALTER TABLE t ADD é text DEFAULT U&'\\0061s3cret', ADD b bytea DEFAULT X'1f'", "ALTER TABLE",
     "ALTER TABLE t ADD é text DEFAULT U&'...', ADD b bytea DEFAULT X'...'"),
    ("ALTER TABLE t ADD c int;" * 500, "ALTER TABLE", "ALTER TABLE"),
    ("", "ALTER TABLE", "ALTER TABLE"),
]  # fmt: skip


def test_the_text_that_is_told(capture: Capture) -> None:
    """Statements of the command's kind, literals hidden; where the text can't be told apart, the command alone."""
    with psycopg.connect(capture.url) as connection:
        for query, tag, wanted in TEXTS:
            found = connection.execute("SELECT trailgate.own_text(%s, %s)", [query, tag]).fetchone()
            assert found == (wanted,), query
            assert not any(secret in wanted for secret in SECRETS)
        connection.execute("SET standard_conforming_strings = off")
        found = connection.execute("SELECT trailgate.own_text('ALTER TABLE t ADD c int', 'ALTER TABLE')").fetchone()
        assert found == ("ALTER TABLE",)


def test_secrets_of_other_statements_stay_at_the_source(capture: Capture) -> None:
    """Neither in the trail nor in what Extract says: a script with passwords and rows around its changes of shape."""
    capture.register(trandata=False)
    script = """CREATE ROLE {role} PASSWORD 'hunter2'; CREATE TABLE {name} (id int PRIMARY KEY, v text DEFAULT 'x');
        SELECT set_config('app.secret', 's3cret', false); ALTER TABLE {name} ADD c int; DROP ROLE {role}"""
    with capture.running() as extract:
        with psycopg.connect(capture.url, autocommit=True) as connection:
            connection.execute(script.format(role="r1", name="a").encode())
            body = script.format(role="r2", name="b").replace("'", "''").replace("SELECT", "PERFORM")
            connection.execute(f"DO 'BEGIN {body}; END'".encode())
        capture.drain(extract)
    told = [change.sql for change in ddls(capture.changes())]
    assert told == [
        "CREATE TABLE a (id int PRIMARY KEY, v text DEFAULT '...')", "ALTER TABLE a ADD c int", "CREATE TABLE",
        "ALTER TABLE",
    ]  # fmt: skip
    written = b"".join(read_bytes(RealFs(), str(path)) for path in Path(capture.settings.trail.folder).iterdir())
    assert not any(secret.encode() in written for secret in SECRETS)
    born = capture.sql("SELECT message FROM trailgate.born")
    assert not any(secret in str(born) for secret in SECRETS)


LABELS: list[tuple[str, list[Any]]] = [
    ("CREATE TYPE mood AS ENUM ('ok', 'bad')", []),
    ("CREATE TYPE pair AS (a int, b text)", []),
    ("CREATE DOMAIN temper AS mood", []),
    ("CREATE TABLE t (m mood, ms mood[], d temper, p pair, i int)",
     [("m", ("ok", "bad")), ("ms", ("ok", "bad")), ("d", ("ok", "bad")), ("p", ("a", "b"))]),
    ("ALTER TYPE mood RENAME VALUE 'bad' TO 'sad'",
     [("m", ("ok", "sad")), ("ms", ("ok", "sad")), ("d", ("ok", "sad")), ("p", ("a", "b"))]),
    ("ALTER TYPE mood ADD VALUE 'fine' BEFORE 'sad'",
     [("m", ("ok", "fine", "sad")), ("ms", ("ok", "fine", "sad")), ("d", ("ok", "fine", "sad")), ("p", ("a", "b"))]),
    ("ALTER TYPE pair ADD ATTRIBUTE c int",
     [*((name, ("ok", "fine", "sad")) for name in ("m", "ms", "d")), ("p", ("a", "b", "c"))]),
    ("ALTER TYPE mood RENAME TO humour", []),
    ("ALTER TYPE mood2 OWNER TO CURRENT_USER", []),
    ("ALTER DOMAIN temper SET DEFAULT 'ok'", []),
    ("CREATE COLLATION c (locale = 'C')", []),
]  # fmt: skip


def test_types_that_change_under_their_columns_are_told(capture: Capture) -> None:
    """Labels and attributes are of the shape, each by a number of its own: what was renamed is seen to be."""
    capture.register(trandata=False)
    capture.sql("CREATE TYPE mood2 AS ENUM ('x')")
    with capture.running() as extract:
        numbers: dict[str, int] = {}
        for statement, wanted in LABELS:
            before = len(ddls(capture.changes()))
            capture.sql(statement)
            capture.drain(extract)
            new = ddls(capture.changes())[before:]
            assert len(new) == (1 if wanted else 0), statement
            for change in new:
                assert change.new is not None
                shown = [(c.name, tuple(name for _, name in c.inner)) for c in change.new.columns if c.inner]
                assert shown == wanted, statement
                found = {name: number for number, name in change.new.columns[0].inner}
                assert numbers.get("bad", found.get("sad")) == found.get("sad", numbers.get("bad"))
                numbers = found
    assert capture.said == []


def test_types_inside_types_are_looked_into(capture: Capture) -> None:
    """A label renamed, or an attribute added, inside a composite inside an array of composites: told, and refused."""
    capture.register(trandata=False)
    with capture.running() as extract:
        for statement in (
            "CREATE TYPE mood AS ENUM ('ok', 'bad')", "CREATE TYPE pair AS (a int, m mood)",
            "CREATE TYPE wide AS (p pair, q pair[], m mood)", "CREATE TABLE t (id int, w wide[])",
            "ALTER TYPE mood RENAME VALUE 'bad' TO 'sad'", "ALTER TYPE pair ADD ATTRIBUTE c int",
            "ALTER TYPE pair RENAME ATTRIBUTE a TO z",
        ):  # fmt: skip
            capture.sql(statement)
        capture.drain(extract)
    told = ddls(capture.changes())
    assert [set(dict(change.new.columns[1].inner).values()) for change in told if change.new] == [
        {"p", "q", "m", "ok", "bad", "a"}, {"p", "q", "m", "ok", "sad", "a"}, {"p", "q", "m", "ok", "sad", "a", "c"},
        {"p", "q", "m", "ok", "sad", "z", "c"},
    ]  # fmt: skip
    place = ("main", "t")
    table = TargetTable(*place, (TargetColumn("id", "INTEGER"), TargetColumn("w", "TEXT")))
    text = "REPLICAT rep1\nTARGETDB postgresql://x/y\nMAP public.*, TARGET main.*;\n"
    mapped = [MappedTable(ReplicatParams.from_statements(parse_text(text, "p")).maps[0], place)]
    for change in told[1:3]:
        with pytest.raises(CannotError, match="the values of all its rows are other ones now"):
            list(carry(change, mapped, mapped, {place: table}.get, kind_of("sqlite").dialect(kind_of("postgresql"))))
    assert [
        found.statements
        for found in carry(
            told[3], mapped, mapped, {place: table}.get, kind_of("sqlite").dialect(kind_of("postgresql"))
        )
    ] == [()]
