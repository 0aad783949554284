"""MySQL and MariaDB as a source: places, failover, purged logs, and connections that are cut at every byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from demo.mariadb import MariaServer
from demo.mysql import MysqlServer
from demo.mysqld import Mysqld
from demo.proxy import Proxy
from extract.sources.mysql import capture as rules
from extract.sources.mysql import groupfeed, server
from extract.sources.mysql.dump import BinlogStream, DumpBegin
from extract.sources.mysql.places import csn_of, origin_of, parts
from extract.sources.mysql.source import MysqlSource
from tests.support.capturing import step_until
from tests.support.mysql_source import HastySource, MysqlCapture, StreamCutter, caught_up, follow, promote, purge
from trails.errors import AnewError, MismatchError, OperatorError
from trails.position import Position

pytestmark = pytest.mark.e2e

SERVERS = {"mariadb": MariaServer, "mysql": MysqlServer}
UPDATES = {"log-slave-updates": "ON", "relay-log": "relay", "skip-slave-start": "1"}


def made(kind: str, number: int) -> Mysqld:
    """A server with a binary log that others may replicate."""
    cls = SERVERS[kind]
    return cls(options={**cls.BINLOG, **UPDATES, "server-id": number})


@pytest.fixture(scope="module", params=["mariadb", pytest.param("mysql", marks=pytest.mark.soak)])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Mysqld, Mysqld]]:
    """A server, and another one that is still empty."""
    with made(request.param, 1) as first, made(request.param, 2) as second:
        yield first, second


@pytest.fixture
def capture(pair: tuple[Mysqld, Mysqld], tmp_path: Path) -> MysqlCapture:
    """A group on the first one, with a table of this test's own."""
    capture = MysqlCapture(pair[0].url(""), tmp_path)
    capture.sql(
        "DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop", "CREATE TABLE shop.t (id int PRIMARY KEY, v longtext)"
    )
    return capture


def insert(*ids: int, value: str = "v") -> str:
    """One statement."""
    return f"INSERT INTO shop.t VALUES {', '.join(f'({n}, {value!r})' for n in ids)}"


def test_rows_come_once_over_stops_and_new_files(capture: MysqlCapture):
    """Each start goes on where the trail ends: also at the begin of a file that has no rows yet."""
    capture.register()
    capture.sql(insert(1, 2), "UPDATE shop.t SET v = 'w' WHERE id = 1", "DELETE FROM shop.t WHERE id = 2")
    for number in (3, 4, 5):
        with capture.running() as extract:
            capture.sql(insert(number), "FLUSH BINARY LOGS")
            capture.drain(extract)
    assert capture.keys() == [["1", "2"], ["1"], ["2"], ["3"], ["4"], ["5"]]


@pytest.mark.parametrize("kind", SERVERS)
def test_CW_32_failover_inside_a_transaction_to_a_server_with_lower_file_numbers(kind: str, tmp_path: Path):
    """What came of it is dropped by readers; it comes again whole from the other server, and the CSNs go up."""
    with made(kind, 1) as primary, made(kind, 2) as replica:
        served = [primary]
        proxy = Proxy(lambda: ("127.0.0.1", served[0].port))
        capture = MysqlCapture(f"mysql://root@127.0.0.1:{proxy.port}/", tmp_path)
        try:
            follow(replica, primary)
            capture.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id int PRIMARY KEY, v longtext)")
            capture.sql(*["FLUSH BINARY LOGS"] * 5)
            capture.register()
            capture.sql(insert(1))
            capture.sql(insert(*range(10, 4010), value="x" * 1000))
            caught_up(replica, primary)
            extract = capture.start()
            try:
                step_until(extract, lambda: (extract._assembler.in_transaction or 0) > 2000)
                primary.kill()
                promote(replica)
                served[0] = replica
                with pytest.raises(AnewError, match="another server answers"):
                    step_until(extract, lambda: False)
            finally:
                extract.close()
            for number in (2, 3):
                with capture.running() as extract:
                    capture.sql(insert(number))
                    capture.drain(extract)
                    origin = extract._writer.last.origin
            assert parts(origin)[0] == 1 and parts(origin)[1] < 5
        finally:
            proxy.close()
        assert capture.keys() == [["1"], [str(n) for n in range(10, 4010)], ["2"], ["3"]]


def test_a_replica_still_has_what_the_server_has_deleted(tmp_path: Path):
    """docs/recovery.md, lost log: that one named in SOURCEDB, the group goes on there, and nothing is lost."""
    with made("mariadb", 1) as primary, made("mariadb", 2) as replica:
        capture = MysqlCapture(primary.url(""), tmp_path)
        follow(replica, primary)
        capture.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id int PRIMARY KEY, v longtext)")
        capture.register()
        with capture.running() as extract:
            capture.sql(insert(1))
            capture.drain(extract)
        capture.sql(insert(2))
        caught_up(replica, primary)
        purge(primary)
        with pytest.raises(MismatchError, match=r"docs/recovery\.md#lost-log"), capture.running() as extract:
            step_until(extract, lambda: False)
        capture.url = replica.url("")
        capture.sql(insert(3))
        with capture.running() as extract:
            capture.drain(extract)
        assert capture.keys() == [["1"], ["2"], ["3"]]


