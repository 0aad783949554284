"""A change of shape to statements: what each kind of target is told, and what is left out as it is there already."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import pytest

from replicat.ddl.errors import DdlErrorRule, ddl_rule_for
from replicat.ddl.shapes import CannotError, Carry, Mapped, carry
from replicat.ddl.sql import DIALECTS
from replicat.ddl.types import column_type
from replicat.params import ReplicatParams
from replicat.target import TargetColumn, TargetTable
from tests.support.ddl_target import table_shape
from trails.ddl import ALTER, CREATE, DDL_FILLED, DDL_ROWS, DDL_USING, DROP, RENAME, DdlChange, DdlColumn, TableShape
from trails.errors import ParamError
from trails.runtime.params import parse_text

BASE = table_shape("s", "t", "1:id 2:v")


def rules(maps: str, more: str = "") -> ReplicatParams:
    text = f"REPLICAT rep1\nTARGETDB postgresql://x/y\n{more}\n{maps}\n"
    return ReplicatParams.from_statements(parse_text(text, "p"))


def mapped(maps: str = "MAP s.*, TARGET d.*;", name: str = "t", more: str = "") -> list[Mapped]:
    """All MAPs of a file that match the name."""
    found = [rule for rule in rules(maps, more).maps if rule.source.matches("s", name)]
    return [Mapped(rule, rule.target.fill("s", name)) for rule in found]


def target(columns: str, name: str = "t", key: str = "") -> TargetTable:
    """`target("id:integer v:text")`."""
    made = tuple(TargetColumn(c.split(":")[0], c.split(":")[1] or "text") for c in columns.split())
    return TargetTable("d", name, made, (frozenset(key.split()),) if key else ())


def carried(
    change: DdlChange,
    *tables: TargetTable,
    kind: str = "postgresql",
    maps: str = "MAP s.*, TARGET d.*;",
    more: str = "",
    others: tuple[str, ...] = (),
) -> list[Carry]:
    """What becomes of a change where these tables are."""
    there = {(table.schema, table.name): table for table in tables}
    old = mapped(maps, change.old.name, more) if change.old else []
    new = mapped(maps, change.new.name, more) if change.new else []
    return list(carry(change, old, new, there.get, kind, lambda _: others))


def one(change: DdlChange, *tables: TargetTable, **how: object) -> tuple[str, ...]:
    """The statements for the only target table."""
    (found,) = carried(change, *tables, **how)  # type: ignore[arg-type]
    return found.statements


def altered(*columns: DdlColumn, old: TableShape = BASE, flags: int = 0) -> DdlChange:
    return DdlChange(ALTER, old, replace(old, columns=columns), "ALTER TABLE s.t ...", flags)


ID, V = BASE.columns
TABLE = target("id:text v:text", key="id")


def test_added_columns_get_the_stored_value_first():
    """Rows that are there get what the source's have; the default is for rows to come."""
    change = altered(ID, V, DdlColumn(3, "c", "integer", "integer", True, default="nextval('x')", missing="5"))
    (found,) = carried(change, TABLE)
    assert found.statements == (
        """ALTER TABLE "d"."t" ADD COLUMN "c" integer DEFAULT '5'::integer NOT NULL""",
        """ALTER TABLE "d"."t" ALTER COLUMN "c" DROP DEFAULT""",
    )
    assert "a sequence of its own" in found.notes[0]
    change = altered(
        ID, V, DdlColumn(3, "d", "timestamptz", "timestamptz", default="now()", missing="2024-01-02 00:00:00+00")
    )
    assert one(change, TABLE) == (
        """ALTER TABLE "d"."t" ADD COLUMN "d" timestamptz DEFAULT '2024-01-02 00:00:00+00'::timestamptz""",
        """ALTER TABLE "d"."t" ALTER COLUMN "d" SET DEFAULT now()""",
    )
    flag = DdlColumn(3, "f", "boolean", "boolean", True, default="true", missing="true")
    assert one(altered(ID, V, flag), TABLE, kind="mysql") == (
        "ALTER TABLE `d`.`t` ADD COLUMN `f` tinyint(1) NOT NULL DEFAULT (1)",
        "ALTER TABLE `d`.`t` ALTER COLUMN `f` SET DEFAULT (1)",
    )
    assert one(altered(ID, V, flag), TABLE, kind="sqlite") == ('ALTER TABLE "d"."t" ADD COLUMN "f" BOOLEAN DEFAULT 1',)


