"""MySQL and MariaDB as a source: how long its log lasts, what is open, who may log in, and where ALTER finds places."""

from __future__ import annotations

import contextlib
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from demo.patience import PATIENCE
from extract import kinds
from extract.heartbeat import Owner
from extract.longtrans import PREPARED, RUNNING
from extract.source import Durable, SourceSettings
from extract.sources.mysql.flavour import Flavour
from extract.sources.mysql.link import MysqlSession
from extract.sources.mysql.opened import outstanding
from extract.sources.mysql.walk import Walker
from ggsci.commands.session import OperatorSession
from tests.support.homes import bad, good, make_home
from tests.support.mysql_place import Place, settings_of
from tests.support.secure import certify
from tests.support.secure import folder as secured
from trails.errors import OperatorError, UntrustedError
from trails.position import Position
from trails.runtime.home import registration
from trails.runtime.home.registration import Registered

pytestmark = pytest.mark.e2e


@pytest.fixture
def place(own_mysql: Place) -> Place:
    return own_mysql.well()


# --- what lasts, and what is open -------------------------------------------------------------------------------------


def ask_kind(place: Place, what: str, settings: SourceSettings, *more: Any) -> dict[str, Any]:
    """`kept` or `captured`."""
    kind = kinds.of(place.url)
    with contextlib.closing(kind.connect(place.url, "test")) as connection:
        return getattr(kinds.method(kind, ""), what)(connection, settings, *more)


def end_of(place: Place, age_seconds: float = 0) -> Durable:
    """A trail that has all of now, its last transaction so long ago."""
    noted = Registered.of({key: value for key, value in place.ask("register").items() if key != "ok"})
    ((now,),) = place.server.sql("SELECT UNIX_TIMESTAMP(NOW(6))")
    us = int((float(now) - age_seconds) * 1_000_000)
    return Durable(Position(noted.place.seqno, noted.place.rba), noted.state, us)


def purge(place: Place) -> None:
    """Away with all files but the one that is written. A server keeps those that it would need after a crash."""
    sql, first = place.server.sql, place.server.sql("SHOW BINARY LOGS")[-1][0]
    until = time.monotonic() + PATIENCE
    while any(name <= first for name, *_ in sql("SHOW BINARY LOGS")):
        assert time.monotonic() < until
        sql("FLUSH BINARY LOGS")
        sql(f"PURGE BINARY LOGS TO '{sql('SHOW BINARY LOGS')[-1][0]}'")


def test_CA_01_the_time_of_the_oldest_needed_log_runs_out(place: Place):
    """As long as the server writes to that file it lasts; then the trail's last time counts, or the next file's begin.

    The begin of the next file counts where the server runs since before the needed one: that was closed by then.
    """
    sql, durable = place.server.sql, end_of(place, 5000)
    sql("SET GLOBAL binlog_expire_logs_seconds = 1000")
    assert ask_kind(place, "kept", settings_of(place, durable))["level"] == 0
    sql("FLUSH BINARY LOGS")
    sql("INSERT INTO shop.fit VALUES (7, 7)")
    sql("DELETE FROM shop.fit")
    place.restart()  # nobody knows for how long it was down
    sql("SET GLOBAL binlog_expire_logs_seconds = 1000")
    for age, level in ((100, 0), (600, 1), (900, 2), (5000, 2)):
        durable = replace(durable, time_us=end_of(place, age).time_us)
        kept = ask_kind(place, "kept", settings_of(place, durable))
        assert kept["level"] == level and kept["log_kept_bytes"] > 0 and not kept["lost"]
        assert kept["log_status"] == ("unreserved" if level == 2 else "reserved")
        assert "binlog_expire_logs_seconds" in kept["log_reason"]
        assert level == 0 or "START the group" in kept["text"]
    assert ask_kind(place, "kept", settings_of(place, durable, "BINLOGWARN 0%", "BINLOGCRITICAL 0%"))["level"] == 0


