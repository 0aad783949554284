"""A source's state: where it stands in a trail, which one a start gets, what is refused, who passes it on unread."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from collector.collector import Collector
from extract.extract import Extract, Settings
from extract.source import SourceFacts, ThreadPlaces
from pump.feed import Feed
from pump.filter import Filter
from tests.fault.test_collector_crashes import FAR, NEAR, Near
from tests.support.scripted import Idle, ScriptedLog, ScriptedSource, run_until_released
from tests.support.trail_script import IDENTITY, TABLE, TRAIL, Tx, expected, open_writer, transactions
from tests.unit.test_crypt import KEY, make_home
from trails import format as fmt
from trails.checkpoint import Place
from trails.codec import EMPTY, decode_data, encode_data, state_of, with_state
from trails.crypt import Wallet
from trails.errors import DamageError, GateError, OperatorError, VersionError
from trails.format import BlockHeader, BlockKind, FileHeader, Indicator
from trails.fs import RealFs
from trails.position import Position, TrailName
from trails.reader import Block, BlockReader, last_header
from trails.show.cursor import Cursor
from trails.show.layout import View, record
from trails.show.printing import show_headers, show_records
from trails.show.rows import DumpSource, Wanted
from trails.show.verifying import verify
from trails.testing import After, FakeClock, FaultFs
from trails.writer import TrailWriter

STATE = fmt.FLAG_STATE
LONGEST = "s" * fmt.MAX_STATE


def put(writer: TrailWriter, number: int, state: str, *, rows: int = 1) -> None:
    """One transaction with its state."""
    tx = Tx(number, rows)
    writer.define([tx.table])
    writer.append_data(
        Indicator.WHOLE, [tx.table.id], tx.records(), changes=rows, transactions=1, origin=Position(0, number),
        csn=tx.csn, time_us=number, state=state,
    )  # fmt: skip


def blocks(fs: Any, trail: TrailName = TRAIL) -> list[Block]:
    """All blocks of a trail."""
    return list(iter(BlockReader(fs, trail).read, None))


def stated(found: list[Block]) -> list[tuple[int, str]]:
    """(origin, state) of the blocks that bear one."""
    return [(b.header.origin.rba, state_of(b.payload, "here")) for b in found if b.header.has_state]


# --- bytes ---


@pytest.mark.parametrize("state", ["", "x", '{"scn": 17, "open": ["7.1.3"]}', LONGEST])
@pytest.mark.parametrize("rows", [1, 100], ids=["plain", "LZ4"])
def test_a_state_stands_behind_the_payload_and_changes_nothing_of_it(state: str, rows: int) -> None:
    """Tables and records decode as without it."""
    records = Tx(1, rows).records()
    plain = encode_data([TABLE.id], records)
    made = with_state(plain, state)
    assert made.data == plain.data + state.encode() + len(state).to_bytes(2)
    assert (made.raw_len, made.flags) == (plain.raw_len, plain.flags | fmt.FLAG_STATE)
    header = BlockHeader(BlockKind.DATA, Indicator.WHOLE, made.flags, len(made.data), made.raw_len, rows, 1)
    assert decode_data(header, made.data) == ([TABLE.id], [list(one) for one in records])
    assert state_of(made.data, "here") == state


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (LONGEST + "s", "the source's state: expected at most 4096 characters, found 4097"),
        ("ok\u00e9", r"the source's state: expected ASCII, found '\xe9' at 2"),
    ],
)
def test_a_state_that_a_trail_cannot_hold_is_refused_and_nothing_of_it_is_written(state: str, said: str) -> None:
    """By name, before the block: the next start goes on before that transaction."""
    fs = FaultFs()
    writer = open_writer(fs)
    put(writer, 1, "one")
    before = writer.sync()
    for write in (lambda: put(writer, 2, state), lambda: writer.append_place(Position(0, 2), state=state)):
        with pytest.raises(OperatorError, match=re.escape(said)):
            write()
    assert writer.position == before
    writer.close()
    mark = open_writer(fs).last
    assert (mark.origin, mark.state) == (Position(0, 1), "one")


Change = dict[str, Any]
NO_STATES: list[tuple[str, Change]] = [
    *((f"{kind.name} block", {"kind": kind}) for kind in BlockKind if kind not in (BlockKind.DATA, BlockKind.PLACE)),
    *((f"{i.name} block", {"kind": BlockKind.DATA, "indicator": i, "payload_len": 9, "raw_len": 7})
      for i in (Indicator.NONE, Indicator.BEGIN, Indicator.MIDDLE)),
    ("PLACE with an indicator", {"indicator": Indicator.WHOLE}),
    ("no room for the length", {"payload_len": 1}),
    ("no room for the length behind a seal", {"payload_len": fmt.SEAL_SIZE + 1, "flags": STATE | fmt.FLAG_AES}),
    ("PLACE that is longer than any state", {"payload_len": fmt.MAX_STATE + 3}),
    ("PLACE that would take a gigabyte", {"payload_len": 1 << 30}),
    ("PLACE with records", {"raw_len": 1}),
]  # fmt: skip


@pytest.mark.parametrize("changes", [one for _, one in NO_STATES], ids=[name for name, _ in NO_STATES])
def test_a_header_that_may_not_have_a_state_is_damage(changes: Change) -> None:
    """Told from the 96 bytes alone: nothing is read or allocated by them."""
    right = BlockHeader(BlockKind.PLACE, flags=fmt.FLAG_STATE, payload_len=5)
    seed = fmt.file_seed(bytes(16), 0)
    assert fmt.parse_block_header(fmt.make_block_header(right, seed, 4096), seed, 4096, "f") == right
    with pytest.raises(DamageError, match="f, RBA 4096: damaged: expected a"):
        fmt.parse_block_header(fmt.make_block_header(replace(right, **changes), seed, 4096), seed, 4096, "f")


TAILS = {
    "longer than the payload": b"abc\0\5", "longer than any state": bytes(fmt.MAX_STATE + 1) + b"\x10\x01",
    "not ASCII": b"\xe9\0\1", "no length": b"\1",
}  # fmt: skip


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS.keys())
def test_a_malformed_state_is_damage_wherever_it_is_read(tail: bytes) -> None:
    """Under right CRCs: at the writer's start, by logdump --verify, and by who decodes the records."""
    fs = FaultFs()
    writer = open_writer(fs)
    payload = with_state(EMPTY, "right")
    header = BlockHeader(BlockKind.PLACE, flags=fmt.FLAG_STATE, payload_len=len(payload.data), payload_crc=payload.crc)
    writer.append_block(header, payload.data, Position(0, 1))
    made = tail.rjust(2, b"\0")
    crc = fmt.zlib.crc32(made)
    writer.append_block(replace(header, payload_len=len(made), payload_crc=crc), made, Position(0, 2))
    writer.sync()
    writer.abandon()
    with pytest.raises(DamageError, match=r"RBA \d+: damaged: expected a (source's state|state|PLACE block)"):
        open_writer(fs)
    said: list[str] = []
    assert not verify(fs, DumpSource(TRAIL), said.append)
    assert any(re.search("state|PLACE", line) for line in said)
    if tail != TAILS["not ASCII"]:
        with pytest.raises(DamageError, match="here: damaged: expected a state"):
            decode_data(BlockHeader(BlockKind.DATA, Indicator.WHOLE, fmt.FLAG_STATE, len(tail), 0), tail, "here")


