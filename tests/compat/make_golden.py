"""Write the golden files of today's format version. Run it once per version; the files are never written anew.

    python -m tests.compat.make_golden tests/compat/v1

A later addition to a version has a part of its own, written alone: `... tests/compat/v1 ddl`, `sealed` or `state`.
"""

from __future__ import annotations

import os
import sys

from tests.support.ddl_trail import write_ddl_trail
from tests.support.trail_script import IDENTITY, MAX_BYTES, SCRIPT, write_tx
from tests.unit.test_checkpoint import sample
from trails import checkpoint
from trails.crypt import KEY_SIZE, MasterKey, Wallet, save_wallet
from trails.format import Indicator
from trails.fs import RealFs
from trails.heartbeat import Beat, Stamp, block_records
from trails.position import Position, TrailName
from trails.record import Op
from trails.recovery import Mark
from trails.writer import TrailWriter

BEAT = Beat("shop", "e" * 32, 9, 60, -5, (Stamp("EXTRACT", "EXT1", 12, 0), Stamp("PUMP", "PMP1", 14, None)))


def ddl(folder: str) -> None:
    """A trail with schema changes: DDL records in blocks of their own."""
    trail = TrailName(folder, "dd")
    write_ddl_trail(RealFs(), trail)
    os.unlink(trail.lock_path())


def sealed(folder: str) -> None:
    """A home's dirdat and dirwlt: the script, encrypted under two versions of the master key, and a heartbeat block."""
    fs, trail, wallet = RealFs(), TrailName(os.path.join(folder, "dirdat"), "as"), os.path.join(folder, "dirwlt")
    fs.makedirs(trail.folder)
    fs.makedirs(wallet)
    keys = [MasterKey(n, n, bytes([n]) * KEY_SIZE) for n in (1, 2)]
    for number, part in enumerate((SCRIPT[:5], SCRIPT[5:])):
        save_wallet(fs, wallet, Wallet("golden", tuple(keys[: number + 1])))
        writer = TrailWriter.open(
            fs, trail, IDENTITY, max_bytes=MAX_BYTES, start=Mark(), restart_open=True, encrypt=True
        )
        for tx in part:
            write_tx(writer, tx)
        if number:
            writer.append_data(
                Indicator.WHOLE, [], block_records(BEAT, (Op.BEGIN, "00000009", "9", 9)), changes=0, transactions=1,
                origin=Position(0, 9), csn="00000009", time_us=9, heartbeat=True,
            )  # fmt: skip
        writer.close()
    os.unlink(trail.lock_path())


def state(folder: str) -> None:
    """A trail whose source has a state: at small and large transactions and places, and one that begins a file."""
    fs, trail = RealFs(), TrailName(folder, "st")
    writer = TrailWriter.open(fs, trail, IDENTITY, max_bytes=MAX_BYTES, start=Mark(), restart_open=True)
    for tx in SCRIPT:
        write_tx(writer, tx, f"state {tx.number // 2}")
    writer.append_place(Position(0, 9), 9, "state of a place")
    writer.close()
    writer = TrailWriter.open(fs, trail, IDENTITY, restart_open=True)
    writer.close()
    os.unlink(trail.lock_path())
    os.unlink(trail.last_path())


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
    {"ddl": ddl, "sealed": sealed, "state": state}.get(sys.argv[2] if len(sys.argv) > 2 else "", main)(sys.argv[1])
