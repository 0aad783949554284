"""A change of shape to statements: what each kind of target is told, and what is left out as it is there already."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import pytest

from replicat.ddl.definition import CannotError, defined
from replicat.ddl.shapes import Carry, MappedTable, carry, shown
from replicat.maps.ddlerror import DdlErrorRule, ddl_rule_for
from replicat.model.target import TargetColumn, TargetTable
from replicat.params import ReplicatParams
from replicat.targets.kinds import KINDS, kind_of
from replicat.targets.mysql.words import EXACT_TEXT
from replicat.targets.postgres.ddl import GRAMMAR
from tests.support.ddl_target import table_shape
from trails.ddl import ALTER, CREATE, DDL_FILLED, DDL_ROWS, DDL_USING, DROP, RENAME, DdlChange, DdlColumn, TableShape
from trails.errors import ParamError
from trails.runtime.language.params import parse_text

BASE = table_shape("s", "t", "1:id 2:v")


def rules(maps: str, more: str = "") -> ReplicatParams:
    text = f"REPLICAT rep1\nTARGETDB postgresql://x/y\n{more}\n{maps}\n"
    return ReplicatParams.from_statements(parse_text(text, "p"))


def mapped(maps: str = "MAP s.*, TARGET d.*;", name: str = "t", more: str = "") -> list[MappedTable]:
    """All MAPs of a file that match the name."""
    found = [rule for rule in rules(maps, more).maps if rule.source.matches("s", name)]
    return [MappedTable(rule, rule.target.fill("s", name)) for rule in found]


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
    source: str = "postgresql",
) -> list[Carry]:
    """What becomes of a change where these tables are."""
    there = {(table.schema, table.name): table for table in tables}
    old = mapped(maps, change.old.name, more) if change.old else []
    new = mapped(maps, change.new.name, more) if change.new else []
    return list(carry(change, old, new, there.get, kind_of(kind).dialect(KINDS.get(source)), lambda _: others))


def one(change: DdlChange, *tables: TargetTable, **how: object) -> tuple[str, ...]:
    """The statements for the only target table."""
    (found,) = carried(change, *tables, **how)  # type: ignore[arg-type]
    return found.statements


def altered(*columns: DdlColumn, old: TableShape = BASE, flags: int = 0) -> DdlChange:
    return DdlChange(ALTER, old, replace(old, columns=columns), "ALTER TABLE s.t ...", flags)


ID, V = BASE.columns
TABLE = target("id:text v:text", key="id")


BARE = replace(BASE, columns=(), key=())


@pytest.mark.parametrize(
    ("before", "after", "present", "statements"),
    [
        (BARE, BASE, "tg_no_columns:INTEGER", ["ADD id", "ADD v", "DROP stand-in"]),
        (BARE, BASE, "tg_no_columns:INTEGER id:TEXT", ["ADD v", "DROP stand-in"]),
        (BARE, BASE, "tg_no_columns:INTEGER id:TEXT v:TEXT", ["DROP stand-in"]),
        (BARE, BASE, "id:TEXT v:TEXT", []),
        (BASE, BARE, "id:TEXT v:TEXT", ["ADD stand-in", "DROP id", "DROP v"]),
        (BASE, BARE, "id:TEXT v:TEXT tg_no_columns:INTEGER", ["DROP id", "DROP v"]),
        (BASE, BARE, "v:TEXT tg_no_columns:INTEGER", ["DROP v"]),
        (BASE, BARE, "tg_no_columns:INTEGER", []),
        (BASE, BARE, "id:TEXT v:TEXT own:TEXT", ["DROP id", "DROP v"]),
        (BARE, BASE, "own:TEXT", ["ADD id", "ADD v"]),
    ],
)
def test_a_table_without_columns_has_one_of_ours(before: TableShape, after: TableShape, present: str, statements):
    """Where the database asks for one; each statement commits by itself, so it may be found done up to any place."""
    change = DdlChange(ALTER, replace(before, key=()), replace(after, key=()), "ALTER TABLE s.t ...")
    found = [
        text.replace('"tg_no_columns"', '"stand-in"').split()[3:6]
        for text in one(change, target(present), kind="sqlite")
    ]
    assert [f"{verb} {name.strip(chr(34))}" for verb, _, name in found] == statements
    plain = [text for text in statements if "stand-in" not in text]
    assert len(one(change, target(present.replace("tg_no_columns:INTEGER", "own:text")))) == len(plain)


def test_added_columns_get_the_stored_value_first():
    """Rows that are there get what the source's have; the default is for rows to come."""
    change = altered(
        ID, V, DdlColumn(3, "c", "integer", "integer", True, default="nextval('x'::regclass)", missing="5")
    )
    (found,) = carried(change, TABLE)
    assert found.statements == (
        """ALTER TABLE "d"."t" ADD COLUMN "c" integer DEFAULT '5'::integer NOT NULL""",
        """ALTER TABLE "d"."t" ALTER COLUMN "c" DROP DEFAULT""",
    )
    assert "a sequence of its own" in found.notes[0]
    change = altered(
        ID,
        V,
        DdlColumn(3, "d", "date", "date", default="now()", missing="2024-01-02"),
    )
    assert one(change, TABLE) == (
        """ALTER TABLE "d"."t" ADD COLUMN "d" date DEFAULT '2024-01-02'::date""",
        """ALTER TABLE "d"."t" ALTER COLUMN "d" SET DEFAULT pg_catalog."now"()""",
    )
    flag = DdlColumn(3, "f", "boolean", "boolean", True, default="true", missing="true")
    assert one(altered(ID, V, flag), TABLE, kind="mysql") == (
        "ALTER TABLE `d`.`t` ADD COLUMN `f` tinyint(1) NOT NULL DEFAULT 1",
        "ALTER TABLE `d`.`t` ALTER COLUMN `f` SET DEFAULT 1",
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
        """NOT NULL, "v" character varying(9) DEFAULT ('it''s'::character varying), "x" bytea, PRIMARY KEY ("id"))"""
    )
    (made,) = one(change, kind="mysql")
    assert made == (
        "CREATE TABLE `d`.`t` (`id` bigint NOT NULL, `n` decimal(8,2) NOT NULL DEFAULT 0.5, `v` varchar(9) NULL "
        "DEFAULT 'it''s', `x` longblob NULL, PRIMARY KEY (`id`)) "
        f"ENGINE=InnoDB DEFAULT {EXACT_TEXT}"
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
def test_what_cannot_be_carried_names_the_table_and_quotes_no_statement(change: DdlChange, error: str):
    """The source's statement may hold what others must not read: it is in the trail and in the discard file alone."""
    with pytest.raises(CannotError, match=error) as told:
        carried(change, TABLE, target("id:text v:text", "both"))
    assert "ALTER TABLE s.t ..." not in str(told.value)


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
        (
            'CREATE TABLE "d"."t" ("id" text, "v" text GENERATED ALWAYS AS (pg_catalog."upper"("id")) STORED, '
            'PRIMARY KEY ("id"))'
        ),
    )
    with pytest.raises(CannotError, match=r"generated by an expression of the source's own"):
        carried(made, kind="mysql")