@pytest.mark.parametrize("state", [7, b"bytes", LONGEST + "s", "\u00e9", None, ["s"]])
def test_a_file_header_with_what_is_no_state_is_damage(state: Any) -> None:
    """Type, length and letters."""
    import msgpack

    header = FileHeader(bytes(16), "lt", 0, 1, "home", "EXT1", "host", {}, last_state="right")
    body = fmt._body(header)
    assert fmt._header_from_body(msgpack.packb(body), "f").last_state == "right"
    with pytest.raises(DamageError, match="a header body with all its fields"):
        fmt._header_from_body(msgpack.packb(body | {"state": state}), "f")


def test_the_longest_state_makes_a_header_of_two_pages() -> None:
    """The header is as long as its body needs, and comes back whole."""
    header = FileHeader(bytes(16), "lt", 0, 1, "home", "EXT1", "host", {}, last_state=LONGEST)
    assert fmt.parse_file_header(fmt.make_file_header(header), "f") == (header, 2 * fmt.HEADER_UNIT)


def test_a_reader_from_before_the_bit_stops_at_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unsupported version, not damage."""
    fs = FaultFs()
    writer = open_writer(fs)
    put(writer, 1, "s")
    writer.close()
    monkeypatch.setattr(fmt, "FLAGS", fmt.FLAGS & ~fmt.FLAG_STATE)
    with pytest.raises(VersionError, match=r"block flags 0x0010; this program knows 0x000f"):
        blocks(fs)


# --- which state stands ---


def test_a_source_without_a_state_has_no_byte_of_one_in_its_trail() -> None:
    """PostgreSQL: no bit, no key in the header, and blocks as long as what is in them."""
    fs = FaultFs()
    writer = open_writer(fs)
    put(writer, 1, "")
    writer.append_place(Position(0, 2))
    writer.roll()
    writer.close()
    assert stated(blocks(fs)) == []
    assert "state" not in fmt._body(last_header(fs, TRAIL))  # type: ignore[arg-type]
    sizes = {block.header.kind: block.header.payload_len for block in blocks(fs)}
    assert sizes[BlockKind.PLACE] == 0
    assert sizes[BlockKind.DATA] == len(encode_data([TABLE.id], Tx(1, 1).records()).data)


def test_a_state_is_written_when_it_is_news_and_holds_until_the_next() -> None:
    """Over blocks that say nothing of it, over rollovers, and through the inside of a transaction."""
    fs = FaultFs()
    writer = open_writer(fs, max_bytes=1 << 20)
    for number, state in enumerate(("a", "a", "b", "b"), 1):
        put(writer, number, state)
    writer.roll()
    put(writer, 5, "b")
    writer.append_place(Position(0, 6), state="c")
    writer.append_data(
        Indicator.BEGIN, [TABLE.id], Tx(7, 2).records()[:2], changes=1, transactions=0, origin=Position(0, 6),
        csn="00000005", time_us=7,
    )  # fmt: skip
    writer.sync()
    writer.abandon()
    assert stated(blocks(fs)) == [(1, "a"), (3, "b"), (6, "c")]
    header = last_header(fs, TRAIL)
    assert header is not None and header.last_state == "b"
    fs.reboot(After.POWER)
    assert open_writer(fs).last.state == "c"
    header = last_header(fs, TRAIL)
    assert header is not None and (header.last_state, header.last_origin) == ("c", Position(0, 6))


def test_no_block_takes_a_place_back() -> None:
    """What was told to the source as safe stays so, whatever kind the block is of."""
    writer = open_writer(FaultFs())
    writer.append_place(Position(0, 91))
    for append in (
        lambda: writer.append_place(Position(0, 90)),
        lambda: writer.define([TABLE], origin=Position(0, 90)),
    ):
        with pytest.raises(ValueError, match="origin 0/90 lies before 0/91: a place goes back"):
            append()
    assert writer.last.origin == Position(0, 91)
    writer.abandon()


def test_an_empty_state_empties_it() -> None:
    """In the block, and in the header of the next file, which then has no key for it."""
    fs = FaultFs()
    writer = open_writer(fs)
    put(writer, 1, "a")
    put(writer, 2, "")
    writer.close()
    assert open_writer(fs).last.state == ""
    header = last_header(fs, TRAIL)
    assert header is not None and "state" not in fmt._body(header)


def test_CW_31_checkpoint_files_and_older_trail_files_are_lost() -> None:
    """CW-31: every start of Extract gets the state of its origin from blocks, and from the last file's header alone."""
    script = [Tx(n, 2) for n in range(1, 30)]
    settings = Settings("EXT1", "home", "host", TRAIL, "./dirdat/lt", 4096 + 1500)
    fs, log, clock = FaultFs(), ScriptedLog([*script, Idle(40)], states=True), FakeClock()
    run_until_released(Extract.start(fs, settings, ScriptedSource(log), clock), log, clock)
    for _ in range(2):
        log.given.clear()
        extract = Extract.start(fs, settings, ScriptedSource(log), clock)  # no checkpoint file is looked at
        assert set(log.given) == {(40, log.state(40))}
        assert len(log.state(40)) > 20
        extract.close()
        last = last_header(fs, TRAIL)
        assert last is not None and last.last_state == log.state(40)
        for seqno in range(last.seqno):
            if fs.exists(TRAIL.path(seqno)):
                fs.remove(TRAIL.path(seqno))
    log.items.append(Tx(41, 1))
    run_until_released(Extract.start(fs, settings, ScriptedSource(log), clock), log, clock)
    assert transactions(fs) == expected([Tx(41, 1)])


