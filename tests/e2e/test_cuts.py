"""Each link is cut at a few bytes, in each way, and heals. `python -m tests.support.cut_links` does it at all bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.mysqld import Mysqld
from demo.servers import PostgresServer
from tests.support import cut_links
from tests.support.front import tls_only

pytestmark = pytest.mark.e2e


def test_extract_from_postgresql(pg_source: PostgresServer, tmp_path: Path) -> None:
    """Its session and its stream; by TLS only, and libpq tries without it too."""
    with (
        tls_only(tmp_path, pg_source.port) as port,
        cut_links.extract_postgresql(pg_source, tmp_path, port) as exercise,
    ):
        assert exercise.drawn(2, 1) == []


def test_extract_from_mariadb(mariadb_source: Mysqld, tmp_path: Path) -> None:
    """Its session and its binary log."""
    with cut_links.extract_mysql(mariadb_source, tmp_path) as exercise:
        assert exercise.drawn(2, 2) == []


def test_replicat_to_postgresql(pg_target: PostgresServer, tmp_path: Path) -> None:
    """From its login to its commit; by TLS only."""
    with (
        tls_only(tmp_path, pg_target.port) as port,
        cut_links.replicat_postgresql(pg_target, tmp_path, port) as exercise,
    ):
        assert exercise.drawn(2, 3) == []


@pytest.mark.soak
def test_replicat_to_mariadb(mariadb: Mysqld, tmp_path: Path) -> None:
    """The same."""
    with cut_links.replicat_mysql(mariadb, tmp_path) as exercise:
        assert exercise.drawn(2, 4) == []


@pytest.mark.soak
def test_pump(tmp_path: Path) -> None:
    """Its question to the Manager, and its session with a Collector, by TLS; it goes on by itself.

    A plain session is cut at random bytes in test_link_crashes.py.
    """
    with cut_links.pump(tmp_path, secure=True) as exercise:
        assert exercise.drawn(2, 5) == []


def test_page(tmp_path: Path) -> None:
    """One page asks another."""
    with cut_links.page(tmp_path) as exercise:
        assert exercise.drawn(2, 6) == []
