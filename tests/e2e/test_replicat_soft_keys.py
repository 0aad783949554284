"""Keys that the target compares without case (citext, collations of ICU), which Debian's server has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.servers import PostgresServer
from tests.e2e.test_replicat_postgres import Bench, D, I, U
from tests.support.replicat_trail import table

pytestmark = pytest.mark.e2e

KV = table("src", "kv", "id v", "id")
SETUP = """
CREATE SCHEMA ext; CREATE EXTENSION citext SCHEMA ext;
CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE DOMAIN folded AS text COLLATE nocase;
"""
TYPES = ["ext.citext", "varchar(9) COLLATE nocase", "folded"]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Debian's own."""
    with PostgresServer(version="system", tcp=True) as made:
        yield made


@pytest.fixture(params=TYPES)
def bench(request: pytest.FixtureRequest, tmp_path: Path, server: PostgresServer) -> Iterator[Bench]:
    name = f"t{TYPES.index(request.param)}_{abs(hash(str(tmp_path))) % 10**9}"
    server.sql(f"CREATE DATABASE {name}")
    made = Bench(tmp_path, server.url(name))
    made.sql(SETUP)
    made.sql(f"CREATE TABLE kv (id {request.param} PRIMARY KEY, v text, own int DEFAULT 7)")
    yield made
    made.feed.close()


@pytest.mark.parametrize("mode", ["", "HANDLECOLLISIONS", "UPDATEINSERTS"])
def test_one_row_whatever_its_case(bench: Bench, mode: str):
    """Source and target both take ab for AB: the order of changes decides; a change of case is no other key."""
    bench.maps = f"{mode}\nMAP src.*, TARGET public.*;"
    bench.feed.tx((I, KV, ["ab", "1"]), (U, KV, ["AB", "2"], ["ab", "1"]), (I, KV, ["c", "3"]))
    bench.feed.tx((D, KV, ["AB", None]), (I, KV, ["aB", "5"]))
    bench.run()
    assert bench.sql("SELECT id::text, v, own FROM kv ORDER BY v") == [("c", "3", 7), ("aB", "5", 7)]
    bench.sql("UPDATE kv SET own = 8")
    bench.feed.tx((U, KV, ["Ab", "6"], ["aB", "5"]), (U, KV, ["Ab", "7"]), (U, KV, ["d", "4"], ["c", "3"]))
    bench.run()
    assert bench.sql("SELECT id::text, v, own FROM kv ORDER BY v") == [("d", "4", 8), ("Ab", "7", 8)]
    bench.feed.tx((D, KV, ["Ab", None]), (D, KV, ["d", None]))
    bench.run()
    assert bench.sql("SELECT * FROM kv") == []


def test_two_rows_of_the_source_that_are_one_here(bench: Bench):
    """A source with case, a target without: refused, never one written over the other."""
    bench.feed.tx((I, KV, ["ab", "1"]))
    bench.run()
    bench.lines = ["REPERROR (23505, IGNORE)"]
    bench.feed.tx((I, KV, ["AB", "2"]), (I, KV, ["c", "3"]))
    bench.run()
    assert bench.sql("SELECT id::text, v FROM kv ORDER BY v") == [("ab", "1"), ("c", "3")]