def test_a_log_of_an_idle_server_lasts_from_its_end_on(place: Place):
    """Its last transaction may be old: the server deletes a file by the time of its last write."""
    time.sleep(1.1)  # the server tells its age in seconds
    place.server.sql("FLUSH BINARY LOGS")
    durable = end_of(place, 900)
    place.server.sql("SET GLOBAL binlog_expire_logs_seconds = 1000")
    place.server.sql("FLUSH BINARY LOGS")
    kept = ask_kind(place, "kept", settings_of(place, durable))
    assert (kept["level"], kept["log_status"]) == (0, "reserved") and "may delete it from" in kept["log_reason"]


def test_CW_35_the_log_is_purged_under_a_stopped_group(place: Place):
    """What was captured may go; a transaction that was not is told as lost, before START finds it out."""
    sql, durable = place.server.sql, end_of(place)
    purge(place)
    kept = ask_kind(place, "kept", settings_of(place, durable))
    assert kept["log_status"] == "missing" and not kept["lost"]
    sql("INSERT INTO shop.fit VALUES (8, 8)")
    sql("DELETE FROM shop.fit")
    purge(place)
    lost = ask_kind(place, "kept", settings_of(place, durable))["lost"]
    assert "in no trail" in lost and "docs/recovery.md#lost-log" in lost


def test_WAIT_asks_the_trail_as_the_server_is_told_nothing(place: Place):
    """Reached is what the trail has; a place of another server is not compared."""
    before = end_of(place)
    place.server.sql("INSERT INTO shop.fit VALUES (9, 9)")
    place.server.sql("DELETE FROM shop.fit")
    goal = ask_kind(place, "captured", settings_of(place, before), "", 0)
    assert not goal["reached"]
    after = end_of(place)
    assert ask_kind(place, "captured", settings_of(place, after), goal["goal"], 0)["reached"]
    assert not ask_kind(place, "captured", settings_of(place, None), goal["goal"], 0)["reached"]
    moved = replace(after, origin=Position(1 << 32 | 1, 4))
    with pytest.raises(OperatorError, match="another server has taken over"):
        ask_kind(place, "captured", settings_of(place, moved), goal["goal"], 0)


def test_SHOWTRANS_shows_what_is_open_and_what_is_prepared(place: Place):
    """With the statement that ends each; who may not see others' is told the GRANT, and sees prepared ones."""
    sql = place.server.sql
    opened, prepared = place.server.connect("shop", autocommit=False), place.server.connect("shop")
    try:
        opened.cursor().execute("INSERT INTO fit VALUES (20, 20)")
        for statement in ("XA START 'x y'", "INSERT INTO fit VALUES (21, 21)", "XA END 'x y'", "XA PREPARE 'x y'"):
            prepared.cursor().execute(statement)
        prepared.close()
        until = time.monotonic() + PATIENCE
        while sql(f"SELECT 1 FROM information_schema.processlist WHERE id = {prepared.thread_id()}"):
            assert time.monotonic() < until, "the session that prepared does not end"
            time.sleep(0.05)
        with contextlib.closing(MysqlSession(place.url, "test")) as session:
            waiting, running = outstanding(session).transactions
        assert waiting.status == PREPARED and waiting.xid == "X'782079',X'',1"
        assert running.status == RUNNING and running.database == "shop" and running.user == "root"
        assert running.start_us and running.age_us is not None and 0 <= running.age_us < 600_000_000
        sql("CREATE USER blind@'127.0.0.1'")
        with contextlib.closing(MysqlSession(place.server.url("", user="blind"), "test")) as session:
            found = outstanding(session)
        assert found.unhide == "GRANT PROCESS ON *.*" and found.hidden
        # MySQL shows prepared ones only with XA_RECOVER_ADMIN.
        assert found.transactions == ((waiting,) if session.flavour is Flavour.MARIADB else ())
        sql(waiting.mend.partition(" or ")[0])
        sql(running.mend)
    finally:
        sql("DROP USER IF EXISTS blind@'127.0.0.1'")
        opened.close()


