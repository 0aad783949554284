"""Any text of a type or an expression: printed from known parts, or refused; and what is printed is read the same."""

from __future__ import annotations

import contextlib
import re
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicat.ddl.definition import CannotError
from replicat.ddl.formula import FUNCTIONS, parse_formula
from replicat.ddl.shapes import MappedTable, carry
from replicat.ddl.typename import BUILT_IN, parse_type
from replicat.model.target import TargetColumn, TargetTable
from replicat.params import ReplicatParams
from replicat.targets.kinds import kind_of
from replicat.targets.mysql import grammar as mysql
from tests.support.ddl_hostile import BEFORE, PIECES, TEXT, adding, hostile_columns
from tests.support.hostile import hostile
from trails.ddl import DdlColumn
from trails.runtime.language.params import parse_text

NAMES = st.sampled_from(["public", "my schema", 'q"uote', "select", "x;y", "é"])
MORE = st.sampled_from(
    ["", "(3)", "(8,2)", "(Point,4326)", "[]", "(3)[][]", " with time zone", "(3) without time zone"]
)


@hostile(100)
@given(st.sampled_from(sorted(BUILT_IN)) | TEXT, MORE)
def test_a_type_is_one_of_the_known_or_none(name: str, more: str) -> None:
    """And its own text is itself."""
    found = parse_type(name + more)
    if found is None:
        return
    assert parse_type(found.sql()) == found
    assert found.is_built_in == (found.name in BUILT_IN and not found.schema)
    assert not found.is_built_in or set(found.sql()) <= set('abcdefghijklmnopqrstuvwxyz_0123456789 (),[]"-')


@hostile(100)
@given(NAMES, NAMES, MORE)
def test_a_type_of_others_is_quoted(schema: str, name: str, more: str) -> None:
    """Whatever it is called."""
    quoted = ".".join('"' + each.replace('"', '""') + '"' for each in (schema, name))
    found = parse_type(quoted + more)
    if " " in more:
        assert found is None
        return
    assert found is not None
    assert (found.schema, found.name) == (schema, name)
    assert found.sql().startswith(quoted)


@hostile(500)
@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
def test_a_formula_holds_nothing_but_known_parts(text: str) -> None:
    """Outside of quotes: no semicolon, no comment, no function but those of the list, none without its schema."""
    found = parse_formula(text)
    if found is None or found.is_sequence:
        return
    bare, quote = [], ""
    for letter in found.sql:
        if not quote and letter in "'\"":
            quote = letter
        elif letter == quote:
            quote = ""
        elif not quote:
            bare.append(letter)
    assert quote == ""
    left = "".join(bare)
    assert not any(sign in left for sign in (";", "--", "/*", "\\", "$"))
    assert left.count("(") == left.count(")")


MYSQL_PIECES = [
    "load_file('/etc/passwd')", "sleep(9)", "benchmark(9,1)", "get_lock('x',9)", "f(1)", "db.f(1)", "`f`(1)",
    "`db`.", "lower(1)", "user()",
    "@@version", "@a", "concat(", "lower(", "(", ")", ",", "+", "- ", "-", "/", "*", "#", ";", "--", "/*!", "*/", "\\",
    "'a (b'", "'it''s'", "'\\\\'", "'", "`a (b`", "`x``y`", "`", '"', "_utf8mb4", "id", "1", "1.5", "x'41'", "\0", "\n",
    " ", " CHARACTER SET ", "select ", "case when", "then", "end", "cast(", " as char)", "null", "é",
]  # fmt: skip
_QUOTED = re.compile(r"'(?:[^']|'')*'|`(?:[^`]|``)*`")


@hostile(600)
@given(st.lists(st.sampled_from(MYSQL_PIECES), max_size=8).map("".join))
def test_an_expression_of_mysql_holds_nothing_but_known_parts(text: str) -> None:
    """Outside of quotes: no second statement, comment, variable or function but those of the list; quotes are kept."""
    found = mysql.parse_default(text)
    if found is None:
        return
    left = _QUOTED.sub("?", found.sql)
    assert not any(
        sign in left for sign in (";", "--", "/*", "*/", "\\", "#", "@", "'", "`", '"', "?(", "? (", ". lower(")
    )
    assert left.count("(") == left.count(")")
    assert {name.lower() for name in re.findall(r"(\w+)\(", left)} <= mysql.FUNCTIONS
    assert set(_QUOTED.findall(text)) <= set(_QUOTED.findall(found.sql))


def test_a_literal_of_an_expression_stays_as_it_is() -> None:
    """A space before a parenthesis is left out between words, and not inside of what they quote."""
    found = mysql.parse_default("concat ('a (b)', `c (d`)")
    assert found is not None
    assert found.sql == "concat( 'a (b)' , `c (d` )"


