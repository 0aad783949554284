"""The kinds of target that the contract suite runs over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replicat.targets.sqlite import link
from tests.contract.targets.bench import Bench
from tests.contract.targets.places import MysqlPlace, Place, PostgresPlace, SqlitePlace

KINDS = ["postgresql", "mariadb", pytest.param("mysql", marks=pytest.mark.soak), "sqlite"]


def _place(kind: str, fixture: Any, folder: Path) -> Place:
    if kind == "postgresql":
        return PostgresPlace(fixture("pg_target"), fixture("target_db"))
    if kind == "mariadb":
        return MysqlPlace(fixture("mariadb"), fixture("maria_db"))
    if kind == "mysql":
        return MysqlPlace(fixture("mysql"), fixture("mysql_db"))
    return SqlitePlace(folder)


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(link, "BUSY_SECONDS", 0.05)  # who finds the file locked is refused, and need not wait for it
    return _place(request.param, request.getfixturevalue, tmp_path)


@pytest.fixture
def bench(place: Place) -> Iterator[Bench]:
    made = Bench(place).open()
    yield made
    made.close()


@pytest.fixture
def kv(bench: Bench) -> Any:
    """The layout of a plain table `kv`."""
    bench.make("kv", "id:bigint a:short b:short", "id")
    return bench.layout()