def test_drop_rename_retype_and_the_rest_of_one_statement():
    """In an order in which each finds what it needs; by number, so a name may be another column's afterwards."""
    old = table_shape("s", "t", "1:id 2:a 3:b 4:gone", key="id")
    new = replace(old, columns=(
        old.columns[0], replace(old.columns[1], name="b"),
        replace(old.columns[2], name="a", type="bigint", native="bigint"),
        DdlColumn(5, "gone", "text", "text"),
    ))  # fmt: skip
    change = DdlChange(ALTER, old, new, "ALTER TABLE s.t ...")
    assert one(change, target("id:text a:text b:text gone:text", key="id")) == (
        'ALTER TABLE "d"."t" DROP COLUMN "gone"',
        'ALTER TABLE "d"."t" RENAME COLUMN "a" TO "tg_renamed_2"',
        'ALTER TABLE "d"."t" RENAME COLUMN "b" TO "a"',
        'ALTER TABLE "d"."t" RENAME COLUMN "tg_renamed_2" TO "b"',
        'ALTER TABLE "d"."t" ADD COLUMN "gone" text',
        'ALTER TABLE "d"."t" ALTER COLUMN "a" TYPE bigint',
    )


def test_what_is_there_already_is_left_out():
    """Done by hand after an ABEND, or before a crash where each statement commits by itself."""
    new = (replace(ID, name="key"), DdlColumn(3, "c", "text", "text"))
    change = DdlChange(ALTER, BASE, replace(BASE, columns=new, key=("key",)))
    (found,) = carried(change, target("key:text C:text own:text"))
    assert found.statements == ()
    assert found.notes == (
        "column v is dropped already", "column id is renamed already", "column C is there already, as text",
    )  # fmt: skip
    (made,) = carried(DdlChange(CREATE, None, BASE), TABLE)
    assert (made.statements, made.notes) == ((), ("is there already",))
    (gone,) = carried(DdlChange(DROP, BASE, None))
    assert (gone.statements, gone.notes) == ((), ("is dropped already",))
    (named,) = carried(DdlChange(RENAME, BASE, replace(BASE, name="u")), target("id:text v:text", "u"))
    assert (named.statements, named.notes) == ((), ("d.t is renamed already",))


def test_a_new_table():
    """Names by the MAP, columns and key by the shape; types of its own where the target is no PostgreSQL."""
    shape = TableShape("s", "t", (
        DdlColumn(1, "id", "bigint", "bigint", True, identity="d"),
        DdlColumn(2, "n", "decimal", "numeric(8,2)", True, default="0.5"),
        DdlColumn(3, "v", "text", "character varying(9)", default="'it''s'::character varying"),
        DdlColumn(4, "x", "bytes", "bytea"),
    ), ("id",))  # fmt: skip
    change = DdlChange(CREATE, None, shape)
    (made,) = one(change)
    assert made == (
        'CREATE TABLE "d"."t" ("id" bigint GENERATED BY DEFAULT AS IDENTITY NOT NULL, "n" numeric(8,2) DEFAULT 0.5 '
        """NOT NULL, "v" character varying(9) DEFAULT 'it''s'::character varying, "x" bytea, PRIMARY KEY ("id"))"""
    )
    (made,) = one(change, kind="mysql")
    assert made == (
        "CREATE TABLE `d`.`t` (`id` bigint NOT NULL, `n` decimal(8,2) NOT NULL DEFAULT (0.5), `v` varchar(9) NULL "
        "DEFAULT ('it''s'), `x` longblob NULL, PRIMARY KEY (`id`)) "
        "ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    )
    (made,) = one(change, kind="sqlite")
    connection = sqlite3.connect(":memory:")
    connection.execute(made.replace('"d".', ""))
    connection.execute("INSERT INTO t (id) VALUES (1)")
    assert connection.execute("SELECT * FROM t").fetchall() == [(1, "0.5", "it's", None)]
    history = "MAP s.*, TARGET d.*, INSERTALLRECORDS;"
    assert one(DdlChange(CREATE, None, replace(BASE, columns=(replace(ID, not_null=True), V))), maps=history) == (
        'CREATE TABLE "d"."t" ("id" text, "v" text)',
    )


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (altered(ID, replace(V, native="integer", type="integer"), flags=DDL_USING), "column v got its values by"),
        (altered(ID, V, flags=DDL_USING), "a column got its values by an expression"),
        (altered(ID, V, DdlColumn(3, "r", "uuid", "uuid", default="f()"), flags=DDL_FILLED), "column r that only"),
        (DdlChange(CREATE, None, replace(BASE, name="new"), "x", DDL_ROWS), "held rows already"),
        (DdlChange(RENAME, BASE, replace(BASE, name="both")), "d.t becomes d.both, and both exist"),
    ],
)  # fmt: skip
def test_what_cannot_be_carried_names_table_and_statement(change: DdlChange, error: str):
    """The source's statement is in the message, and what to do."""
    with pytest.raises(CannotError, match=error) as told:
        carried(change, TABLE, target("id:text v:text", "both"))
    assert "The source's statement" in str(told.value)
    assert "then START" in str(told.value)


