"""COMPARE REPLICAT: what it costs the servers where all rows are equal, and whether it names what was planted.

Method: one table, filled alike at both ends, and a pipeline that runs. First all rows are equal, but for nothing, and
nobody writes: the CPU of each server is all that its processes use from the command's start to its end, those of the
replication included. Then 500 rows of the target are made different in seven ways, and 2,000 rows a second are changed
at the source while COMPARE runs: it must name the 500, each with its kind and its columns, and nothing else.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from benchmarks import machine
from benchmarks.bed import SOURCE_DB, TARGET_DB, Bed
from benchmarks.options import Run
from benchmarks.ours import Ours
from benchmarks.results import OURS, Line
from benchmarks.workloads import MARK, TABLE
from demo.patience import wait_for
from demo.pipeline import Options

ROWS = 10_000_000
PLANTED = 500
CHANGES_A_SECOND = 2_000
CHANGES_AT_ONCE = 10
CPU_BAR = 2.0
LONGEST = 3600.0
SHAPE = (f"ALTER TABLE {TABLE} ALTER amount TYPE numeric, ADD ratio float8 DEFAULT '-0'",)

KINDS = (
    ("missing", (), f"DELETE FROM {TABLE} WHERE id = %(id)s"),
    ("too many", (), f"UPDATE {TABLE} SET id = %(id)s + %(rows)s WHERE id = %(id)s"),
    ("different", ("score",), f"UPDATE {TABLE} SET score = -1 WHERE id = %(id)s"),
    ("different", ("tag",), f"UPDATE {TABLE} SET tag = '' WHERE id = %(id)s"),
    ("different", ("ratio",), f"UPDATE {TABLE} SET ratio = 0 WHERE id = %(id)s"),
    ("different", ("amount",), f"UPDATE {TABLE} SET amount = (amount || '0')::numeric WHERE id = %(id)s"),
    ("different", ("name",), f"UPDATE {TABLE} SET name = name || ' ' WHERE id = %(id)s"),
)
"""How the target's rows become other ones; the key of one that is too many leaves a row that is missing."""
NULLS = f"UPDATE {TABLE} SET tag = NULL WHERE (id - 1) % ({{step}} * {len(KINDS)}) = {{step}} * 3"
"""At both ends, of the rows whose tag will be an empty text."""
Told = dict[tuple[int, str], tuple[str, ...]]