@pytest.mark.parametrize("text", ["`load_file`('/etc/passwd')", "`db`.lower(`a`)", "`db` . `f` (1)", "1 + `f`(`a`)"])
def test_a_function_in_quotes_or_of_a_database_is_none_that_is_known(text: str) -> None:
    """MariaDB calls it all the same, and what it refuses in a default is its own list and not ours."""
    assert mysql.parse_default(text) is None


def test_functions_are_the_ones_that_only_compute() -> None:
    """None that reads files, settings or tables, changes anything, runs SQL, waits, or takes memory by one argument."""
    forbidden = {
        "pg_read_file", "pg_read_binary_file", "lo_import", "lo_export", "lo_get", "dblink", "set_config", "setval",
        "current_setting", "pg_terminate_backend", "pg_sleep", "query_to_xml", "table_to_xml", "nextval", "currval",
        "lastval", "pg_advisory_lock", "pg_notify", "pg_logical_emit_message", "repeat", "generate_series",
        "pg_reload_conf", "pg_switch_wal", "pg_export_snapshot", "inet_server_addr", "version", "xpath",
    }  # fmt: skip
    assert not FUNCTIONS & forbidden


READ = [
    ("5", "5"), ("'-5'::integer", "-5"), ("(-1)", "-1"), ("(0)::numeric", "0"), ("true", "true"),
    ("'it''s'::character varying", "it's"), ("E'\\\\x00ff'::bytea", "\\x00ff"), ("'{x,y}'::text[]", "{x,y}"),
    ("'ok'::public.mood", "ok"), ("now()", None), ("NULL::character varying", None), ("('now'::text)::date", None),
    ("(now() AT TIME ZONE 'utc'::text)", None), ("CURRENT_TIMESTAMP(3)", None), ("(a * 2)", None),
    ("to_tsvector('english'::regconfig, COALESCE(body, ''::text))", None), ("EXTRACT(year FROM d)", None),
    ("CASE\n    WHEN ((a > 1) AND (b IS NOT NULL)) THEN 2\n    ELSE 3\nEND", None), ("TRIM(BOTH FROM a)", None),
    ("md5((random())::text)", None), ("ARRAY[1, 2]", None), ("((data ->> 'a'::text))::integer", None),
]  # fmt: skip
REFUSED = [
    "public.f()", "f()", "pg_read_file('x'::text)", "('x'::text)::public.mood", "(a)::public.mood", "1; SELECT 2",
    "(a -- b)",
    "('x'::public.mood || 'y'::text)", "(a OPERATOR(public.+) b)", "(SELECT 1)", "a.b", "'x' 'y'", "date '2020-01-01'",
    "lower(VARIADIC a)", "count(*)", "(a, b)", "", "'x", "x\0", "(a /* x */)", "$$x$$", "U&'x'", "f.g.h()",
    '(a COLLATE "C")',
]  # fmt: skip


def test_what_postgresql_prints_is_read() -> None:
    """Defaults and generated columns as pg_get_expr() writes them; a literal's value for the other databases."""
    for text, constant in READ:
        found = parse_formula(text)
        assert found is not None, text
        assert found.constant == constant, text
    for text in REFUSED:
        assert parse_formula(text) is None, text
    deep = "(" * 1900 + "1" + ")" * 1900
    assert parse_formula(deep) is not None
    assert parse_formula("1" + "::integer" * 400) is not None
    assert parse_formula("1" * 5000) is None


MAP = ReplicatParams.from_statements(
    parse_text("REPLICAT rep1\nTARGETDB postgresql://x/y\nMAP s.*, TARGET s.*;\n", "p")
).maps[0]


@hostile(300)
@given(hostile_columns())
def test_any_text_of_a_column_adds_that_column_or_nothing_at_sqlite(column: DdlColumn) -> None:
    """One statement each, obeyed by a live database, whose table then has its old columns and that one."""
    place = ("main", "t")
    present = TargetTable(*place, (TargetColumn("id", "TEXT"), TargetColumn("keep", "TEXT")), (frozenset(("id",)),))
    mapped = [MappedTable(MAP, place)]
    try:
        (found,) = carry(
            adding(column, BEFORE),
            mapped,
            mapped,
            {place: present}.get,
            kind_of("sqlite").dialect(kind_of("postgresql")),
        )
    except CannotError:
        return
    with contextlib.closing(sqlite3.connect(":memory:")) as lite:
        lite.execute("CREATE TABLE t (id TEXT PRIMARY KEY, keep TEXT)")
        for statement in found.statements:
            lite.execute(statement)
        names = [row[1] for row in lite.execute("PRAGMA table_info(t)")]
        assert names == (["id", "keep", column.name] if found.statements else ["id", "keep"])
        assert [row[0] for row in lite.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")] == ["t"]
