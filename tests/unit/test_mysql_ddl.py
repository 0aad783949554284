"""Statements of the binary log: what they make of shapes, what is passed over, and what stops."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extract.sources.mysql.ddl.asking import SourceServer, version_number
from extract.sources.mysql.ddl.cascades import Cascade, rules
from extract.sources.mysql.ddl.lexer import ANSI_QUOTES, NO_BACKSLASH_ESCAPES, StatementDialect, UnreadError, hidden
from extract.sources.mysql.ddl.query import Truncated
from extract.sources.mysql.ddl.reader import TableName
from extract.sources.mysql.ddl.statements import parse
from extract.sources.mysql.flavour import Flavour
from tests.support.binlog_statements import CHARSETS, LATIN, MARIA, MYSQL, STRICT, Log, T
from tests.support.hostile import hostile
from trails.ddl import ALTER, CREATE, DDL_FILLED, DDL_MOVED, DDL_USING, DROP, RENAME
from trails.errors import OperatorError


@pytest.mark.parametrize(
    ("statement", "columns"),
    [
        ("ALTER TABLE t ADD c int", f"1 id int!, 2 a varchar(20){LATIN}, 3 b bigint, 4 c int"),
        ("ALTER TABLE t ADD COLUMN c int FIRST, ADD d date AFTER id",
         f"4 c int, 1 id int!, 5 d date, 2 a varchar(20){LATIN}, 3 b bigint"),
        ("ALTER TABLE t ADD (c int, d year(4))", f"1 id int!, 2 a varchar(20){LATIN}, 3 b bigint, 4 c int, 5 d year"),
        ("ALTER TABLE t DROP a, DROP COLUMN IF EXISTS nothing", "1 id int!, 3 b bigint"),
        ("ALTER TABLE t DROP a, ADD a int", "1 id int!, 3 b bigint, 4 a int"),
        ("ALTER TABLE t CHANGE a b varchar(20), CHANGE b a bigint", f"1 id int!, 2 b varchar(20){LATIN}, 3 a bigint"),
        ("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a", f"1 id int!, 2 b varchar(20){LATIN}, 3 a bigint"),
        ("ALTER TABLE t MODIFY b int UNSIGNED NOT NULL FIRST", f"3 b int unsigned!, 1 id int!, 2 a varchar(20){LATIN}"),
        ("ALTER TABLE t MODIFY COLUMN IF EXISTS a text(70000)", f"1 id int!, 2 a mediumtext{LATIN}, 3 b bigint"),
        ("ALTER TABLE shop.t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
         "1 id int!, 2 a varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, 3 b bigint"),
        ("ALTER TABLE t ADD c bool, DEFAULT CHARSET=utf8mb4 ENGINE=Aria, ADD d char",
         (f"1 id int!, 2 a varchar(20){LATIN}, 3 b bigint, 4 c tinyint(1), 5 d char(1) CHARACTER SET utf8mb4 COLLATE "
         "utf8mb4_general_ci")),
        ("ALTER ONLINE IGNORE TABLE t WAIT 5 ADD COLUMN IF NOT EXISTS a int, ADD INDEX (b), ALGORITHM=INPLACE",
         f"1 id int!, 2 a varchar(20){LATIN}, 3 b bigint"),
        ("ALTER TABLE t ADD (c uuid, d inet6, j json CHECK (json_valid(`j`)), k longtext CHECK(json_valid(k)))",
         f"1 id int!, 2 a varchar(20){LATIN}, 3 b bigint, 4 c uuid, 5 d inet6, 6 j json, 7 k json"),
        ("ALTER TABLE t ENGINE=InnoDB ROW_FORMAT=DEFAULT COMMENT='ADD x int, y', AUTO_INCREMENT 7",
         f"1 id int!, 2 a varchar(20){LATIN}, 3 b bigint"),
        ("/*!40000 ALTER TABLE `t` DISABLE KEYS */", f"1 id int!, 2 a varchar(20){LATIN}, 3 b bigint"),
        ("ALTER TABLE t PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (10))",
         f"1 id int!, 2 a varchar(20){LATIN}, 3 b bigint"),
    ],
)  # fmt: skip
def test_a_statement_changes_columns_and_keeps_their_numbers(statement: str, columns: str) -> None:
    """ALTER TABLE in its forms."""
    log = Log(T)
    log.run(statement)
    assert log.columns() == columns


@pytest.mark.parametrize(
    ("statement", "key"),
    [
        ("ALTER TABLE t DROP PRIMARY KEY", ()),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (b, id)", ("b", "id")),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD UNIQUE (a), ADD UNIQUE KEY k (id)", ("id",)),
        ("ALTER TABLE t DROP id", ()),
        ("ALTER TABLE t CHANGE id n bigint", ("n",)),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD k serial", ("k",)),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD k int AUTO_INCREMENT PRIMARY KEY FIRST", ("k",)),
        ("ALTER TABLE t DROP PRIMARY KEY, MODIFY a varchar(20) NOT NULL, ADD UNIQUE (a(5))", ()),
        ("ALTER TABLE t RENAME COLUMN id TO b, RENAME COLUMN b TO id", ("b",)),
    ],
)
def test_a_unique_key_without_null_counts_where_there_is_no_other(statement: str, key: tuple[str, ...]) -> None:
    """As the server takes it for the primary key, in TABLE_MAP too."""
    log = Log(T)
    log.run(statement)
    assert log.key() == key


def test_unique_indexes_come_and_go_by_their_names() -> None:
    """CREATE and DROP INDEX, with names that the server gives."""
    log = Log()
    log.run("CREATE TABLE t (a int NOT NULL, b int NOT NULL, UNIQUE (b), UNIQUE (b, a))")
    assert log.key() == ("b",)
    log.run("DROP INDEX b ON t")
    assert log.key() == ("b", "a")
    log.run("ALTER TABLE t DROP INDEX b_2")
    assert log.key() == ()
    log.run("CREATE UNIQUE INDEX IF NOT EXISTS u USING BTREE ON t (a ASC) COMMENT 'x'")
    assert log.key() == ("a",)


@pytest.mark.parametrize(
    ("definition", "missing", "flags"),
    [
        ("int", None, 0),
        ("int NOT NULL", "0", 0),
        ("int DEFAULT -5", "-5", 0),
        ("decimal(6,2) DEFAULT '1.5'", "1.50", 0),
        ("varchar(9) NOT NULL", "", 0),
        ("varchar(9) DEFAULT 'a\\'b''c\\\\'", "a'b'c\\", 0),
        ("enum('x','y') NOT NULL", "x", 0),
        ("enum('x','y') DEFAULT 'Y'", "y", 0),
        ("bit(4) DEFAULT b'101'", "0101", 0),
        ("date DEFAULT '2024-02-29'", "2024-02-29", 0),
        ("datetime DEFAULT CURRENT_TIMESTAMP", "2023-11-14 22:13:20", 0),
        ("timestamp NOT NULL DEFAULT now() ON UPDATE now()", "2023-11-14 22:13:20+00", 0),
        ("date NOT NULL", None, DDL_FILLED),
        ("varchar(36) DEFAULT uuid()", None, DDL_FILLED),
        ("int AUTO_INCREMENT UNIQUE", None, DDL_FILLED),
        ("int AS (id + 1) STORED", None, 0),
        ("datetime(6) DEFAULT now(6)", None, DDL_FILLED),
        ("varbinary(3) DEFAULT x'4142'", None, DDL_FILLED),
    ],
)
def test_what_older_rows_get_is_known_or_said_to_be_unknown(definition: str, missing: str | None, flags: int) -> None:
    """An added column."""
    (change,) = Log(T).run(f"ALTER TABLE t ADD c {definition}")
    assert (change.op, change.new.columns[-1].missing, change.flags) == (ALTER, missing, flags)


def test_flags_of_what_shapes_do_not_say() -> None:
    """Values made anew without strict mode; rows that come and go with partitions."""
    log = Log(T)
    assert log.run("ALTER TABLE t MODIFY b int")[0].flags == 0
    assert log.run("ALTER TABLE t MODIFY b tinyint", sql_mode=0)[0].flags == DDL_USING
    assert log.run("ALTER IGNORE TABLE t MODIFY b smallint NOT NULL")[0].flags == DDL_USING
    (change,) = log.run("ALTER TABLE t DROP PARTITION p0")
    assert (change.flags, change.old) == (DDL_MOVED, change.new)
    assert [c.flags for c in log.run("ALTER TABLE t TRUNCATE PARTITION ALL")] == [DDL_MOVED]
    for dropping in ("ADD UNIQUE (b)", "ADD c int UNIQUE", "MODIFY id tinyint"):
        (change,) = log.run(f"ALTER IGNORE TABLE t {dropping}")
        assert change.flags & DDL_MOVED, dropping
    with pytest.raises(OperatorError, match=r"binlog.000001, 110: rows of shop.t came or went .*DROP PARTITION"):
        Log(T, ddl=False).run("ALTER TABLE t DROP PARTITION p0")


def test_tables_are_made_renamed_truncated_and_dropped() -> None:
    """Each told as a change of its own, in the statement's order."""
    log = Log(T)
    log.run("CREATE TABLE IF NOT EXISTS t (z int)")
    (made,) = log.run("CREATE TABLE u LIKE t")
    assert (made.op, made.old, made.new.name, made.new.key) == (CREATE, None, "u", ("id",))
    swapped = log.run("RENAME TABLE t TO x, u TO t, x TO u")
    assert [(c.op, c.old.name, c.new.name) for c in swapped] == [
        (RENAME, "t", "x"),
        (RENAME, "u", "t"),
        (RENAME, "x", "u"),
    ]
    (moved,) = log.run("ALTER TABLE u RENAME TO v, ADD w int")
    assert (moved.op, moved.old.name, moved.new.name, len(moved.new.columns)) == (RENAME, "u", "v", 4)
    (emptied,) = log.run("TRUNCATE TABLE t")
    assert isinstance(emptied, Truncated)
    assert emptied.definition.full_name == "shop.t"
    assert [type(one) for one in log.run("DELETE FROM `shop`.`t` /* generated by server */")] == [Truncated]
    assert [c.old.name for c in log.run("DROP TABLE IF EXISTS `t`,`nothing`,`v` /* generated by server */")] == [
        "t",
        "v",
    ]
    log.run("CREATE OR REPLACE TABLE t (a int)")
    assert [c.op for c in log.run("CREATE OR REPLACE TABLE t (b int)")] == [DROP, CREATE]
    assert [(c.op, c.old.name) for c in log.run("DROP DATABASE shop", schema="")] == [(DROP, "t")]
    assert log.shapes.current("shop", "t") is None


