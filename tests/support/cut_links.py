"""Every link between two hosts as an exercise for cuts.py; and a sweep over them.

python -m tests.support.cut_links [--link NAME] [--every N] [--cut KIND]     each N-th byte; hours for every one
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from demo.mariadb import MariaServer
from demo.mysqld import Mysqld
from demo.patience import PATIENCE, wait_for
from demo.ports import free_port, free_ports
from demo.proxy import Cut
from demo.servers import PostgresServer
from extract.sources.postgres.source import PostgresSource
from ggsci.certificates import files
from ggsci.manager.webparams import WebHome, WebParams
from ggsci.manager.webtokens import ensure_token, token_path
from ggsci.web import remote
from ggsci.web import server as page_server
from ggsci.web.watch import HomesWatch
from pump.job import PumpJob
from pump.params import PumpParams
from pump.pump import Pump
from tests.support.capturing import Capture
from tests.support.cuts import Cutter, Exercise, cutting
from tests.support.direct_target import Direct
from tests.support.front import tls_only
from tests.support.homes import make_home
from tests.support.link import Source, records_of
from tests.support.mysql_source import MysqlCapture
from tests.support.pipelines import drop
from tests.support.secure import Listening, certify
from trails.clock import RealClock
from trails.errors import AwayError
from trails.fs import RealFs
from trails.link import tls
from trails.position import TrailName
from trails.runtime.language.remotehost import RemoteHost
from trails.runtime.report.report import Log

Link = Callable[[Path], AbstractContextManager[Exercise]]

SHORT = 0.5
"""Seconds in which a peer must answer while it is tried how a silent one is lost."""


def _through(url: str, port: int, **more: str) -> str:
    """The same URL by way of a proxy."""
    parts = urlsplit(url)
    query = "&".join(filter(None, (parts.query, *(f"{name}={value}" for name, value in more.items()))))
    login = parts.netloc.rpartition("@")[0]
    return f"{parts.scheme}://{login}@127.0.0.1:{port}{parts.path}{'?' if query else ''}{query}"


_numbers = itertools.count(1)


@dataclass
class _Patient(Capture):
    """An Extract on PostgreSQL that bears a silent server for a moment, while `dead` says so."""

    dead: float | None = None

    def source(self) -> PostgresSource:
        return PostgresSource(self.told(), self.said.append, dead_seconds=self.dead)


@contextmanager
def _own(server: PostgresServer) -> Iterator[str]:
    """A database that is gone afterwards, with its slots: others have the server behind us."""
    name = f"cuts{next(_numbers)}"
    server.sql(f"CREATE DATABASE {name}")
    try:
        yield name
    finally:
        drop(server, name)


@contextmanager
def extract_postgresql(server: PostgresServer, folder: Path, port: int = 0) -> Iterator[Exercise]:
    """An Extract's start, one transaction, and its end. `port`: of who stands before the server."""
    from extract.sources.postgres import driver

    with _own(server) as name, cutting() as cutter:
        direct = Capture(server.url(name), folder)
        direct.sql("CREATE TABLE t (id int PRIMARY KEY)")
        direct.register()
        url = _through(server.url(name, tcp=True), cutter.before(port or server.port), connect_timeout="2")
        capture = _Patient(url, folder, registered=direct.registered)
        ids: list[str] = []

        def run() -> None:
            ids.append(str(len(ids) + 1))
            direct.sql(f"INSERT INTO t VALUES ({ids[-1]})")
            with capture.running() as extract:
                direct.drain(extract)

        def holds() -> None:
            assert [change.after for some in direct.changes() for change in some] == [{"id": one} for one in ids]

        def hasty(patch: pytest.MonkeyPatch) -> None:
            patch.setattr(capture, "dead", SHORT)
            patch.setattr(driver, "ANSWER_SECONDS", SHORT)
            patch.setattr(driver.Session.__init__, "__defaults__", (SHORT,))

        yield Exercise(cutter, run, holds, hasty)


@contextmanager
def extract_mysql(server: Mysqld, folder: Path) -> Iterator[Exercise]:
    """The same on a binary log."""
    from extract.sources.mysql import dump, link, source, walk
    from trails.runtime.secrets import serverurl

    direct = MysqlCapture(server.url(""), folder)
    direct.sql("DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop", "CREATE TABLE shop.t (id int PRIMARY KEY)")
    direct.register()
    with cutting() as cutter:
        capture = MysqlCapture(
            _through(server.url(""), cutter.before(server.port)), folder, registered=direct.registered
        )
        ids: list[str] = []

        def run() -> None:
            ids.append(str(len(ids) + 1))
            direct.sql(f"INSERT INTO shop.t VALUES ({ids[-1]})")
            with capture.running() as extract:
                direct.drain(extract)

        def holds() -> None:
            assert direct.keys() == [[one] for one in ids]

        def hasty(patch: pytest.MonkeyPatch) -> None:
            patch.setattr(serverurl, "DIAL_SECONDS", SHORT)
            for module in (link, dump):
                patch.setattr(module, "LOGIN_SECONDS", SHORT)
            patch.setattr(link, "ANSWER_SECONDS", SHORT)
            for module in (source, walk):
                patch.setattr(module, "SILENCE_SECONDS", 3 * SHORT)

        yield Exercise(cutter, run, holds, hasty)


