"""Somebody may write to dirdat and has no key: what he does to an encrypted trail is found, or is said not to be.

The table in SECURITY.md, attack by attack. He makes every CRC fit. `read_all` is Replicat's way: it plans by
headers, then opens payloads, as workers do.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pump.params import PumpParams
from replicat.batches.batch import read_records
from replicat.batches.engine import SparkSettings, spark_options
from replicat.params import ReplicatParams
from tests.support.trail_script import IDENTITY, SCRIPT, expected, transactions, write_tx
from tests.unit.test_crypt import FS, KEY, make_home, writer_of
from trails import format as fmt
from trails.crypt import Wallet
from trails.errors import DamageError, GateError, MismatchError, VersionError
from trails.format import BlockHeader, BlockKind, FileHeader, Indicator
from trails.position import Position, TrailName
from trails.reader import BlockReader, is_encrypted
from trails.recovery import Mark
from trails.runtime.language.params import parse_text
from trails.segment import open_segment
from trails.show import dump
from trails.writer import TrailWriter


@pytest.fixture
def trail(tmp_path):
    """Three files with the script in each, a new start of the writer before the last, which is open."""
    name = make_home(tmp_path, Wallet("mine", (KEY,)))
    for numbers in ((0, 10), (20,)):
        writer = writer_of(name, max_bytes=1 << 20)
        for number in numbers:
            for tx in SCRIPT:
                write_tx(writer, replace(tx, number=tx.number + number))
            writer.append_place(Position(0, tx.number + number))
            if number == 0:
                writer.roll()
        writer.close()
    return name


WHOLE = [(f"{int(csn) + number:08d}", keys) for number in (0, 10, 20) for csn, keys in expected()]


def read_all(trail: TrailName, begin: Position | None = None) -> list[tuple[str, list[str]]]:
    """Every transaction: its CSN and how many rows (their keys, but for the number that the script gave)."""
    found = transactions(FS, trail, begin)
    return [(csn, [key.replace(f"{int(csn)}-", f"{(int(csn) - 1) % 10 + 1}-") for key in keys]) for csn, keys in found]


# --- the tools --------------------------------------------------------------------------------------------------------


def blocks_of(trail: TrailName, seqno: int) -> list[tuple[int, BlockHeader]]:
    """(RBA, header) of all blocks of a file, END too."""
    segment = open_segment(FS, trail, seqno)
    durable, rba, found = segment.read_durable_end(), segment.first_rba, []
    while rba < durable:
        header = segment.block_header(rba, durable)
        found.append((rba, header))
        rba += header.size
    segment.close()
    return found


def put(trail: TrailName, seqno: int, rba: int, header: BlockHeader, payload: bytes) -> int:
    """A block with CRCs that fit; where it ends."""
    header = replace(header, payload_len=len(payload), payload_crc=fmt.zlib.crc32(payload))
    data = fmt.make_block_header(header, fmt.file_seed(trail_id(trail), seqno), rba) + payload
    with open(trail.path(seqno), "r+b") as file:
        file.seek(rba)
        file.write(data)
    return rba + len(data)


def payload_of(trail: TrailName, seqno: int, rba: int, header: BlockHeader) -> bytes:
    segment = open_segment(FS, trail, seqno)
    try:
        return segment.plain(rba, header, sealed=True)[1]
    finally:
        segment.close()


def trail_id(trail: TrailName) -> bytes:
    return header_of(trail, 0).trail_id


def header_of(trail: TrailName, seqno: int) -> FileHeader:
    segment = open_segment(FS, trail, seqno)
    segment.close()
    return segment.header


def cut(trail: TrailName, seqno: int, end: int) -> None:
    """As if the file had never been longer."""
    with open(trail.path(seqno), "r+b") as file:
        file.truncate(end)
        file.seek(fmt.DURABLE_OFFSET)
        file.write(fmt.make_durable_end(end, fmt.file_seed(trail_id(trail), seqno)))


def put_header(trail: TrailName, seqno: int, **changes: object) -> None:
    """The file's header with other facts, its CRC made to fit; blocks and durable end as they were."""
    data = bytearray(Path(trail.path(seqno)).read_bytes())
    changed = replace(header_of(trail, seqno), **changes)  # type: ignore[arg-type]
    made = fmt.make_file_header(changed)
    assert len(made) == 4096
    made = made[:16] + bytes(data[16:32]) + made[32:]
    Path(trail.path(seqno)).write_bytes(made + bytes(data[4096:]))