def test_a_state_that_changes_alone_goes_into_the_trail_too() -> None:
    """The oldest open transaction ended and nothing was committed: reading may begin later from now on."""
    fs, clock = FaultFs(), FakeClock()
    log = ScriptedLog([Tx(1, 1)], states=True)
    source = ScriptedSource(log)
    extract = Extract.start(fs, Settings("EXT1", "home", "host", TRAIL, "./dirdat/lt"), source, clock)
    extract.step()
    extract.step()
    extract.flush()
    assert source._sink is not None
    for state in ("other", "other", "another"):
        source._sink.reached(Position(0, 1), 5, state)
        clock.sleep(2)
        extract._append_place(clock.monotonic())
    extract._writer.sync()
    assert stated(blocks(fs)) == [(1, log.state(1)), (1, "other"), (1, "another")]
    assert [block.header.kind for block in blocks(fs)].count(BlockKind.PLACE) == 2, "said once each"
    extract._writer.abandon()


# --- who passes it on ---


@pytest.fixture
def near() -> FaultFs:
    """A trail with states, longer than any of its other contents."""
    fs = FaultFs()
    writer = TrailWriter.open(fs, NEAR, IDENTITY, max_bytes=20_000, restart_open=True)
    for number in range(1, 20):
        put(writer, number, f"{number}" * 1000, rows=number)
        writer.append_place(Position(0, number), state=f"place {number}")
    writer.close()
    return fs


