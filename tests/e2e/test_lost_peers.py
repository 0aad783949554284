"""Peers that are cut, slow or silent, on real links: all of it heals, and nothing waits without a bound."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql
import pytest

from demo.mysqld import Mysqld
from demo.patience import PATIENCE, wait_for
from demo.proxy import Proxy
from demo.servers import PostgresServer
from extract.sources.postgres import driver
from extract.sources.postgres.driver import PassingError, Session, SilentError, SqlError
from extract.sources.postgres.source import PostgresSource
from extract.sources.postgres.tablereader import PostgresTables
from replicat.model.again import PlaceLostError
from replicat.targets.mysql import link as mysql_link
from replicat.targets.postgres import link
from tests.support.capturing import Capture, step_until
from tests.support.direct_target import Direct
from tests.support.front import GSS, TLS, asked, fatal
from trails.errors import AwayError, OperatorError
from trails.runtime.secrets.serverurl import ServerUrl

pytestmark = pytest.mark.e2e

DEAD = 0.6


@contextlib.contextmanager
def proxied(url: str, port: int) -> Iterator[tuple[Proxy, str]]:
    """A proxy before a server of this host, and the URL of the same database through it."""
    proxy = Proxy(lambda: ("127.0.0.1", port))
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    try:
        yield proxy, f"{parts.scheme}://{login}@127.0.0.1:{proxy.port}{parts.path}"
    finally:
        proxy.close()


# --- being let in -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest", ["u@a..b/d", "u@localhost:1/d?connect_timeout=abc"], ids=["host", "connect_timeout"])
def test_a_url_that_nobody_can_use_is_for_a_person(rest: str) -> None:
    """A name that IDNA refuses, and a value that the driver can't read, at the source and at the target."""
    for connect in (Session, link.connect):
        with pytest.raises(OperatorError, match=r"SOURCEDB|target database refuses|TARGETDB"):
            connect(f"postgresql://{rest}", "test")
    if "a..b" in rest:
        with pytest.raises(OperatorError, match="is no host's name"):
            ServerUrl.of(f"mysql://{rest}", "SOURCEDB", "mysql", 3306).dial()


def _by_tls_only(peer: socket.socket) -> None:
    """A server as by hostssl, to whom the handshake's first bytes come, and then the link is cut."""
    while (number := asked(peer)) == GSS:
        peer.sendall(b"N")
    if number != TLS:
        peer.sendall(fatal('no pg_hba.conf entry for host "127.0.0.1", user "u", database "d", no encryption'))
        return
    peer.sendall(b"S")
    peer.recv(1 << 16)


def _starting(peer: socket.socket) -> None:
    while asked(peer) in (GSS, TLS):
        peer.sendall(b"N")
    peer.sendall(fatal("the database system is starting up"))


