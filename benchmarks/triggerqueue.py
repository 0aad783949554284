"""Capture by TRIGGERLOG, from the queue that triggers fill.

The queue is there before the process starts: half inserts, half updates of one table of five columns, in transactions
of a hundred. The clock runs from the first step of an Extract in this process to the last change synced in the trail,
with the rows deleted from the queue behind it. What the triggers cost the application is told beside it: the same
statements without them, and transactions of one row, each with its commit.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import psycopg

from benchmarks.options import Run
from benchmarks.results import OURS, Line
from benchmarks.sqlitequeue import ask, measured, scaled
from demo.servers import PostgresServer
from extract.extract import Extract, Settings
from extract.kinds import KINDS
from extract.params import ExtractParams
from trails.clock import RealClock
from trails.fs import RealFs
from trails.position import TrailName
from trails.runtime.home.methods import METHODS
from trails.runtime.home.registration import Registered
from trails.runtime.language.params import parse_text
from trails.runtime.report.stats import DdlCounts

CHANGES = 200_000
A_TRANSACTION = 100
SINGLE = 4000
TABLE = "CREATE TABLE item (id bigint PRIMARY KEY, name text, price float8, stock int, at timestamptz DEFAULT now())"
INSERT = "INSERT INTO item VALUES (%s, %s, %s, %s)"
UPDATE = "UPDATE item SET price = price + 1, stock = stock - 1 WHERE id = %s"
FIGURES = (
    ("transactions of 100", OURS),
    ("transactions of 100", "application, with triggers"),
    ("transactions of 100", "application, without"),
    ("single rows", "application, with triggers"),
    ("single rows", "application, without"),
)
OPTIONS = {"wal_level": "replica", "max_wal_senders": 0, "shared_buffers": "256MB", "max_wal_size": "4GB"}


def _fill(url: str, changes: int) -> tuple[float, float]:
    """Changes a second of an application, in transactions of a hundred and of one row."""
    rows = changes // 2
    with psycopg.connect(url) as conn:
        began = time.perf_counter()
        for first in range(0, rows, A_TRANSACTION):
            some = range(first, first + A_TRANSACTION)
            conn.cursor().executemany(INSERT, [(i, f"item {i}", i * 1.1, i % 100) for i in some])
            conn.commit()
        for first in range(0, rows, A_TRANSACTION):
            conn.cursor().executemany(UPDATE, [(i,) for i in range(first, first + A_TRANSACTION)])
            conn.commit()
        many = changes / (time.perf_counter() - began)
        began = time.perf_counter()
        for i in range(SINGLE):
            conn.execute(UPDATE, (i,))
            conn.commit()
        return many, SINGLE / (time.perf_counter() - began)


def _figures(server: PostgresServer, folder: Path, changes: int, number: int) -> tuple[float, ...]:
    """The figures of one run, in the order of FIGURES."""
    names = [f"plain{number}", f"queue{number}"]
    for name in names:
        server.sql(f"CREATE DATABASE {name}")
        server.sql(TABLE, name)
    plain, one_plain = _fill(server.url(names[0]), changes)
    url = server.url(names[1])
    ask(url, "add_trandata", pattern="public.*", method=METHODS[1])
    registered = Registered.of(ask(url, "register", group="EXT1", home_id="0" * 16, method=METHODS[1]))
    logged, one = _fill(url, changes)
    (folder / "dirdat").mkdir(mode=0o700)
    text = f"EXTRACT ext1\nSOURCEDB {url}\nEXTTRAIL ./dirdat/lt\nTABLE public.*;\n"
    settings = ExtractParams.from_statements(parse_text(text, "ext1.prm")).settings(registered, method=METHODS[1])
    source = KINDS["postgresql"].methods[METHODS[1]].source(settings, print, print, DdlCounts())
    trail = TrailName(str(folder / "dirdat"), "lt")
    extract = Extract.start(RealFs(), Settings("EXT1", "0" * 16, "host", trail, "lt"), source, RealClock())
    return measured(extract, changes + SINGLE), logged, plain, one, one_plain


def measure(run: Run) -> None:
    """Each time in databases and a folder of their own."""
    changes = scaled(run, CHANGES, A_TRANSACTION)
    found = []
    with PostgresServer(version=16, options=OPTIONS) as server:
        for number in range(run.runs):
            with tempfile.TemporaryDirectory() as folder:
                found.append(_figures(server, Path(folder), changes, number))
    for (case, who), values in zip(FIGURES, zip(*found, strict=True), strict=True):
        run.take(Line("triggers", case, who, "changes/s", values))
