"""Capture from an SQLite file's queue.

The queue is there before the process starts: half inserts, half updates of one table of five columns, in transactions
of a thousand. The clock runs from the first step of an Extract in this process to the last change synced in the trail,
with the rows deleted from the queue behind it. What the triggers cost the application is told beside it: the same
statements in a file without them.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from pathlib import Path

from benchmarks.options import Run
from benchmarks.results import OURS, Line
from extract.admin import answer
from extract.extract import Extract, Settings
from extract.kinds import KINDS
from extract.params import ExtractParams
from trails.clock import RealClock
from trails.fs import RealFs
from trails.position import TrailName
from trails.runtime.home.registration import Registered
from trails.runtime.language.params import parse_text
from trails.runtime.report.stats import DdlCounts

CHANGES = 400_000
WANTED = 60_000
A_TRANSACTION = 1000
TABLE = "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL, stock NUMERIC, note TEXT)"


def _fill(path: Path, changes: int) -> float:
    """Changes a second of an application that inserts rows and updates each of them once."""
    conn = sqlite3.connect(path, isolation_level=None)
    began = time.perf_counter()
    rows = changes // 2
    for first in range(0, rows, A_TRANSACTION):
        conn.execute("BEGIN")
        conn.executemany(
            "INSERT INTO item VALUES (?, ?, ?, ?, ?)",
            ((i, f"item {i}", i * 1.1, i % 100, "a note of some length") for i in range(first, first + A_TRANSACTION)),
        )
        conn.execute("COMMIT")
    for first in range(0, rows, A_TRANSACTION):
        conn.execute("BEGIN")
        conn.executemany(
            "UPDATE item SET price = price + 1, stock = stock - 1 WHERE id = ?",
            ((i,) for i in range(first, first + A_TRANSACTION)),
        )
        conn.execute("COMMIT")
    conn.close()
    return changes / (time.perf_counter() - began)


def ask(url: str, verb: str, **request: str) -> dict[str, object]:
    """One of ggsci's requests."""
    reply = answer({"verb": verb, "url": url, **request})
    assert reply.pop("ok"), reply
    return reply


def _figures(folder: Path, changes: int) -> tuple[float, float, float]:
    """Changes a second: captured, written with triggers, written without."""
    paths = [folder / "plain.db", folder / "shop.db"]
    for path in paths:
        conn = sqlite3.connect(path)
        conn.execute("PRAGMA journal_mode = WAL")
        conn.execute(TABLE)
        conn.close()
    plain = _fill(paths[0], changes)
    url = f"sqlite:///{paths[1]}"
    ask(url, "add_trandata", pattern="main.*")
    registered = Registered.of(ask(url, "register", group="EXT1", home_id="0" * 16))
    logged = _fill(paths[1], changes)
    (folder / "dirdat").mkdir(mode=0o700)
    text = f"EXTRACT ext1\nSOURCEDB {url}\nEXTTRAIL ./dirdat/lt\nTABLE main.*;\n"
    params = ExtractParams.from_statements(parse_text(text, "ext1.prm"))
    source = KINDS["sqlite"].methods["TRANLOG"].source(params.settings(registered), print, print, DdlCounts())
    trail = TrailName(str(folder / "dirdat"), "lt")
    extract = Extract.start(RealFs(), Settings("EXT1", "0" * 16, "host", trail, "lt"), source, RealClock())
    return measured(extract, changes), logged, plain


def measured(extract: Extract, changes: int) -> float:
    """Changes a second, from now until all of them are synced and released, and the queue has let go of them."""
    began = time.perf_counter()
    while extract.counters().operations < changes:
        if not extract.step():
            time.sleep(0.001)
    extract.flush()
    extract.close()
    return changes / (time.perf_counter() - began)


def scaled(run: Run, changes: int, a_transaction: int) -> int:
    """`run.scale` of so many changes, half of them inserts, in whole transactions."""
    return max(1, int(changes * run.scale) // (2 * a_transaction)) * 2 * a_transaction


def measure(run: Run) -> None:
    """Each time in a folder of its own."""
    changes = scaled(run, CHANGES, A_TRANSACTION)
    found = []
    for _ in range(run.runs):
        with tempfile.TemporaryDirectory() as folder:
            found.append(_figures(Path(folder), changes))
    captured, logged, plain = zip(*found, strict=True)
    case = f"{changes:,} changes, {A_TRANSACTION:,} a transaction"
    run.take(Line("sqlite", case, OURS, "changes/s", captured, WANTED if run.scale >= 1 else None))
    run.take(Line("sqlite", case, "application, with triggers", "changes/s", logged))
    run.take(Line("sqlite", case, "application, without", "changes/s", plain))
