"""The decoder of binary log events, fed with what a MariaDB 10.11 and a MySQL 8.0.12 wrote (tests/support/binlogs)."""

from __future__ import annotations

import struct
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extract.sources.mysql import events as ev
from extract.sources.mysql import gtid
from extract.sources.mysql.events import BinlogError, UncapturedError
from extract.sources.mysql.flavour import Flavour
from extract.sources.mysql.handed import Start
from extract.sources.mysql.places import parts
from extract.sources.mysql.state import State
from tests.support.binlog_streams import (
    BOTH,
    MARIADB,
    MYSQL,
    NAMELESS,
    THIN,
    WHOLE,
    Loose,
    Recording,
    Tables,
    Told,
    bare,
    decoder,
    described,
    event,
    feed,
    names,
    rotate,
    whole,
)
from tests.support.hostile import hostile
from trails.errors import OperatorError
from trails.position import Position

# --- what arrives ---------------------------------------------------------------------------------------------------


@BOTH
def test_the_log_gives_what_select_gave(recording):
    """At the end of each file the tables are as the server had them: XA, savepoints, MyISAM, packed events and all."""
    sink = Tables()
    one = decoder(recording.flavour, sink)
    for file in WHOLE:
        feed(one, recording.events(file))
        expected = recording.tables(file)
        assert {table: sink.rows.get(table, {}) for table in expected} == expected, file
    kinds = {names(data) for file in WHOLE for data in recording.events(file)}
    assert {ev.XA_PREPARE, ev.TABLE_MAP, ev.XID, ev.ROTATE} <= kinds
    if recording is MARIADB:
        assert {ev.WRITE_ROWS_COMPRESSED_V1, ev.UPDATE_ROWS_COMPRESSED_V1, ev.QUERY_COMPRESSED} <= kinds


@BOTH
def test_CA_04_rows_have_the_shape_of_their_place(recording):
    """Before, between and behind two ALTERs, read long after both: the log says what columns there were."""
    shapes = []

    def describe(table):
        shapes.append((table.name, [column.name for column in table.columns], table.key))
        return described(table)

    one = decoder(recording.flavour, Tables(), describe=describe)
    for file in WHOLE:
        feed(one, recording.events(file))
    of_part = [columns for name, columns, key in shapes if name == "part" and key == (0,)]
    plain = ["id", "name", "note"]
    changes = [columns for i, columns in enumerate(of_part) if not i or columns != of_part[i - 1]]
    assert changes == [plain, [*plain, "more"], plain]


@BOTH
def test_every_place_is_one_to_go_on_from(recording):
    """Whatever place and state a trail ends with: from there all that is left comes, once, and nothing else does."""
    reference = whole(recording)
    assert any(" " in state[2:] for _, state in reference.places)  # some with a prepared XA transaction
    for origin, text in reference.places:
        state = State.parse(recording.flavour, text)
        sink = Tables(origin, text)
        for name, rows in _tables_at(recording, origin).items():
            sink.rows[name] = rows
        one = decoder(recording.flavour, sink, start=Start(origin, state))
        _resume(recording, one, state.again.origin if state.again else origin)
        assert sink.commits == [commit for commit in reference.commits if commit[1] > origin]
        assert sink.rows == reference.rows
        assert sink.origin == reference.origin
        assert sink.state == reference.state


@BOTH
def test_another_server_is_passed_over_by_gtid(recording):
    """Its places are others, its transactions are not: those of the set are passed over, all others come once."""
    reference = whole(recording)
    for origin, text in reference.places:
        state = State.parse(recording.flavour, text)
        sink = Tables(origin, text)
        sink.rows = _tables_at(recording, origin)
        one = decoder(recording.flavour, sink, start=Start(Position(1 << 32, 0), state, by_gtid=True))
        for file in WHOLE:
            feed(one, recording.events(file))
        assert sink.rows == reference.rows
        assert State.parse(recording.flavour, sink.state).gtids == State.parse(recording.flavour, reference.state).gtids
        assert all(parts(place)[0] == 1 for _, place, _ in sink.commits)