FOREIGN = DdlChange(CREATE, None, TableShape("s", "t", (
    DdlColumn(1, "id", "bigint", "INTEGER", True, default="datetime('now')"),
    DdlColumn(2, "n", "decimal", "NUMERIC(8,2)", default="0.5"),
    DdlColumn(3, "v", "text", "VARCHAR(9)", default="'it''s'"),
    DdlColumn(4, "b", "decimal", "BOOLEAN", default="TRUE"),
    DdlColumn(5, "d", "text", "timestamp with time zone", default="CURRENT_TIMESTAMP"),
    DdlColumn(6, "x", "bytes", "BLOB", default="'abc'"),
    DdlColumn(7, "w", "bigint", "INTEGER PRIMARY KEY", default="'abc'"),
    DdlColumn(8, "r", "double", "bigint", default="NULL"),
    DdlColumn(9, "t", "text", "TEXT", default="'true'"),
), ("id",)))  # fmt: skip
"""What an SQLite source may declare: hostile, and like words of other dialects."""


def test_native_types_and_defaults_mean_something_in_their_own_dialect_only():
    """Like to like by the grammar; else the logical type's rule and constants; nothing of the text gets through."""
    (made,) = carried(FOREIGN, source="sqlite")
    assert _defined(made) == [
        '"id" bigint NOT NULL', "\"n\" numeric DEFAULT '0.5'::numeric", "\"v\" text DEFAULT 'it''s'::text",
        "\"b\" numeric DEFAULT '1'::numeric", '"d" text', '"x" bytea', '"w" bigint', '"r" double precision',
        "\"t\" text DEFAULT 'true'::text",
    ]  # fmt: skip
    assert [note.split()[1] for note in made.notes] == ["id", "d", "x", "w"]
    (unknown,) = carried(FOREIGN, source="of no kind")  # whose TRUE is no number
    assert _defined(unknown) == ['"b" numeric' if text.startswith('"b"') else text for text in _defined(made)]
    (made,) = carried(FOREIGN, source="sqlite", kind="sqlite")
    assert _defined(made) == [
        '"id" INTEGER NOT NULL', '"n" NUMERIC(8,2) DEFAULT 0.5', "\"v\" VARCHAR(9) DEFAULT 'it''s'",
        '"b" BOOLEAN DEFAULT 1', '"d" TEXT', '"x" BLOB', '"w" INTEGER', '"r" bigint', "\"t\" TEXT DEFAULT 'true'",
    ]  # fmt: skip
    (made,) = carried(FOREIGN, source="sqlite", kind="mysql")
    assert _defined(made)[:3] == [
        "`id` bigint NOT NULL", "`n` longtext NULL DEFAULT (0.5)", "`v` longtext NULL DEFAULT ('it''s')"
    ]  # fmt: skip


