"""Lives of an Extract on a database captured by triggers: what they capture, and why they end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.mirror import Mirror
from tests.support.trail_script import TRAIL
from tests.support.trigger_source import TriggeredDb, capture, run_until_captured
from trails.errors import MismatchError, OperatorError
from trails.record import Op
from trails.testing import After, FaultFs

ITEM = "CREATE TABLE item (id int PRIMARY KEY, v text, n numeric)"


def changes(fs: FaultFs) -> list[tuple[Any, ...]]:
    """All changes of the trail: (op, table, image ...), images by value."""
    found = Mirror.of(fs, TRAIL, strict=False)
    return [(Op(op).name, table, *images) for op, table, *images in found.told]


def caught(db: TriggeredDb, fs: FaultFs, **settings: Any) -> list[tuple[Any, ...]]:
    """What a whole life captures, with all before it."""
    capture(db, fs, TRAIL, **settings)
    return changes(fs)


def refusal(db: TriggeredDb, fs: FaultFs) -> str:
    """Why the Extract does not start, or stops."""
    with pytest.raises((OperatorError, MismatchError)) as error:
        live(db, fs)
    fs.reboot(After.KILL)
    return str(error.value)


def live(db: TriggeredDb, fs: FaultFs) -> None:
    """A life whose end is a kill."""
    extract = db.extract(fs, TRAIL)
    try:
        run_until_captured(extract, db)
    finally:
        extract._source.close()
        extract._writer.abandon()


def mirrored(db: TriggeredDb, fs: FaultFs, *tables: str) -> None:
    """The trail, applied strictly, is the source."""
    mirror = Mirror.of(fs, TRAIL)
    for table in tables:
        rows = [tuple(None if v is None else str(v) for v in row) for row in db.rows(table)]
        assert sorted(rows, key=repr) == mirror.sorted(table), table