@BOTH
def test_a_failover_that_is_cut_short_goes_on_anywhere(recording):
    """With XA transactions prepared on the old server: whatever the trail ends with, they are read again."""
    reference = whole(recording)
    there = {place: State.parse(recording.flavour, said).gtids for place, said in reference.places}
    for origin, text in reference.places:
        state = State.parse(recording.flavour, text)
        if state.again is None:
            continue
        first = Tables(origin, text)
        first.rows = _tables_at(recording, origin)
        one = decoder(recording.flavour, first, start=Start(Position(1 << 32, 0), state, by_gtid=True))
        for file in WHOLE:
            feed(one, recording.events(file))
        for place, said in first.places:
            then = State.parse(recording.flavour, said)
            sink = Tables(place, said)
            sink.rows = _tables_at(recording, max(origin, Position(place.seqno - (1 << 32), place.rba)))
            start = place if then.again is None else then.again.origin
            by_gtid = parts(start)[0] == 0
            if not by_gtid:  # what the log has before that place is what the state says, as a restart asks the server
                held = then.gtids if then.again is None else then.again.gtids
                asked = Position(start.seqno - (1 << 32), start.rba)
                assert held == there[max(known for known in there if known <= asked)]
            one = decoder(recording.flavour, sink, start=Start(place, then, by_gtid=by_gtid))
            _resume(recording, one, Position(1, 4) if by_gtid else Position(start.seqno - (1 << 32), start.rba))
            assert sink.rows == reference.rows
            assert State.parse(recording.flavour, sink.state).gtids == State.parse(recording.flavour, first.state).gtids
            assert State.parse(recording.flavour, sink.state).again is None


def test_another_order_after_a_failover_doubles_nothing():
    """The new server committed t2 before t1, of which the trail had t1 only: behind t2 it ends once, and goes on."""
    uuid = "11111111-2222-3333-4444-555555555555"
    state = State(gtid.parse(Flavour.MYSQL, f"{uuid}:1"))
    origin = Position(1 << 32, 0)
    for by_gtid in (True, False, False):
        sink, pos = Tables(origin, str(state)), 120
        one = decoder(Flavour.MYSQL, sink, start=Start(origin, state, by_gtid=by_gtid))
        feed(one, [rotate(WHOLE[0], pos)])
        for number_of, rows in ((2, "item"), (1, "plain")):
            events = MYSQL.events(WHOLE[0])
            at = next(i for i, data in enumerate(events) if names(data) == ev.TABLE_MAP and rows.encode() in data)
            sid = bytes.fromhex(uuid.replace("-", ""))
            group = [event(ev.GTID, b"\0" + sid + struct.pack("<q", number_of) + b"\2" + b"\0" * 16)]
            group += [next(data for data in events if data[-9:-4] == b"BEGIN"), *events[at : at + 2]]
            group.append(next(data for data in events if names(data) == ev.XID))
            for data in group:
                pos += len(data)
                feed(one, [event(names(data), data[19:-4], end=pos)])
        assert set(sink.rows) == ({"item"} if by_gtid else set())
        assert len(sink.commits) == by_gtid
        assert sink.state == f"1 {uuid}:1-2"
        # A restart behind t2.
        if by_gtid:
            origin, state = sink.commits[0][1], State.parse(Flavour.MYSQL, sink.commits[0][2])


def _tables_at(recording: Recording, origin: Position) -> dict:
    """What had been handed over there."""
    sink = Tables()
    one = decoder(recording.flavour, sink)
    for file in WHOLE:
        for data in recording.events(file):
            feed(one, [data])
            if sink.origin >= origin:
                return sink.rows
    return sink.rows


def _resume(recording: Recording, one, place: Position) -> None:
    """Feed from a place on, as a server does that was asked for it."""
    _, number, pos = parts(place)
    for file in WHOLE:
        found = int(file[-6:])
        if found < number:
            continue
        _, description, *rest = recording.events(file)
        ends = list(accumulate(map(len, [description, *rest]), initial=4))
        begin = pos if found == number else 4
        assert begin in ends
        feed(one, [rotate(file, begin)])
        if begin > 4:  # the server changes the event: it has no place now
            feed(one, [event(ev.FORMAT_DESCRIPTION, bytes(description[19:-4]))])
        feed(one, [data for data, at in zip([description, *rest], ends, strict=False) if at >= begin])


# --- what must not be captured --------------------------------------------------------------------------------------


@BOTH
def test_a_change_that_is_not_whole_stops(recording):
    """An image with some columns only, and columns without names: both say which setting mends it."""
    for file, setting in ((THIN, "binlog_row_image"), (NAMELESS, "binlog_row_metadata")):
        sink = Tables()
        with pytest.raises(UncapturedError, match=setting) as caught:
            feed(decoder(recording.flavour, sink), recording.events(file))
        assert str(caught.value).startswith(f"{file}, position ")
        assert "shop.item" in str(caught.value)
        assert not sink.commits
        # Nobody asked for that table: then it is of no concern.
        feed(decoder(recording.flavour, Tables(), wants=lambda _schema, _table: False), recording.events(file))


