"""Today's reader reads the golden files of every format version there was, and a second version is told from damage."""

from __future__ import annotations

from pathlib import Path

import pytest

import trails.format
from tests.compat.make_golden import BEAT
from tests.support.ddl_trail import SCRIPT, read_ddl_trail
from tests.support.trail_script import expected, transactions
from tests.unit.test_checkpoint import sample
from trails import checkpoint
from trails.codec import decode_data, state_of
from trails.errors import VersionError
from trails.format import FileHeader
from trails.fs import RealFs
from trails.heartbeat import beat_of
from trails.position import TrailName
from trails.reader import BlockReader
from trails.segment import open_segment

VERSIONS = sorted(Path(__file__).parent.glob("v[0-9]*"))


def test_there_are_golden_files() -> None:
    """Version 1 is committed."""
    assert [path.name for path in VERSIONS] == ["v1"]


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda path: path.name)
def test_golden_trail_reads(folder: Path) -> None:
    """Every transaction of the golden trail, RESTART and rollovers included."""
    assert transactions(RealFs(), TrailName(str(folder), "lt")) == expected()


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda path: path.name)
def test_golden_trail_with_schema_changes_reads(folder: Path) -> None:
    """Every shape, flag and row around it."""
    assert read_ddl_trail(RealFs(), TrailName(str(folder), "dd")) == SCRIPT


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda path: path.name)
def test_golden_trail_with_states_reads(folder: Path) -> None:
    """Rows as without them; each state where it was news, and in the header of the file behind it."""
    trail = TrailName(str(folder), "st")
    assert transactions(RealFs(), trail) == expected()
    found = [block for block in iter(BlockReader(RealFs(), trail).read, None) if block.header.has_state]
    assert [(block.header.origin.rba, state_of(block.payload, "golden")) for block in found] == [
        *((number, f"state {number // 2}") for number in (1, 2, 4, 6, 8)), (9, "state of a place"),
    ]  # fmt: skip
    last = max(trail.seqnos(RealFs().listdir(trail.folder)))
    assert segment_header(trail, last).last_state == "state of a place"
    assert segment_header(trail, 0).last_state == ""


def test_a_reader_from_before_DDL_stops_at_its_block_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knew one flag, and took any other for a newer format: not for damage, and not for rows."""
    monkeypatch.setattr(trails.format, "FLAGS", trails.format.FLAG_LZ4)
    with pytest.raises(VersionError, match=r"dd000000000, RBA \d+: block flags 0x000[23]; this program knows 0x0001"):
        BlockReader(RealFs(), TrailName(str(VERSIONS[0]), "dd")).read()


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda path: path.name)
def test_golden_encrypted_trail_reads(folder: Path) -> None:
    """Under two versions of the master key, with a heartbeat block at its end."""
    trail = TrailName(str(folder / "dirdat"), "as")
    assert transactions(RealFs(), trail) == [*expected(), ("00000009", [])]
    *_, last = iter(BlockReader(RealFs(), trail).read, None)
    assert beat_of(decode_data(last.header, last.payload)[1], "golden")[1] == BEAT
    names = {segment_header(trail, seqno).key_id for seqno in trail.seqnos(RealFs().listdir(trail.folder))}
    assert names == {"golden:1", "golden:2"}


@pytest.mark.parametrize(("flag", "shown"), [(trails.format.FLAG_AES, "8-9a-d"), (trails.format.FLAG_HEARTBEAT, "4c")])
def test_a_reader_from_before_a_flag_stops_at_its_block(monkeypatch: pytest.MonkeyPatch, flag: int, shown: str) -> None:
    """Encryption, heartbeats: an unsupported version, not damage and not rows."""
    trail = TrailName(str(VERSIONS[0] / "dirdat"), "as")
    monkeypatch.setattr(trails.format, "FLAGS", trails.format.FLAGS & ~flag)
    reader = BlockReader(RealFs(), trail)
    with pytest.raises(VersionError, match=rf"as00000000\d, RBA \d+: block flags 0x000[{shown}]"):
        list(iter(lambda: reader.read(payload=False), None))


def segment_header(trail: TrailName, seqno: int) -> FileHeader:
    """The header of one file."""
    segment = open_segment(RealFs(), trail, seqno)
    segment.close()
    return segment.header


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda path: path.name)
def test_golden_checkpoint_reads(folder: Path) -> None:
    """The golden checkpoint's every field."""
    assert checkpoint.load(RealFs(), str(folder / "EXT1.cpe")) == [sample(1)]


def test_version_2_is_refused_as_such(tmp_path: Path) -> None:
    """A trail file that says version 2 is an unsupported version, not damage."""
    data = bytearray((VERSIONS[0] / "lt000000000").read_bytes())
    data[9] = 2
    (tmp_path / "lt000000000").write_bytes(bytes(data))
    with pytest.raises(VersionError, match="version 2"):
        BlockReader(RealFs(), TrailName(str(tmp_path), "lt")).read()
