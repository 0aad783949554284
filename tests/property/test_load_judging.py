"""Loading and applying in any order: whatever is copied when, the target ends as the source is, and is never refused.

A source commits transactions over a few keys; a commit stands in the log at once, and is seen by others a little later
(a standby is waited for). A Replicat takes batches of the log through its own Builder, strictly; a loader copies chunks
by snapshots, each of which must see what was left out. hypothesis chooses the order of all that.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replicat.load import loadtables
from replicat.load.chunk import Must
from replicat.load.loadtables import LoadRow
from replicat.model.loading import BYTES, INT, LoadAgainError, Loading, Seen, ordered
from replicat.model.plan import TablePlan
from replicat.model.target import Bag, Layout, Rows, Truncate
from replicat.work.builder import Builder
from tests.support.list_target import Effect, ListTarget, Store
from trails.record import BEGIN, COMMIT, DELETE, INSERT, TRUNCATE, UPDATE

KEYS = ["-3", "1", "2", "10", "11", "30"]
CHUNKS = [("1",), ("10",)]
TABLE = b"t" * 16
XIDS = 4_294_967_290
"""Numbers of transactions go round behind a few."""
LAYOUT = Layout("s", "t", ("k", "v"), ("text",) * 2, ("k",))
PLACE = ("s", "t")


@dataclass
class Source:
    """`log`: what was committed, in order; `shown`: how many of these others see, and which later ones."""

    rows: dict[str, str] = field(default_factory=lambda: dict.fromkeys(KEYS[::2], "0"))
    log: list[tuple[int, list[Any]]] = field(default_factory=list)
    before: list[dict[str, str]] = field(default_factory=list)
    hidden: set[int] = field(default_factory=set)

    def commit(self, ops: list[tuple[str, int, int]], *, hides: bool) -> None:
        """One transaction of changes that fit."""
        xid, records = XIDS + len(self.log), []
        for number, (op, one, other) in enumerate(ops):
            key, new, value = KEYS[one], KEYS[other], f"{xid}.{number}"
            if op == "truncate":
                self.rows = {}
                records.append((TRUNCATE, (0,), 0))
            elif key not in self.rows:
                self.rows[key] = value
                records.append((INSERT, 0, (key, value)))
            elif op == "delete":
                records.append((DELETE, 0, (key, self.rows.pop(key))))
            elif op == "move" and new not in self.rows:
                was = self.rows.pop(key)
                self.rows[new] = value
                records.append((UPDATE, 0, (new, value), (key, was)))
            else:
                self.rows[key] = value
                records.append((UPDATE, 0, (key, value), None))
        self.log.append((xid, records))
        if hides:
            self.hidden.add(xid)

    def seen_rows(self, start: dict[str, str]) -> tuple[Seen, dict[str, str]]:
        """A snapshot: what it sees, and the rows as it sees them (hidden transactions touch no row that others did)."""
        rows = dict(start)
        for xid, records in self.log:
            for record in records if xid not in self.hidden else ():
                if record[0] == TRUNCATE:
                    rows = {}
                elif record[0] == DELETE:
                    rows.pop(record[2][0], None)
                else:
                    if record[0] == UPDATE and record[3] is not None:
                        rows.pop(record[3][0], None)
                    rows[record[2][0]] = record[2][1]
        top = max((xid for xid, _ in self.log if xid not in self.hidden), default=XIDS - 1) + 1
        hidden = {xid for xid in self.hidden if xid < top}
        return Seen("xid", "", min(hidden, default=top), top, frozenset(hidden)), rows

    @property
    def newest(self) -> int:
        """The last number given, shown or not; the log has it in 32 bits."""
        return (XIDS + len(self.log) - 1) % (1 << 32)

    def touches(self, ops: list[tuple[str, int, int]]) -> bool:
        """Whether a hidden transaction holds a lock on one of these rows: then nobody can change it."""
        if not self.hidden:
            return False
        held = set()
        for xid, records in self.log:
            if xid in self.hidden:
                for record in records:
                    images = [record[1]] if record[0] == TRUNCATE else record[2:]
                    held |= {image[0] for image in images if isinstance(image, tuple)}
                    if record[0] == TRUNCATE:
                        return True
        return any(op == "truncate" or KEYS[one] in held or KEYS[other] in held for op, one, other in ops)


class Gate:
    """The target, and what Replicat and its load know. `chunks`: of each its snapshot, as text; empty is planned."""

    def __init__(self, source: Source, *, keyed: bool) -> None:
        self.source = source
        self.start = dict(source.rows)
        self.target = ListTarget(Store(), [])
        self.target._tables = {PLACE: {}}
        self.at = 0
        self.chunks = [""] * (len(CHUNKS) + 1 if keyed else 1)
        self.lows = CHUNKS if keyed else []
        self.load = LoadRow()

    @property
    def rows(self) -> dict[str, str]:
        """Of the target."""
        return {row[0]: row[1] for row in self.target._tables[PLACE].values()}

    def loading(self) -> Loading:
        """As the table of chunks gives it."""
        lows = tuple(ordered((INT,), low) for low in self.lows)
        seen = tuple(Seen.parse(text) if text else None for text in self.chunks)
        return Loading((0,), (INT,) if lows else (), lows, seen)

    def apply(self, number: int) -> None:
        """A batch of so many transactions."""
        plan = TablePlan("s.t", "s.t", LAYOUT, (0,), loading=self.loading())
        records: list[Any] = []
        for xid, changes in self.source.log[self.at : self.at + number]:
            shown = str(xid % (1 << 32))
            records += [(BEGIN, f"{xid:020}", shown, 0), *changes, (COMMIT, len(changes))]
        builder = Builder({TABLE: (plan,)})
        try:
            builder.add([TABLE], records)
        except LoadAgainError:
            self.target._tables[PLACE] = {}
            self.chunks = [""] * len(self.chunks)
            self.apply(number)
            return
        part = builder.finish()
        for step in part.steps:
            if isinstance(step, Truncate):
                self.target._tables[PLACE] = {}
                continue
            for rows in step.rows:
                assert isinstance(rows, Rows)
                Effect(self.target, rows, rewrite=False).apply()
            assert not any(isinstance(bag, Bag) for bag in step.bags)
        xids = {int(xid) for xid in part.waits}
        self.load = LoadRow.read(0, 0, replace(self.load, left_out=self.load.left_out | xids).bounded().noted)
        assert len(self.load.left_out) <= loadtables.MOST_NOTED
        self.at = min(len(self.source.log), self.at + number)

    def reload(self) -> None:
        """The table is emptied and loaded anew, whatever was applied of it, and whatever is hidden by now."""
        self.target._tables[PLACE] = {}
        self.chunks = [""] * len(self.chunks)
        self.load = LoadRow(below=self.source.newest)

    def copy(self, chunk: int) -> None:
        """A chunk, if it is planned and a snapshot sees what it must."""
        seen, rows = self.source.seen_rows(self.start)
        if self.chunks[chunk] or Must("", self.load.left_out, self.load.below).lacks(seen):
            return
        loading = self.loading()
        for key, value in rows.items():
            if loading.chunk((key, value)) == chunk:
                assert (key,) not in self.target._tables[PLACE]
                self.target._tables[PLACE][(key,)] = (key, value)
        self.chunks[chunk] = str(seen)
        assert str(Seen.parse(str(seen))) == str(seen)


OPS = st.lists(
    st.tuples(st.sampled_from(["put", "put", "delete", "move", "move"]), st.integers(0, 5), st.integers(0, 5)),
    min_size=1, max_size=4,
)  # fmt: skip
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), OPS, st.booleans()),
        st.tuples(st.just("truncate")),
        st.tuples(st.just("show")),
        st.tuples(st.just("reload")),
        st.tuples(st.just("apply"), st.integers(1, 4)),
        st.tuples(st.just("copy"), st.integers(0, 2)),
    ),
    max_size=40,
)


@pytest.fixture
def few_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loadtables, "MOST_NOTED", 2)


@pytest.mark.usefixtures("few_are_noted")
@pytest.mark.parametrize("keyed", [True, False])
@given(steps=STEPS)
@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
def test_B9_GG_01_loaded_and_applied_in_any_order_the_target_is_the_source(keyed: bool, steps: list[Any]):
    """No gap, no double, nothing refused; key changes between chunks, TRUNCATE and RELOAD among it; numbers that go
    round, and are noted by the last of them where they are many.
    """
    source = Source()
    gate = Gate(source, keyed=keyed)
    for what, *more in steps:
        if what == "commit" and not source.touches(more[0]):
            source.commit(more[0], hides=more[1])
        elif what == "truncate" and not source.touches([("truncate", 0, 0)]):
            source.commit([("truncate", 0, 0), ("put", 1, 1)], hides=False)
        elif what == "show":
            source.hidden.clear()
        elif what == "reload":
            gate.reload()
        elif what == "apply":
            gate.apply(more[0])
        elif what == "copy" and more[0] < len(gate.chunks):
            gate.copy(more[0])
    source.hidden.clear()
    for chunk in range(len(gate.chunks)):
        gate.copy(chunk)
    gate.apply(len(source.log))
    for chunk in range(len(gate.chunks)):  # a TRUNCATE at the end has the load begin anew
        gate.copy(chunk)
    assert all(gate.chunks)
    assert gate.rows == source.rows


def test_keys_compare_as_the_source_has_them():
    """Numbers by value, texts and bytes by their bytes, several columns one after the other."""
    assert ordered((INT,), ["-10"]) < ordered((INT,), ["9"]) < ordered((INT,), ["10"])
    assert ordered((BYTES,), ["Z"]) < ordered((BYTES,), ["a"]) < ordered((BYTES,), ["ä"]) < ordered((BYTES,), ["😀"])
    assert ordered((BYTES,), [b"\x7f"]) < ordered((BYTES,), [b"\x80"])
    assert ordered((INT, BYTES), ["1", "b"]) < ordered((INT, BYTES), ["2", "a"])
    with pytest.raises(ValueError, match="NULL or missing"):
        ordered((INT,), [None])


@pytest.mark.parametrize("text", ["", "xid", "xid 1:2", "xid a:b:", "csn", "what 1"])
def test_what_a_snapshot_sees_is_read_or_refused(text: str):
    """The texts of the target's table are checked, as anybody may have changed them."""
    with pytest.raises(ValueError, match=r"expected|invalid|unpack"):
        Seen.parse(text)


def test_csn_and_tick():
    """Up to a CSN all is seen; of a tick that is later a part may be."""
    assert Seen.parse("csn 0:7").sees("0:7", "") is True
    assert Seen.parse("csn 0:7").sees("0:8", "") is False
    assert Seen.parse("tick 7").sees("6", "") is True
    assert Seen.parse("tick 7").sees("8", "") is None
    assert replace(Seen.parse("xid 5:9:6,8")).sees("", "7") is True