def test_unknown_events_stop_unless_they_say_that_they_may_be_passed_over():
    """Types that this release has no name for."""
    one = decoder(Flavour.MYSQL, Tables())
    feed(one, [rotate("binlog.000001"), event(99, b"x", flags=ev.IGNORABLE, end=100)])
    with pytest.raises(UncapturedError, match=r"binlog.000001, position 100: .*type 99"):
        feed(one, [event(99, b"x", end=124)])
    with pytest.raises(UncapturedError, match="gap here: disk full"):
        feed(one, [event(ev.INCIDENT, b"\x01\x00\x09disk full", end=200)])
    with pytest.raises(UncapturedError, match="binlog_format = ROW"):
        feed(one, [event(ev.EXECUTE_LOAD_QUERY, b"\0" * 30, end=300)])


def test_known_events_have_their_places():
    """A row outside of a transaction, a transaction in another one, rows of a table that nobody named."""
    events = MYSQL.events(WHOLE[0])
    begin = next(i for i, data in enumerate(events) if names(data) == ev.TABLE_MAP) - 3
    assert [names(data) for data in events[begin : begin + 5]] == [33, 2, 29, 19, 30]
    for left_out, said in (((0, 1), "outside"), ((3,), "no TABLE_MAP"), ((1,), r"TABLE_MAP .19. inside")):
        one = decoder(Flavour.MYSQL, Tables())
        group = [data for i, data in enumerate(events[begin : begin + 6]) if i not in left_out]
        with pytest.raises(BinlogError, match=said):
            feed(one, [events[0], events[1], *group])
    one = decoder(Flavour.MYSQL, Tables())
    with pytest.raises(BinlogError, match=r"GTID .33. inside"):
        feed(one, [events[0], events[1], events[begin], event(ev.GTID, events[begin][19:-4], end=9000)])


def test_an_id_means_the_table_that_its_group_named_last():
    """Ids are used again for other tables."""
    groups = []
    for table, file in (("item", WHOLE[0]), ("part", WHOLE[2])):
        events = MYSQL.events(file)
        at = next(i for i, data in enumerate(events) if names(data) == ev.TABLE_MAP and table.encode() in data)
        begin = max(i for i in range(at) if names(data := events[i]) == ev.GTID)
        end = next(i for i in range(at, len(events)) if names(events[i]) == ev.XID)
        groups.append(events[begin : end + 1])
    sink, pos = Tables(), 1000
    one = decoder(Flavour.MYSQL, sink)
    feed(one, MYSQL.events(WHOLE[0])[:2])
    for group in groups:
        for data in group:
            kind, body = names(data), data[19:-4]
            if kind in (ev.TABLE_MAP, ev.WRITE_ROWS_V2):
                body = b"\x4d\0\0\0\0\0" + body[6:]
            pos += len(data)
            feed(one, [event(kind, body, end=pos)])
    assert {name: set(rows) for name, rows in sink.rows.items()} == {"item": {"1", "2", "3"}, "part": {"2"}}


