"""A home that is attacked, over a real link and by a peer with a certificate of its CA: Manager, Collectors, Replicats.

The peer's operator writes the local trail by hand, as no Extract would; a real pump of his sends it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import psycopg

from demo.patience import PATIENCE, wait_for
from demo.ports import free_ports
from pump.link import LinkRequest, dial
from replicat.targets.kinds import admin_for
from tests.support.homes import make_home
from tests.support.link import end
from tests.support.replicat_trail import TrailFeed, table
from tests.support.secure import certify
from trails.fs import RealFs
from trails.link import tls
from trails.position import TrailName
from trails.record import Op
from trails.runtime.home import registration
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration, TrailReg

ROOT = Path(__file__).parents[2]
DONE = table("s", "done", "id", "id")


def spawn(module: str, home: Home, *arguments: str) -> subprocess.Popen[bytes]:
    """A process of Trailgate in `home`."""
    command = [sys.executable, "-P", "-m", module, "--home", home.root, *arguments]
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE)


class Siege:
    """`far` is attacked, with the database at `url` as a superuser; `near` and `other` have certificates of its CA."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url
        self.far, self.near, self.other = (make_home(folder / name) for name in ("far", "near", "other"))
        certify(self.far, self.far, self.near, self.other)
        self.port, *ports = free_ports(14)
        for home in (self.far, self.other):
            rules = f"PORT {self.port}\nDYNAMICPORTLIST {ports[0]}-{ports[-1]}\nCOLLECTORSPERHOME 4\n"
            Path(home.prm("mgr")).write_text(rules)
        admin_for(url).add_row_table(url, ("gg", "chk"))
        self._link = psycopg.connect(url, autocommit=True)
        self.sql("CREATE TABLE public.done (id text PRIMARY KEY)")
        self._processes: list[subprocess.Popen[bytes]] = []
        self._manager = self._start_manager(self.far)

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """A query in the target, of its superuser."""
        cursor = self._link.execute(statement)
        return cursor.fetchall() if cursor.description else []

    def started(self, process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        """The same; it is ended with the siege."""
        self._processes.append(process)
        return process

    def _start_manager(self, home: Home) -> subprocess.Popen[bytes]:
        manager = self.started(spawn("ggsci.manager", home))
        wait_for(self._listens)
        return manager

    def _listens(self) -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0

    @contextlib.contextmanager
    def answered_by(self, home: Home) -> Iterator[None]:
        """Meanwhile its Manager is at the port where the pumps look for that of `far`."""
        end(self._manager, gently=PATIENCE)
        other = self._start_manager(home)
        try:
            yield
        finally:
            end(other, gently=PATIENCE)
            self._manager = self._start_manager(self.far)

    def call(self, home: Home, trail: str, group: str = "PMPX") -> Any:
        """A link of `home` to a Collector of its own, not yet greeted; raises as a pump's dial() does."""
        request = LinkRequest(
            "127.0.0.1", self.port, trail, f"{home.id}/{group}", b"1" * 16, tls.folder_of(home.root)
        )  # fmt: skip
        sock = dial(request, PATIENCE)
        sock.settimeout(PATIENCE)
        return sock

    def visit(self, home: Home, address: tuple[str, int]) -> ssl.SSLSocket:
        """A link of `home` to a Collector that was started for another; the Manager is not asked."""
        context = tls.client_context(tls.folder_of(home.root))
        return context.wrap_socket(socket.create_connection(address, PATIENCE), server_hostname="127.0.0.1")

    def close(self) -> None:
        """End everything."""
        for process in self._processes:
            end(process)
            assert process.stderr is not None
            process.stderr.close()
        for home in (self.far, self.other):  # Collectors go on without their Manager
            for lock in Path(home.folder("dirdat")).glob(".*.lock"):
                if pid := RealFs().lock_holder(str(lock)):
                    os.kill(pid, signal.SIGKILL)
        self._link.close()


class Chain:
    """One trail by hand, its pump in `near`, and a Replicat in `far` that may do to the target what it wants.

    With `with`: both end with the block.
    """

    def __init__(self, siege: Siege, letter: str, *lines: str) -> None:
        self.siege, self.pump_group, self.group = siege, f"PMP{letter}", f"REP{letter}"
        local, remote = f"./dirdat/l{letter.lower()}", f"./dirdat/r{letter.lower()}"
        self.local = TrailName.parse(local, siege.near.root)
        self.remote = TrailName.parse(remote, siege.far.root)
        self.feed = TrailFeed(RealFs(), self.local)
        written = (TrailReg(remote, "RMTTRAIL"),)
        registration.save(
            siege.near, Registration(self.pump_group, "EXTRACT", "TRAIL", trail=local, trails=written)
        )  # fmt: skip
        Path(siege.near.prm(self.pump_group)).write_text(
            f"EXTRACT {self.pump_group}\nRMTHOST 127.0.0.1, MGRPORT {siege.port}\nRMTTRAIL {remote}\nPASSTHRU\n"
            "TABLE *.*;\n"
        )
        registration.save(
            siege.far,
            Registration(
                self.group, "REPLICAT", "TRAIL", trail=remote, checkpoint_table="gg.chk", group_key=ord(letter)
            ),
        )
        Path(siege.far.prm(self.group)).write_text(
            "\n".join([f"REPLICAT {self.group}", f"TARGETDB '{siege.url}'", *lines, "MAP s.*, TARGET public.*;", ""])
        )
        self.send()
        self.replicat = siege.started(spawn("tests.support.sparkless", siege.far, self.group))

    def send(self) -> subprocess.Popen[bytes]:
        """START the pump."""
        self.pump = self.siege.started(spawn("pump", self.siege.near, self.pump_group))
        return self.pump

    def through(self) -> None:
        """Wait until all that was sent is applied, or left out: a row behind it all is there."""
        self.feed.tx((Op.INSERT, DONE, [self.group]))
        wait_for(self._is_through, "the last row at the target")

    def _is_through(self) -> bool:
        assert self.replicat.poll() is None, self.said()
        assert self.pump.poll() is None, self.pump.stderr and self.pump.stderr.read()
        return bool(self.siege.sql(f"SELECT 1 FROM public.done WHERE id = '{self.group}'"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """STOP both: the Collector is free for others."""
        for process in (self.pump, self.replicat):
            end(process, gently=PATIENCE)

    def said(self) -> str:
        """What the attacked home's report and log have."""
        papers = (self.siege.far.report(self.group), self.siege.far.ggserr)
        return "".join(Path(paper).read_text(encoding="utf-8") for paper in papers if os.path.exists(paper))
