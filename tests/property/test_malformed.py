"""Records, definitions and headers that are wrong under right CRCs: DamageError in every reader, and nothing else.

Valid trees of every kind of record are changed at one place (another value, one less, one more), packed, given right
CRCs, and shown to each reader from `decode_data` on. Whoever holds a certificate can write such a trail.
"""

from __future__ import annotations

import contextlib
import copy
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pump.filter import Filter
from replicat.model.plan import TablePlan
from replicat.model.target import Layout
from replicat.work.decode import Task, attempt, run_each, transactions
from replicat.work.net.part import Part
from tests.support.hostile import hostile
from trails import format as fmt
from trails.codec import binary, decode_data, decode_defs
from trails.ddl import ALTER, DdlChange, DdlColumn, TableShape
from trails.errors import DamageError, VersionError
from trails.format import BlockHeader, BlockKind, FileHeader, Indicator
from trails.heartbeat import Beat, Stamp, beat_of
from trails.position import Position, TrailName
from trails.reader import Block, last_header
from trails.record import Column, Op, TableDef
from trails.recovery import Mark
from trails.show.printing import show_blocks, show_count, show_headers, show_records, shown
from trails.show.rows import DumpSource, Wanted
from trails.show.verifying import verify
from trails.testing import FaultFs
from trails.writer import TrailWriter, WriterIdentity

KV = TableDef("s", "kv", tuple(Column(name, "text", "text", key=name == "k") for name in "kvw"))
LOG = TableDef("s", "log", (Column("line", "text", "text"),))
SHAPE = TableShape(
    "s", "kv", (DdlColumn(1, "k", "text", "text", True, identity="d"), DdlColumn(2, "v", "text", "text")), ("k",)
)
CHANGE = DdlChange(ALTER, SHAPE, replace(SHAPE, columns=SHAPE.columns[:1]), "ALTER TABLE kv DROP v", 1)
BEAT = Beat("db", "home", 1_700_000_000_000_000, 10, 5, (Stamp("EXTRACT", "EXT1", 1_700_000_000_100_000, None),))
BEGIN = [Op.BEGIN, "00000001", "7", 1_700_000_000_000_000]
ROWS = [
    BEGIN, [Op.INSERT, 0, ["1", "a", None]], [Op.UPDATE, 0, ["1", binary(b"x"), False], None],
    [Op.UPDATE, 0, ["2", "b", "c"], ["1", False, False]], [Op.DELETE, 0, ["2", False, None]], [Op.INSERT, 1, ["x"]],
    [Op.TRUNCATE, [0, 1], 3], [Op.COMMIT, 6],
]  # fmt: skip
DDL = [BEGIN, [Op.DDL, CHANGE.to_wire()], [Op.COMMIT, 1]]
HEARTBEAT = [BEGIN, [Op.HEARTBEAT, BEAT.to_wire()], [Op.COMMIT, 0]]
TREES: list[tuple[list[Any], int]] = [
    ([[binary(KV.id), binary(LOG.id)], ROWS], 0), ([[], DDL], fmt.FLAG_DDL), ([[], HEARTBEAT], fmt.FLAG_HEARTBEAT),
]  # fmt: skip

ODD = st.one_of(
    st.sampled_from([
        None, True, False, 0, 1, -1, 9, 77, 2**63 - 1, -(2**63), 2**64 - 1, 0.0, 1e300, "", "x", "\x1b[2J", "\udcff",
        b"", [], [[]], {}, {"a": 1}, [0, 0, 0, 0, 0, 0], msgpack.ExtType(5, b"x"), msgpack.Timestamp(2**33, 1),
        binary(b""), binary(bytes(16)), [False], [2, 0, ["1", "a", None]], [1, "c", "x", 2**62],
    ]),
    st.integers(-(2**63), 2**64 - 1), st.text(max_size=3),
    st.recursive(st.integers(0, 9) | st.none(), lambda inner: st.lists(inner, max_size=3), max_leaves=6),
)  # fmt: skip