def test_what_only_some_targets_cannot():
    """SQLite rebuilds no table; generated columns are PostgreSQL's own."""
    longer = altered(ID, replace(V, native="integer", type="integer"))
    with pytest.raises(CannotError, match="SQLite cannot turn column v from text into INTEGER"):
        carried(longer, TABLE, kind="sqlite")
    wider = altered(ID, replace(V, native="character varying(9)"))
    assert "stays text" in carried(wider, TABLE, kind="sqlite")[0].notes[0]
    assert "not set here" in carried(altered(ID, replace(V, not_null=True)), TABLE, kind="sqlite")[0].notes[0]
    made = DdlChange(CREATE, None, replace(BASE, columns=(ID, replace(V, generated=True, default="upper(id)"))))
    assert one(made) == (
        'CREATE TABLE "d"."t" ("id" text, "v" text GENERATED ALWAYS AS (upper(id)) STORED, PRIMARY KEY ("id"))',
    )
    with pytest.raises(CannotError, match=r"generated by an expression of the source's own: upper\(id\)"):
        carried(made, kind="mysql")


def test_a_shared_target_keeps_what_another_source_needs():
    """DROP, RENAME and dropped columns would take it from the other's rows."""
    both = "MAP s.*, TARGET d.t;"
    for change in (DdlChange(DROP, BASE, None, "DROP TABLE s.t"), altered(ID)):
        with pytest.raises(CannotError, match=r"of (d\.t|column v), which also takes the rows of s\.other"):
            carried(change, TABLE, maps=both, others=("s.other", "s.t"))


def test_renames_by_maps():
    """Within the mapping a rename, out of it nothing, into it only where the target is there already."""
    named = DdlChange(RENAME, BASE, replace(BASE, name="u"), "ALTER TABLE s.t RENAME TO u")
    assert one(named, TABLE) == ('ALTER TABLE "d"."t" RENAME TO "u"',)
    apart = "MAP s.t, TARGET d.t;\nMAP s.u, TARGET e.mine;"
    assert one(named, TABLE, maps=apart) == (
        'ALTER TABLE "d"."t" SET SCHEMA "e"', 'ALTER TABLE "e"."t" RENAME TO "mine"',
    )  # fmt: skip
    assert one(named, TABLE, maps=apart, kind="mysql") == ("RENAME TABLE `d`.`t` TO `e`.`mine`",)
    (left,) = carried(named, TABLE, maps="MAP s.t, TARGET d.t;")
    assert (left.statements, left.target) == ((), "d.t")
    assert "left alone" in left.notes[0]
    with pytest.raises(CannotError, match=r"goes to d\.u, and its rows are not in the trail"):
        carried(named, maps="MAP s.u, TARGET d.u;")
    (come,) = carried(named, target("id:text v:text", "u"), maps="MAP s.u, TARGET d.u;")
    assert "is mapped from here on" in come.notes[0]


