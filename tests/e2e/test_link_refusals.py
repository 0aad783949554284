"""What must be refused, and said clearly; and ALTER, obeyed once."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from demo.patience import PATIENCE, wait_for
from tests.support.link import ITEMS, ORDERS, LinkBench, Source, records_of
from trails.position import Position
from trails.reader import BlockReader, last_header
from trails.record import TableDef

pytestmark = pytest.mark.e2e


@pytest.fixture
def bench(tmp_path):
    made = LinkBench(tmp_path)
    yield made
    made.close()


def drained_and_stopped(bench, **source) -> Source:
    made = Source(bench.fs, bench.local, **source)
    made.mixed(20)
    bench.start()
    bench.drain()
    assert bench.stop() == 0
    return made


def remove_trail(trail) -> None:
    for path in Path(trail.folder).glob(f"{trail.prefix}*"):
        path.unlink()


def test_a_source_trail_made_anew_is_refused(bench):
    """CW-02: another trail id than the one the remote trail copies; exit code 2, both ids named, nothing written."""
    source = drained_and_stopped(bench)
    before = records_of(bench.fs, bench.remote)
    source.writer.close()
    remove_trail(bench.local)
    Source(bench.fs, bench.local, seed=9).mixed(5)
    bench.start()
    code, text = bench.ended()
    assert code == 2
    assert "deleted and made anew" in text
    assert last_header(bench.fs, bench.local).trail_id.hex() in text
    assert records_of(bench.fs, bench.remote) == before


def test_another_pump_for_the_trail_is_refused(bench):
    """A home of another id with a group of the same name is another pump."""
    source = drained_and_stopped(bench)
    Path(bench.near.root, "dirpcs", "HOME").write_text("f" * 32 + "\n")
    source.mixed(3)
    bench.start()
    code, text = bench.ended()
    assert code == 2
    assert "belongs to pump PMP1 of home" in text


def test_a_trail_of_an_extract_is_refused(bench):
    """A pump does not add to what an Extract writes; the Manager passes the reason on, permanently."""
    Source(bench.fs, bench.remote, group="EXT9").mixed(2)
    Source(bench.fs, bench.local).mixed(2)
    bench.start()
    code, text = bench.ended()
    assert code == 2
    assert "written by Extract EXT9" in text


def test_a_purged_origin_is_refused(bench):
    """The file that the Collector's origin names is gone: a hole, refused with the file's name."""
    source = drained_and_stopped(bench, max_bytes=20_000)
    source.mixed(40)
    gone = bench.checkpoint().reads[0].current.seqno
    for seqno in range(gone + 1):
        Path(bench.local.path(seqno)).unlink()
    bench.start()
    code, text = bench.ended()
    assert code == 2
    assert bench.local.path(gone) in text


def test_a_deleted_remote_trail_behind_a_purged_local_one_is_refused(bench):
    """Origin 0/0 and no file 0: what stood before is lost, so the operator says where to begin, and that is obeyed."""
    source = drained_and_stopped(bench, max_bytes=20_000)
    remove_trail(bench.remote)
    Path(bench.local.path(0)).unlink()
    bench.start()
    code, text = bench.ended()
    assert code == 2
    assert "EXTSEQNO 1" in text
    bench.register(alter_no=1, alter={"seqno": 1, "rba": 0})
    source.small()
    source.sync()
    bench.start()
    bench.drain()
    found = records_of(bench.fs, bench.remote)
    assert found == records_of(bench.fs, bench.local)[-len(found) :]


def test_lost_and_old_checkpoint_files_change_nothing(bench):
    """CW-17's part: WELCOME decides, the checkpoint file only shows."""
    source = drained_and_stopped(bench)
    path = Path(bench.near.checkpoint("PMP1", "EXTRACT"))
    old = path.read_bytes()
    for change in (path.unlink, lambda: path.write_bytes(old)):
        change()
        source.mixed(20)
        bench.start()
        bench.drain()
        assert bench.stop() == 0
        bench.assert_equal()