def copied(near: FaultFs, far: FaultFs, rules: Filter | None) -> list[Block]:
    """The trail that a pump and a Collector make of it."""
    header = last_header(near, NEAR)
    assert header is not None
    collector = Collector(far, FAR, "./dirdat/rt")
    welcome = collector.greet(Near(near).hello())
    collector._alive().max_bytes = 20_000
    feed = Feed(near, NEAR, header.trail_id, welcome.origin, welcome.open, rules)
    now = 0.0
    while not feed.at_end:
        now += 2
        for outgoing in feed.read(now):
            collector.take(outgoing.block)
    collector.sync()
    collector.close()
    return [block for block in blocks(far, FAR) if block.header.kind is not BlockKind.METADATA]


def test_pump_and_Collector_pass_states_on_byte_for_byte(near: FaultFs) -> None:
    """PASSTHRU: payloads as they stand. The headers have no state, as it belongs to the other trail's origins."""
    far = FaultFs()
    found = copied(near, far, None)
    sent = [block for block in blocks(near, NEAR) if block.header.kind is not BlockKind.METADATA]
    assert [block.payload for block in found] == [block.payload for block in sent]
    assert [block.header.flags for block in found] == [block.header.flags for block in sent]
    assert len(stated(found)) == 38
    for seqno in FAR.seqnos(far.listdir(FAR.folder)):
        assert b"\xa5state" not in far.content(FAR.path(seqno))[: fmt.HEADER_UNIT]
    assert transactions(far, FAR) == transactions(near, NEAR)
    assert Collector(far, FAR, "./dirdat/rt")._alive().last.state == ""


def test_a_filtering_pump_leaves_out_the_states_of_blocks_that_it_makes_anew(near: FaultFs) -> None:
    """A block that it keeps as it stands keeps its state; one that it encodes, or a place of its own, has none."""
    whole = copied(near, FaultFs(), Filter(lambda _schema, _name: True, lambda *_: None))
    assert [len(state) for _, state in stated(whole)] == [1000] * 9 + [2000] * 10
    none = copied(near, FaultFs(), Filter(lambda _schema, _name: False, lambda *_: None))
    assert none and stated(none) == []


def test_a_Collector_starts_on_a_state_that_nobody_could_read(near: FaultFs) -> None:
    """It is the source's affair: no peer can keep a Collector from its trail with one."""
    identity = replace(IDENTITY, copies=b"c" * 16)
    fs = FaultFs()
    payload = b"\xff\xff\xff"
    for _ in range(2):
        writer = TrailWriter.open(fs, FAR, identity, restart_open=False)
        crc = fmt.zlib.crc32(payload)
        header = BlockHeader(BlockKind.PLACE, flags=fmt.FLAG_STATE, payload_len=3, payload_crc=crc)
        writer.append_block(header, payload, Position(0, 1))
        writer.close()
    assert len([block for block in blocks(fs, FAR) if block.header.has_state]) == 2
    assert transactions(fs, FAR) == []