@contextlib.contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """The URL of a server that is a thread of this process."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                with listener.accept()[0] as peer:
                    peer.settimeout(PATIENCE)
                    answer(peer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"postgresql://u@127.0.0.1:{listener.getsockname()[1]}/d"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(PATIENCE)


def test_a_cut_inside_the_handshake_is_no_verdict() -> None:
    """Libpq tries again without TLS, and is refused: the first attempt may succeed the next time."""
    with server(_by_tls_only) as url:
        with pytest.raises(AwayError, match=r"SSL error.*no pg_hba\.conf entry"):
            Session(url, "test")
        with pytest.raises(AwayError, match=r"SSL error.*no pg_hba\.conf entry"):
            link.connect(url, "test")
        with pytest.raises(SqlError, match=r"no pg_hba\.conf entry"):
            Session(f"{url}?sslmode=disable", "test")


def test_other_threads_run_while_a_server_lets_itself_be_waited_for() -> None:
    """The server is such a thread: it could not answer before the time for connecting is over."""
    with server(_starting) as url, pytest.raises(AwayError, match="starting up"):
        Session(url, "test")


# --- slow -------------------------------------------------------------------------------------------------------------


def test_a_slow_source_is_not_the_end(source_db: str) -> None:
    """A statement that is out of time, and a lock that is not given; the session can go on, with nothing open."""
    session, other = Session(source_db, "slow"), Session(source_db, "other")
    try:
        other.query("CREATE TABLE public.t (id int)")
        other.query("BEGIN")
        other.query("LOCK TABLE public.t")
        session.query("SET statement_timeout = '50ms'")
        with pytest.raises(PassingError, match="statement timeout"):
            session.script(["CREATE TABLE public.made (id int)", "SELECT pg_sleep(600)"])
        session.query("SET statement_timeout = 0")
        session.query("SET lock_timeout = '50ms'")
        with pytest.raises(PassingError, match="lock timeout"):
            session.query("SELECT FROM public.t")
        assert session.one("SELECT to_regclass('public.made')") == (None,)
    finally:
        session.close()
        other.close()


# --- silent -----------------------------------------------------------------------------------------------------------


@dataclass
class Patient(Capture):
    """Whose Extract bears a silent server for a moment."""

    def source(self) -> PostgresSource:
        return PostgresSource(self.told(), self.said.append, dead_seconds=DEAD)


def test_a_stream_that_falls_silent_is_lost_and_found_again(
    source_db: str, pg_source: PostgresServer, tmp_path: Path
) -> None:
    """Its system acknowledges, and nobody talks."""
    direct = Capture(source_db, tmp_path)
    direct.sql("CREATE TABLE t (id int PRIMARY KEY)")
    direct.register()
    with proxied(pg_source.url(urlsplit(source_db).path[1:], tcp=True), pg_source.port) as (proxy, url):
        capture = Patient(url, tmp_path, registered=direct.registered)
        with capture.running() as extract:
            direct.sql("INSERT INTO t VALUES (1)")
            capture.drain(extract)
            proxy.stall.set()
            step_until(extract, lambda: any("has sent nothing for 0.6 s" in line for line in capture.said))
            proxy.stall.clear()
            direct.sql("INSERT INTO t VALUES (2)")
            step_until(extract, lambda: any(line.startswith("connected") for line in capture.said))
            capture.drain(extract)
    assert [change.after for changes in direct.changes() for change in changes] == [{"id": "1"}, {"id": "2"}]


def test_a_silent_server_is_not_asked_for_ever(source_db: str, pg_source: PostgresServer) -> None:
    """An ordinary session: its statement ends, and so does whoever closes it."""
    with proxied(pg_source.url(urlsplit(source_db).path[1:], tcp=True), pg_source.port) as (proxy, url):
        session = Session(f"{url}?connect_timeout=2", "silent")
        try:
            assert session.one("SELECT 1") == ("1",)
            session._seconds = DEAD
            proxy.stall.set()
            with pytest.raises(SilentError, match=r"has not answered for 0\.6 s"):
                session.query("SELECT 2")
            with pytest.raises(AwayError):
                session.query("SELECT 3")
        finally:
            session.close()


def test_a_long_question_is_borne_while_the_source_works_on_it(source_db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another connection asks if it does; it has LONGEST_SECONDS in all."""
    session = Session(source_db, "long", 0.3)
    try:
        assert session.query("SELECT 1 FROM pg_sleep(1)") == [("1",)]
        monkeypatch.setattr(driver, "LONGEST_SECONDS", 0.5)
        with pytest.raises(SilentError, match="has not answered for"):
            session.query("SELECT pg_sleep(60)")
    finally:
        session.close()