def test_the_seed_row(place: Place):
    """Its clock is the server's, its row is written alone, and without tables there is nothing to write."""
    settings = settings_of(place, None)
    seed = kinds.method(kinds.of(place.url), "").seed(settings, Owner("home", "EXT1"))
    try:
        assert abs(seed.clock_us() - time.time_ns() // 1000) < 60_000_000 and seed.frequency() is None
        assert place.ask("add_heartbeat", heartbeat=settings.heartbeat.text, made=[])["ok"]
        place.server.sql("CREATE TABLE gg.gg_heartbeat_settings (frequency int)")
        place.server.sql("INSERT INTO gg.gg_heartbeat_settings VALUES (3)")
        assert seed.frequency() == 3
        for every in (3, 4):
            seed.beat(every)
            assert place.server.sql("SELECT extract_key, local_database, frequency FROM gg.gg_heartbeat_seed") == [
                ("home/EXT1", "shop", str(every))
            ]
    finally:
        seed.close()
        place.server.sql("DROP DATABASE gg")


def test_who_may_not_see_the_tables_of_heartbeats_is_told_the_GRANT(place: Place):
    """The server hides them; where there are none for anybody who may see them, nothing is told."""
    settings, sql = settings_of(place, None), place.server.sql
    sql("CREATE USER beating@'127.0.0.1'")
    seed = kinds.method(kinds.of(place.url), "").seed(
        replace(settings, url=place.server.url("", user="beating")), Owner("home", "EXT1")
    )
    try:
        assert place.ask("add_heartbeat", heartbeat=settings.heartbeat.text, made=[])["ok"]
        sql("CREATE TABLE gg.gg_heartbeat_settings (frequency int)")
        sql("INSERT INTO gg.gg_heartbeat_settings VALUES (3)")
        with pytest.raises(OperatorError, match=r"may not see .* in gg\. If there are: GRANT SELECT") as told:
            seed.frequency()
        sql(told.value.hint.partition(": ")[2])
        assert seed.frequency() == 3
        sql("DROP DATABASE gg")
        assert seed.frequency() is None
    finally:
        seed.close()
        sql("DROP USER beating@'127.0.0.1'")
        sql("DROP DATABASE IF EXISTS gg")


def test_ALTER_looks_for_the_place_where_DBLOGIN_has_the_groups_server(place: Place, tmp_path: Path):
    """What is not there is refused by the command, and nothing is noted; another server is left to START."""
    home, session = make_home(tmp_path), OperatorSession(str(tmp_path))
    Path(home.prm("ext1")).write_text(f"EXTRACT ext1\nSOURCEDB {place.url}\nEXTTRAIL ./dirdat/lt\nTABLE shop.*;\n")
    good(home, f"DBLOGIN SOURCEDB {place.url}", session)
    good(home, "ADD EXTRACT ext1, TRANLOG, BEGIN NOW", session)
    good(home, "REGISTER EXTRACT ext1, DATABASE", session)
    ((file, pos, *_),) = place.server.sql("SHOW MASTER STATUS")
    number = int(file.rpartition(".")[2])
    for wrong, told in (
        ("LOGNUM 999", "no binary log of number 999"),
        (f"LOGNUM {number}, LOGPOS {int(pos) - 1}", "no transaction begins there"),
        ("GTID 'yesterday'", "GTID set: expected"),
    ):
        assert told in bad(home, f"ALTER EXTRACT ext1, {wrong}", session)
    assert registration.load(home, "EXT1").alter_no == 0
    there = f"LOGNUM {number}, LOGPOS {pos}"
    assert f"It begins at Binary Log file {number}, position {pos}." in good(
        home, f"ALTER EXTRACT ext1, {there}", session
    )
    noted = registration.load(home, "EXT1")
    assert noted.alter == {"lognum": number, "logpos": int(pos)} and noted.registered is not None
    other = replace(noted.registered, identity={**noted.registered.identity, "server": "another"})
    registration.save(home, replace(noted, registered=other))
    assert "START will look for that place" in good(home, "ALTER EXTRACT ext1, LOGNUM 999", session)


def test_a_login_without_rights_is_told_of_its_source(place: Place, tmp_path: Path):
    """The settings of heartbeats are made by a target's program, which names the source here."""
    home, session = make_home(tmp_path), OperatorSession(str(tmp_path))
    place.server.sql("CREATE USER feeble@'127.0.0.1'")
    place.server.sql("GRANT SELECT ON shop.* TO feeble@'127.0.0.1'")
    try:
        good(home, f"DBLOGIN SOURCEDB {place.server.url('shop', user='feeble')}", session)
        told = bad(home, "ADD HEARTBEATTABLE", session)
        assert "source database" in told and "target" not in told.lower()
    finally:
        place.server.sql("DROP USER feeble@'127.0.0.1'")


def test_a_database_whose_kind_was_guessed_is_told(place: Place, tmp_path: Path):
    """`user@host:port/database` says nothing of it: the message has the URL to write."""
    home = make_home(tmp_path)
    told = bad(home, f"DBLOGIN USERID root@127.0.0.1:{place.server.port}/shop, PASSWORD wrong")
    assert "it was taken for PostgreSQL" in told
    assert "DBLOGIN SOURCEDB postgresql://127.0.0.1:PORT/shop or mysql://127.0.0.1:PORT/shop" in told


def test_an_account_of_the_servers_best_plugin_logs_in_without_TLS(place: Place):
    """By its password, which nobody on the way can read: for questions, and for the log."""
    who, sql = "sealed@'127.0.0.1'", place.server.sql
    plugin, password = "WITH caching_sha2_password BY", "'a b'"
    if place.is_maria:
        if not sql("SELECT 1 FROM information_schema.plugins WHERE plugin_name = 'ed25519'"):
            sql("INSTALL SONAME 'auth_ed25519'")
        plugin, password = "VIA ed25519 USING", "PASSWORD('a b')"
    sql(f"CREATE USER {who} IDENTIFIED {plugin} {password}")
    try:
        sql(f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {who}")
        assert not read_over(place.server.url("", user="sealed", password="a b") + "?ssl_mode=disabled")
        with pytest.raises(OperatorError, match=r"refused the connection: Access denied .* Mend the user or the pass"):
            read_over(place.server.url("", user="sealed", password="b a") + "?ssl_mode=disabled")
    finally:
        sql(f"DROP USER {who}")


def read_over(url: str) -> str:
    """Ask, and read the begin of the log: the cipher of the connection."""
    with contextlib.closing(MysqlSession(url, "test")) as session:
        (file, *_), *_ = session.query("SHOW BINARY LOGS")
        _, cipher = session.one("SHOW STATUS LIKE 'Ssl_cipher'")
        Walker(url, "test", session.flavour).head(str(file))
    return str(cipher)


def test_the_servers_certificate_is_checked(place: Place, tmp_path: Path):
    """By the CA that the URL names; the log comes over TLS too. Another CA is told with what mends it."""
    homes = [make_home(tmp_path / name) for name in ("here", "elsewhere")]
    for home in homes:
        certify(home, home)
    ours, others = (f"{secured(home).path}/ca.crt" for home in homes)
    how = "verify_identity"
    if place.is_maria:
        shown = place.server.base / "tls"
        shutil.copytree(secured(homes[0]).path, shown)
        for file in (shown, *shown.iterdir()):
            file.chmod(0o755)
        place.restart(ssl_ca=shown / "ca.crt", ssl_cert=shown / "home.crt", ssl_key=shown / "home.key")
    else:  # it has made some for itself, without the host's name
        ours, how = str(place.server.data / "ca.pem"), "verify_ca"
    url = place.server.url("")
    assert read_over(url)  # nobody said anything of TLS: there is some where the server has it
    assert not read_over(f"{url}?ssl_mode=disabled")
    assert read_over(f"{url}?ssl_ca={ours}&ssl_mode={how}")
    with pytest.raises(UntrustedError, match=r"is not trusted: .* Name the CA of the server's certificate by ssl_ca"):
        read_over(f"{url}?ssl_ca={others}&ssl_mode={how}")
