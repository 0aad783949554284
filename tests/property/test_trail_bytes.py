"""Any records round-trip; any bytes give records or one named error."""

from __future__ import annotations

import string
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.support.hostile import hostile
from trails import checkpoint as ckp
from trails import format as fmt
from trails.codec import EXT_BYTES, binary, decode_data, decode_defs, encode_data, encode_defs
from trails.errors import DamageError, VersionError
from trails.format import BlockHeader, BlockKind, Indicator
from trails.position import Position
from trails.record import Column, Op, TableDef

U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)
VALUES = st.one_of(st.text(), st.binary(), st.none(), st.just(False))
IMAGES = st.lists(VALUES, max_size=6)
NAMES = st.text(min_size=1, max_size=10)
DEFS = st.builds(
    TableDef, NAMES, NAMES, st.lists(st.builds(Column, NAMES, NAMES, NAMES, st.booleans()), max_size=5).map(tuple)
)


def _possible(header: BlockHeader) -> BlockHeader:
    """PLACE, RESTART and END have no payload, or an empty one that is sealed; a state stands where one may."""
    seal = fmt.SEAL_SIZE if header.is_encrypted else 0
    if header.has_state and header.kind is BlockKind.PLACE:
        state = header.payload_len % (fmt.MAX_STATE + 1)
        return replace(header, indicator=Indicator.NONE, payload_len=seal + state + fmt.STATE_LENGTH, raw_len=0)
    if header.has_state and header.kind is BlockKind.DATA:
        least = max(header.payload_len, seal + fmt.STATE_LENGTH)
        return replace(header, indicator=[Indicator.WHOLE, Indicator.END][header.indicator % 2], payload_len=least)
    header = replace(header, flags=header.flags & ~fmt.FLAG_STATE)
    return header if header.kind not in fmt.EMPTY_KINDS else replace(header, payload_len=seal, raw_len=0)


HEADERS = st.builds(
    BlockHeader, st.sampled_from(BlockKind), st.sampled_from(Indicator), st.integers(0, fmt.FLAGS),
    st.integers(0, fmt.MAX_PAYLOAD), st.integers(0, fmt.MAX_PAYLOAD), U32, U32, st.builds(Position, U64, U64),
    st.integers(fmt.TIMES.start, fmt.TIMES.stop - 1), st.text(string.digits + "/:ABCDEF", max_size=40), U32,
).map(_possible)  # fmt: skip


def as_encoded(value: object) -> object:
    """Bytes must be wrapped to be told from text."""
    return binary(value) if isinstance(value, bytes) else value


@given(st.lists(st.tuples(st.sampled_from([Op.INSERT, Op.DELETE]), st.integers(0, 3), IMAGES), max_size=30))
def test_records_round_trip(records: list[tuple[int, int, list[object]]]) -> None:
    """What goes in comes out, each value of its own kind."""
    ids = [bytes([number]) * 16 for number in range(4)]
    payload = encode_data(ids, [(op, t, [as_encoded(v) for v in image]) for op, t, image in records])
    header = BlockHeader(
        BlockKind.DATA,
        flags=payload.flags,
        raw_len=payload.raw_len,
        payload_len=len(payload.data),
        changes=len(records),
    )
    assert decode_data(header, payload.data) == (ids, [list(record) for record in records])


@given(st.lists(DEFS, max_size=4))
def test_definitions_round_trip(defs: list[TableDef]) -> None:
    """Definitions come back equal, with the same id."""
    payload = encode_defs(defs)
    header = BlockHeader(BlockKind.METADATA, flags=payload.flags, raw_len=payload.raw_len)
    assert decode_defs(header, payload.data) == defs


@given(HEADERS, U32, U64)
def test_block_headers_round_trip(header: BlockHeader, seed: int, rba: int) -> None:
    """Every field of every header comes back."""
    assert fmt.parse_block_header(fmt.make_block_header(header, seed, rba), seed, rba, "f") == header


@hostile(150)
@given(st.binary(max_size=200), st.sampled_from([0, 1, 16, 17]), st.integers(0, 1 << 16))
def test_any_payload_gives_records_or_damage(data: bytes, flags: int, raw_len: int) -> None:
    """A payload of any bytes decodes or is damage; memory stays within the stated length."""
    for decode in (decode_data, decode_defs):
        try:
            decode(BlockHeader(BlockKind.DATA, flags=flags, raw_len=raw_len, payload_len=len(data)), data)
        except DamageError:
            pass


@hostile(100)
@given(st.binary(max_size=300), st.booleans())
def test_any_file_start_gives_a_header_or_a_named_error(data: bytes, with_magic: bool) -> None:
    """Any bytes as a trail file, a block or a checkpoint: a value, damage or an unknown version, nothing else."""
    if with_magic:
        data = fmt.MAGIC + b"\0\1\0\0\0\0\x10\0" + data.ljust(4096, b"\0")
    for parse in (
        lambda: fmt.parse_file_header(data, "f"),
        lambda: fmt.parse_durable_end(data, 0, "f"),
        lambda: fmt.parse_block_header(fmt.BLOCK_MAGIC + data, 0, 0, "f"),
        lambda: ckp.parse(data, "f"),
        lambda: ckp.parse(ckp.MAGIC + b"\0\1" + data, "f"),
    ):
        try:
            parse()
        except (DamageError, VersionError):
            pass


def test_ext_code_is_stated() -> None:
    """FORMAT.md calls it ext type 1."""
    assert EXT_BYTES == 1