def test_a_tools_copy_that_takes_a_tables_place_is_one_change_of_it() -> None:
    """gh-ost and pt-online-schema-change; any other exchange of names is renames."""
    log = Log(T, captured=("t",))
    log.run("CREATE TABLE _t_gho LIKE t")
    log.run("ALTER TABLE _t_gho ADD c int NOT NULL DEFAULT 7, MODIFY b int")
    (change,) = log.run("RENAME TABLE `shop`.`t` TO `shop`.`_t_del`, `shop`.`_t_gho` TO `shop`.`t`")
    assert (change.op, change.flags, change.new.columns[-1].missing) == (ALTER, 0, "7")
    assert log.columns() == f"1 id int!, 2 a varchar(20){LATIN}, 3 b int, 4 c int!"
    log.run("CREATE TABLE fresh (id int PRIMARY KEY)")
    assert [c.op for c in log.run("RENAME TABLE t TO aside, fresh TO t")] == [RENAME, RENAME]


def test_databases_give_their_tables_a_character_set() -> None:
    """CREATE and ALTER DATABASE."""
    log = Log()
    log.run("ALTER DATABASE CHARACTER SET = latin1")
    log.run("CREATE TABLE t (a char(3))")
    log.run("CREATE OR REPLACE DATABASE shop COLLATE utf8mb4_bin")
    log.run("CREATE TABLE u (a char(3))")
    assert log.columns("u") == "1 a char(3) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    assert log.shapes.current("shop", "t") is None


