"""A transaction that an error broke, and whose error was lost, is never taken for committed."""

from __future__ import annotations

import contextlib

import psycopg
import pytest

from tests.support.direct_target import Direct
from trails.errors import AwayError

pytestmark = pytest.mark.e2e


def test_i3_a_commit_that_was_a_rollback_is_no_commit(target_db: str) -> None:
    """PostgreSQL answers COMMIT of a broken transaction by ROLLBACK, and calls that no error: we do."""
    direct = Direct("postgres", target_db, "public")
    target = direct.open()
    try:
        before = target.load_row()
        direct.begin()
        with contextlib.suppress(psycopg.Error):
            target.database.run("SELECT 1 / 0")
        with pytest.raises(AwayError, match="answered COMMIT by ROLLBACK"):
            target.commit()
    finally:
        direct.close()
    again = Direct("postgres", target_db, "public")
    again.open()
    try:
        assert again.row == before
    finally:
        again.close()
