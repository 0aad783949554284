"""Two homes and a pump between them: real processes, with a minimal Manager that hands out real Collectors.

The test itself is the Extract: it writes the local trail with TrailWriter and compares both trails record by record.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from demo.patience import PATIENCE, WaitError, wait_for
from tests.support.trail_script import payload_of
from trails.checkpoint import Checkpoint, load
from trails.codec import decode_data
from trails.format import Indicator
from trails.fs import Fs, RealFs
from trails.plan import Planner
from trails.position import Position, TrailName
from trails.reader import BlockReader
from trails.record import Column, Op, TableDef
from trails.runtime.home import registration
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration, TrailReg
from trails.runtime.process import control
from trails.writer import TrailWriter, WriterIdentity

ORDERS = TableDef("sales", "orders", (Column("id", "integer", "bigint", key=True), Column("note", "text", "text")))
ITEMS = TableDef("sales", "items", (Column("id", "integer", "bigint", key=True), Column("note", "text", "text")))
AUDIT = TableDef("sys", "audit", (Column("at", "text", "text"), Column("raw", "bytes", "bytea")))
TABLES = (ORDERS, ITEMS, AUDIT)


class Source:
    """Writes a local trail as an Extract does: small transactions, large ones, places, restarts."""

    def __init__(
        self,
        fs: Fs,
        trail: TrailName,
        *,
        max_bytes: int = 1 << 20,
        group: str = "EXT1",
        seed: int = 1,
        padding: int = 30,
    ) -> None:
        self.fs, self.trail, self._max, self._group = fs, trail, max_bytes, group
        self.random = random.Random(seed)
        self.padding = padding
        self.lsn = 0
        self.open()

    def open(self) -> None:
        """Start, or start again after a death inside a transaction."""
        identity = WriterIdentity("e" * 32, self._group, "here", {"kind": "postgresql", "identity": "7"})
        self.writer = TrailWriter.open(self.fs, self.trail, identity, max_bytes=self._max, restart_open=True)
        self.lsn = max(self.lsn, self.writer.last.origin.rba)
        self.writer.define(TABLES)
        self.writer.sync()

    def die(self) -> None:
        """As a crash of the Extract would leave it; then start again."""
        self.writer.abandon()
        self.open()

    def rows(self, count: int, tables: tuple[TableDef, ...] = TABLES) -> tuple[list[bytes], list[Any]]:
        """`count` random changes with the table list they name."""
        records: list[Any] = []
        for _ in range(count):
            at = self.random.randrange(len(tables))
            image: list[Any] = [str(self.random.randrange(1000)), self.random.randbytes(self.padding).hex()]
            if tables[at] is AUDIT:
                image = _audit(self.random)
            kind = self.random.randrange(4)
            if kind == 0:
                records.append([Op.UPDATE, at, image, image if self.random.random() < 0.3 else None])
            elif kind == 1:
                records.append([Op.DELETE, at, image])
            else:
                records.append([Op.INSERT, at, image])
        if count and self.random.random() < 0.05:
            records[-1] = [Op.TRUNCATE, [0, len(tables) - 1] if len(tables) > 1 else [0], 1]
        return [table.id for table in tables], records

    def _csn(self) -> str:
        return f"{self.lsn:020d}"

    def small(self, transactions: int = 3, rows: int = 4, tables: tuple[TableDef, ...] = TABLES) -> None:
        """One whole block."""
        records, changes = [], 0
        ids: list[bytes] = [table.id for table in tables]
        for _ in range(transactions):
            self.lsn += 10
            _, some = self.rows(rows, tables)
            records += [[Op.BEGIN, self._csn(), "7", self.lsn], *some, [Op.COMMIT, len(some)]]
            changes += len(some)
        self._append(Indicator.WHOLE, ids, records, changes, transactions)

    def large(
        self, blocks: int = 4, rows: int = 5, tables: tuple[TableDef, ...] = TABLES, *, finish: bool = True
    ) -> None:
        """One transaction of `blocks` blocks; finish=False leaves it open."""
        before, self.lsn = self.lsn, self.lsn + 10
        total = 0
        for number in range(blocks):
            ids, records = self.rows(rows, tables)
            total += rows
            indicator = Indicator.MIDDLE
            if number == 0:
                indicator, records = Indicator.BEGIN, [[Op.BEGIN, self._csn(), "8", self.lsn], *records]
            elif number == blocks - 1 and finish:
                indicator, records = Indicator.END, [*records, [Op.COMMIT, total]]
            done = indicator is Indicator.END
            self._append(indicator, ids, records, rows, int(done), lsn=None if done else before)
        if not finish:
            self.lsn = before

    def _append(
        self,
        indicator: Indicator,
        ids: list[bytes],
        records: list[Any],
        changes: int,
        ended: int,
        lsn: int | None = None,
    ) -> None:
        at = self.lsn if lsn is None else lsn
        self.writer.append_data(
            indicator, ids, records, changes=changes, transactions=ended, origin=Position(0, at), csn=f"{at:020d}",
            time_us=time.time_ns() // 1000,
        )  # fmt: skip

    def sync(self) -> None:
        """Make it visible to the pump."""
        self.writer.sync()

    def mixed(self, count: int) -> None:
        """A load with everything in it, synced."""
        for _ in range(count):
            what = self.random.randrange(10)
            if what < 6:
                self.small(self.random.randrange(1, 5))
            elif what < 8:
                self.large(self.random.randrange(2, 6))
            elif what == 8:
                self.writer.append_place(Position(0, self.lsn))
            else:
                self.large(self.random.randrange(1, 4), finish=False)
                self.sync()
                self.die()
            if self.random.random() < 0.5:
                self.sync()
        self.sync()


def _audit(source: random.Random) -> list[Any]:
    from trails.codec import binary

    return [str(source.randrange(1000)), binary(source.randbytes(12))]


def records_of(fs: Fs, trail: TrailName, keep: Callable[[TableDef], bool] = lambda table: True) -> list[Any]:
    """Every committed transaction of a trail with table names, filtered as TABLE clauses would; counts checked."""
    planner = Planner(BlockReader(fs, trail))
    out: list[Any] = []
    current: list[Any] = []
    counted = 0
    while unit := planner.next():
        for block in unit.blocks:
            ids, records = decode_data(block.header, payload_of(fs, trail, block))
            names = [planner.definitions[i] for i in ids]
            for record in records:
                if record[0] == Op.BEGIN:
                    current, counted = [tuple(record)], 0
                elif record[0] == Op.COMMIT:
                    assert record[1] == counted, f"COMMIT says {record[1]}, {counted} stand there"
                    if len(current) > 1:
                        out.append(tuple(current))
                else:
                    counted += 1
                    current += _named(record, names, keep)
    return out


def _named(record: Any, names: list[TableDef], keep: Callable[[TableDef], bool]) -> list[Any]:
    if record[0] == Op.TRUNCATE:
        kept = tuple(names[i].full_name for i in record[1] if keep(names[i]))
        return [(Op.TRUNCATE, kept, record[2])] if kept else []
    table = names[record[1]]
    images = tuple(tuple(image) if image is not None else None for image in record[2:])
    return [(record[0], table.full_name, *images)] if keep(table) else []


class MiniManager:
    """Answers START COLLECTOR on a port: ends the pump's older Collector, starts a new one, passes its port on."""

    def __init__(self, home: Home, *, patience: float = 10.0) -> None:
        self.home = home
        self.patience = patience
        self.via: Callable[[int], int] = lambda port: port
        self.asked = 0
        self.away = False
        self.silent = False
        self.held: list[socket.socket] = []
        """Connections that are taken and never answered, while `silent`."""
        self.kill_first = True
        self.started: list[subprocess.Popen[bytes]] = []
        self.command = [sys.executable, "-P", "-m", "collector"]
        self._closing = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def collector(self) -> subprocess.Popen[bytes] | None:
        """The last one started."""
        return self.started[-1] if self.started else None

    def close(self) -> None:
        """End everything."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE)
        for sock in self.held:
            sock.close()
        for process in self.started:
            end(process)

    def _serve(self) -> None:
        while not self._closing:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            if self.silent:
                self.held.append(sock)
                continue
            with sock, contextlib.suppress(OSError, ValueError):
                if self.away:
                    continue
                sock.settimeout(PATIENCE)
                request = json.loads(sock.makefile().readline())
                sock.sendall(json.dumps(self._answer(request)).encode() + b"\n")

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        self.asked += 1
        if self.kill_first:
            for process in self.started:
                end(process, gently=0.3)
        reader, writer = os.pipe()
        arguments = [
            "--home", self.home.root, "--trail", request["trail"], "--ports", "0", "--bind", "127.0.0.1",
            "--ready-fd", str(writer), "--patience", str(self.patience), "--notls",
        ]  # fmt: skip
        self.started.append(subprocess.Popen([*self.command, *arguments], pass_fds=[writer]))
        os.close(writer)
        with os.fdopen(reader) as lines:
            ready, _, _ = select.select([lines], [], [], PATIENCE)
            said = json.loads(lines.readline() or '{"error": "died"}') if ready else {"error": "slow"}
        if "port" in said:
            return {"ok": True, "port": self.via(said["port"])}
        return {"ok": False, "error": said["error"], "permanent": said.get("permanent", False)}


def end(process: subprocess.Popen[bytes], gently: float = 0.0) -> None:
    """SIGTERM and a bounded wait, then SIGKILL; only for processes that we started."""
    if process.poll() is not None:
        return
    if gently:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(gently)
    process.kill()
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGCONT)
    process.wait(PATIENCE)


class LinkBench:
    """A source home with pump PMP1 reading ./dirdat/lt, a target home with ./dirdat/rt, and a MiniManager between."""

    def __init__(
        self, folder: Path, *, parameters: str = "", timeout: int = 60, megabytes: int = 1, retry: int = 120
    ) -> None:
        """`timeout`: seconds of silence after which an end gives the other up; a loaded machine is silent at times."""
        self.fs = RealFs()
        self.near, self.far = (self._home(folder / name) for name in ("near", "far"))
        self.local = TrailName.parse("./dirdat/lt", self.near.root)
        self.remote = TrailName.parse("./dirdat/rt", self.far.root)
        self.manager = MiniManager(self.far)
        self.pump: subprocess.Popen[bytes] | None = None
        self._pumps: list[subprocess.Popen[bytes]] = []
        self.errors = folder / "pump.err"
        self.megabytes = megabytes
        self.register()
        text = (
            f"EXTRACT PMP1\nRMTHOST 127.0.0.1, MGRPORT {self.manager.port}, TIMEOUT {timeout}, NOTLS\n"
            "RMTTRAIL ./dirdat/rt\n"
        )
        text += f"RETRYDELAY 1\nRETRYSECS {retry}\nCHECKPOINTSECS 1\n{parameters}\n"
        Path(self.near.prm("PMP1")).write_text(text)

    @staticmethod
    def _home(root: Path) -> Home:
        root.mkdir()
        home = Home(str(root))
        home.create_subdirs()
        return home

    def second_home(self, root: Path) -> tuple[Home, TrailName]:
        """Another home that could answer in the far one's place, and its remote trail."""
        home = self._home(root)
        return home, TrailName.parse("./dirdat/rt", home.root)

    def register(self, **changes: Any) -> None:
        """ADD or ALTER EXTRACT PMP1."""
        changes.setdefault("trails", (TrailReg("./dirdat/rt", "RMTTRAIL", self.megabytes),))
        reg = Registration("PMP1", "EXTRACT", "TRAIL", trail="./dirdat/lt", **changes)
        registration.save(self.near, reg)

    def start(self) -> subprocess.Popen[bytes]:
        """START PMP1."""
        with open(self.errors, "wb") as errors:
            command = [sys.executable, "-P", "-m", "pump", "--home", self.near.root, "PMP1"]
            self.pump = subprocess.Popen(command, stderr=errors)
        self._pumps.append(self.pump)
        return self.pump

    def stop(self) -> int:
        """STOP PMP1; its exit code."""
        assert self.pump is not None
        self.pump.terminate()
        return self.pump.wait(PATIENCE)

    def ended(self, seconds: float = PATIENCE) -> tuple[int, str]:
        """Wait for the pump's end: (exit code, what it said on stderr)."""
        assert self.pump is not None
        code = self.pump.wait(seconds)
        return code, self.errors.read_text()

    def ask(self, verb: str) -> dict[str, Any]:
        """Ask the running pump."""
        return control.ask(self.near, "PMP1", verb, timeout=PATIENCE)

    def drained(self) -> bool:
        """Everything in the local trail is acknowledged."""
        with contextlib.suppress(Exception):
            # Asked again and again: whoever can't answer now is not waited for.
            return bool(control.ask(self.near, "PMP1", "LOGEND", timeout=5)["logend"])
        return False

    def drain(self, seconds: float = PATIENCE) -> None:
        """Wait for that."""
        try:
            wait_for(self.drained, "the pump at the end of its trail")
        except WaitError as error:
            raise AssertionError(f"{error}: {self.errors.read_text()} {self.log()[-3000:]}") from None

    def log(self) -> str:
        """ggserr.log of both homes."""
        return "".join(Path(home.ggserr).read_text() for home in (self.near, self.far) if os.path.exists(home.ggserr))

    def checkpoint(self) -> Checkpoint | None:
        """The pump's last save."""
        return next(iter(load(self.fs, self.near.checkpoint("PMP1", "EXTRACT"))), None)

    def assert_equal(self, keep: Callable[[TableDef], bool] = lambda table: True) -> int:
        """Both trails hold the same transactions, record for record; how many."""
        expected = records_of(self.fs, self.local, keep)
        found = records_of(self.fs, self.remote)
        assert len(found) == len(expected)
        assert found == expected
        return len(found)

    def close(self) -> None:
        """End everything."""
        for pump in self._pumps:
            end(pump)
        self.manager.close()
