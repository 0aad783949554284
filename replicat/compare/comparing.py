"""COMPARE REPLICAT: a group's tables, range by range, source against target while changes flow.

    all ranges      looked at at both ends, two at once; rows that differ are candidates
    candidates      read again as flight.py says, up to PASSES times: out of sync, equal, or unknown

Rule: only what is proved is reported as a difference, and only a table without any doubt as equal. Nothing is written,
to either end. Memory is bounded by RANGE_ROWS rows a thread, and by WAITING candidates beside those of one range, which
are judged before more ranges are looked at. A table with MOST rows that differ is told as that, by those that were
found first. A table without a key is one range; if its hashes differ, it is held as a digest for each row.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace

from replicat.compare.flight import Flight
from replicat.compare.pairing import Wish
from replicat.compare.ranges import ComparedRange, Key, Pair, RangeRows, RangeTask, RowDifference, compare_range, read
from replicat.load.chunk import SourceOf
from replicat.load.staging import bounds_of, opened
from replicat.reading.contract import Range, Reader
from replicat.reading.kinds import open_reader
from trails.errors import GateError

RANGE_ROWS = 50_000
FEWEST_ROWS = 1_000
"""Of a range, whatever the rate: each one is a statement at each end."""
MOST = 10_000
WAITING = 2_000
PASSES = 5
TASKS = 2
EQUAL, DIFFERS, UNKNOWN, LEFT_OUT = "equal", "different", "unknown", "not compared"


@dataclass(slots=True)
class TableResult:
    """What came of a table. `ranges` of `of_ranges` were looked at; `unknown`: rows that nobody could judge.

    `hashed`: of the rows, those that were not read, as their hashes are equal.
    `parts`: of each difference the range that it was found in.
    """

    wish: Wish
    state: str = LEFT_OUT
    reason: str = ""
    rows: int = 0
    ranges: int = 0
    of_ranges: int = 0
    unknown: int = 0
    hashed: int = 0
    differences: list[RowDifference] = field(default_factory=list)
    parts: list[Range] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Comparing:
    """How one COMPARE is done. `sample`: percent of the ranges of each table; `url`: the target's.

    `rate`: rows of the source a second at most, on average; 0: no limit.
    """

    source: SourceOf
    url: str = field(repr=False)
    flight: Flight = field(repr=False)
    sample: int = 100
    tell: Callable[[str], None] = lambda _line: None
    rows: int = RANGE_ROWS
    most: int = MOST
    waiting: int = WAITING
    passes: int = PASSES
    rate: int = 0
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)

    def table(self, wish: Wish) -> TableResult:
        """Compare one table; what goes wrong with it alone is its result."""
        result = TableResult(wish, reason=wish.why)
        if wish.pair is None:
            return result
        try:
            self._compare(result, wish.pair)
        except GateError as error:
            result.state, result.reason = UNKNOWN, str(error)
        return result

    def _compare(self, result: TableResult, pair: Pair) -> None:
        parts = self._parts(pair)
        result.of_ranges = len(parts)
        if self.sample < 100:
            parts = random.sample(parts, max(1, len(parts) * self.sample // 100))
        waiting: dict[Range, frozenset[Key]] = {}
        for one in self._looked(pair, parts):
            result.rows += one.rows
            result.hashed += one.hashed
            result.ranges += 1
            waiting |= {part: frozenset(row.key for row in rows) for part, rows in one.found.items()}
            self.tell(f"{result.wish.source}: {result.ranges} of {len(parts)} ranges, {result.rows} rows")
            if sum(map(len, waiting.values())) >= self.waiting:
                self._settle(result, pair, waiting)
            if len(result.differences) + result.unknown >= self.most and result.ranges < len(parts):
                result.reason = f"the comparison ended early: {self.most} rows differ or are unknown"
                result.unknown = max(1, result.unknown)
            if result.reason:
                break
        self._settle(result, pair, waiting)
        result.state = DIFFERS if result.differences else UNKNOWN if result.unknown else EQUAL

    def _parts(self, pair: Pair) -> list[Range]:
        if pair.keyless:
            return [Range()]
        rows = min(self.rows, max(FEWEST_ROWS, self.rate)) if self.rate else self.rows
        bounds = bounds_of(self.source, pair.source, rows)
        ends = [*bounds.lows, None]
        return [Range(bounds.orders, low, high) for low, high in zip([(), *bounds.lows], ends, strict=True)]

    def _looked(self, pair: Pair, parts: Sequence[Range]) -> Iterator[ComparedRange]:
        """Ranges as they are done; no more of them are begun than there are threads, and at a rate one by one."""
        left = iter(parts)
        tasks = 1 if self.rate else TASKS
        began, rows = time.monotonic(), 0
        with ThreadPoolExecutor(max_workers=tasks) as pool:
            running: set[Future[ComparedRange]] = set()
            while True:
                while len(running) < tasks and (part := next(left, None)) is not None:
                    running.add(pool.submit(compare_range, RangeTask(self.source, self.url, pair, part)))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for one in done:
                    found = one.result()
                    rows += found.rows
                    yield found
                if self.rate:
                    self.sleep(max(0.0, began + rows / self.rate - time.monotonic()))

    # Rows that differ at first sight

    def _settle(self, result: TableResult, pair: Pair, waiting: dict[Range, frozenset[Key]]) -> None:
        """Judge all that waits; what can't be judged is unknown."""
        self._judge(result, pair, waiting)
        result.unknown += sum(map(len, waiting.values()))
        waiting.clear()

    def _judge(self, result: TableResult, pair: Pair, waiting: dict[Range, frozenset[Key]]) -> None:
        """Takes from `waiting` what is judged."""
        for _ in range(self.passes):
            if not waiting:
                return
            self.tell(f"{result.wish.source}: {sum(map(len, waiting.values()))} rows are read again")
            source = opened(self.source)
            try:
                target = open_reader(self.url)
                try:
                    if not self._pass(result, pair, waiting, source, target):
                        return
                finally:
                    target.close()
            finally:
                source.close()

    def _pass(
        self, result: TableResult, pair: Pair, waiting: dict[Range, frozenset[Key]], source: Reader, target: Reader
    ) -> bool:
        """One more look at both ends; False if the group does not come on."""
        begin = self.flight.row()
        snapshot = source.begin(pair.source, begin.csn)
        rows = {part: RangeRows(pair, read(source, pair.source, part), only) for part, only in waiting.items()}
        source.end()
        if self.flight.wait(begin, snapshot.past) is None:
            result.reason = self.flight.late(snapshot.past)
            return False
        differences = {part: list(mine.against(read(target, pair.target, part))) for part, mine in rows.items()}
        touched = self.flight.touched(begin, self.flight.row(), pair, snapshot)
        for part, found in differences.items():
            sure = [one for one in found if touched is not None and one.key not in touched]
            result.differences += sure
            result.parts += [part] * len(sure)
            left = frozenset(one.key for one in found) - {one.key for one in sure}
            if left:
                waiting[part] = left
            else:
                del waiting[part]
        return True


def without_values(difference: RowDifference) -> RowDifference:
    """As it is told unless values were asked for."""
    return replace(difference, source=None, target=None)