@pytest.mark.parametrize(
    "statement",
    [
        "GRANT ALL ON shop.t TO u",
        "ANALYZE TABLE t",
        "FLUSH TABLES",
        "SET PASSWORD = 'x'",
        "CREATE TEMPORARY TABLE t (a int)",
        "DROP TEMPORARY TABLE IF EXISTS t /* generated by server */",
        "CREATE DEFINER=`a`@`%` TRIGGER r BEFORE INSERT ON t FOR EACH ROW BEGIN DELETE FROM t; DROP TABLE t; END",
        "CREATE OR REPLACE DEFINER = CURRENT_USER() PROCEDURE p() BEGIN CREATE TABLE t (z int); END",
        "CREATE ALGORITHM=UNDEFINED DEFINER=`a`@`b` SQL SECURITY DEFINER VIEW v AS SELECT 1",
        "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO DELETE FROM t",
        "CREATE SEQUENCE s",
        "DROP VIEW t",
        "ALTER SEQUENCE s RESTART 5",
        "RENAME USER a TO b",
        "/*!50003 DROP FUNCTION IF EXISTS f */",
        "/*!99999 ALTER TABLE t DROP a */",
        "# nothing",
        "  ",
        "-- ALTER TABLE t DROP a",
    ],
)
def test_statements_that_change_no_shape_are_passed_over(statement: str) -> None:
    """Told by their first words, whatever stands in their bodies."""
    log = Log(T)
    assert log.run(statement) == []
    assert log.columns() == f"1 id int!, 2 a varchar(20){LATIN}, 3 b bigint"