def test_another_home_at_the_pumps_address_gets_nothing(bench, tmp_path):
    """On localhost, in plain TCP, after the checkpoint files were lost; ETROLLOVER leads there, and not back again."""
    source = drained_and_stopped(bench)
    other, trail = bench.second_home(tmp_path / "other")
    shutil.rmtree(bench.near.folder("dirchk"))
    os.mkdir(bench.near.folder("dirchk"), 0o700)
    source.mixed(5)
    bench.manager.home = other
    bench.start()
    code, said = bench.ended()
    assert (code, records_of(bench.fs, trail)) == (2, [])
    assert f"is of home {other.id}; PMP1 has sent this trail to home {bench.far.id}" in said
    bench.register(alter_no=1, alter={"seqno": 0, "rba": 0, "etrollover": True})
    bench.start()
    bench.drain()
    assert bench.stop() == 0
    assert records_of(bench.fs, trail) == records_of(bench.fs, bench.local)
    bench.manager.home = bench.far
    bench.start()
    code, said = bench.ended()
    assert code == 2
    assert f"is of home {bench.far.id}; PMP1 has sent this trail to home {other.id}" in said


def test_an_alter_is_obeyed_once(bench):
    """CW-19: a new number begins a new remote file and sends again from its position; the same number, once."""
    source = drained_and_stopped(bench)
    once = records_of(bench.fs, bench.local)
    bench.register(alter_no=5, alter={"seqno": 0, "rba": 0})
    for _ in range(3):
        bench.start()
        bench.drain()
        assert bench.stop() == 0
        assert last_header(bench.fs, bench.remote).alter == 5
        assert records_of(bench.fs, bench.remote) == once + once
    source.small()
    source.sync()
    bench.start()
    bench.drain()
    more = records_of(bench.fs, bench.local)
    assert records_of(bench.fs, bench.remote) == once + more
    assert bench.checkpoint() is not None


def test_etrollover_goes_on_in_a_new_file(bench):
    """ALTER ..., ETROLLOVER moves nothing but the remote file number, and is spent as well."""
    drained_and_stopped(bench)
    before = last_header(bench.fs, bench.remote).seqno
    bench.register(alter_no=1, alter={"etrollover": True})
    bench.start()
    bench.drain()
    assert last_header(bench.fs, bench.remote).seqno > before
    assert last_header(bench.fs, bench.remote).alter == 1
    bench.assert_equal()


def test_a_registration_older_than_the_remote_trail_is_refused(bench):
    """An ALTER whose number is spent already would be ignored in silence; so it is refused."""
    drained_and_stopped(bench)
    bench.register(alter_no=5, alter={"etrollover": True})
    bench.start()
    bench.drain()
    bench.stop()
    bench.register(alter_no=2, alter={"seqno": 0, "rba": 0})
    bench.start()
    code, text = bench.ended()
    assert code == 2
    assert "obeyed ALTER 5" in text


def test_CW_22_damage_in_the_local_trail_ends_the_pump(bench):
    """CW-22: file, RBA, expected and found; what stood before it was sent."""
    source = Source(bench.fs, bench.local)
    for _ in range(10):
        source.small()
    source.sync()
    path = Path(bench.local.path(0))
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    bench.start()
    code, text = bench.ended()
    assert code == 2
    assert path.name in text
    assert "expected CRC" in text


def test_CW_07_every_remote_file_is_readable_alone(bench):
    """CW-07: the remote trail rolls elsewhere, sessions begin past the definitions; each file names its tables."""
    bench.megabytes = 1
    bench.register()
    source = Source(bench.fs, bench.local, padding=3000, max_bytes=50 << 20)
    for _ in range(4):
        for _ in range(20):
            source.small(rows=10)
        source.sync()
        bench.start()
        bench.drain()
        bench.stop()
    assert last_header(bench.fs, bench.remote).seqno >= 4
    assert bench.assert_equal() == 240
    for seqno in range(last_header(bench.fs, bench.remote).seqno + 1):
        reader = BlockReader(bench.fs, bench.remote, Position(seqno, 0))
        while (block := reader.read()) is not None and block.start.seqno == seqno:
            pass
        assert {ORDERS.id, ITEMS.id} <= set(reader.definitions)
        reader.close()


@pytest.mark.parametrize(
    "clauses",
    [
        "TABLE sales.*;",
        *(pytest.param(other, marks=pytest.mark.soak) for other in ("TABLEEXCLUDE sys.audit;", "NOPASSTHRU")),
    ],
)
def test_CW_05_a_filtering_pump_sends_its_tables_only(tmp_path, clauses):
    """CW-05: through kills of both sides, the remote trail is the local one less the other tables, counts right."""
    bench = LinkBench(tmp_path, parameters=clauses)
    try:
        keep = (lambda t: True) if clauses == "NOPASSTHRU" else (lambda t: t.schema == "sales")
        source = Source(bench.fs, bench.local, max_bytes=100_000)
        bench.start()
        for at in range(8):
            source.mixed(40)
            wait_for(lambda: bench.manager.collector is not None)
            (bench.manager.collector if at % 2 else bench.pump).kill()
            if not at % 2:
                bench.pump.wait()
                bench.start()
        source.small()
        source.sync()
        bench.drain()
        assert bench.assert_equal(keep) > 200
        tables = bench.ask("STATS")["tables"]
        assert {t["from"].split(".")[0] for t in tables} <= ({"sales", "sys"} if keep(None or ORDERS) else set())
    finally:
        bench.close()


