"""trails/format.py and codec.py: bytes there and back, FORMAT.md's numbers and example, versions against damage."""

from __future__ import annotations

import re
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

import trails
from trails import format as fmt
from trails.codec import binary, decode_data, decode_defs, encode_data
from trails.errors import DamageError, OperatorError, VersionError
from trails.format import BlockHeader, BlockKind, FileHeader, Indicator
from trails.position import Position
from trails.record import MISSING, Op

FORMAT_MD = Path(trails.__file__).with_name("FORMAT.md").read_text("utf-8")
EXAMPLE_ID = bytes.fromhex("00112233445566778899aabbccddeeff")
FLAG_NAMES = {
    fmt.FLAG_LZ4: "the payload is an LZ4 block", fmt.FLAG_DDL: "DDL", fmt.FLAG_HEARTBEAT: "heartbeat",
    fmt.FLAG_AES: "encrypted", fmt.FLAG_STATE: "a state is behind the payload",
}  # fmt: skip
HEADER = FileHeader(
    EXAMPLE_ID, "lt", 0, 1_000_000, "home", "EXT1", "host", {"kind": "postgresql"}, b"\1" * 16, "00000000/00000A10",
    Position(0, 2576), True, 3,
)  # fmt: skip


def example_bytes() -> bytes:
    """The worked example of FORMAT.md, made by the code."""
    records = [(Op.BEGIN, "00000000/00000A10", "7", 1_000_000), (Op.INSERT, 0, ["1", None]), (Op.COMMIT, 1)]
    payload = encode_data([EXAMPLE_ID], records)
    header = BlockHeader(
        BlockKind.DATA, Indicator.WHOLE, payload.flags, len(payload.data), payload.raw_len, 1, 1, Position(0, 0xA40),
        1_000_000, "00000000/00000A10", payload.crc,
    )  # fmt: skip
    seed = fmt.file_seed(EXAMPLE_ID, 0)
    start = fmt.make_file_header(replace(HEADER, copies=b""))[:16] + fmt.make_durable_end(4096, seed) + bytes(4)
    return start + fmt.make_block_header(header, seed, 4096) + payload.data


def test_worked_example_is_what_the_code_writes() -> None:
    """FORMAT.md's hex dump is byte for byte what the program makes."""
    hexed = FORMAT_MD.split("## Example")[1].split("```")[1]
    shown = bytes.fromhex("".join(re.findall(r"(?m)^[0-9a-f]+:((?: [0-9a-f]{2})+)", hexed)))
    assert shown == example_bytes()


@pytest.mark.parametrize(
    "text",
    [
        f"at most {fmt.MAX_PAYLOAD:,} bytes",
        f"header length    H: where the first block stands; {fmt.HEADER_UNIT}",
        f"    {fmt.DURABLE_OFFSET}    8  durable end",
        f"    {fmt.BODY_OFFSET}    B  body",
        f"    48   {fmt.CSN_SIZE}  CSN",
        f"    {fmt.BLOCK_HEADER_SIZE}       payload",
        f"format version   {fmt.VERSION}\n",
        f"`wrapped` ({fmt.WRAPPED_SIZE} bytes)",
        f"{fmt.SEAL_SIZE} more if it is encrypted",
        f"ASCII of at most {fmt.MAX_STATE} characters",
        f"the state's length ({fmt.STATE_LENGTH} bytes)",
        *(f"bit {flag.bit_length() - 1}: {what}" for flag, what in FLAG_NAMES.items()),
        *(f"{int(kind)} {kind.name}" for kind in BlockKind),
        *(f"{int(i)} {i.name.lower()}" for i in Indicator),
        *(f"| `[{int(op)}, " for op in Op),
    ],
)
def test_format_md_numbers_are_the_constants(text: str) -> None:
    """The page's numbers are the code's."""
    assert text in FORMAT_MD


def test_file_header_round_trip() -> None:
    """Every field comes back; the length is whole pages."""
    made = fmt.make_file_header(HEADER)
    assert fmt.parse_file_header(made, "f") == (HEADER, 4096)
    long = replace(HEADER, source={"x": "y" * 9000})
    assert fmt.parse_file_header(fmt.make_file_header(long), "f") == (long, 12288)


def test_newer_version_is_not_damage() -> None:
    """A version 2 header is an unsupported version, found before any CRC is looked at."""
    made = bytearray(fmt.make_file_header(HEADER))
    made[9] = 2
    with pytest.raises(VersionError, match="format version 2; this program reads version 1"):
        fmt.parse_file_header(bytes(made), "dirdat/lt000000000")