def test_columns_of_colmap_and_cols_are_left_alone():
    """What the MAP governs is its author's; the rest follows."""
    change = altered(ID, replace(V, name="w"), DdlColumn(3, "c", "text", "text"))
    assert one(change, TABLE, maps="MAP s.t, TARGET d.t, COLMAP (id = id, v = upper(v));") == ()
    assert one(change, TABLE, maps="MAP s.t, TARGET d.t, COLMAP (USEDEFAULTS, v = upper(w));") == (
        'ALTER TABLE "d"."t" ADD COLUMN "c" text',
    )
    assert one(change, TABLE, maps="MAP s.t, TARGET d.t, COLS (id, v);") == ()
    assert one(change, TABLE, maps="MAP s.t, TARGET d.t, COLSEXCEPT (c);") == (
        'ALTER TABLE "d"."t" RENAME COLUMN "v" TO "w"',
    )
    (found,) = carried(altered(ID), TABLE, maps="MAP s.t, TARGET d.t, INSERTALLRECORDS;")
    assert (found.statements, found.notes) == (
        (),
        ("column v is left alone: the table keeps a history (INSERTALLRECORDS)",),
    )
    with pytest.raises(CannotError, match=r"columns of d\.t are COLMAP's \(p:4\)"):
        carried(DdlChange(CREATE, None, BASE), maps="MAP s.t, TARGET d.t, COLMAP (id = id);")


def test_keys():
    """A first key is made; another one is a person's work, and said so."""
    bare = replace(BASE, key=())
    first = DdlChange(ALTER, bare, BASE, "ALTER TABLE s.t ADD PRIMARY KEY (id)")
    assert one(first, target("id:text v:text")) == ('ALTER TABLE "d"."t" ADD PRIMARY KEY ("id")',)
    assert one(first, target("id:text v:text"), kind="sqlite") == ('CREATE UNIQUE INDEX "d"."t_key" ON "t" ("id")',)
    assert one(first, TABLE) == ()
    (found,) = carried(DdlChange(ALTER, BASE, replace(BASE, key=("id", "v"))), TABLE)
    assert (found.statements, found.notes) == ((), ("the key is left as it is here: change it by hand",))


@pytest.mark.parametrize(
    ("column", "keys", "wanted"),
    [
        (("decimal", "numeric"), 0, "longtext"),
        (("decimal", "numeric(70,5)"), 0, "longtext"),
        (("decimal", "numeric(5,-2)"), 0, "longtext"),
        (("text", "character varying(5000)"), 0, "longtext"),
        (("char", "character(10)"), 0, "varchar(10)"),
        (("text", "text"), 2, "varchar(384)"),
        (("bytes", "bytea"), 1, "varbinary(3072)"),
        (("json", "jsonb"), 0, "longtext"),
        (("timestamptz", "timestamp with time zone"), 0, "datetime(6)"),
    ],
)
def test_mysql_types(column: tuple[str, str], keys: int, wanted: str):
    """A type that takes every value; text where there is none."""
    assert column_type("mysql", DdlColumn(1, "c", *column), keys) == wanted


def test_names_are_quoted():
    """Whatever a table or column is called."""
    assert DIALECTS["postgresql"].dotted(('a"b', "c.d")) == '"a""b"."c.d"'
    assert DIALECTS["mysql"].dotted(("a`b", "c")) == "`a``b`.`c`"


def test_ddlerror():
    """By SQLSTATE or the database's own number, else DEFAULT, else ABEND."""
    lines = (
        "42P07 IGNORE",
        "1050 DISCARD RETRYOP MAXRETRIES 2",
        "DEFAULT ABEND RETRYOP MAXRETRIES 3 RETRYDELAY 4",
    )
    found = rules("MAP a.b, TARGET a.b;", "\n".join(f"DDLERROR {line}" for line in lines))
    assert ddl_rule_for(found.ddl_errors, "42P07", "") == DdlErrorRule("42P07", "IGNORE")
    assert ddl_rule_for(found.ddl_errors, "", "1050") == DdlErrorRule("1050", "DISCARD", 2)
    assert ddl_rule_for(found.ddl_errors, "55P03", "55P03") == DdlErrorRule("DEFAULT", "ABEND", 3, 4)
    assert ddl_rule_for((), "55P03", "").action == "ABEND"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "DEFAULT",
        "DEFAULT SKIP",
        "4 2 IGNORE",
        "DEFAULT IGNORE RETRYOP",
        "DEFAULT IGNORE RETRYOP MAXRETRIES x",
        "DEFAULT IGNORE RETRYOP RETRYDELAY 4",
        "DEFAULT IGNORE RETRYOP MAXRETRIES 0",
        "DEFAULT IGNORE TRYAGAIN",
    ],
)
def test_wrong_ddlerrors(text: str):
    """File, line, what was expected."""
    with pytest.raises(ParamError, match=r"p:3: DDLERROR"):
        rules("MAP a.b, TARGET a.b;", f"DDLERROR {text}")