LATER = TableDef("other", "later", ORDERS.columns)


def test_CW_06_nothing_passes_for_fifty_files_that_are_purged(tmp_path):
    """Places alone move the origin along, so both sides restart without what is gone; a row that passes arrives then.

    No file names a table that passes: a definition would move the origin too.
    """
    bench = LinkBench(tmp_path, parameters="TABLE other.*;")
    try:
        source = Source(bench.fs, bench.local, max_bytes=8_000)
        while source.writer.seqno < 51:
            source.small(3, 100)
        source.sync()
        bench.start()
        wait_for(lambda: _acked(bench) >= source.writer.seqno, told="origin at the last file")
        bench.stop()
        assert records_of(bench.fs, bench.remote) == []
        for seqno in range(source.writer.seqno):
            Path(bench.local.path(seqno)).unlink()
        bench.manager.collector.wait(PATIENCE)
        source.writer.define([LATER])
        source.small(1, 4, tables=(LATER,))
        source.sync()
        bench.start()
        bench.drain()
        (found,) = records_of(bench.fs, bench.remote)
        assert (found[0][3], len(found)) == (source.lsn, 1 + 4)
        assert {change[1] for change in found[1:]} == {LATER.full_name}
        assert bench.stop() == 0
    finally:
        bench.close()


def _acked(bench) -> int:
    checkpoint = bench.checkpoint()
    return checkpoint.reads[0].current.seqno if checkpoint else -1


def test_a_full_disk_is_told_and_survived(bench, tmp_path):
    """CW-28's part: the pump keeps trying with the Collector's text in its log; space made, everything arrives."""
    shim = tmp_path / "full.py"
    shim.write_text(FULL_DISK.format(flag=str(tmp_path / "full")))
    bench.manager.command = [*bench.manager.command[:1], str(shim)]
    source = Source(bench.fs, bench.local)
    source.mixed(10)
    bench.start()
    bench.drain()
    (tmp_path / "full").touch()
    source.mixed(20)
    told: list[str] = []

    def is_told() -> bool:
        told[:] = re.findall(r"Collector at .*No space left on device", Path(bench.near.ggserr).read_text())
        return bool(told)

    wait_for(is_told, bench.log)
    assert len(told) == len(set(told))  # each Collector, at its port, is told once, however often it is tried
    (tmp_path / "full").unlink()
    bench.drain()
    bench.assert_equal()


FULL_DISK = """
import errno, os, sys
from trails.errors import OperatorError
from trails.fs import RealFile
real = RealFile.write_at
def write_at(self, offset, data):
    if os.path.exists({flag!r}):
        raise OperatorError(f"cannot write {{self._path}}: {{os.strerror(errno.ENOSPC)}}", hint="Make space")
    real(self, offset, data)
RealFile.write_at = write_at
from collector.server import main
sys.exit(main(sys.argv[1:]))
"""


def test_parameter_mistakes_are_told_all_at_once(bench):
    """File, line, expected, found; exit code 2."""
    Path(bench.near.prm("PMP1")).write_text("EXTRACT PMP1\nRMTHOST h, MGRPORT x\nRMTTRAIL ./dirdat/toolong\nPASTHRU\n")
    bench.start()
    code, text = bench.ended()
    assert code == 2
    for part in ("pmp1.prm:2: RMTHOST", "pmp1.prm:3: RMTTRAIL", "did you mean PASSTHRU?"):
        assert part in text


def test_a_trail_that_was_not_added_is_refused(bench):
    """RMTTRAIL must be registered with ADD RMTTRAIL."""
    path = Path(bench.near.prm("PMP1"))
    path.write_text(path.read_text().replace("dirdat/rt", "dirdat/xx"))
    bench.start()
    code, text = bench.ended()
    assert code == 2
    assert "ADD RMTTRAIL ./dirdat/xx, EXTRACT PMP1" in text
    shutil.rmtree(bench.far.root)