@pytest.mark.parametrize(
    "statement", ["INSERT INTO t VALUES (1)", " /* x */ update t set a = 1", "/*!50000 DELETE */ FROM t", "(SELECT 1)"]
)
def test_rows_changed_by_a_statement_stop(statement: str) -> None:
    """The statement format does not say which rows."""
    with pytest.raises(OperatorError, match=r"binlog.000001, 110: rows were changed by a statement") as caught:
        Log(T, captured=("other",)).run(statement)
    assert "binlog_format = ROW" in caught.value.hint


def test_a_statement_that_is_not_understood_stops_for_a_captured_table_alone() -> None:
    """It is named with its place and its words; another table is not known from there on."""
    log = Log(T, captured=("t",))
    with pytest.raises(
        OperatorError, match=r"binlog.000001, 110: a statement .* not understood: .*'FROB'.*FROB"
    ) as caught:
        log.run("ALTER TABLE t ADD c int FROB " + "x" * 5000)
    assert len(str(caught.value)) < 1200
    with pytest.raises(OperatorError, match="SYSTEM VERSIONING"):
        log.run("ALTER TABLE t ADD SYSTEM VERSIONING")
    assert log.run("CREATE TABLE u (a int)") == []
    assert log.run("ALTER TABLE u ADD c int FROB") == []
    assert log.shapes.current("shop", "u") is None
    with pytest.raises(OperatorError, match="was not understood"):
        log.run("RENAME TABLE u TO t")
    with pytest.raises(OperatorError, match="frobnicate"):
        log.run("frobnicate shop.t")
    with pytest.raises(OperatorError, match="query"):
        log.run("CREATE TABLE t AS SELECT 1 AS a")


