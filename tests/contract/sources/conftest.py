"""The kinds of source that the contract suite runs over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from extract.sources.postgres.triggers import reader as triggers
from extract.sources.sqlite import link, reader
from tests.contract.sources.bench import SourceBench
from tests.contract.sources.places import BinlogPlace, PostgresPlace, SourcePlace, SqlitePlace, TriggerPlace
from trails.position import Position

KINDS = ["postgresql", "triggers", "sqlite", "mariadb", pytest.param("mysql", marks=pytest.mark.soak)]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SourcePlace:
    """An empty database. What is asked for goes over in small pieces, and who finds a file locked does not wait."""
    if request.param == "postgresql":
        return PostgresPlace(request.getfixturevalue("pg_source"), request.getfixturevalue("source_db"))
    if request.param == "triggers":
        monkeypatch.setattr(triggers, "PIECE_BYTES", 1 << 14)
        return TriggerPlace(request.getfixturevalue("postgres_plain"), request.getfixturevalue("plain_db"))
    if request.param in ("mariadb", "mysql"):
        return _binlog_place(request, monkeypatch)
    monkeypatch.setattr(reader, "PIECE_BYTES", 1 << 14)
    monkeypatch.setattr(reader, "BUSY_SECONDS", 0.05)
    monkeypatch.setattr(link.connect, "__defaults__", (0.05,))
    return SqlitePlace(tmp_path)


def _binlog_place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> BinlogPlace:
    """The place sees what the source is told to let go of."""
    from extract.sources.mysql.source import MysqlSource

    get = request.getfixturevalue
    other = "mariadb" if request.param == "mysql" else "mysql"
    database = get(f"{request.param}_source_db")
    place = BinlogPlace(get(f"{request.param}_source"), database, lambda: get(f"{other}_source"))
    release = MysqlSource.release

    def seen(source: MysqlSource, origin: Position) -> None:
        place.released = origin
        release(source, origin)

    monkeypatch.setattr(MysqlSource, "release", seen)
    return place


@pytest.fixture
def bench(place: SourcePlace) -> Iterator[SourceBench]:
    """A group on it, not registered yet."""
    made = SourceBench(place)
    yield made
    made.end()