def _defined(made: Carry) -> list[str]:
    """The columns of a CREATE TABLE."""
    return made.statements[0].partition(" (")[2].partition(", PRIMARY KEY")[0].split(", ")


def test_a_column_added_by_another_kind_of_source():
    """Older rows get the source's value as one of the column's own type; what can't be one is refused."""
    shape = table_shape("s", "t", "1:id")

    def added(column: DdlColumn) -> tuple[str, ...]:
        change = DdlChange(ALTER, shape, replace(shape, columns=(*shape.columns, column)))
        return one(change, target("id:integer"), source="sqlite")

    head = 'ALTER TABLE "d"."t" ADD COLUMN "c" numeric DEFAULT \'5\'::numeric'
    assert added(DdlColumn(2, "c", "decimal", "NUMERIC", default="5", missing="5")) == (
        head, """ALTER TABLE "d"."t" ALTER COLUMN "c" SET DEFAULT '5'::numeric""",
    )  # fmt: skip
    assert added(DdlColumn(2, "c", "decimal", "NUMERIC", missing="5"))[1].endswith("DROP DEFAULT")
    for wrong in (DdlColumn(2, "c", "bytes", "BLOB", missing="abc"), DdlColumn(2, "c", "any", "")):
        with pytest.raises(CannotError, match="column c"):
            added(wrong)
    retyped = [
        replace(shape, columns=(*shape.columns, DdlColumn(2, "c", *kind)))
        for kind in (("text", "TEXT"), ("bigint", "INT"))
    ]
    change = DdlChange(ALTER, *retyped)
    assert one(change, target("id:integer c:text"), source="sqlite") == (
        'ALTER TABLE "d"."t" ALTER COLUMN "c" TYPE bigint',
    )
    assert one(change, target("id:integer c:bigint"), source="sqlite") == ()


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
    """A first key is made, a dropped one dropped, another one made in its place; the target's own stays."""
    bare = replace(BASE, key=())
    first = DdlChange(ALTER, bare, BASE, "ALTER TABLE s.t ADD PRIMARY KEY (id)")
    assert one(first, target("id:text v:text")) == ('ALTER TABLE "d"."t" ADD PRIMARY KEY ("id")',)
    assert one(first, target("id:text v:text"), kind="sqlite") == ('CREATE UNIQUE INDEX "d"."tg_key_t" ON "t" ("id")',)
    assert one(first, TABLE) == ()
    keyed = replace(TABLE, primary=("id",), primary_name="t_pkey")
    other = DdlChange(ALTER, BASE, replace(BASE, key=("v",)))
    assert one(other, keyed) == (
        'ALTER TABLE "d"."t" DROP CONSTRAINT "t_pkey"', 'ALTER TABLE "d"."t" ADD PRIMARY KEY ("v")',
    )  # fmt: skip
    long = replace(keyed, columns=(keyed.columns[0], TargetColumn("v", "longtext CHARACTER SET utf8mb4 COLLATE c")))
    assert one(other, long, kind="mysql") == (
        "ALTER TABLE `d`.`t` DROP PRIMARY KEY",
        "ALTER TABLE `d`.`t` MODIFY COLUMN `v` varchar(768) CHARACTER SET utf8mb4 COLLATE c NOT NULL",
        "ALTER TABLE `d`.`t` ADD PRIMARY KEY (`v`)",
    )
    indexed = replace(keyed, primary_name="tg_key_t")
    made_anew = 'CREATE UNIQUE INDEX "d"."tg_key_t" ON "t" ("v")'
    assert one(other, indexed, kind="sqlite") == ('DROP INDEX "d"."tg_key_t"', made_anew)
    dropped = 'ALTER TABLE "d"."t" DROP PRIMARY KEY'
    assert one(other, replace(keyed, primary_name=""), kind="sqlite") == (dropped, made_anew)
    assert one(DdlChange(ALTER, BASE, bare), keyed) == ('ALTER TABLE "d"."t" DROP CONSTRAINT "t_pkey"',)
    assert one(other, replace(keyed, primary=("v",))) == ()
    (found,) = carried(other, replace(keyed, primary=("own",)))
    assert (found.statements, found.notes) == ((), ("the key is left as it is here (own): it is not the source's",))
    (found,) = carried(other, keyed, maps="MAP s.*, TARGET d.*, KEYCOLS (id);")
    assert (found.statements, found.notes) == ((), ("the key is left as it is here: the MAP has KEYCOLS",))
    without = DdlChange(ALTER, BASE, replace(BASE, columns=(V,), key=("v",)))
    assert one(without, keyed) == (
        'ALTER TABLE "d"."t" DROP COLUMN "id"', 'ALTER TABLE "d"."t" ADD PRIMARY KEY ("v")',
    )  # fmt: skip
    assert one(without, indexed, kind="sqlite") == (
        'DROP INDEX "d"."tg_key_t"', 'ALTER TABLE "d"."t" DROP COLUMN "id"', made_anew,
    )  # fmt: skip
    assert one(without, replace(keyed, primary_name=""), kind="sqlite") == (
        dropped, 'ALTER TABLE "d"."t" DROP COLUMN "id"', made_anew,
    )  # fmt: skip