SECRETS = ("hunter2", "k3y", "4711", "u:pw", "c0ffee", "mine")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE t SET a = 'hunter2' WHERE b = 4711",
        "/* hunter2 */ ALTER TABLE t ADD c varchar(20) DEFAULT 'hunter2' COMMENT 'k3y', ADD d int DEFAULT 4711",
        "ALTER TABLE t ADD c bit(64) DEFAULT 0xc0ffee, ADD d varbinary(9) DEFAULT x'c0ffee' -- mine",
        "CREATE TABLE u (a int) ENGINE=FEDERATED CONNECTION='mysql://u:pw@h/d'",
        "ALTER TABLE t ADD c int 'hunter2'",
        "ALTER TABLE t ADD c int FROB 'hunter2",
        "ALTER TABLE t ADD c 4711",
        "ALTER TABLE t ADD c int COMMENT 'k3y' FROB /* hunter2",
        "ALTER TABLE t PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (4711) COMMENT 'mine')",
    ],
)
def test_no_value_of_a_statement_is_told(statement: str) -> None:
    """Others read trails, reports and logs: what a statement holds of rows and passwords stands in none of them."""
    log = Log(T, captured=("t", "u"))
    try:
        told = repr(log.run(statement))
    except OperatorError as error:
        told = str(error)
    shapes = told.partition("sql=")[2] if "sql=" in told else told  # a default is part of the shape, which readers need
    assert not [secret for secret in SECRETS if secret in shapes.partition(", flags=")[0]]


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("ALTER TABLE t /* x */ ADD `a b` varchar(20)  DEFAULT 'it''s' -- y",
         "ALTER TABLE t ADD `a b` varchar(...) DEFAULT '...'"),
        ("ALTER TABLE t /*!80000 ADD c */ int", "ALTER TABLE t ADD c int"),
        ("ALTER TABLE t ADD c int DEFAULT -1.5e3, ADD d int", "ALTER TABLE t ADD c int DEFAULT -..., ADD d int"),
        ("ALTER TABLE t ADD c int 'x", "ALTER TABLE t ADD c int ..."),
        ("'x", "..."),
    ],
)  # fmt: skip
def test_a_statement_is_told_without_its_literals(statement: str, told: str) -> None:
    """Names and words stay, so that a person finds the statement again."""
    assert hidden(statement, StatementDialect(Flavour.MYSQL, 80012)) == told


CASCADE = "REFERENCES p (id) ON UPDATE NO ACTION ON DELETE"


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (f"ALTER TABLE t ADD CONSTRAINT k FOREIGN KEY (b) {CASCADE} CASCADE", ["shop.t (ON DELETE CASCADE)"]),
        (f"ALTER TABLE t ADD FOREIGN KEY i (b) {CASCADE} SET NULL, ADD CHECK (b > 0)", ["shop.t (ON DELETE SET NULL)"]),
        ("ALTER TABLE t ADD FOREIGN KEY (b) REFERENCES p (id) MATCH FULL ON UPDATE SET DEFAULT",
         ["shop.t (ON UPDATE SET DEFAULT)"]),
        (f"ALTER TABLE away ADD FOREIGN KEY (b) {CASCADE} CASCADE, RENAME TO n", ["shop.n (ON DELETE CASCADE)"]),
        ("RENAME TABLE away TO n", ["shop.n (now)"]),
        ("RENAME TABLE t TO n", []),
        ("RENAME TABLE t TO away", []),
        (f"CREATE TABLE n (id int PRIMARY KEY, p int, FOREIGN KEY (p) {CASCADE} CASCADE)",
         ["shop.n (ON DELETE CASCADE)"]),
        (f"CREATE TABLE IF NOT EXISTS t (id int, FOREIGN KEY (id) {CASCADE} CASCADE)", []),
        (f"CREATE TABLE away2 (id int, FOREIGN KEY (id) {CASCADE} CASCADE)", []),
        (f"ALTER TABLE t ADD FOREIGN KEY (b) {CASCADE} RESTRICT", []),
        (f"ALTER TABLE t DROP FOREIGN KEY k, COMMENT '{CASCADE} CASCADE'", []),
        ("ALTER TABLE t ADD c timestamp NULL DEFAULT now() ON UPDATE now()", []),
    ],
)  # fmt: skip
def test_a_foreign_key_that_changes_rows_is_met_at_its_place(statement: str, told: list[str]) -> None:
    """By the words that make it; of a table that comes into sight by a rename, by what it has now."""

    found: list[str] = []

    class Noting:
        """A double of CascadeWatch."""

        def now(self, schema: str, table: str) -> list[Cascade]:
            """What a server would say."""
            return [Cascade("k", ("id",), TableName("", "p"), ("id",), "now")]

        def met(self, where: str, schema: str, table: str, key: Cascade) -> None:
            """One more."""
            found.append(f"{schema}.{table} ({key.actions})")

    log = Log(T, T.replace("`t`", "`away`"), captured=("t", "n"), watch=Noting())
    log.run(statement)
    assert found == told


