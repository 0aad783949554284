"""A transaction that is applied while it comes, in every target: no part of it is ever seen, whatever cuts it off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from replicat.run.replicat import Replicat
from replicat.targets.contract import Target
from tests.contract.targets.places import Place
from tests.support.replicat_bench import Bench
from tests.support.replicat_trail import table
from trails.record import Op

pytestmark = pytest.mark.e2e

KV = table("src", "kv", "id a", "id")
PIECES = 9
CHANGES = [*((Op.INSERT, KV, [str(n), "x" * n]) for n in range(100, 130)), (Op.DELETE, KV, ["1", None])]


class Early(Bench):
    """Pieces of five rows and more are applied as they come."""

    def options(self, target: Target) -> dict[str, Any]:
        return {"early_rows": 5}


@pytest.fixture
def bench(place: Place, tmp_path: Path) -> Iterator[Early]:
    made = Early(tmp_path, place.url, place.schema)
    place.sql("CREATE TABLE kv (id bigint PRIMARY KEY, a varchar(200))")
    made.feed.tx((Op.INSERT, KV, ["1", "a"]))
    yield made
    made.feed.close()


def _work(process: Replicat, until: Callable[[], bool] = lambda: True) -> None:
    while process.step() or not until():
        pass


def _seen(place: Place) -> list[str]:
    return [str(key) for (key,) in place.sql("SELECT id FROM kv ORDER BY id")]


ALL = [str(n) for n in range(100, 130)]


def test_nobody_sees_a_part_of_it(bench: Early, place: Place):
    """And its rows are there at once with its end: little is left to be done then."""
    with closing(bench.replicat()) as process:
        waits = process._target.kind.can.waits_open
        for piece in bench.feed.pieces(*CHANGES, pieces=PIECES):
            _work(process)
            assert _seen(place) == (ALL if piece == PIECES - 1 else ["1"])
            assert process._phase.name == ("OPEN" if waits and 0 < piece < PIECES - 1 else "READY"), piece
    assert not [text for text in bench.notes if "rolled back" in text]


@pytest.mark.parametrize("cut_at", [4, PIECES - 1])
def test_a_connection_that_is_cut_in_the_middle_leaves_nothing(bench: Early, place: Place, cut_at: int):
    """Then it arrives whole, once."""
    with closing(bench.replicat()) as process:
        for piece in bench.feed.pieces(*CHANGES, pieces=PIECES):
            if piece == cut_at:
                place.cut(process._target)
            _work(process, lambda: not process._away)
        _work(process, lambda: _seen(place) == ALL)
    assert bench.run()._row.position == process._row.position


def test_a_part_that_collides_is_judged_as_in_any_transaction(bench: Early, place: Place):
    """Row 1 was deleted by somebody: the last change finds none, and is judged as in any transaction."""
    bench.lines = ["HANDLECOLLISIONS"]
    place.sql("DELETE FROM kv")
    with closing(bench.replicat()) as process:
        for _ in bench.feed.pieces(*CHANGES, (Op.INSERT, KV, ["100", "again"]), pieces=PIECES):
            _work(process)
    assert _seen(place) == ALL
    assert ("again",) in place.sql("SELECT a FROM kv WHERE id = 100")
