"""Write the golden files of today's format version. Run it once per version; the files are never written anew.

    python -m tests.compat.make_golden tests/compat/v1

A later addition to a version has a part of its own, written alone: `... tests/compat/v1 ddl`.
"""

from __future__ import annotations

import os
import sys

from tests.support.ddl_trail import write_ddl_trail
from tests.support.trail_script import IDENTITY, MAX_BYTES, SCRIPT, write_tx
from tests.unit.test_checkpoint import sample
from trails import checkpoint
from trails.format import Indicator
from trails.fs import RealFs
from trails.position import TrailName
from trails.writer import Mark, TrailWriter


def ddl(folder: str) -> None:
    """A trail with schema changes: DDL records in blocks of their own."""
    trail = TrailName(folder, "dd")
    write_ddl_trail(RealFs(), trail)
    os.unlink(trail.lock_path())


def main(folder: str) -> None:
    """A trail with the script, an abandoned transaction and its RESTART in between; and a checkpoint file."""
    fs, trail = RealFs(), TrailName(folder, "lt")
    options = {"max_bytes": MAX_BYTES, "start": Mark(), "restart_open": True}
    writer = TrailWriter.open(fs, trail, IDENTITY, **options)  # type: ignore[arg-type]
    for tx in SCRIPT[:4]:
        write_tx(writer, tx)
    mark, records = writer.last, SCRIPT[5].records()[:10]
    writer.define([SCRIPT[5].table])
    writer.append_data(
        Indicator.BEGIN, [SCRIPT[5].table.id], records, changes=9, transactions=0, origin=mark.origin, csn=mark.csn,
        time_us=5,
    )  # fmt: skip
    writer.close()
    writer = TrailWriter.open(fs, trail, IDENTITY, **options)  # type: ignore[arg-type]
    for tx in SCRIPT[4:]:
        write_tx(writer, tx)
    writer.close()
    os.unlink(trail.lock_path())
    checkpoint.save(fs, os.path.join(folder, "EXT1.cpe"), sample(1))


if __name__ == "__main__":
    {"ddl": ddl}.get(sys.argv[2] if len(sys.argv) > 2 else "", main)(sys.argv[1])