@contextmanager
def _replicat(
    cutter: Cutter, through: Direct, direct: Direct, hasty: Callable[[pytest.MonkeyPatch], None]
) -> Iterator[Exercise]:
    """A Replicat's connection: its row, a transaction, its end."""
    direct.sql("CREATE TABLE kv (k int PRIMARY KEY, a text)")

    def run() -> None:
        try:
            through.target.connect()
            through.row = through.target.load_row()
            through.step = through.row.position.rba // 100
            layout = through.layout("kv", "k a", "k")
            through.do(through.rows(layout, upserts=[[str(through.step + 1), "text"]]))
        finally:
            through.target.close()

    def holds() -> None:
        through.target.connect()
        row = through.target.load_row()
        through.target.close()
        assert [int(key) for (key,) in direct.sql("SELECT k FROM kv ORDER BY k")] == [
            *range(1, row.position.rba // 100 + 1)
        ]

    try:
        through.open()
        through.target.close()
        yield Exercise(cutter, run, holds, hasty)
    finally:
        through.close()
        direct.close()


@contextmanager
def replicat_postgresql(server: PostgresServer, _folder: Path, port: int = 0) -> Iterator[Exercise]:
    """On PostgreSQL. `port`: of who stands before the server."""
    from replicat.targets.postgres import bounded

    with _own(server) as name, cutting() as cutter:
        url = _through(server.url(name, tcp=True), cutter.before(port or server.port), connect_timeout="2")
        through, direct = Direct("postgresql", url, "public"), Direct("postgresql", server.url(name), "public")

        def hasty(patch: pytest.MonkeyPatch) -> None:
            patch.setattr(bounded.BoundLink.open.__func__, "__defaults__", (SHORT,))
            patch.setattr(bounded.BoundLink, "silent_seconds", SHORT)
            patch.setattr(bounded, "PROBE_SECONDS", SHORT)
            patch.setattr(through.target.database, "answer_seconds", SHORT)

        with _replicat(cutter, through, direct, hasty) as made:
            yield made


@contextmanager
def replicat_mysql(server: Mysqld, _folder: Path) -> Iterator[Exercise]:
    """On MySQL or MariaDB."""
    from replicat.targets.mysql import link
    from trails.runtime.secrets import serverurl

    server.sql("DROP DATABASE IF EXISTS cuts")
    server.sql("CREATE DATABASE cuts")
    with cutting() as cutter:
        url = _through(server.url("cuts"), cutter.before(server.port))
        through, direct = Direct("mysql", url, "cuts", server), Direct("mysql", server.url("cuts"), "cuts", server)

        def hasty(patch: pytest.MonkeyPatch) -> None:
            patch.setattr(serverurl, "DIAL_SECONDS", SHORT)
            patch.setattr(link, "ANSWER_SECONDS", SHORT)
            patch.setattr(link.Link, "silent_seconds", SHORT)
            patch.setattr(link, "PROBE_SECONDS", SHORT)
            patch.setattr(through.target.database, "answer_seconds", SHORT)

        with _replicat(cutter, through, direct, hasty) as made:
            yield made


# --- between two homes ------------------------------------------------------------------------------------------------

ELSEWHERE = "127.0.0.2"
"""Where the pump finds its target: the same ports as at 127.0.0.1, by way of proxies."""


@contextmanager
def pump(folder: Path, *, secure: bool) -> Iterator[Exercise]:
    """Its question to the Manager, and its session with the Collector; all real but that the pump is a thread."""
    near, far = make_home(folder / "near"), make_home(folder / "far")
    if secure:
        certify(far, far, near, names=(*files.ALWAYS, ELSEWHERE))
    ports = free_ports(10)
    listening = Listening(far, f"DYNAMICPORTLIST {ports[0]}-{ports[-1]}\n{'' if secure else 'NOTLS'}")
    local, copy = (TrailName.parse(f"./dirdat/{name}", home.root) for name, home in (("lt", near), ("rt", far)))
    source, fs, clock = Source(RealFs(), local), RealFs(), RealClock()
    host = RemoteHost(ELSEWHERE, listening.port, tls=secure)
    job = PumpJob(
        PumpParams("PMP1", host, "./dirdat/rt", retry_delay=1), near.id, "here", local, "./dirdat/lt", 1,
        near.pinned("PMP1"), tls.folder_of(near.root) if secure else "",
    )  # fmt: skip
    dead = {"seconds": host.dead_seconds}

    def run() -> None:
        source.small()
        source.sync()
        params = replace(job.params, remote=replace(host, dead_seconds=dead["seconds"]))
        made = Pump(replace(job, params=params), fs, Log(near, "Trailgate Pump", "", clock), clock)
        try:
            wait_for(lambda: made.step() is None or made.at_end, made.status, every=0.001)
        finally:
            made.close()

    def holds() -> None:
        assert listening.alive, "the Manager has died"
        expected, found = records_of(fs, local), records_of(fs, copy)
        assert expected == found, f"{len(expected)} transactions here, {len(found)} there"
        for home in (near, far):
            with suppress(FileNotFoundError):
                assert "bug in Trailgate" not in Path(home.ggserr).read_text()

    def hasty(patch: pytest.MonkeyPatch) -> None:
        patch.setitem(dead, "seconds", 1)

    with cutting() as cutter:
        for port in (listening.port, *ports):
            cutter.before(port, (ELSEWHERE, port))
        try:
            yield Exercise(cutter, run, holds, hasty, heals=True)
        finally:
            listening.close()
            source.writer.close()
            if pid := RealFs().lock_holder(copy.lock_path()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@contextmanager
def page(folder: Path) -> Iterator[Exercise]:
    """One page asks another one; by TLS."""
    home = make_home(folder / "page")
    ensure_token(home)
    certify(home, home)
    params = WebParams(port=free_port(), bind="0.0.0.0")
    ended = threading.Event()
    watch = HomesWatch(home, params, lambda *_: [])
    serving = threading.Thread(target=lambda: page_server.serve(home, params, watch, ended), daemon=True)
    serving.start()
    with cutting() as cutter:
        there = WebHome("far", url=f"https://127.0.0.1:{cutter.before(params.port)}", token_file=token_path(home))

        def run() -> None:
            remote.fetch(home, there)

        def holds() -> None:
            assert serving.is_alive(), "the page has died"

        def answers() -> bool:
            with suppress(AwayError):
                run()
                return True
            return False

        try:
            wait_for(answers)
            yield Exercise(cutter, run, holds, lambda patch: patch.setattr(remote, "SECONDS", SHORT))
        finally:
            ended.set()
            serving.join(PATIENCE)


# --- all of them ------------------------------------------------------------------------------------------------------


def _postgresql(exercise: Callable[..., Any], version: int, *, by_tls: bool = False) -> Link:
    @contextmanager
    def made(folder: Path) -> Iterator[Exercise]:
        with ExitStack() as stack:
            server = stack.enter_context(PostgresServer(version=version, tcp=True))
            front = stack.enter_context(tls_only(folder, server.port)) if by_tls else server.port
            yield stack.enter_context(exercise(server, folder, front))

    return made


def _mariadb(exercise: Callable[..., Any]) -> Link:
    @contextmanager
    def made(folder: Path) -> Iterator[Exercise]:
        with MariaServer(options=MariaServer.BINLOG) as server, exercise(server, folder) as found:
            yield found

    return made


LINKS: dict[str, Link] = {
    "pump": lambda folder: pump(folder, secure=False),
    "pump-tls": lambda folder: pump(folder, secure=True),
    "page": page,
    "extract-postgresql": _postgresql(extract_postgresql, 16),
    "extract-postgresql-tls": _postgresql(extract_postgresql, 16, by_tls=True),
    "extract-mariadb": _mariadb(extract_mysql),
    "replicat-postgresql": _postgresql(replicat_postgresql, 18),
    "replicat-postgresql-tls": _postgresql(replicat_postgresql, 18, by_tls=True),
    "replicat-mariadb": _mariadb(replicat_mysql),
}


def main(argv: list[str] | None = None) -> int:
    """The command line. Exit code 1: something does not heal."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.cut_links")
    parser.add_argument("--link", choices=LINKS, action="append", help="of all links only these")
    parser.add_argument("--cut", choices=[cut.name for cut in Cut], action="append", help="of all cuts only these")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th byte")
    given = parser.parse_args(argv)
    faults = 0
    for name in given.link or LINKS:
        with tempfile.TemporaryDirectory() as folder, LINKS[name](Path(folder)) as exercise:
            length = exercise.length()
            for cut in map(Cut.__getitem__, given.cut or Cut.__members__):
                found = exercise.sweep(range(1, length + 1, given.every), [cut])
                faults += len(found)
                print(f"{name}, {length} bytes, {cut.name}: {len(found)} faults", *found, sep="\n  ", flush=True)
                found.clear()
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