def test_a_gtid_with_a_tag_is_one():
    """From MySQL 8.3 on; its fields are numbers of varying length."""

    def varied(value: int) -> bytes:
        size = max(1, (value.bit_length() + 6) // 7)
        if size > 8:
            return b"\xff" + value.to_bytes(8, "little")
        return (value << size | (1 << size - 1) - 1).to_bytes(size, "little")

    uuid = bytes(range(120, 136))
    for gno in (1, 63, 64, 1 << 20, (1 << 62) + 5):
        values = [0, 2, 1, *uuid, 2, gno << 1, 3, 3]
        body = b"".join(map(varied, values)) + b"abc"
        body += b"".join(map(varied, (4, 8, 5, 10, 6, 1_795_381_314_713_551, 8, 500, 9, 90_400)))
        size = next(size for size in (len(body) + 3, len(body) + 4) if len(varied(size)) == size - len(body) - 2)
        whole_event = event(ev.GTID_TAGGED, varied(1) + varied(size) + varied(0) + body, end=400)
        sink = Tables()
        one = decoder(Flavour.MYSQL, sink)
        begin = next(data for data in MYSQL.events(WHOLE[0]) if data[-9:-4] == b"BEGIN")
        events = [rotate(WHOLE[0]), MYSQL.events(WHOLE[0])[1], whole_event]
        feed(one, [*events, event(ev.QUERY, begin[19:-4], end=500), event(ev.XID, b"\0" * 8, end=600)])
        source = "78797a7b-7c7d-7e7f-8081-828384858687:abc"
        assert State.parse(Flavour.MYSQL, sink.state).gtids == gtid.parse(Flavour.MYSQL, f"{source}:{gno}")
        for at in range(19, len(whole_event) - 30):
            broken = event(ev.GTID_TAGGED, whole_event[19:at], end=400)
            with pytest.raises(BinlogError):
                feed(decoder(Flavour.MYSQL, Tables()), [*events[:2], broken])


def test_xa_commit_of_rows_from_before_the_beginning_stops():
    """Nobody can know them."""
    sink = Tables()
    with pytest.raises(UncapturedError, match=r"XA COMMIT of X'6c656674',X'62',7"):
        feed(decoder(Flavour.MYSQL, sink), MYSQL.events(WHOLE[2]))
    assert not sink.commits


# --- damage ---------------------------------------------------------------------------------------------------------


@BOTH
def test_every_byte_flipped_gives_an_error_with_its_place(recording):
    """The checksum sees every bit of every event."""
    for file in WHOLE:
        events = recording.events(file)
        one = decoder(recording.flavour, Tables(), checksums=True)
        for data in events:
            for at in range(len(data)):
                broken = bytearray(data)
                broken[at] ^= 1 << at % 8
                if names(data) == ev.FORMAT_DESCRIPTION and at == 17 and at % 8 == 0:
                    continue  # the bit that says that the file is being written
                with pytest.raises(BinlogError):
                    one._event(bytes(broken), 0, len(broken))
            feed_one(one, data)


def test_a_stream_without_checksums_begins_without_one():
    """The first event shows it; a damaged first event is no such one."""
    first = rotate(WHOLE[0])
    for data in (first, bare(first)):
        sink = Tables()
        feed(decoder(Flavour.MYSQL, sink), [data, *MYSQL.events(WHOLE[0])[1:]])
        assert len(sink.commits) > 3
    for at in range(len(first)):
        with pytest.raises(BinlogError):
            feed(decoder(Flavour.MYSQL, Tables()), [first[:at] + bytes([first[at] ^ 0x41]) + first[at + 1 :]])


def feed_one(one, data: bytes) -> None:
    """Only the frame: what stands in it is known to be right."""
    one._event(data, 0, len(data))


@BOTH
def test_every_cut_is_an_error(recording):
    """Also where the header is made to say the shorter size."""
    for file in WHOLE[:1]:
        for data in recording.events(file)[1:]:
            one = decoder(recording.flavour, Tables())
            feed(one, recording.events(file)[:2])
            for size in range(len(data)):
                short = bytearray(data[:size])
                if size >= 13:
                    struct.pack_into("<I", short, 9, size)
                with pytest.raises(BinlogError):
                    one.decode(bytes(short), 0, size)
                with pytest.raises(BinlogError):
                    one.decode(data[:size], 0, size)


@BOTH
def test_without_checksums_damage_is_an_error_or_a_change_of_values(recording):
    """Every byte of the stream turned over: each time it ends, or raises one of our errors with file and place."""
    file = WHOLE[3] if recording is MARIADB else WHOLE[0]
    events = [bare(data) for data in recording.events(file) if names(data) != ev.FORMAT_DESCRIPTION]
    errors = 0
    for i, data in enumerate(events):
        near = range(max(0, i - 4), min(len(events), i + 2))
        for at in range(len(data)):
            broken = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
            one = decoder(recording.flavour, Loose(), checksums=False)
            said = error_of(one, [bare(rotate(file)), *(broken if k == i else events[k] for k in near if k)])
            assert not said or ", position " in said or said.startswith("the binary log")
            errors += bool(said)
    assert errors > 500


@BOTH
@hostile(60)
@given(st.data())
def test_any_bytes_of_an_event_are_an_error_or_other_values(recording, data):
    """Several at once, with lengths and counts among them, and a piece that is missing or there twice."""
    file = WHOLE[3] if recording is MARIADB else WHOLE[0]
    events = [bare(each) for each in recording.events(file) if names(each) != ev.FORMAT_DESCRIPTION]
    i = data.draw(st.integers(1, len(events) - 1))
    broken = bytearray(events[i])
    for _ in range(data.draw(st.integers(1, 6))):
        broken[data.draw(st.integers(13, len(broken) - 1))] = data.draw(
            st.sampled_from((0, 1, 2, 127, 128, 251, 254, 255))
        )
    begin, size = data.draw(st.integers(19, len(broken))), data.draw(st.integers(0, 40))
    piece = bytes(broken[begin : begin + size])
    broken[begin : begin + size] = data.draw(st.sampled_from((piece, b"", piece * 2)))
    struct.pack_into("<I", broken, 9, len(broken))
    near = range(max(1, i - 4), min(len(events), i + 2))
    one = decoder(recording.flavour, Loose(), checksums=False)
    error_of(one, [bare(rotate(file)), *(bytes(broken) if k == i else events[k] for k in near)])


def error_of(one, stream: list[bytes]) -> str:
    """What decoding it ends with; nothing but our own errors may come out."""
    try:
        feed(one, stream)
    except (BinlogError, OperatorError) as error:
        return str(error)
    return ""


# --- places ---------------------------------------------------------------------------------------------------------


def test_positions_go_on_behind_four_gigabytes():
    """The log's own have 32 bits."""
    events = MYSQL.events(WHOLE[0])
    shift = (1 << 32) - 1500
    moved = [rotate(WHOLE[0], shift + 4), events[1][:13] + b"\0" * 4 + events[1][17:]]
    moved[1] = event(ev.FORMAT_DESCRIPTION, moved[1][19:-4])
    for data in events[2:-1]:
        end = int.from_bytes(data[13:17], "little") + shift
        kind, flags = names(data), int.from_bytes(data[17:19], "little")
        moved.append(event(kind, data[19:-4], end=end & 0xFFFFFFFF, flags=flags))
    sink, plain = Tables(), Tables()
    feed(decoder(Flavour.MYSQL, sink), moved)
    feed(decoder(Flavour.MYSQL, plain), events[:-1])
    assert [place.rba - shift for _, place, _ in sink.commits] == [place.rba for _, place, _ in plain.commits]
    assert max(place.rba for _, place, _ in sink.commits) > 1 << 32
    assert sink.rows == plain.rows


def test_idle_places_move_on_by_heartbeats_and_files_and_never_back():
    """All three forms of a heartbeat, and what is none."""
    sink = Tables()
    one = decoder(Flavour.MARIADB, sink)
    feed(one, [rotate("binlog.000003", 500), event(ev.HEARTBEAT, b"binlog.000003", end=700)])
    assert sink.origin == Position(3, 700)
    feed(one, [event(ev.HEARTBEAT, struct.pack("<Q", 6 << 30) + b"binlog.000003")])
    assert sink.origin == Position(3, 6 << 30)
    later = b"\x01\x0dbinlog.000003\x02\x09\xfe" + struct.pack("<Q", 7 << 30) + b"\0"
    feed(one, [event(ev.HEARTBEAT_V2, later)])
    assert sink.origin == Position(3, 7 << 30)
    feed(one, [event(ev.ROTATE, struct.pack("<Q", 4) + b"binlog.000004", end=50)])
    assert sink.origin == Position(4, 4)
    for wrong in (event(ev.HEARTBEAT, b"binlog.000003", end=900), rotate("binlog.000003"), event(ev.HEARTBEAT, b"x")):
        with pytest.raises(BinlogError):
            feed(one, [wrong])


@BOTH
def test_a_server_that_died_inside_a_group_never_committed_it(recording):
    """The next file begins, and what was open is dropped."""
    events = recording.events(WHOLE[0])
    at = next(i for i, data in enumerate(events) if names(data) in (ev.WRITE_ROWS_V1, ev.WRITE_ROWS_V2))
    sink = Tables()
    one = decoder(recording.flavour, sink)
    feed(one, events[: at + 1])
    assert one.open
    assert sink.records
    feed(one, [rotate(WHOLE[1]), recording.events(WHOLE[1])[1]])
    assert not one.open
    assert not sink.records
    assert not sink.commits


@BOTH
def test_statements_are_told_once_with_all_that_they_were_told_in(recording):
    """Schema, text and place; a group that was handed over is not told again."""
    told, sink = Told(), Tables()
    one = decoder(recording.flavour, sink, told=told)
    for file in WHOLE:
        feed(one, recording.events(file))
    texts = [query.sql for query in told.texts]
    assert b"CREATE DATABASE shop" in texts
    assert b"TRUNCATE TABLE part" in texts
    query = next(query for query in told.texts if query.sql.startswith(b"ALTER TABLE part ADD"))
    assert query.schema == "shop"
    assert query.where.startswith("binlog.000004, position ")
    assert query.origin > Position(4, 4)
    assert query.sql_mode
    assert query.charset
    again = Told()
    state = State(gtid.parse(recording.flavour, ""))
    one = decoder(recording.flavour, Tables(), told=again, start=Start(Position(5, 4), state))
    for file in WHOLE:
        feed(one, recording.events(file))
    assert not again.texts