def measure(run: Run) -> None:
    """Quiet and equal, then with differences under changes."""
    rows = max(20 * PLANTED, int(ROWS * run.scale))
    with Bed(tcp=run.tcp) as bed:
        run.say(f"compare: {rows:,} rows")
        bed.prepare(0)
        for server, name in ((bed.source, SOURCE_DB), (bed.target, TARGET_DB)):
            fill = f"CALL bench.insert_rows({rows}, 100000)"
            for statement in (*SHAPE, fill, NULLS.format(step=rows // PLANTED), "VACUUM (FREEZE, ANALYZE)"):
                server.sql(statement, name)
        options = Options(tables=("bench.*",), replicat=(f"SOURCEDB {bed.source_url()}",))
        with Ours(bed.source_url(), bed.target_url(), options) as ours:
            _Compare(run, bed, ours, rows).measure()


@dataclass(slots=True)
class _Compare:
    """One table and its pipeline."""

    run: Run
    bed: Bed
    ours: Ours
    rows: int

    def measure(self) -> None:
        """All figures."""
        self.ours.create()
        self.ours.source.run("START MANAGER", "START EXTRACT EXT1")
        self.ours.target.run("START MANAGER")
        self.ours.source.run("START EXTRACT PMP1")
        wait_for(lambda: bool(list(self.ours.target.home.glob("dirdat/rt*"))), lambda: "no trail arrives")
        self.ours.target.run("START REPLICAT REP1")
        self.bed.source.sql(MARK, SOURCE_DB)
        self.bed.await_marker(self.ours.check_alive)
        self._equal()
        expected = self._planted()
        self._under_changes(expected)

    def _equal(self) -> None:
        title = f"{self.rows:,} equal rows"
        found: dict[str, list[float]] = {}
        for _ in range(self.run.runs):
            servers = {"source": self.bed.source.pid or 0, "target": self.bed.target.pid or 0}
            before = {name: machine.server_seconds(pid) for name, pid in servers.items()}
            began = time.monotonic()
            table = self._compared()
            seconds = time.monotonic() - began
            if table["state"] != "equal" or table["rows"] != self.rows:
                raise AssertionError(f"expected {self.rows} equal rows, found {table}")
            for name, pid in servers.items():
                used = machine.server_seconds(pid) - before[name]
                found.setdefault(f"CPU us/row, {name} server", []).append(used / self.rows * 1e6)
            found.setdefault("rows/s", []).append(self.rows / seconds)
        for what, values in found.items():
            bar = CPU_BAR if what.startswith("CPU") else None
            self.run.take(Line("compare", title, OURS, what, tuple(values), bar, less=bar is not None))

    def _planted(self) -> Told:
        """Plant, and tell what must be named."""
        expected: Told = {}
        step = self.rows // PLANTED
        with psycopg.connect(self.bed.target.url(TARGET_DB), autocommit=True) as conn:
            number = 0
            while len(expected) < PLANTED:
                key, (what, columns, statement) = 1 + number * step, KINDS[number % len(KINDS)]
                if what == "too many":  # and one that is missing
                    expected[key, "missing"] = ()
                    if len(expected) == PLANTED:
                        statement = KINDS[0][2]
                    else:
                        expected[key + self.rows, what] = ()
                else:
                    expected[key, what] = columns
                conn.execute(statement.encode(), {"id": key, "rows": self.rows})
                number += 1
        return expected

    def _under_changes(self, expected: Told) -> None:
        began = time.monotonic()
        with self._changes() as changes:
            table = self._compared(check=False)
        seconds = time.monotonic() - began
        told = {(int(one["key"]["id"]), one["what"]): tuple(one["columns"]) for one in table["differences"]}
        wrong = [(key, expected.get(key), told.get(key)) for key in expected.keys() | told.keys()
                 if expected.get(key) != told.get(key)]  # fmt: skip
        case = f"{self.rows:,} rows, {PLANTED} planted, {CHANGES_A_SECOND:,} changes/s"
        for what, value, bar in (
            ("rows named wrongly, or not", float(len(wrong)), 0.0), ("rows unknown", float(table["unknown"]), 0.0),
            ("rows/s", self.rows / seconds, None), ("changes/s at the source", changes[0] / seconds, None),
        ):  # fmt: skip
            self.run.take(Line("compare", case, OURS, what, (value,), bar, less=bar is not None))
        if wrong:
            self.run.say(f"compare: (row, expected, told) {wrong[:10]} {table['reason']}")

    def _compared(self, *, check: bool = True) -> dict[str, Any]:
        command = f"COMPARE REPLICAT REP1, TABLE {TABLE} --json"
        out = self.ours.target.run(command, check=check, timeout=LONGEST).out
        (table,) = json.loads(out[out.index("{") : out.rindex("}") + 1])["tables"]
        found: dict[str, Any] = table
        return found

    @contextmanager
    def _changes(self) -> Iterator[list[int]]:
        """Rows that were not planted change while this lasts; of what is given, the first is their number."""
        stop, number = threading.Event(), [0]
        step = self.rows // PLANTED

        def write() -> None:
            statement = f"UPDATE {TABLE} SET version = version + 1, updated = clock_timestamp() WHERE id = ANY(%s)"
            with psycopg.connect(self.bed.source.url(SOURCE_DB), autocommit=True) as conn:
                began = time.monotonic()
                while not stop.is_set():
                    keys = [(number[0] + n) * 7919 % self.rows + 1 for n in range(CHANGES_AT_ONCE)]
                    conn.execute(statement, [[key for key in keys if key % step != 1]])
                    number[0] += CHANGES_AT_ONCE
                    stop.wait(max(0.0, began + number[0] / CHANGES_A_SECOND - time.monotonic()))

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield number
        finally:
            stop.set()
            thread.join()
