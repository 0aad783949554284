"""METRICS' bytes_out of a Replicat: the rows of committed transactions as they were handed to the target."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from demo.patience import wait_for
from replicat.targets.sqlite.link import connect
from tests.support.replicat_bench import Bench
from tests.support.replicat_trail import table
from trails.errors import AwayError
from trails.record import Op

pytestmark = pytest.mark.e2e

KV = table("src", "kv", "id v", "id")
MAKE = "CREATE TABLE {}kv (id varchar(20) PRIMARY KEY, v varchar(200))"
FEW, MANY = 3, 300
"""In PostgreSQL few rows stand in the statement, many are copied into a staging table."""


@pytest.fixture(params=["postgresql", "mysql", "sqlite"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """A Replicat on a target of this kind with an empty table."""
    if request.param == "mysql":
        server, name = request.getfixturevalue("mariadb"), request.getfixturevalue("maria_db")
        made = Bench(tmp_path, server.url(name), name)
        server.sql(MAKE.format(""), name)
    elif request.param == "sqlite":
        made = Bench(tmp_path, f"sqlite:///{tmp_path}/target.db", "main")
        conn = connect(made.url)
        conn.execute(MAKE.format(""))
        conn.close()
    else:
        made = Bench(tmp_path, request.getfixturevalue("target_db"), "public")
        with psycopg.connect(made.url, autocommit=True) as postgres:
            postgres.execute(MAKE.format("public.").encode())
    yield made
    made.feed.close()


def rows(count: int, value: str) -> list[list[str]]:
    return [[f"{count}-{number}", value] for number in range(count)]


def size_of(images: list[list[str]]) -> int:
    """Their length as they are handed over, as lines of text."""
    return sum(len("\t".join(image)) + 1 for image in images)


def written(process: Any) -> int:
    return process.counters().bytes_out


def test_bytes_into_the_target_are_those_of_the_rows(bench: Bench):
    """New rows exactly; changed and deleted ones at least by their keys."""
    for count in (FEW, MANY):
        new = rows(count, "x" * 50)
        bench.feed.tx(*((Op.INSERT, KV, image) for image in new))
        assert written(bench.run()) == size_of(new)
        changed = rows(count, "y" * 60)
        bench.feed.tx(*((Op.UPDATE, KV, image) for image in changed))
        assert size_of(changed) <= written(bench.run()) <= 2 * size_of(changed)
        bench.feed.tx(*((Op.DELETE, KV, image) for image in changed))
        keys = size_of([image[:1] for image in changed])
        assert keys <= written(bench.run()) <= 2 * keys
    assert written(bench.run()) == 0


def test_what_was_rolled_back_never_happened(bench: Bench):
    """A connection that goes before the commit: the rows are handed over again, and count once."""
    new = rows(MANY, "x")
    bench.feed.tx(*((Op.INSERT, KV, image) for image in new))
    process = bench.replicat()
    target = process._target
    commit = target.commit

    def gone() -> None:
        target.commit = commit  # type: ignore[method-assign]
        raise AwayError("gone")

    target.commit = gone  # type: ignore[method-assign]
    try:
        wait_for(lambda: process.step() or process.counters().operations)
        assert written(process) == size_of(new)
        assert target.tally.taken == 2 * size_of(new)
    finally:
        process.close()
