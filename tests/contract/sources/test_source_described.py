"""Every source: what describe_tables tells of a table is what the trail will say of it, type by type and key by key."""

from __future__ import annotations

import pytest

from tests.contract.sources.bench import SourceBench, ask
from tests.support import mysql_values
from trails.described import DescribedTable, ForeignKey, Index

pytestmark = pytest.mark.e2e

POSTGRES_SETUP = (
    "CREATE TYPE mood AS ENUM ('sad', 'glad')", "CREATE TYPE pair AS (a int, b text)",
    "CREATE DOMAIN posint AS int CHECK (VALUE > 0)", "CREATE DOMAIN small AS posint",
)  # fmt: skip
POSTGRES_TYPES = (
    "smallint", "integer", "bigint", "numeric", "numeric(14,2)", "real", "double precision", "boolean", "text",
    "varchar(10)", "char(5)", '"char"', "name", "mood", "mood[]", "pair", "posint", "small", "json", "jsonb", "bytea",
    "bit(5)", "varbit", "uuid", "date", "time(3)", "timetz", "timestamp(0)", "timestamptz", "interval", "int[]",
    "int4range", "inet", "xml", "oid", "tsvector", "numeric(5,-2)",
)  # fmt: skip
SQLITE_TYPES = (
    "INTEGER",
    "TEXT",
    "REAL",
    "BLOB",
    "NUMERIC",
    "DATE",
    "DATETIME",
    "VARCHAR(20)",
    "DECIMAL(10,2)",
    "ANY",
    "",
)
GENERATED = "g integer GENERATED ALWAYS AS (id * 2) STORED"


def described(bench: SourceBench, name: str = "*") -> dict[str, DescribedTable]:
    """By name; how it is captured is known by what the trail says of its source."""
    trail = {"queue": "tg"} if bench.place.method else {}
    asked = {"url": bench.place.url, "pattern": f"{bench.place.schema}.{name}"}
    found = [DescribedTable.from_wire(wire) for wire in ask("describe_tables", **asked, trail=trail)["tables"]]
    return {one.shape.name: one for one in found}


def types(bench: SourceBench) -> tuple[str, ...]:
    """Column types of this database."""
    url = bench.place.url
    if url.startswith("sqlite"):
        return SQLITE_TYPES
    if not url.startswith("mysql"):
        bench.sql(*POSTGRES_SETUP)
        return POSTGRES_TYPES
    flavour = ask("dblogin", url=url)["server"].partition(" ")[0]
    return tuple(dict.fromkeys(c.type for c in mysql_values.CASES if c.only in (mysql_values.BOTH, flavour)))


def test_a_table_is_defined_as_the_trail_defines_it(bench: SourceBench):
    """Each type of column, a key of several columns that is not the first one, a generated column."""
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(types(bench)))
    wide = f"CREATE TABLE wide ({columns}, id integer NOT NULL, k integer NOT NULL, {GENERATED}, PRIMARY KEY (k, id))"
    bench.register(wide, "CREATE TABLE plain (id integer PRIMARY KEY, a varchar(10) NOT NULL DEFAULT 'x')")
    mirror = bench.sees(bench.start(), "INSERT INTO wide (id, k) VALUES (1, 2)", "INSERT INTO plain (id) VALUES (7)")
    found = described(bench)
    for name in ("wide", "plain"):
        assert found[name].definition == mirror.definitions[name]
        assert found[name].unfit == ""
    assert found["wide"].shape.key == ("k", "id")
    shaped = [(c.name, c.type, c.native) for c in found["wide"].shape.columns]
    sent = {c.name: (c.name, c.type, c.native) for c in mirror.definitions["wide"].columns}
    assert [one for one in shaped if one[0] in sent] == list(sent.values())
    assert next(c for c in found["plain"].shape.columns if c.name == "a").not_null
    assert list(described(bench, "plain")) == ["plain"]


def test_what_a_table_is_called_without_its_key(bench: SourceBench):
    """Without a primary key; and by a unique key, where the database takes that for one. SQLite captures neither."""
    tables = ("CREATE TABLE bare (a integer, b integer)", "CREATE TABLE alike (u integer NOT NULL UNIQUE, v integer)")
    bench.register(*tables)
    if bench.place.url.startswith("sqlite"):
        assert {one.unfit for one in described(bench).values()} == {"it has no PRIMARY KEY, and a rowid may change"}
        return
    if bench.place.url.startswith("postgresql") and not bench.place.method:
        bench.sql("ALTER TABLE alike REPLICA IDENTITY USING INDEX alike_u_key")
    mirror = bench.sees(bench.start(), "INSERT INTO bare VALUES (1, 2)", "INSERT INTO alike VALUES (3, 4)")
    found = described(bench)
    assert {name: found[name].definition for name in ("bare", "alike")} == mirror.definitions


def test_indexes_and_foreign_keys_are_told_where_they_are_plain(bench: SourceBench):
    """In the order of their columns; what is over a part or an expression is named, and nothing more."""
    place = bench.place
    bench.sql(
        "CREATE TABLE parent (a integer NOT NULL, b integer NOT NULL, PRIMARY KEY (a, b))",
        "CREATE TABLE child (id integer PRIMARY KEY, x integer, y integer, t varchar(20), CHECK (x < 1000), "
        "FOREIGN KEY (y, x) REFERENCES parent (b, a))" if place.url.startswith("sqlite") else
        "CREATE TABLE child (id integer PRIMARY KEY, x integer, y integer, t varchar(20), CHECK (x < 1000), "
        "CONSTRAINT to_parent FOREIGN KEY (x, y) REFERENCES parent (a, b))",
        "CREATE INDEX by_t ON child (t, x)", "CREATE UNIQUE INDEX once ON child (y, t)",
        "CREATE INDEX odd ON child (t(3))" if place.url.startswith("mysql") else "CREATE INDEX odd ON child (lower(t))",
    )  # fmt: skip
    child = described(bench, "child")["child"]
    assert {Index("by_t", ("t", "x")), Index("once", ("y", "t"), unique=True)} <= set(child.indexes)
    assert "index odd" in child.left
    (key,) = child.foreign_keys
    if place.url.startswith("sqlite"):
        assert key == ForeignKey("fk_0", ("y", "x"), "main", "parent", ("b", "a"))
    else:
        assert key == ForeignKey("to_parent", ("x", "y"), place.schema, "parent", ("a", "b"))
