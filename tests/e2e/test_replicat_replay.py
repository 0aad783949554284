"""Net effects on real targets against serial replay: thousands of small random cases side by side in one batch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from replicat.model.plan import TablePlan
from replicat.model.target import CheckpointRow, Layout, Rows, Work
from replicat.targets.contract import TargetSettings
from replicat.targets.kinds import admin_for, open_target
from replicat.work.net.compact import Net
from replicat.work.net.overlay import Overlay
from replicat.work.net.rows import net_rows, overlay_rows
from tests.support.replay import PARTLY, WHOLE, Change, Table, feed, overlaid, starts, strictly
from trails.position import Position

pytestmark = pytest.mark.e2e

COLUMNS = ("k", "a", "b", "own")


@dataclass
class Place:
    """A target with an open transaction, and its table `t`."""

    target: Any
    schema: str


@pytest.fixture(params=["source_db", "target_db", "maria_db", "sqlite"], ids=["pg16", "pg18", "mariadb", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Each kind of target."""
    if request.param == "sqlite":
        url, schema, checkpoints = f"sqlite:///{tmp_path}/target.db", "main", "main"
    elif request.param == "maria_db":
        schema = checkpoints = request.getfixturevalue("maria_db")
        url = request.getfixturevalue("mariadb").url(schema)
    else:
        url, schema, checkpoints = request.getfixturevalue(request.param), "public", "gg"
    admin_for(url).add_row_table(url, (checkpoints, "chk"))
    target: Any = open_target(TargetSettings(url, (checkpoints, "chk"), "REP1", 7))
    target.connect()
    target.add_row(CheckpointRow(Position(0, 0)))
    target.database.run(f"CREATE TABLE {schema}.t (k varchar(30) PRIMARY KEY, a text, b text, own text)")
    target.begin(CheckpointRow(Position(0, 0)), CheckpointRow(Position(0, 1)))
    yield Place(target, schema)
    target.close()


def layout_of(place: Place, **more: Any) -> Layout:
    shape = place.target.table(place.schema, "t")
    assert shape is not None
    types = {column.name: column.type for column in shape.columns}
    plain = Layout(
        shape.schema, shape.name, COLUMNS[:3], tuple(types[name] for name in COLUMNS[:3]), ("k",),
        extras=("own",), extra_types=(types["own"],), logical=("text",) * 3,
    )  # fmt: skip
    return replace(plain, **more)


def fill(place: Place, tables: list[Table]) -> None:
    """Case n's rows, its number before their keys."""
    rows = [(f"{n}/{key}", *row[1:]) for n, table in enumerate(tables) for key, row in table.items()]
    whole = replace(layout_of(place), columns=COLUMNS, extras=(), extra_types=(), logical=("text",) * 4)
    whole = replace(whole, types=(*layout_of(place).types, "text"))
    place.target.apply((Work((Rows(whole, inserts=whole.blob(rows)[0]),)),))


def found(place: Place, cases: int) -> list[Table]:
    """What is there, by case."""
    tables: list[Table] = [{} for _ in range(cases)]
    for key, *rest in place.target.database.ask(f"SELECT k, a, b, own FROM {place.schema}.t"):
        number, _, own = key.partition("/")
        tables[int(number)][own] = (own, *rest)
    return tables


def numbered(case: int, change: Change) -> Change:
    kind, key, *rest = change
    return (kind, f"{case}/{key}", *([f"{case}/{rest[0]}", rest[1]] if rest else []))


@pytest.mark.parametrize("cases", [20, 1500])
@pytest.mark.parametrize("rewrite", [False, True])
def test_a_batch_ends_as_serial_replay_does(place: Place, cases: int, rewrite: bool):
    """OT-14 to OT-16: key changes, chains, swaps, columns that are missing, columns of the target's own."""
    dice, net = random.Random(cases), Net((0,))
    tables = [dice.choice(starts()) for _ in range(cases)]
    fill(place, tables)
    for case in range(cases):
        for number in range(dice.randrange(12)):
            change = dice.choice([*WHOLE, *PARTLY])
            after = strictly(tables[case], number, change)
            if after is not None:
                tables[case] = after
                feed(net, number, numbered(case, change))
    plan = TablePlan("s.t", "t", layout_of(place), (0,))
    place.target.apply((Work((net_rows(plan, net),)),), rewrite=rewrite)
    assert found(place, cases) == tables
    assert place.target.tally.collisions == {}


@pytest.mark.parametrize("cases", [20, 1500])
def test_OT_17_handlecollisions_ends_as_overlaid_replay_does(place: Place, cases: int):
    """Any changes, whatever the target has."""
    dice, net = random.Random(cases), Overlay((0,))
    tables = [dice.choice(starts()) for _ in range(cases)]
    fill(place, tables)
    for case in range(cases):
        for number in range(dice.randrange(8)):
            change = dice.choice([*WHOLE, *PARTLY])
            tables[case] = overlaid(tables[case], number, change)
            feed(net, number, numbered(case, change))
    plan = TablePlan("s.t", "t", layout_of(place, collisions=True), (0,))
    place.target.apply((Work((overlay_rows(plan, net),)),))
    assert found(place, cases) == tables
    assert min(place.target.tally.collisions[place.schema, "t"]) > 0