def fillers(size: int) -> list[int]:
    """Sizes of PLACE blocks, plain and with a seal, that take exactly so many bytes; [] if there are none."""
    plain, sealed = fmt.BLOCK_HEADER_SIZE, fmt.BLOCK_HEADER_SIZE + fmt.SEAL_SIZE
    for count in range(size // sealed + 1):
        if (size - count * sealed) % plain == 0:
            return [sealed] * count + [plain] * ((size - count * sealed) // plain)
    return []


def test_untouched_it_reads(trail):
    """What the attacks begin from."""
    assert read_all(trail) == WHOLE
    assert {header.is_encrypted for seqno in (0, 1, 2) for _, header in blocks_of(trail, seqno)} == {True}


# --- attacks ----------------------------------------------------------------------------------------------------------


def a_payload_is_changed(trail: TrailName) -> None:
    rba, header = blocks_of(trail, 1)[2]
    payload = bytearray(payload_of(trail, 1, rba, header))
    payload[20] ^= 1
    put(trail, 1, rba, header, bytes(payload))


def a_header_says_other_counts(trail: TrailName) -> None:
    rba, header = blocks_of(trail, 1)[2]
    put(trail, 1, rba, replace(header, changes=header.changes + 1, csn="00000099"), payload_of(trail, 1, rba, header))


def rows_are_called_a_heartbeat(trail: TrailName) -> None:
    """Whoever applies changes would leave it out."""
    rba, header = blocks_of(trail, 1)[2]
    changed = replace(header, flags=header.flags | fmt.FLAG_HEARTBEAT, changes=0)
    put(trail, 1, rba, changed, payload_of(trail, 1, rba, header))


def rows_are_called_a_place(trail: TrailName) -> None:
    """As large as before: who plans by headers never reads it."""
    rba, header = blocks_of(trail, 1)[2]
    put(
        trail,
        1,
        rba,
        replace(header, kind=BlockKind.PLACE, indicator=Indicator.NONE),
        payload_of(trail, 1, rba, header),
    )


def places_stand_in_for_rows(trail: TrailName) -> None:
    """A run of blocks is overwritten with empty ones that take just as many bytes."""
    blocks = blocks_of(trail, 1)[:-1]
    first, sizes = next(
        (i, found)
        for i, j in itertools.combinations(range(1, len(blocks)), 2)
        if blocks[i][1].indicator in (Indicator.WHOLE, Indicator.BEGIN)
        and blocks[j - 1][1].indicator in (Indicator.WHOLE, Indicator.END)
        and (found := fillers(blocks[j][0] - blocks[i][0]))
    )
    rba, header = blocks[first]
    empty = BlockHeader(BlockKind.PLACE, origin=header.origin, csn=header.csn)
    for size in sizes:
        sealed = size > fmt.BLOCK_HEADER_SIZE
        payload = os.urandom(fmt.SEAL_SIZE) if sealed else b""
        rba = put(trail, 1, rba, replace(empty, flags=fmt.FLAG_AES if sealed else 0), payload)


def a_restart_drops_rows(trail: TrailName) -> None:
    """In place of the last block of a file: the END that stood there stands before it."""
    rba, _ = blocks_of(trail, 1)[-2]
    end = put(trail, 1, rba, BlockHeader(BlockKind.RESTART), b"")
    cut(trail, 1, put(trail, 1, end, BlockHeader(BlockKind.END), b""))


def a_file_ends_early(trail: TrailName) -> None:
    """A plain END before its last transactions, and the next file as it was."""
    rba, _ = blocks_of(trail, 1)[-4]
    cut(trail, 1, put(trail, 1, rba, BlockHeader(BlockKind.END), b""))


def its_own_end_comes_early(trail: TrailName) -> None:
    """The sealed END that the writer made, further in front."""
    blocks = blocks_of(trail, 1)
    end, header = blocks[-1]
    cut(trail, 1, put(trail, 1, blocks[-4][0], header, payload_of(trail, 1, end, header)))


def the_end_of_another_file(trail: TrailName) -> None:
    rba, header = blocks_of(trail, 2)[-1]
    payload = payload_of(trail, 2, rba, header)
    cut(trail, 1, put(trail, 1, blocks_of(trail, 1)[-4][0], header, payload))


def two_blocks_change_places(trail: TrailName) -> None:
    """Of the same size."""
    blocks = blocks_of(trail, 1)
    (a, first), (b, second) = next(
        (x, y) for x, y in itertools.combinations(blocks[1:-1], 2) if x[1].size == y[1].size and x[1].csn != y[1].csn
    )
    contents = payload_of(trail, 1, a, first), payload_of(trail, 1, b, second)
    put(trail, 1, a, second, contents[1])
    put(trail, 1, b, first, contents[0])


def one_file_stands_in_for_another(trail: TrailName) -> None:
    """Its header says the other's number, and all CRCs are made for that."""
    shutil.copy(trail.path(0), trail.path(1))
    with open(trail.path(1), "r+b") as file:
        data = file.read()
    header, _ = fmt.parse_file_header(data, "f")
    made = fmt.make_file_header(replace(header, seqno=1))
    Path(trail.path(1)).write_bytes(made + data[4096:])
    segment = open_segment(FS, trail, 0)
    durable, rba = segment.read_durable_end(), segment.first_rba
    while rba < durable:
        block = segment.block_header(rba, durable)
        rba = put(trail, 1, rba, block, segment.plain(rba, block, sealed=True)[1])
    cut(trail, 1, rba)


ATTACKS: list[Callable[[TrailName], None]] = [
    a_payload_is_changed, a_header_says_other_counts, rows_are_called_a_heartbeat, rows_are_called_a_place,
    places_stand_in_for_rows, a_restart_drops_rows, a_file_ends_early, its_own_end_comes_early,
    the_end_of_another_file, two_blocks_change_places, one_file_stands_in_for_another,
]  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_it_is_damage_and_nothing_is_left_out(trail, attack, capsys):
    """To Replicat, to a pump and to logdump --verify; the file is named, and all before it was given."""
    attack(trail)
    with pytest.raises(DamageError, match=r"lt000000001"):
        read_all(trail)
    reader = BlockReader(FS, trail)
    with pytest.raises(DamageError, match=r"lt000000001"):
        list(iter(reader.read, None))
    assert dump.main([str(trail), "--verify"]) == 2
    assert "DAMAGE" in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    "changes",
    [
        {"last_csn": "00000099"}, {"last_origin": Position(0, 99)}, {"open": True}, {"alter": 7}, {"home_id": "x"},
        {"last_state": "x"}, {"group": "EXT9"}, {"host": "x"}, {"source": {"kind": "other"}}, {"created_us": 5},
        {"charset": "x"},
    ],
    ids=lambda changes: next(iter(changes)),
)  # fmt: skip
def test_what_a_file_says_of_itself_can_not_be_changed(trail, changes):
    """Readers and the next writer go by it: where the source goes on, whose trail it is."""
    last = max(trail.seqnos(os.listdir(trail.folder)))
    put_header(trail, last, **changes)
    with pytest.raises(DamageError, match="the header or the wallet was changed"):
        read_all(trail)
    with pytest.raises(DamageError, match="the header or the wallet was changed"):
        writer_of(trail)


def test_a_writer_does_not_go_on_from_a_forged_place(trail):
    """Its last block says how far the source was read."""
    last = max(trail.seqnos(os.listdir(trail.folder)))
    rba, header = blocks_of(trail, last)[-1]
    put(trail, last, rba, replace(header, origin=Position(0, 10_000)), payload_of(trail, last, rba, header))
    with pytest.raises(DamageError, match=rf"RBA {rba}: expected a payload that this file's key opens"):
        writer_of(trail)


# --- cutting off, putting back ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["cut", "put back as it was", "without END"])
def test_a_file_in_the_middle_can_not_be_shortened(trail, how, tmp_path):
    """An older copy of itself is a shortened one."""
    rba, _ = blocks_of(trail, 1)[-4 if how != "without END" else -1]
    cut(trail, 1, rba)
    for attempt in (lambda: read_all(trail), lambda: read_all(trail, Position(1, rba))):
        with pytest.raises(DamageError, match="expected an END block, as a later file is in use"):
            attempt()


def test_a_file_in_the_middle_can_not_be_taken_away(trail):
    """Whoever comes to it, or stands in it, refuses."""
    os.unlink(trail.path(1))
    for begin in (Position(0, 0), Position(1, 4096)):
        with pytest.raises(MismatchError, match="it was purged or removed"):
            read_all(trail, begin)


def test_the_trails_end_can_be_cut_off_where_nobody_was_yet(trail):
    """Not found: it looks as a trail that was not written further."""
    last = max(trail.seqnos(os.listdir(trail.folder)))
    rba, _ = blocks_of(trail, last)[3]
    cut(trail, last, rba)
    assert 0 < len(read_all(trail)) < len(WHOLE)


@pytest.mark.parametrize("whole_file", [False, True])
def test_but_not_below_a_readers_place(trail, whole_file):
    """Behind it: nothing is given; and once a writer has gone on it is refused for good."""
    last = max(trail.seqnos(os.listdir(trail.folder)))
    blocks = blocks_of(trail, last)
    stood = Position(last, blocks[-1][0])
    if whole_file:
        os.unlink(trail.path(last))
    else:
        cut(trail, last, blocks[2][0])
    reader = BlockReader(FS, trail, stood)
    assert reader.read() is None
    writer = writer_of(trail, max_bytes=1 << 20)
    for number in (40, 50, 60):
        write_tx(writer, replace(SCRIPT[5], number=number))
    writer.roll()
    writer.close()
    with pytest.raises((DamageError, MismatchError)) as caught:
        reader.read()
    assert f"lt{last:09d}" in str(caught.value)


# --- plain files ------------------------------------------------------------------------------------------------------


def forge_plain(trail: TrailName, seqno: int) -> None:
    """A file of his own rows, not encrypted, that fits between the others."""
    header = replace(header_of(trail, seqno), key_id="", wrapped=b"")
    forger = TrailName(os.path.join(trail.folder, "forged"), "lt")
    FS.makedirs(forger.folder)
    writer = TrailWriter.open(FS, forger, IDENTITY, start=Mark(), restart_open=True, max_bytes=1 << 20)
    write_tx(writer, replace(SCRIPT[0], number=11))
    writer.roll()
    writer.close()
    segment = open_segment(FS, forger, 0)
    Path(trail.path(seqno)).write_bytes(fmt.make_file_header(header))
    durable, rba, to = segment.read_durable_end(), segment.first_rba, 4096
    while rba < durable:
        block = segment.block_header(rba, durable)
        to = put(trail, seqno, to, block, segment.plain(rba, block, sealed=True)[1])
        rba += block.size
    cut(trail, seqno, to)


def test_a_plain_file_in_place_of_an_encrypted_one_is_refused_by_decrypttrail(trail):
    """Without that parameter it is taken: ENCRYPTTRAIL may have been switched off. With it no plain file is."""
    forge_plain(trail, 1)
    assert len(read_all(trail)) == len(WHOLE) - len(expected()) + 1
    only = replace(trail, sealed=True)
    for begin in (None, Position(1, 0), Position(1, 4096)):
        with pytest.raises(
            MismatchError, match="lt000000001: DECRYPTTRAIL says that the trail is encrypted, found a pl"
        ):
            read_all(only, begin)


def test_pump_replicat_and_its_workers_are_told_of_decrypttrail(trail):
    """The parameter reaches whoever opens a file: those who plan, and those who decode elsewhere."""
    text = f"EXTRACT P\nRMTHOST h, MGRPORT 1\nRMTTRAIL ./rt\n{DECRYPT}"
    assert PumpParams.from_statements(parse_text(text, "p")).decrypt
    text = f"REPLICAT R\nTARGETDB sqlite:///x\n{DECRYPT}MAP s.*, TARGET main.*;\n"
    assert ReplicatParams.from_statements(parse_text(text, "r")).decrypt
    only = replace(trail, sealed=True)
    assert is_encrypted(FS, only)
    assert is_encrypted(FS, replace(only, prefix="no")), "also before it has a file"
    assert not is_encrypted(FS, replace(trail, prefix="no"))
    forge_plain(trail, 1)
    reader = BlockReader(FS, trail, Position(1, 0))
    reader.read(payload=False)
    planned = reader.read(payload=False)
    assert planned is not None
    assert len(read_records(FS, trail, trail_id(trail), reader.definitions, planned)) == 3
    with pytest.raises(MismatchError, match="DECRYPTTRAIL says"):
        read_records(FS, only, trail_id(trail), reader.definitions, planned)


DECRYPT = "DECRYPTTRAIL AES256\n"


@pytest.mark.parametrize("encrypted", [True, False])
def test_what_spark_writes_is_encrypted_where_the_trail_is(tmp_path, encrypted):
    """By a key that Spark makes and keeps in memory; SPARKOPTIONS have the last word."""
    settings = SparkSettings("t", str(tmp_path), "log", encrypted=encrypted)
    assert ("spark.io.encryption.enabled" in spark_options(settings)) is encrypted


@pytest.mark.parametrize("sealing", [1, 3])
def test_a_sealing_of_another_release_is_told_from_damage(trail, monkeypatch, sealing):
    """By name; none is taken that did not seal empty blocks, which could be forged."""
    header, path = header_of(trail, 1), Path(trail.path(1))
    with monkeypatch.context() as release:
        release.setattr(fmt, "SEALING", sealing)
        made = fmt.make_file_header(header)
    path.write_bytes(made + path.read_bytes()[len(made) :])
    with pytest.raises(VersionError, match=f"lt000000001: sealing {sealing}; this program knows 2"):
        read_all(trail)


def test_an_empty_block_has_no_payload():
    """In any trail: PLACE, RESTART and END are 96 bytes, or those and a seal."""
    seed = fmt.file_seed(bytes(16), 0)
    for kind in fmt.EMPTY_KINDS:
        for changes in ({"payload_len": 5}, {"payload_len": 27, "flags": fmt.FLAG_AES}, {"flags": fmt.FLAG_AES},
                        {"raw_len": 1}):  # fmt: skip
            made = fmt.make_block_header(BlockHeader(kind, **changes), seed, 4096)  # type: ignore[arg-type]
            with pytest.raises(GateError, match=f"a {kind.name} block without a payload"):
                fmt.parse_block_header(made, seed, 4096, "f")