def test_tables_are_read_as_long_as_the_source_works(
    source_db: str, pg_source: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SOURCEISTABLE: an old transaction is waited for however long it is open; a link that falls silent is lost."""
    direct = Capture(source_db, tmp_path)
    direct.sql("CREATE TABLE big (t text)", "INSERT INTO big SELECT repeat('x', 1000) FROM generate_series(1, 30000)")
    asked: list[bool] = []

    def counted(*given: Any) -> bool:
        asked.append(is_worked_on(*given))
        return asked[-1]

    is_worked_on = driver.is_worked_on
    monkeypatch.setattr(driver, "is_worked_on", counted)
    monkeypatch.setattr(driver, "ANSWER_SECONDS", DEAD)
    with proxied(pg_source.url(urlsplit(source_db).path[1:], tcp=True), pg_source.port) as (proxy, url):
        reader = PostgresTables(replace(direct.told(), url=f"{url}?connect_timeout=2"))
        try:
            with psycopg.connect(source_db) as writer:
                writer.execute("CREATE TABLE late (id int PRIMARY KEY)")
                wait_for(lambda: reader.poll() is not None or len(asked) >= 2)
                assert asked == [True, True]
            found = wait_for(reader.poll)
            assert [table.name for table in found.tables] == ["big", "late"]
            pieces = reader.rows(found.tables[0])
            wait_for(lambda: next(pieces)[0])
            proxy.stall.set()
            with pytest.raises(SilentError, match="has sent nothing for"):
                wait_for(lambda: next(pieces) is None)
        finally:
            reader.close()


def _falls_silent(direct: Direct, proxy: Proxy, sql: Callable[[str], object]) -> None:
    """Between two batches, and before a commit: both are lost, and the row says what came of them."""
    sql("CREATE TABLE kv (k int PRIMARY KEY, a text)")
    direct.open()
    usual = direct.target.database.answer_seconds
    layout = direct.layout("kv", "k a", "k")
    direct.do(direct.rows(layout, upserts=[["1", "one"]]))
    for begins in (False, True):
        if begins:
            direct.begin()
            direct.target.apply((direct.rows(layout, upserts=[["2", "two"]]),))
        proxy.stall.set()
        direct.target.database.answer_seconds = DEAD
        with pytest.raises(AwayError, match=r"answer|timed out"):
            direct.target.commit() if begins else direct.begin()
        direct.target.database.answer_seconds = usual
        direct.target.close()
        proxy.stall.clear()
        direct.target.connect()
        direct.row = direct.target.load_row()
        try:
            direct.do(direct.rows(layout, upserts=[["3", "three"]]))
        except PlaceLostError:  # the commit was on its way still, and came behind our look: as Replicat, look again
            assert begins
            direct.row = direct.target.load_row()
            direct.do(direct.rows(layout, upserts=[["3", "three"]]))


def test_a_silent_target_is_lost(target_db: str, pg_target: PostgresServer) -> None:
    """PostgreSQL."""
    name = urlsplit(target_db).path[1:]
    with proxied(pg_target.url(name, tcp=True), pg_target.port) as (proxy, url):
        direct = Direct("postgresql", url, "public")
        try:
            _falls_silent(direct, proxy, lambda statement: pg_target.sql(statement, name))
        finally:
            direct.close()


def test_a_long_statement_is_borne_as_long_as_the_server_works_on_it(target_db: str, pg_target: PostgresServer) -> None:
    """And no longer: here its answer is lost on the way, and only another connection can tell."""
    name = urlsplit(target_db).path[1:]
    works = f"FROM pg_stat_activity WHERE datname = '{name}' AND query LIKE 'SELECT pg_sleep(600%'"

    def stall(proxy: Proxy) -> None:
        """Once the server works on it; then the work ends, and its answer goes nowhere."""
        wait_for(lambda: pg_target.sql(f"SELECT 1 {works}"))
        proxy.stall.set()
        pg_target.sql(f"SELECT pg_cancel_backend(pid) {works}")

    with proxied(pg_target.url(name, tcp=True), pg_target.port) as (proxy, url):
        conn = link.connect(url, "test")
        conn.silent_seconds = 0.2
        try:
            assert conn.execute("SELECT pg_sleep(1), 'done'").fetchall() == [("", "done")]
            stalls = threading.Thread(target=stall, args=(proxy,), daemon=True)
            stalls.start()
            assert conn._options
            conn._options = {**conn._options, "port": pg_target.port}  # only this one connection is silent
            with pytest.raises(AwayError, match="has not answered"), link.mapped(conn):
                conn.execute("SELECT pg_sleep(600)")
            stalls.join(PATIENCE)
            assert conn.closed
        finally:
            conn.close()


def test_a_silent_mariadb_target_is_lost(mariadb: Mysqld) -> None:
    """MariaDB."""
    mariadb.sql("CREATE DATABASE silent")
    with proxied(mariadb.url("silent"), mariadb.port) as (proxy, url):
        direct = Direct("mysql", url, "silent", mariadb)
        try:
            _falls_silent(direct, proxy, lambda statement: mariadb.sql(statement, "silent"))
        finally:
            direct.close()
            mariadb.sql("DROP DATABASE silent")


def test_a_long_statement_of_mariadb_is_borne_while_it_is_worked_on(mariadb: Mysqld) -> None:
    """As PostgreSQL's."""
    mariadb.sql("CREATE DATABASE busy")
    works = "SELECT id FROM information_schema.processlist WHERE db = 'busy' AND info LIKE 'SELECT sleep(600%'"

    def stall(proxy: Proxy) -> None:
        """As above."""
        ((number,),) = wait_for(lambda: mariadb.sql(works))
        proxy.stall.set()
        mariadb.sql(f"KILL QUERY {number}")

    with proxied(mariadb.url("busy"), mariadb.port) as (proxy, url):
        conn = mysql_link.connect(url)
        conn.silent_seconds = 0.2
        try:
            assert mysql_link.query(conn, "SELECT sleep(1), 'done'") == [(0, "done")]
            stalls = threading.Thread(target=stall, args=(proxy,), daemon=True)
            stalls.start()
            assert conn.where is not None
            conn.where = replace(conn.where, port=mariadb.port)  # only this one connection is silent
            with pytest.raises(AwayError, match="has not answered"), mysql_link.mapped(conn):
                mysql_link.query(conn, "SELECT sleep(600)")
            stalls.join(PATIENCE)
            assert not conn.open
        finally:
            with contextlib.suppress(pymysql.MySQLError):
                conn.close()
            mariadb.sql("DROP DATABASE busy")