@pytest.mark.parametrize(("server", "told"), [(MARIA, 1), (MYSQL, 0), (replace(MYSQL, version=90000), 1)])
def test_references_behind_a_column_count_where_the_server_makes_a_key_of_them(server: SourceServer, told: int) -> None:
    """MySQL takes them for a comment before version 9."""
    dialect = StatementDialect(server.flavour, server.version)
    assert len(rules("CREATE TABLE n (id int, p int REFERENCES p (id) ON DELETE CASCADE)", dialect)) == told


def test_quotes_are_those_of_the_sessions_sql_mode() -> None:
    """ANSI_QUOTES, NO_BACKSLASH_ESCAPES and the text's own character set."""
    log = Log(T)
    log.run(
        """ALTER TABLE "t" ADD "c" varchar(9) DEFAULT 'a\\'""", sql_mode=STRICT | ANSI_QUOTES | NO_BACKSLASH_ESCAPES
    )
    shape = log.shapes.current("shop", "t")
    assert shape is not None
    assert (shape.columns[-1].name, shape.columns[-1].default) == ("c", "'a\\\\'")
    log.run("""ALTER TABLE t ALTER c SET DEFAULT "it's" """)
    # The second byte of this letter of gbk is a backslash.
    log.run("ALTER TABLE t ADD 誠 varchar(9) DEFAULT '誠'".encode("gbk"), charset=28)
    shape = log.shapes.current("shop", "t")
    assert shape is not None
    assert [(c.name, c.default) for c in shape.columns[-2:]] == [("c", "'it''s'"), ("誠", "'誠'")]


def test_version_comments_count_where_the_server_ran_them() -> None:
    """By flavour and version."""
    text = (
        "CREATE TABLE t (a int /*!40100 unsigned */, b int /*!80000 unsigned */, c int /*M!100100 unsigned */, "
        "d int /*! unsigned */)"
    )
    natives = []
    for server in (MARIA, MYSQL):
        log = Log(server=server)
        log.run(text)
        shape = log.shapes.current("shop", "t")
        assert shape is not None
        natives.append([c.native.removeprefix("int") for c in shape.columns])
    assert natives == [[" unsigned", "", " unsigned", " unsigned"], [" unsigned", " unsigned", "", " unsigned"]]
    assert (version_number("10.11.6-MariaDB-0+deb12u1-log"), version_number("8.0.12")) == (101106, 80012)


def test_names_have_no_case_where_the_server_says_so() -> None:
    """lower_case_table_names."""
    log = Log(T, server=SourceServer(Flavour.MYSQL, 80012, "one", True, CHARSETS))
    log.run("ALTER TABLE SHOP.T ADD c int")
    assert log.columns().endswith("4 c int")


@hostile(400)
@given(
    st.one_of(
        st.text(max_size=80),
        st.lists(
            st.sampled_from(
                ["CREATE", "ALTER", "TABLE", "t", "(", ")", ",", "ADD", "int", "DROP", "'", '"', "`", "/*!", "*/", "/*",
                 "--", "PRIMARY", "KEY", "DEFAULT", "5", "enum", "'a'", "CHANGE", "RENAME", "TO", "=", ".", "AS", ";",
                 "\\", "\0"]
            ), max_size=25,
        ).map(" ".join),
    )
)  # fmt: skip
def test_any_text_is_read_or_refused_by_name(text: str) -> None:
    """Nothing else comes out of the grammar."""
    for mode in (0, ANSI_QUOTES | NO_BACKSLASH_ESCAPES):
        for flavour in Flavour:
            try:
                parse(text, StatementDialect(flavour, 100000, mode))
            except UnreadError:
                pass