def places(tree: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Every place in a tree of lists, but the whole."""
    if isinstance(tree, list | tuple) and not isinstance(tree, msgpack.ExtType):
        for number, inner in enumerate(tree):
            yield (*path, number)
            yield from places(inner, (*path, number))


def lists(tree: Any) -> Any:
    """The tree with lists only, so that it can be changed."""
    if isinstance(tree, list | tuple) and not isinstance(tree, msgpack.ExtType):
        return [lists(inner) for inner in tree]
    return int(tree) if isinstance(tree, Op) else tree


@st.composite
def mutated(draw: st.DrawFn, tree: Any) -> Any:
    """The tree with one place replaced, removed, doubled or swapped with its neighbour."""
    made = lists(copy.deepcopy(tree))
    *path, last = draw(st.sampled_from(list(places(made))))
    inner = made
    for number in path:
        inner = inner[number]
    what = draw(st.sampled_from(["replace", "replace", "replace", "remove", "double", "swap"]))
    if what == "replace":
        inner[last] = draw(ODD)
    elif what == "remove":
        del inner[last]
    elif what == "double":
        inner.insert(last, inner[last])
    else:
        inner[last - 1], inner[last] = inner[last], inner[last - 1]
    return made


def packed(tree: Any) -> bytes:
    return bytes(msgpack.packb(tree, use_bin_type=False, unicode_errors="surrogateescape"))


@contextlib.contextmanager
def damage_only() -> Iterator[None]:
    """Nothing but an error that people read may come out."""
    with contextlib.suppress(DamageError):
        yield


@st.composite
def blocks(draw: st.DrawFn) -> tuple[Any, int]:
    """A block's tree, changed at one place, and its flags."""
    tree, flags = draw(st.sampled_from(TREES))
    return draw(mutated(tree)), draw(st.sampled_from([flags, flags, flags, 0, fmt.FLAG_DDL, fmt.FLAG_HEARTBEAT]))


def header_of(
    raw: bytes, flags: int, indicator: Indicator = Indicator.WHOLE, changes: int | None = None, ends: int = 1
) -> BlockHeader:
    """A header for it; `changes` and `ends` are those of TREES, where nothing is said."""
    if changes is None:
        changes = {0: 6, fmt.FLAG_DDL: 1, fmt.FLAG_HEARTBEAT: 0}[flags]
    crc = zlib.crc32(raw)
    return BlockHeader(
        BlockKind.DATA, indicator, flags, len(raw), len(raw), changes, ends, Position(0, 9), BEGIN[3], "00000001", crc
    )


def trail_of(*blocks: tuple[BlockHeader, bytes]) -> tuple[FaultFs, TrailName, tuple[Block, ...]]:
    """A trail with these blocks of data; the blocks as they stand there."""
    fs, trail = FaultFs(), TrailName("/home/dirdat", "rt")
    fs.makedirs(trail.folder)
    identity = WriterIdentity("home", "PMP1", "host", {"kind": "scripted"}, b"s" * 16)
    writer = TrailWriter.open(fs, trail, identity, start=Mark(), restart_open=False)
    writer.define([KV, LOG])
    places = []
    for number, (header, raw) in enumerate(blocks):
        start = writer.position
        writer.append_block(header, raw, Position(0, 9 + number))
        places.append(Block(start, writer.position, header, b"", 0, copied=False))
    writer.sync()
    writer.close()
    return fs, trail, tuple(places)


def trail_with(raw: bytes, flags: int) -> tuple[FaultFs, TrailName, Block]:
    """A trail whose one block of data is this; the block's place."""
    fs, trail, (place,) = trail_of((header_of(raw, flags), raw))
    return fs, trail, place


def plans() -> dict[bytes, tuple[TablePlan, ...]]:
    return {
        definition.id: (
            TablePlan(
                definition.full_name, definition.full_name,
                Layout("t", definition.name, tuple(c.name for c in definition.columns),
                       ("text",) * len(definition.columns), ("k",) if definition.key else ()),
                definition.key,
            ),
        )
        for definition in (KV, LOG)
    }  # fmt: skip


@hostile(300)
@given(blocks())
def test_decoding_gives_what_the_format_says_or_damage(block: tuple[Any, int]) -> None:
    """A tree that decodes is one that packs to the same bytes again: nothing was bent into shape."""
    raw = packed(block[0])
    with damage_only():
        _, records = decode_data(header_of(raw, block[1]), raw, "here")
        for record in records:
            assert record[0] in {op.value for op in Op}
            if record[0] in (Op.INSERT, Op.DELETE, Op.UPDATE):
                assert {type(v) for v in record[2]} <= {str, bytes, bool, type(None)}
        if block[1] & fmt.FLAG_HEARTBEAT:
            beat_of(records, "here")


@hostile(300)
@given(blocks())
def test_a_pump_that_filters_meets_only_damage(block: tuple[Any, int]) -> None:
    """Tables, definitions, images: all are looked at before a rule is asked."""
    raw = packed(block[0])
    rules = Filter(lambda _schema, name: name != "log", lambda *_: None)
    with damage_only():
        rules.data(header_of(raw, block[1]), raw, {KV.id: KV, LOG.id: LOG}, "here")


@hostile(300)
@given(blocks())
def test_logdump_shows_it_or_says_damage_without_a_control_character(block: tuple[Any, int]) -> None:
    """Exit code 2, one line; and nothing that a terminal would obey reaches it."""
    fs, trail, _ = trail_with(packed(block[0]), block[1])
    said: list[str] = []
    source, wanted = DumpSource(trail), Wanted()
    for show in (show_headers, verify):
        show(fs, source, said.append)
    for show_some in (show_blocks, show_records, show_count):
        try:
            show_some(fs, source, wanted, said.append)
        except DamageError as error:
            said.append(str(error))
    for line in map(shown, said):
        assert line.isprintable(), line
        line.encode()


def task_of(fs: FaultFs, trail: TrailName, places: tuple[Block, ...], head: int | None = None) -> Task:
    """What a worker gets for the last of these places, or for all. `head`: changes before it, since the first place."""
    header = last_header(fs, trail)
    assert header is not None
    columns = {KV.id: 3, LOG.id: 1}
    if head is None:
        return Task(trail.folder, trail.prefix, header.trail_id, places, plans(), columns)
    return Task(trail.folder, trail.prefix, header.trail_id, places[-1:], plans(), columns, head=(places[0], head))


def plain_damage(fs: FaultFs, trail: TrailName) -> str:
    """What logdump's --verify says of the trail; nothing if all is well."""
    said: list[str] = []
    return "" if verify(fs, DumpSource(trail), said.append) else said[0].removeprefix("DAMAGE ")


def worker_damage(task: Task, fs: FaultFs) -> str:
    """What a worker says of its blocks; nothing if it finds no fault with them."""
    try:
        assert attempt(task, fs) is not None
    except DamageError as error:
        return str(error)
    return ""


@hostile(300)
@given(blocks())
def test_a_worker_calls_damage_what_the_plain_reader_does(block: tuple[Any, int]) -> None:
    """In the same words, with file and RBA: a worker compacts, but looks first at what it will drop.

    So do those who look at each change after a refusal.
    """
    fs, trail, place = trail_with(packed(block[0]), block[1])
    task = task_of(fs, trail, (place,))
    if block[1]:  # blocks of DDL and heartbeats never come into a task
        worker_damage(task, fs)
        return
    found = plain_damage(fs, trail)
    assert worker_damage(task, fs) == found
    if found:
        assert found.startswith(f"{trail.path(place.start.seqno)}, RBA {place.start.rba}: "), found
        with pytest.raises(DamageError):
            transactions(task, fs)
    else:
        for number in range(len(transactions(task, fs))):
            for _, part in run_each(task, number, fs):
                assert isinstance(part, Part)


COMMIT = [Op.COMMIT, 1]
RIGHT = [Op.INSERT, 0, ["1", "a", None]]
AFTER = [Op.INSERT, 0, ["1", "b", None]]
"""As RIGHT, of the same key: an insert of a row that is there. Updates and deletes of it drop what came before."""
GONE = [Op.DELETE, 0, ["1", False, False]]


def dropped(record: list[Any]) -> list[Any]:
    """A transaction of which nothing comes to the target's table."""
    return [BEGIN, record, [Op.UPDATE, 0, ["1", "c", None], None], GONE, [Op.COMMIT, 3]]


MALFORMED: dict[str, tuple[list[Any], str]] = {
    "a row that is too long": (
        [BEGIN, [Op.INSERT, 0, ["1", "a", None, "b"]], COMMIT], "a row of 3 columns, found list of 4"),
    "a row that is too short": ([BEGIN, [Op.INSERT, 0, ["1", "a"]], COMMIT], "a row of 3 columns, found list of 2"),
    "a row that is a text": ([BEGIN, [Op.INSERT, 0, "abc"], COMMIT], "a row as a list, found str"),
    "a delete of another width": ([BEGIN, [Op.DELETE, 0, ["1"]], COMMIT], "a row of 3 columns, found list of 1"),
    "a row before that is a text": (
        [BEGIN, [Op.UPDATE, 0, ["1", "a", None], "abc"], COMMIT], "a row as a list, found str"),
    "a row before that is too long": (
        [BEGIN, [Op.UPDATE, 0, ["1", "a", None], ["2", "a", None, "b"]], COMMIT],
        "a row of 3 columns, found list of 4"),
    "a row of a table that no MAP takes": (
        [BEGIN, [Op.INSERT, 1, ["x", "y"]], COMMIT], "a row of 1 columns, found list of 2"),
    "a table counted from the end": ([BEGIN, [Op.INSERT, -1, ["1"]], COMMIT], "a table's number below 2, found -1"),
    "a table behind the last": ([BEGIN, [Op.TRUNCATE, [0, 2], 0], COMMIT], "a table's number below 2, found 2"),
    "a change without BEGIN": (
        [RIGHT, COMMIT], "BEGIN, changes and COMMIT as indicator whole has them, found list of 2"),
    "a transaction without COMMIT": ([BEGIN, RIGHT], "BEGIN, changes and COMMIT as indicator whole has them"),
    "a change behind COMMIT": ([BEGIN, RIGHT, COMMIT, RIGHT], "BEGIN, changes and COMMIT as indicator whole has them"),
    "BEGIN in a transaction": ([BEGIN, RIGHT, BEGIN, COMMIT], "BEGIN, changes and COMMIT as indicator whole has them"),
    "a kind that is no whole number": (
        [BEGIN, [2.0, 0, ["1", "a", None]], COMMIT], "a record of a known kind and length"),
    "a kind that is true": ([[True, *BEGIN[1:]], RIGHT, COMMIT], "a record of a known kind and length"),
    "a record of another length": (
        [BEGIN, [*RIGHT, None], COMMIT], "a record of a known kind and length, found list of 4"),
    "a record that is bytes": ([BEGIN, RIGHT, binary(b"\x06\x01")], "a record, found bytes"),
    "a CSN that is a number": ([[1, 5, *BEGIN[2:]], RIGHT, COMMIT], "CSN, transaction id and time"),
    "a time that is true": ([[*BEGIN[:3], True], RIGHT, COMMIT], "CSN, transaction id and time"),
    "a COMMIT that counts too few": (
        [BEGIN, RIGHT, GONE, COMMIT], "a COMMIT of 2 changes, as many as stand before it, found 1"),
    "a COMMIT that counts too many": (
        [BEGIN, RIGHT, [Op.COMMIT, 7]], "a COMMIT of 1 changes, as many as stand before it, found 7"),
    "a COMMIT that counts true": ([BEGIN, RIGHT, [Op.COMMIT, True]], "a number of changes, found bool"),
    "a dropped row of table true": (dropped([Op.INSERT, True, ["1"]]), "a table's number, found bool"),
    "a dropped row of table 0.0": (dropped([Op.INSERT, 0.0, ["1", "a", None]]), "a table's number, found float"),
    "true in a dropped row": (dropped([Op.INSERT, 0, ["1", True, None]]), "NULL or missing as a value, found True"),
    "a number in a dropped row": (dropped([Op.INSERT, 0, ["1", 5, None]]), "NULL or missing as a value, found int"),
    "a list in a dropped row": (dropped([Op.INSERT, 0, ["1", [], None]]), "NULL or missing as a value, found list"),
    "a time in a dropped row": (
        dropped([Op.INSERT, 0, ["1", msgpack.Timestamp(1, 1), None]]), "NULL or missing as a value, found Timestamp"),
    "a number in a row before": (
        dropped([Op.UPDATE, 0, ["1", "a", None], ["1", 5, None]]), "NULL or missing as a value, found int"),
    "a number in what is left of a deleted row": (
        [BEGIN, [Op.DELETE, 0, ["1", 5, None]], COMMIT], "NULL or missing as a value, found int"),
    "a TRUNCATE of unknown flags": (
        [BEGIN, RIGHT, [Op.TRUNCATE, [0], 4], [Op.COMMIT, 2]], "a TRUNCATE's tables and flags"),
    "a TRUNCATE of two things that are no numbers": (
        [BEGIN, [Op.TRUNCATE, [[], None], 0], COMMIT], "a table's number, found list"),
    "two wrong values in a row": (
        [BEGIN, [Op.INSERT, 0, ["1", [], 5]], COMMIT], "NULL or missing as a value, found list"),
    "a TRUNCATE of one number": ([BEGIN, [Op.TRUNCATE, 0, 0], COMMIT], "a TRUNCATE's tables and flags"),
    "a change of shape among rows": (
        [BEGIN, RIGHT, [Op.DDL, CHANGE.to_wire()], [Op.COMMIT, 2]], "changes of rows only"),
}  # fmt: skip


def ends_of(records: list[Any]) -> tuple[int, int]:
    """Changes, and ends of transactions, as far as these are records at all."""
    kinds = [record[0] if isinstance(record, list) else Op.COMMIT for record in records]
    return sum(kind not in (Op.BEGIN, Op.COMMIT) for kind in kinds), kinds.count(Op.COMMIT)


@pytest.mark.parametrize(("records", "told"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_worker_takes_no_malformed_record_and_says_what_is_wrong(records: list[Any], told: str) -> None:
    """Also where compaction drops the row, where nothing of the table is wanted, and where COMMIT alone is wrong."""
    ids = [binary(KV.id), binary(LOG.id)]
    raw = packed([ids, records])
    changes, ends = ends_of(records)
    fs, trail, places = trail_of((header_of(raw, 0, changes=changes, ends=ends), raw))
    task = task_of(fs, trail, places)
    for wanted in (task, replace(task, plans={KV.id: (), LOG.id: ()})):
        found = worker_damage(wanted, fs)
        assert found == plain_damage(fs, trail)
        assert found.startswith(f"{trail.path(0)}, RBA {places[0].start.rba}: damaged: expected ")
        assert told in found


@pytest.mark.parametrize(
    ("changes", "ends", "told"),
    [
        (1, 1, "1 changes, as its header says, found 2"),
        (3, 1, "3 changes, as its header says, found 2"),
        (2, 0, "0 ends of transactions, as its header says, found 1"),
    ],
)
def test_a_header_that_miscounts_is_damage(changes: int, ends: int, told: str) -> None:
    """Batches are planned, and places inside a transaction found, by what headers say."""
    raw = packed([[binary(KV.id)], [BEGIN, RIGHT, AFTER, [Op.COMMIT, 2]]])
    fs, trail, places = trail_of((header_of(raw, 0, changes=changes, ends=ends), raw))
    found = worker_damage(task_of(fs, trail, places), fs)
    assert found == plain_damage(fs, trail)
    assert f"RBA {places[0].start.rba}: damaged: expected {told}" in found


@pytest.mark.parametrize(
    ("indicator", "records"),
    [
        (Indicator.BEGIN, []),
        (Indicator.BEGIN, [BEGIN, RIGHT, [Op.COMMIT, 1], BEGIN, RIGHT]),
        (Indicator.MIDDLE, [RIGHT, [Op.COMMIT, 1], BEGIN, RIGHT]),
        (Indicator.END, []),
        (Indicator.END, [RIGHT, [Op.COMMIT, 1], BEGIN, RIGHT, [Op.COMMIT, 1]]),
    ],
)
def test_begin_middle_and_end_are_of_one_transaction(indicator: Indicator, records: list[Any]) -> None:
    """Headers are read so: what is asked of a transaction is then asked of the block where it begins."""
    raw = packed([[binary(KV.id)], records])
    changes, ends = ends_of(records)
    with pytest.raises(DamageError, match=f"as indicator {indicator.name.lower()} has them"):
        decode_data(header_of(raw, 0, indicator, changes, ends), raw)


@pytest.mark.parametrize("said", [3, 4, 5])
def test_a_large_transaction_is_counted_over_its_blocks(said: int) -> None:
    """By a worker that has all of it, by one that has only its last block, and by the plain reader."""
    parts = [
        (Indicator.BEGIN, [BEGIN, RIGHT, GONE]), (Indicator.MIDDLE, [RIGHT]),
        (Indicator.END, [GONE, [Op.COMMIT, said]]),
    ]  # fmt: skip
    blocks_ = []
    for indicator, records in parts:
        raw = packed([[binary(KV.id)], records])
        changes, ends = ends_of(records)
        blocks_.append((header_of(raw, 0, indicator, changes, ends), raw))
    fs, trail, places = trail_of(*blocks_)
    for task in (task_of(fs, trail, places), task_of(fs, trail, places, head=3)):
        found = worker_damage(task, fs)
        assert found == plain_damage(fs, trail)
        if said == 4:
            assert not found
        else:
            assert f"RBA {places[-1].start.rba}: damaged: expected a COMMIT of 4 changes, as many as stand" in found


def test_a_table_that_nothing_defines_is_damage() -> None:
    """Told with file and RBA, as every reader tells it."""
    raw = packed([[binary(b"u" * 16)], [BEGIN, [Op.INSERT, 0, ["1"]], COMMIT]])
    fs, trail, places = trail_of((header_of(raw, 0, changes=1), raw))
    found = worker_damage(task_of(fs, trail, places), fs)
    assert found == plain_damage(fs, trail)
    assert f"RBA {places[0].start.rba}: damaged: expected a definition of table {(b'u' * 16).hex()} before it" in found


def test_bytes_of_another_family_are_damage() -> None:
    """A writer has one form for each kind of value; msgpack has two for bytes."""
    made = msgpack.packb([[KV.id], [BEGIN, RIGHT, COMMIT]], use_bin_type=True)
    with pytest.raises(DamageError, match="max_bin_len"):
        decode_data(header_of(made, 0, changes=1), made, "here")


@hostile(300)
@given(mutated([KV.to_wire(), LOG.to_wire()]))
def test_definitions_are_right_or_damage(tree: Any) -> None:
    """A definition that is taken is exactly what was written."""
    raw = packed(tree)
    with damage_only():
        found = decode_defs(BlockHeader(BlockKind.METADATA, payload_len=len(raw), raw_len=len(raw)), raw, "here")
        assert packed([made.to_wire() for made in found]) == raw


FILE = FileHeader(
    b"t" * 16, "rt", 0, 1_700_000_000_000_000, "home", "PMP1", "host", {"kind": "x"}, last_origin=Position(1, 2),
    last_state="17",
)  # fmt: skip


@hostile(300)
@given(st.data())
def test_file_headers_are_right_or_damage(data: st.DataObject) -> None:
    """Every field of the body, changed under a right CRC."""
    made = fmt.make_file_header(FILE)
    size = int.from_bytes(made[fmt.BODY_OFFSET - 4 : fmt.BODY_OFFSET])
    body = msgpack.unpackb(made[fmt.BODY_OFFSET : fmt.BODY_OFFSET + size])
    name = data.draw(st.sampled_from([*body, "later"]))
    body[name] = data.draw(ODD)
    with contextlib.suppress(DamageError, VersionError):
        fmt._header_from_body(packed(body), "here")
    del body[name]
    if name not in ("later", "state"):
        with pytest.raises(DamageError):
            fmt._header_from_body(packed(body), "here")