def test_a_server_without_the_trails_transactions_is_refused(pair: tuple[Mysqld, Mysqld], capture: MysqlCapture):
    """At each start, and by name; the server that has them is taken again."""
    capture.register()
    with capture.running() as extract:
        capture.sql(insert(1))
        capture.drain(extract)
    here = capture.url
    capture.url = pair[1].url("")
    for _ in range(2):
        with pytest.raises(MismatchError, match=r"has transactions that this server has not: \S*1"):
            capture.start()
    capture.url = here
    with capture.running() as extract:
        capture.sql(insert(2))
        capture.drain(extract)
    assert capture.keys() == [["1"], ["2"]]


@pytest.mark.parametrize("pair", ["mariadb"], indirect=True)
def test_a_log_of_several_domains_is_known_again_after_a_failover(pair: tuple[Mysqld, Mysqld], capture: MysqlCapture):
    """Each server has an order of its own of what two domains commit; before any failover the sets must be the same."""
    first, second = ("SET gtid_domain_id = 6, server_id = 71", "SET gtid_domain_id = 7, server_id = 71")
    capture.register()
    with capture.session() as session:
        for statement in (first, "SET gtid_seq_no = 5", insert(1), "SET server_id = 72", insert(2)):
            session.query(statement)
        file, pos, *_ = session.one("SHOW MASTER STATUS")
        (before,) = session.one("SELECT @@GLOBAL.gtid_binlog_pos")
        for statement in (second, "SET gtid_seq_no = 3", insert(3)):
            session.query(statement)
        (after,) = session.one("SELECT @@GLOBAL.gtid_binlog_pos")
    place = int(str(file).rpartition(".")[2]), int(str(pos))
    for epoch, held, fits in ((0, before, True), (0, after, False), (1, after, True), (1, before, True)):
        _fits(capture, epoch, origin_of(epoch, *place), str(held), fits=fits)
    for epoch in (0, 1):  # the place is behind 6-72-6
        _fits(capture, epoch, origin_of(epoch, *place), str(after).replace("6-72-6", "6-71-5"), fits=False)


def _fits(capture: MysqlCapture, epoch: int, origin: Position, held: str, *, fits: bool) -> None:
    """Whether the server's log is taken for that of a trail, and if not, that it is told why."""
    source = capture.source()
    try:
        known = source.identify(None)
        source.identify(known | {"epoch": str(epoch)})
        if fits:
            source.fits(origin, f"1 {held}")
        else:
            with pytest.raises(MismatchError, match="it is another log"):
                source.fits(origin, f"1 {held}")
    finally:
        source.close()


def test_CW_35_a_log_purged_under_a_stopped_group_is_refused_by_name(
    pair: tuple[Mysqld, Mysqld], capture: MysqlCapture
):
    """Which file is needed, and from where; but a file of which all was handed over is not missed."""
    capture.register()
    with capture.running() as extract:
        capture.sql(insert(1))
        capture.drain(extract)
    newer = purge(pair[0])
    with capture.running() as extract:
        capture.sql(insert(2))
        capture.drain(extract)
    capture.sql(insert(3))
    last = purge(pair[0])
    for _ in range(2):
        with pytest.raises(MismatchError, match=rf"purged {newer}, which is needed from position \d+ .* {last}"):
            capture.start()
    assert capture.keys() == [["1"], ["2"]]


def test_ALTER_finds_places_by_position_time_and_set(capture: MysqlCapture):
    """Only places between two transactions are taken."""
    capture.register()
    mysql = "executed" if "mysql" in capture.registered.identity.values() else "binlog_pos"
    places = []
    for number in (1, 2, 3):
        capture.sql(insert(number))
        ((file, pos, *_),) = capture.sql("SHOW MASTER STATUS")
        ((held,),) = capture.sql(f"SELECT @@GLOBAL.gtid_{mysql}")
        places.append((str(file), int(str(pos)), str(held)))
        if number == 2:
            capture.sql("FLUSH BINARY LOGS", "DO SLEEP(1.1)")
    ((now,),) = capture.sql("SELECT UNIX_TIMESTAMP(NOW(6)) * 1000000")
    source = capture.source()
    source.identify(None)
    for file, pos, held in places:
        seqno = int(file.rpartition(".")[2])
        found = source.origin_of({"seqno": seqno, "rba": pos})
        assert parts(found)[1:] == (seqno, pos)
        assert source.origin_of({"csn": csn_of(found)}) == found
        assert found <= source.origin_of({"gtid": held}) <= Position(found.seqno + 1, 1000)
        with pytest.raises(OperatorError, match="no transaction begins there"):
            source.origin_of({"seqno": seqno, "rba": pos - 1})
    end = source.origin_of({"begin": "now"})
    assert parts(end)[2] == places[-1][1] and source.origin_of({"begin_us": int(float(str(now)))}) == end
    first = source.origin_of({"begin_us": 0}) if places[0][0].endswith("01") else None
    assert first is None or first <= Position(parts(end)[1], 0)
    with pytest.raises(OperatorError, match=r"no binary log of number 99"):
        source.origin_of({"seqno": 99, "rba": 4})
    source.close()
    capture.settings = type(capture.settings)(
        **{
            **{name: getattr(capture.settings, name) for name in capture.settings.__slots__},
            "alter_no": 1,
            "alter": (("seqno", int(places[1][0].rpartition(".")[2])), ("rba", places[1][1])),
        }
    )
    with capture.running() as extract:
        capture.sql(insert(4))
        capture.drain(extract)
    assert capture.keys() == [["3"], ["4"]]