def test_types_that_change_inside():
    """A renamed label is renamed in all rows, or in the target's own type; what no statement can do is refused."""
    mood = DdlColumn(3, "m", "enum", "public.mood", inner=((20001, "a"), (20002, "b")))
    renamed = replace(mood, inner=((20001, "a"), (20003, "x'y"), (20002, "c")))

    def change(before: DdlColumn, after: DdlColumn) -> DdlChange:
        shapes = [replace(BASE, columns=(*BASE.columns, column)) for column in (before, after)]
        return DdlChange(ALTER, *shapes)

    here = target("id:text v:text m:text", key="id")
    assert one(change(mood, renamed), here, kind="sqlite") == (
        """UPDATE "d"."t" SET "m" = 'c' WHERE "m" COLLATE BINARY = 'b'""",
    )
    assert one(change(mood, renamed), here, kind="mysql") == ("UPDATE `d`.`t` SET `m` = 'c' WHERE BINARY `m` = 'b'",)
    assert one(change(mood, renamed), here) == ("""UPDATE "d"."t" SET "m" = 'c' WHERE "m"::text COLLATE "C" = 'b'""",)
    typed = replace(here, columns=(*here.columns[:2], TargetColumn("m", "public.mood", labels=("a", "b"))))
    assert one(change(mood, renamed), typed) == (
        """ALTER TYPE "public"."mood" RENAME VALUE 'b' TO 'c'""",
        """ALTER TYPE "public"."mood" ADD VALUE IF NOT EXISTS 'x''y' AFTER 'a'""",
    )
    done = replace(here, columns=(*here.columns[:2], TargetColumn("m", "public.mood", labels=("a", "x'y", "c"))))
    assert one(change(mood, renamed), done) == ()
    assert one(change(mood, renamed), here, maps="MAP s.*, TARGET d.*, INSERTALLRECORDS;") == ()
    many = [replace(each, type="array", native="public.mood[]") for each in (mood, renamed)]
    added = replace(many[0], inner=(*mood.inner, (20009, "z")))
    pair = replace(mood, type="composite", native="public.pair", inner=((1, "a"), (2, "b")))
    for kind in ("sqlite", "mysql"):
        for before, after in (many, (pair, replace(pair, inner=((1, "a"), (2, "b"), (3, "c"))))):
            with pytest.raises(CannotError, match="type of column m was changed inside"):
                carried(change(before, after), here, kind=kind)
        assert one(change(many[0], added), here, kind=kind) == ()
        assert one(change(pair, replace(pair, inner=((1, "x"), (2, "b")))), here, kind=kind) == ()


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
    assert (
        kind_of("mysql").dialect(kind_of("postgresql")).column_type(defined(DdlColumn(1, "c", *column), GRAMMAR), keys)
        == wanted
    )


