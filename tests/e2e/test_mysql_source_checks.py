"""MySQL and MariaDB as a source: what must be there, each thing off in its turn, and the statement that mends it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from demo.mariadb import MariaServer
from extract import kinds
from replicat.targets.mysql.kind import MYSQL
from tests.support.mysql_place import Place, made, settings_of
from trails.errors import OperatorError
from trails.runtime.report.stats import DdlCounts

pytestmark = pytest.mark.e2e


@pytest.fixture
def place(own_mysql: Place) -> Place:
    return own_mysql.well()


OFF = [
    ("binlog_format", "'MIXED'"),
    ("binlog_format", "'STATEMENT'"),
    ("binlog_row_image", "'MINIMAL'"),
    ("binlog_row_image", "'NOBLOB'"),
    ("binlog_row_metadata", "'MINIMAL'"),
]


@pytest.mark.parametrize(("name", "value"), OFF)
def test_a_setting_that_would_tear_rows_is_told_with_the_statement_that_mends_it(place: Place, name, value):
    """One sentence, and what it says is enough."""
    assert place.look().mistakes == []
    place.server.sql(f"SET GLOBAL {name} = {value}")
    (told,) = place.look().mistakes
    assert told.startswith(f"{name} is {value.strip(chr(39))}, expected ")
    assert told in str(place.ask("register")["error"]).replace("refused", "") or place.ask("register")["ok"] is False
    run(place, told)
    assert place.look().mistakes == []


def run(place: Place, told: str) -> None:
    """The statements that a message names."""
    for part in told.split(". ", 1)[1].split(". ", maxsplit=1)[0].split(", and write ", maxsplit=1)[0].split("; "):
        if part.startswith(("SET ", "GRANT ", "ALTER ")):
            place.server.sql(part.partition(", or ")[0])


def test_all_that_is_wrong_is_told_at_once(place: Place):
    """Nobody mends, starts and fails five times. REGISTER refuses with the same words."""
    for name, value in OFF[::2]:
        place.server.sql(f"SET GLOBAL {name} = {value}")
    found = place.look(tables="TABLE shop.*;\nTABLE nowhere.*;")
    assert [told.split()[0] for told in found.mistakes] == ["binlog_format", "binlog_row_image", "binlog_row_metadata"]
    assert any("TABLE nowhere.* names no table" in note for note in found.notes)
    refused = place.ask("register")["error"]
    assert all(told.partition(". ")[0] in refused for told in found.mistakes)
    for told in found.mistakes:
        run(place, told)
    assert place.look().mistakes == [] and place.ask("register")["ok"]


def test_gtids_are_switched_on_step_by_step(place: Place):
    """MySQL takes one step at a time; MariaDB always has them."""
    if place.is_maria:
        assert place.ask("register")["state"].startswith("1 ")
        return
    for mode in ("ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"):
        place.server.sql(f"SET GLOBAL gtid_mode = {mode}")
    place.server.sql("SET GLOBAL enforce_gtid_consistency = OFF")
    first, second = place.look().mistakes
    assert first.startswith("enforce_gtid_consistency is OFF") and second.startswith("gtid_mode is OFF")
    run(place, first)
    run(place, second)
    assert place.look().mistakes == []


def test_server_ids(place: Place):
    """Neither none, nor one that somebody else has."""
    (told,) = place.look("SERVERID 1").mistakes
    assert told.startswith("the server itself has the id 1.")
    assert place.look("SERVERID 2").mistakes == []
    if not place.is_maria:  # which has no server_id 0
        place.server.sql("SET GLOBAL server_id = 0")
        (told,) = place.look().mistakes
        assert told.startswith("server_id is 0: ")
        run(place, told)
    assert place.look().mistakes == []


def test_privileges(place: Place):
    """Each is named with its GRANT, a role counts, and only what must be there is asked for."""
    sql, bare = place.server.sql, place.server.url("", user="gate", password="pw")
    by = "" if place.is_maria else "WITH mysql_native_password "
    sql(f"CREATE USER gate@'127.0.0.1' IDENTIFIED {by}BY 'pw'")
    found = place.look(url=bare)
    looks = "BINLOG MONITOR" if place.is_maria else "REPLICATION CLIENT"
    assert [told.split(". ")[0] for told in found.mistakes] == [
        "user 'gate'@'127.0.0.1' has no privilege REPLICATION SLAVE",
        f"user 'gate'@'127.0.0.1' has no privilege {looks}",
    ]
    assert "0 tables of the source are captured today" in found.notes
    sql("CREATE ROLE reader")
    sql(f"GRANT REPLICATION SLAVE, {looks} ON *.* TO reader")
    sql("GRANT reader TO gate@'127.0.0.1'")
    to = "reader FOR" if place.is_maria else "reader TO"
    sql(f"SET DEFAULT ROLE {to} gate@'127.0.0.1'")
    assert not [told for told in place.look(url=bare).mistakes if "has no privilege" in told]
    sql("DROP ROLE reader")
    for told in place.look(url=bare).mistakes:
        if "has no privilege" in told:
            run(place, told)
    sql("GRANT INSERT ON shop.* TO gate@'127.0.0.1'")
    (told,) = place.look(url=bare).mistakes
    assert "can't see the columns of table shop.fit. GRANT SELECT ON `shop`.* TO 'gate'" in told
    run(place, told)
    found = place.look(url=bare)
    assert found.mistakes == [] and "1 tables of the source are captured today" in found.notes
    assert replace(place, url=bare).ask("register")["ok"]


def test_what_may_go_wrong_later_is_noted(place: Place):
    """CHECK PARAMS says it, and START goes on."""
    sql = place.server.sql
    sql("SET GLOBAL binlog_expire_logs_seconds = 3600")
    sql("SET GLOBAL sync_binlog = 0")
    sql("CREATE TABLE shop.bare (v int) ENGINE = MyISAM")
    MYSQL.admin().add_row_table(place.server.url("shop"), ("shop", "chk"))
    found = place.look()
    notes = "\n".join(found.notes)
    assert found.mistakes == []
    assert "after 3600 s (binlog_expire_logs_seconds)" in notes and "sync_binlog is 0" in notes
    assert "Without a primary key, so a Replicat compares whole rows: shop.bare" in notes
    assert "Of an engine without transactions" in notes
    assert "TABLEEXCLUDE shop.chk leaves it out" in notes
    assert "shop.chk" not in "\n".join(place.look(tables="TABLE shop.*;\nTABLEEXCLUDE shop.chk;").notes)
    sql("DROP TABLE shop.bare, shop.chk")
    sql("SET GLOBAL sync_binlog = 1")
    sql("SET GLOBAL binlog_expire_logs_seconds = 2592000")


def test_a_table_option_that_can_not_be_obeyed(place: Place):
    """The tables of today are held against TABLE."""
    (told,) = place.look(tables="TABLE shop.fit, COLS (id, nothing);").mistakes
    assert "nothing" in told


RULES = ("RESTRICT", "NO ACTION", "CASCADE", "SET NULL")


def test_foreign_keys_that_change_captured_rows_unlogged_are_refused(place: Place):
    """Every pair of rules, seen by a user with SELECT alone; each statement mends its own. Unless ALLOWCASCADES."""
    sql, bare = place.server.sql, place.server.url("shop", user="looker", password="pw")
    by = "" if place.is_maria else "WITH mysql_native_password "
    sql(f"CREATE USER looker@'127.0.0.1' IDENTIFIED {by}BY 'pw'")
    sql("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO looker@'127.0.0.1'")
    sql("GRANT SELECT ON shop.* TO looker@'127.0.0.1'")
    sql("GRANT SELECT ON other.* TO looker@'127.0.0.1'")
    sql("CREATE DATABASE other")
    sql("CREATE TABLE other.`the``parent` (a int, `b``b` int, PRIMARY KEY (a, `b``b`))")
    wanted = {}
    for number, (delete, update) in enumerate(itertools.product(RULES, RULES)):
        made = f"ON DELETE {delete} ON UPDATE {update}"
        table = f"child{number:02}"
        sql(
            f"CREATE TABLE shop.{table} (id int PRIMARY KEY, x int, y int COMMENT 'ON DELETE CASCADE', CONSTRAINT "
            f"`k``{number}` FOREIGN KEY (x, y) REFERENCES other.`the``parent` (a, `b``b`) {made})"
        )
        if {delete, update} & {"CASCADE", "SET NULL"}:
            wanted[f"shop.{table}"] = number
    sql("CREATE TABLE other.child (id int PRIMARY KEY, FOREIGN KEY (id) REFERENCES shop.fit (id) ON DELETE CASCADE)")
    try:
        mistakes = place.look(url=bare).mistakes
        assert [told.split()[5] for told in mistakes] == list(wanted)
        assert all("does not write these changes into its binary log. ALTER TABLE `shop`." in told for told in mistakes)
        assert place.look(url=bare, tables="TABLE shop.*;\nTABLEEXCLUDE shop.child*;").mistakes == []
        allowed = place.look("ALLOWCASCADES", url=bare)
        assert allowed.mistakes == [] and sum("ALLOWCASCADES lets it pass" in note for note in allowed.notes) == 12
        for verb in ("add_trandata", "info_trandata"):
            told = {each["table"]: each["message"] for each in place.ask(verb, pattern="shop.child*")["tables"]}
            assert len(told) == 16 and all(("changed unlogged" in told[name]) == (name in wanted) for name in told)
        for text in mistakes:
            run(place, text)
        assert place.look(url=bare).mistakes == []
        ((count,),) = sql("SELECT COUNT(*) FROM information_schema.referential_constraints")
        assert int(count) == 17
    finally:
        for name in ("child", *(f"child{number:02}" for number in range(16))):
            sql(f"DROP TABLE {'other' if name == 'child' else 'shop'}.{name}")
        sql("DROP DATABASE other")
        sql("DROP USER looker@'127.0.0.1'")


def test_what_takes_a_restart(place: Place):
    """A log that is off, a database that is left out, a replica that logs nothing of its source."""
    place.restart(log_bin=None, skip_log_bin=1, log_slave_updates=0)
    found = place.look().mistakes
    assert "log_bin is OFF: the server writes no binary log" in found[0] and "log_bin = binlog" in found[0]
    assert "log_bin is OFF" in place.ask("register")["error"]
    place.restart(log_bin="binlog", skip_log_bin=None, log_slave_updates=0, binlog_do_db="other", skip_slave_start=1)
    (told,) = place.look().mistakes
    assert told.startswith("binlog_do_db leaves database shop out of the binary log. Write binlog_do_db = shop")
    place.server.sql("CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_USER = 'nobody'")
    replica, _ = place.look().mistakes
    assert replica.startswith("the server is a replica, and log_slave_updates is OFF")
    place.restart(log_slave_updates=1, binlog_do_db=None, binlog_ignore_db="shop")
    (told,) = place.look().mistakes
    assert told.startswith("binlog_ignore_db leaves database shop out")
    place.restart(binlog_ignore_db=None)
    assert place.look().mistakes == []


def test_old_times_of_mariadb_are_refused_until_the_table_is_made_anew():
    """Their log does not say with how many digits they are written."""
    with made(MariaServer) as place:
        sql = place.server.sql
        sql("SET GLOBAL mysql56_temporal_format = OFF")
        sql("CREATE TABLE shop.old (id int PRIMARY KEY, plain datetime, fine datetime(3), t time(2))")
        (told,) = place.look().mistakes
        assert told.startswith("table shop.old keeps fine, t in an old form")
        run(place, told)
        assert place.look().mistakes == []


def test_commands_that_have_nothing_to_do_say_so(place: Place):
    """TRANDATA and DDLCAPTURE: nothing is made in the database."""
    for verb in ("add_trandata", "info_trandata"):
        ((told),) = place.ask(verb, pattern="shop.*")["tables"]
        assert told == {"table": "shop.fit", "message": told["message"]} and "rows whole" in told["message"]
    assert "Nothing was made" in place.ask("delete_trandata", pattern="shop.fit")["tables"][0]["message"]
    assert "no table matches shop.none" in place.ask("add_trandata", pattern="shop.none")["error"]
    place.server.sql("SET GLOBAL binlog_row_image = 'MINIMAL'")
    assert "binlog_row_image is MINIMAL" in place.ask("add_trandata", pattern="shop.*")["error"]
    assert "has not all" in place.ask("info_trandata", pattern="shop.*")["tables"][0]["message"]
    place.server.sql("SET GLOBAL binlog_row_image = 'FULL'")
    for verb in ("add_ddlcapture", "info_ddlcapture", "delete_ddlcapture"):
        assert "needs no DDL capture" in place.ask(verb)["error"]
    login = place.ask("dblogin")
    assert login["database"] == "shop" and login["server"].startswith("MariaDB" if place.is_maria else "MySQL")
    assert place.ask("list_tables", pattern="*.*")["tables"] == ["shop.fit"]


def test_register_notes_the_end_of_the_log(place: Place):
    """File, position and GTIDs of one moment; UNREGISTER has nothing to take away."""
    first = place.ask("register")
    place.server.sql("INSERT INTO shop.fit VALUES (1, 1)")
    second = place.ask("register")
    assert first["place"]["csn"] < second["place"]["csn"] and first["state"] != second["state"]
    assert second["place"]["file"].endswith(f"{second['place']['seqno']:06d}")
    assert second["title"] == "Binary Log" and second["made"] == {"reader": "tg_01234567_ext1"}
    assert place.ask("unregister", made=second["made"])["ok"]
    place.server.sql("DELETE FROM shop.fit")


def test_the_heartbeats_table(place: Place):
    """Made, told, and dropped; made twice is made once."""
    asked = {"heartbeat": "gg\ngg_heartbeat", "made": []}
    assert place.ask("info_heartbeat", **asked) == {"ok": True, "exists": False, "seeds": [], "unpublished": []}
    assert place.ask("add_heartbeat", **asked)["made"] == ["table gg.gg_heartbeat_seed"]
    assert place.ask("add_heartbeat", **asked)["made"] == []
    place.server.sql("INSERT INTO gg.gg_heartbeat_seed VALUES ('home/EXT1', 'shop', NOW(6), 5)")
    (seed,) = place.ask("info_heartbeat", **asked)["seeds"]
    assert seed["extract"] == "EXT1" and 0 <= seed["age_us"] < 600_000_000
    assert place.ask("delete_heartbeat", **asked)["deleted"] == ["table gg.gg_heartbeat_seed"]
    place.server.sql("DROP DATABASE gg")


def test_START_refuses_in_one_sentence_and_goes_on_once_it_is_mended(place: Place):
    """One fault is one sentence with its statement; several are a list. Nothing has to be done anew."""
    settings, said = settings_of(place, None), list[str]()

    def start() -> dict[str, str]:
        source = kinds.method(kinds.of(place.url), "").source(settings, said.append, said.append, DdlCounts())
        try:
            return source.identify(None)
        finally:
            source.close()

    who = start()
    place.server.sql("SET GLOBAL binlog_row_image = 'MINIMAL'")
    with pytest.raises(OperatorError, match=r"^binlog_row_image is MINIMAL, expected FULL: .*\. SET ") as told:
        start()
    run(place, str(told.value))
    assert start() == who
    for name, value in OFF[::2]:
        place.server.sql(f"SET GLOBAL {name} = {value}")
    with pytest.raises(OperatorError, match=r"the source is not ready:(\n- .*){3}"):
        start()