@pytest.mark.hostile
def test_a_stream_cut_at_every_byte_loses_doubles_and_tears_nothing(
    pair: tuple[Mysqld, Mysqld], capture: MysqlCapture, monkeypatch: pytest.MonkeyPatch
):
    """Also where parts of open transactions are in the trail, at a schema change, and while one of XA is prepared."""
    monkeypatch.setattr(groupfeed, "PIECE", 1)
    capture.ddl, capture.reconnect_seconds = "INCLUDE ALL", 1e6
    capture.register()
    capture.sql("BEGIN", insert(1, 2), "UPDATE shop.t SET v = 'w'", insert(3), "COMMIT", "FLUSH BINARY LOGS")
    capture.sql("ALTER TABLE shop.t ADD n int FIRST")
    with capture.session() as prepared:
        for statement in ("XA START 'x'", "INSERT INTO shop.t (id) VALUES (4)", "XA END 'x'", "XA PREPARE 'x'"):
            prepared.query(statement)
        capture.sql("INSERT INTO shop.t (id) VALUES (5)")
        prepared.query("XA COMMIT 'x'")
    cutter = StreamCutter(pair[0])
    capture.url = f"mysql://root@127.0.0.1:{cutter.port}/?ssl_mode=disabled"
    source = HastySource(capture.told(), capture.said.append)
    monkeypatch.setattr(capture, "source", lambda: source)
    for module, name in ((rules, "ask_server"), (server, "logs_cascades")):
        monkeypatch.setattr(module, name, _asked_once(getattr(module, name)))
    try:
        with capture.running(block_bytes=1) as extract:
            capture.drain(extract, 500)
    finally:
        MysqlSource._close_session(source)
        cutter.close()
    assert sum(cutter.lengths.values()) > 1500
    assert capture.keys() == [["1", "2", "1", "2", "3"], ["DDL"], ["5"], ["4"]]


def _asked_once(ask: Callable[..., Any]) -> Callable[..., Any]:
    """What a server is does not change with a connection: it is asked by the first of thousands."""
    known: list[Any] = []

    def answer(*of: object) -> Any:
        if not known:
            known.append(ask(*of))
        return known[0]

    return answer


@pytest.mark.parametrize("pair", ["mariadb"], indirect=True)
def test_a_commit_of_a_semisynchronous_server_waits_for_the_trail(pair: tuple[Mysqld, Mysqld], capture: MysqlCapture):
    """It returns once what it did is synced in the trail, and not before."""
    capture.own = {"SEMISYNC": None}
    capture.register()
    capture.sql(
        "SET GLOBAL rpl_semi_sync_master_timeout = 600000",
        "SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC",
        "SET GLOBAL rpl_semi_sync_master_enabled = ON",
    )
    try:
        with capture.running() as extract, ThreadPoolExecutor() as pool:
            step_until(extract, lambda: _clients(pair[0]) == "1")
            commit = pool.submit(capture.sql, insert(1))
            step_until(extract, lambda: extract._assembler.origin >= capture.end(extract))
            step_until(extract, commit.done)
            commit.result()
            assert capture.keys() == [["1"]]
            for number in range(2, 10):
                commit = pool.submit(capture.sql, insert(number))
                step_until(extract, commit.done)
                assert len(capture.keys()) == number
    finally:
        capture.sql("SET GLOBAL rpl_semi_sync_master_enabled = OFF")


def _clients(server: Mysqld) -> str:
    return str(server.sql("SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_master_clients'")[0][1])


def test_of_two_readers_with_one_id_the_older_one_says_so(pair: tuple[Mysqld, Mysqld], capture: MysqlCapture):
    """It ends, and names what mends it: two that came back would throw each other out for ever."""
    capture.register()
    with capture.running() as extract:
        capture.sql(insert(1))
        capture.drain(extract)
        source = extract._source
        assert isinstance(source, MysqlSource)
        begin = DumpBegin(str(pair[0].sql("SHOW BINARY LOGS")[0][0]))
        other = BinlogStream(capture.url, source._reader, begin)
        with pytest.raises(OperatorError, match=r"another reader with server id \d+ .*SERVERID"):
            step_until(extract, lambda: False)
        other.close()
        source.connect(extract._assembler, again=False)