def test_names_are_quoted():
    """Whatever a table or column is called."""
    assert kind_of("postgresql").dialect(kind_of("postgresql")).dotted(('a"b', "c.d")) == '"a""b"."c.d"'
    assert kind_of("mysql").dialect(kind_of("postgresql")).dotted(("a`b", "c")) == "`a``b`.`c`"


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


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (r"ADD c text DEFAULT 'se\cret' NOT NULL", "ADD c text DEFAULT '...' NOT NULL"),
        (r"SET c = '\\' WHERE BINARY c = 'first'", "SET c = '...' WHERE BINARY c = '...'"),
        (r"SET c = 'ends so \' WHERE c = 'first'", "SET c = '...' WHERE c = '...'"),
        ("UPDATE `it's` SET `c` = 'it''s'", "UPDATE `it's` SET `c` = '...'"),
        ("""ALTER "it's" ADD "d'" text DEFAULT 'x'""", """ALTER "it's" ADD "d'" text DEFAULT '...'"""),
        ("ADD n int DEFAULT (4711) NULL", "ADD n int DEFAULT '...' NULL"),
        ("ADD n numeric(8,2) DEFAULT -47.11", "ADD n numeric(8,2) DEFAULT '...'"),
    ],
)
def test_no_value_of_a_row_or_default_is_shown(statement: str, told: str):
    """Reports and logs show the statements with names and types, whatever quotes and backslashes a value has."""
    assert shown(statement) == told