# --- encrypted ---


def test_in_an_encrypted_trail_a_state_is_sealed_and_comes_back(tmp_path: Any) -> None:
    """Neither block nor tail is readable in the file, and a changed byte of it is damage."""
    trail, fs = make_home(tmp_path, Wallet("mine", (KEY,))), RealFs()
    open_one: Callable[[], TrailWriter] = lambda: TrailWriter.open(  # noqa: E731
        fs, trail, IDENTITY, restart_open=True, encrypt=True
    )
    writer = open_one()
    put(writer, 1, "secret-1")
    writer.append_place(Position(0, 2), state="secret-2")
    place = writer.position
    writer.close()
    with open(trail.path(0), "rb") as file:
        assert b"secret" not in file.read()
    assert stated(blocks(fs, trail)) == [(1, "secret-1"), (2, "secret-2")]
    again = open_one()
    assert again.last.state == "secret-2"
    again.append_place(Position(0, 3), state="secret-3")
    again.abandon()
    with open(trail.path(1), "r+b") as file:  # not durable: cut
        file.seek(-1, 2)
        file.write(b"\0")
    assert (mark := open_one().last).state == "secret-2" and mark.origin == Position(0, 2)
    with open(trail.path(0), "r+b") as file:
        file.seek(place.rba - 1)
        file.write(b"\0")
    with pytest.raises(GateError, match="damaged"):
        blocks(fs, trail)


# --- shown ---


def test_logdump_shows_states(near: FaultFs) -> None:
    """Behind the records of the block that bears one, in headers, and with GGSTOKEN at the block's last record."""
    said: list[str] = []
    show_records(near, DumpSource(NEAR), Wanted(), said.append)
    assert sum("STATE     " in line for line in said) == 38
    assert any(line.endswith("STATE     place 7") for line in said)
    said.clear()
    show_headers(near, DumpSource(NEAR), said.append)
    assert "  Source's state before : -" in said
    assert any(re.fullmatch(r"  Source's state before : (place \d+|(\d+)\2+)", line) for line in said)
    assert verify(near, DumpSource(NEAR), said.append)
    cursor, view = Cursor(near, NEAR, 0), View(tokens=True)
    shown = [record(item, view) for item in iter(cursor.next, None)]
    assert [line for line in shown[1] if line.startswith("STATE")] == ["STATE   : " + "1" * 1000]
    assert "STATE   : place 1" in shown[2]
    assert sum(any(line.startswith("STATE") for line in lines) for lines in shown) == len(
        stated([block for block in blocks(near, NEAR) if block.start.seqno == 0])
    )


class Clustered(ScriptedSource):
    """Two threads: of each, where it reads again is in the state."""

    def facts(self, origin: Position, state: str, time_us: int | None) -> SourceFacts:
        """See Source."""
        begins = [int(part) for part in state.split(",")] if state else [1, 1]
        threads = [
            ThreadPlaces(Place(n, begin, time_us, str(begin), thread=n), Place(n, 99, None, "99", thread=n))
            for n, begin in enumerate(begins, 1)
        ]
        return SourceFacts("Clustered Log", threads)


class ClusteredLog(ScriptedLog):
    """States of that shape."""

    def state(self, place: int) -> str:
        """See ScriptedLog."""
        return f"{place * 10},{place * 20}" if place else ""


def test_a_clustered_source_has_a_read_checkpoint_a_thread_and_recovery_comes_from_its_state() -> None:
    """Startup, recovery and current of each thread; a new start begins at the recovery places."""
    fs, clock, log = FaultFs(), FakeClock(), ClusteredLog([Tx(1, 1), Tx(2, 1)])
    settings = Settings("EXT1", "home", "host", TRAIL, "./dirdat/lt")
    extract = Extract.start(fs, settings, Clustered(log), clock)
    while extract.step() or log.confirmed < 2:
        clock.sleep(0.1)
    reads = extract.flush().reads
    places = [(r.startup.thread, r.startup.rba, r.recovery and r.recovery.rba, r.current.rba) for r in reads]
    assert places == [(1, 1, 20, 99), (2, 1, 40, 99)]
    extract.close()
    again = Extract.start(fs, settings, Clustered(log), clock)
    assert [read.startup.rba for read in again.flush().reads] == [20, 40]
    again.close()