def test_foreign_file_is_named() -> None:
    """Something that is no trail file says so."""
    with pytest.raises(DamageError, match="not a trail file"):
        fmt.parse_file_header(b"PK\3\4" + bytes(4092), "dirdat/lt000000000")


def parse_header_and_end(data: bytes) -> None:
    """What a reader looks at before the first block."""
    fmt.parse_file_header(data, "f")
    fmt.parse_durable_end(data[16:28], HEADER.seed, "f")


def test_every_flipped_header_bit_is_found() -> None:
    """Any one flipped bit of header, body or durable end is an error (padding after the body aside)."""
    made = fmt.make_file_header(HEADER)
    reserved = range(28, 32)
    for i in set(range(len(made.rstrip(b"\0")))) - set(reserved):
        bad = bytearray(made)
        bad[i] ^= 1 << (i % 8)
        with pytest.raises((DamageError, VersionError)):
            parse_header_and_end(bytes(bad))


def test_every_flipped_block_bit_is_found() -> None:
    """Any one flipped bit of a block header is an error, and so is another place or another file."""
    header = BlockHeader(BlockKind.DATA, Indicator.END, 1, 10, 20, 3, 1, Position(4, 5), -6, "CSN", 7)
    made = fmt.make_block_header(header, HEADER.seed, 4096)
    assert fmt.parse_block_header(made, HEADER.seed, 4096, "f") == header
    for i in range(len(made) * 8):
        bad = bytearray(made)
        bad[i // 8] ^= 1 << (i % 8)
        with pytest.raises(DamageError):
            fmt.parse_block_header(bytes(bad), HEADER.seed, 4096, "f")
    with pytest.raises(DamageError):
        fmt.parse_block_header(made, HEADER.seed, 4097, "f")
    with pytest.raises(DamageError):
        fmt.parse_block_header(made, replace(HEADER, seqno=1).seed, 4096, "f")


def test_lengths_are_checked_before_anybody_allocates() -> None:
    """A block header with a right CRC and an absurd length is refused."""
    header = BlockHeader(BlockKind.DATA, payload_len=fmt.MAX_PAYLOAD + 1)
    with pytest.raises(DamageError, match="lengths up to"):
        fmt.parse_block_header(fmt.make_block_header(header, 0, 0), 0, 0, "f")


def test_memory_for_a_payload_is_taken_by_its_own_length() -> None:
    """A hundred bytes that promise a gigabyte are damage at once; what LZ4 can really make of zeros is not."""
    tracemalloc.start()
    try:
        header = BlockHeader(BlockKind.DATA, flags=fmt.FLAG_LZ4, payload_len=100, raw_len=fmt.MAX_PAYLOAD)
        with pytest.raises(DamageError, match=f"expected fewer bytes from 100 of LZ4, found {fmt.MAX_PAYLOAD}"):
            decode_data(header, bytes(100))
        with pytest.raises(DamageError, match=f"{fmt.MAX_PAYLOAD} bytes of definitions"):
            decode_defs(header, bytes(100))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    payload = encode_data([EXAMPLE_ID], [(Op.INSERT, 0, ["\0" * (32 << 20)])])
    header = BlockHeader(
        BlockKind.DATA, flags=payload.flags, payload_len=len(payload.data), raw_len=payload.raw_len, changes=1
    )
    assert payload.raw_len > 250 * len(payload.data)
    assert len(decode_data(header, payload.data)[1][0][2][0]) == 32 << 20


def test_long_csn_is_refused_not_cut() -> None:
    """A CSN that does not fit is an error at the writer."""
    with pytest.raises(OperatorError, match="at most 40"):
        fmt.make_block_header(BlockHeader(BlockKind.PLACE, csn="9" * 41), 0, 0)


def test_four_kinds_of_value_stay_apart() -> None:
    """Text (as str or bytes), bytes, NULL and missing come back as what they were; so does text that is no UTF-8."""
    image = ["é", "é".encode(), binary(b"\0\xff"), None, MISSING, "", b"", binary(b""), b"\xff"]
    payload = encode_data([EXAMPLE_ID], [(Op.INSERT, 0, image)])
    header = BlockHeader(
        BlockKind.DATA, flags=payload.flags, payload_len=len(payload.data), raw_len=payload.raw_len, changes=1
    )
    ids, records = decode_data(header, payload.data)
    assert ids == [EXAMPLE_ID]
    assert records == [[Op.INSERT, 0, ["é", "é", b"\0\xff", None, False, "", "", b"", "\udcff"]]]
    assert records[0][2][4] is False
