"""The session, message by message: frames, limits, states, versions (docs/wire.md)."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from trails.errors import ProtocolError, VersionError
from trails.link import wire
from trails.link.channel import Heartbeat
from trails.link.wire import FRAME, NEED_DATA, Side, Type, WireSession, WireState
from trails.position import Position

HELLO = wire.Hello(
    home="a" * 32,
    group="PMP1",
    host="here",
    trail="./dirdat/rt",
    trail_id=b"\1" * 16,
    source={"kind": "postgresql"},
    alter=2,
    start=Position(3, 0),
    megabytes=100,
    dead=10_000,
)
WELCOME = wire.Welcome(Position(1, 4096), b"\2" * 16, True, 1, Position(7, 5000))
BLOCK = wire.BlockMessage(Position(1, 4096), Position(1, 4202), bytes(range(96)), b"0123456789")
ACK = wire.Ack(Position(1, 4202), Position(7, 6000))

STREAM = [
    (Side.PUMP, HELLO),
    (Side.COLLECTOR, WELCOME),
    (Side.PUMP, BLOCK),
    (Side.COLLECTOR, wire.Ping(7)),
    (Side.PUMP, wire.Pong(7)),
    (Side.PUMP, wire.Ping(3)),
    (Side.COLLECTOR, wire.Pong(3, 1_700_000_000_000_000)),
    (Side.PUMP, wire.Ping(2**64 - 1)),
    (Side.COLLECTOR, wire.Pong(2**64 - 1)),
    (Side.COLLECTOR, ACK),
    (Side.PUMP, wire.Bye("stopped")),
    (Side.COLLECTOR, wire.Ack(Position(1, 4202), Position(7, 6001))),
    (Side.COLLECTOR, wire.Bye("")),
]


def pair() -> dict[Side, WireSession]:
    return {side: WireSession(side) for side in Side}


def other(side: Side) -> Side:
    return Side.COLLECTOR if side is Side.PUMP else Side.PUMP


def bytes_of(session: WireSession, message: wire.Message) -> bytes:
    return b"".join(bytes(piece) for piece in session.send(message))


def greeted() -> dict[Side, WireSession]:
    """Two sessions that stream."""
    ends = pair()
    list(ends[Side.COLLECTOR].receive(bytes_of(ends[Side.PUMP], HELLO)))
    list(ends[Side.PUMP].receive(bytes_of(ends[Side.COLLECTOR], WELCOME)))
    return ends


@pytest.mark.parametrize("size", [1, 2, 5, 13, 1 << 20])
def test_a_session_arrives_the_same_in_pieces_of_any_size(size):
    """Each message comes out equal to what went in, fed byte by byte or whole, and both ends close."""
    ends = pair()
    for side, message in STREAM:
        data = bytes_of(ends[side], message)
        events = []
        for at in range(0, len(data), size):
            events += ends[other(side)].receive(data[at : at + size])
        assert events == [message]
    assert {end.state for end in ends.values()} == {WireState.CLOSED}


def test_a_payload_lands_where_it_stays():
    """Once a large body has begun, the buffer handed out is the rest of that body: no copy."""
    end = greeted()[Side.COLLECTOR]
    payload = bytes(300_000)
    big = replace(BLOCK, payload=payload, end=Position(1, 4192 + len(payload)))
    data = bytes_of(greeted()[Side.PUMP], big)
    buffer = end.get_buffer()
    assert len(buffer) == wire.SCRATCH_SIZE
    buffer[:] = data[: len(buffer)]
    end.received(len(buffer))
    assert end.next_event() is NEED_DATA
    rest = end.get_buffer()
    assert len(rest) == len(data) - len(buffer)
    rest[:] = data[len(buffer) :]
    end.received(len(rest))
    assert end.next_event() == big
    assert end.next_event() is NEED_DATA


def test_memory_for_a_body_follows_its_bytes():
    """A frame that claims a gigabyte costs a few megabytes until the bytes come; then it arrives whole."""
    end = greeted()[Side.COLLECTOR]
    end.get_buffer()[:5] = FRAME.pack(Type.BLOCK, wire.LIMITS[Type.BLOCK])
    end.received(5)
    assert end.next_event() is NEED_DATA
    assert len(end.get_buffer()) == wire.FIRST_BODY
    payload = bytes(range(256)) * 40_000
    big = replace(BLOCK, payload=payload, end=Position(1, 4192 + len(payload)))
    data = bytes_of(greeted()[Side.PUMP], big)
    assert list(greeted()[Side.COLLECTOR].receive(data)) == [big]


@pytest.mark.parametrize("number", [0, 9, 71, 255])
def test_an_unknown_type_is_an_error(number):
    """Zeroed bytes, and an HTTP request on the port, end the session at once."""
    end = WireSession(Side.COLLECTOR)
    with pytest.raises(ProtocolError, match=f"message type {number}"):
        list(end.receive(FRAME.pack(number, 0)))
    assert end.state is WireState.DEAD


@pytest.mark.parametrize("kind", list(Type))
def test_a_length_over_the_limit_is_refused_before_its_body(kind):
    """The five bytes of the frame are enough to refuse it."""
    side = next(s for s in Side for (_, k) in wire.RECEIVES[s] if k is kind)
    end = WireSession(side)
    end.state = next(state for (state, k) in wire.RECEIVES[side] if k is kind)
    with pytest.raises(ProtocolError, match="limit"):
        list(end.receive(FRAME.pack(kind, wire.LIMITS[kind] + 1)))


@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize("state", [s for s in WireState if s not in (WireState.DEAD, WireState.CLOSED)])
@pytest.mark.parametrize("kind", list(Type))
def test_what_the_table_does_not_allow_is_an_error(side, state, kind):
    """For every state and message: the table's entry, or ProtocolError on receipt and RuntimeError on sending."""
    by_type = {m.type: m for _, m in STREAM} | {Type.REFUSE: wire.Refuse(True, "no")}
    message = by_type[kind]
    sender, receiver = WireSession(other(side)), WireSession(side)
    sender.state = next(s for (s, k) in wire.SENDS[other(side)] | wire.SENDS[side] if k is kind)
    sender.side = next(s for s in Side if (sender.state, kind) in wire.SENDS[s])
    data = bytes_of(sender, message)
    receiver.state = state
    receiver._sent_end = Position(1, 4202) if kind is Type.ACK else Position(0, 0)
    expected = wire.RECEIVES[side].get((state, kind))
    if expected is None:
        with pytest.raises(ProtocolError):
            list(receiver.receive(data))
        assert receiver.state is WireState.DEAD
    else:
        assert list(receiver.receive(data)) == [message]
        assert receiver.state is expected
    sender = WireSession(side)
    sender.state = state
    if (state, kind) in wire.SENDS[side]:
        assert sender.may_send(kind)
        sender.send(message)
        assert sender.state is wire.SENDS[side][state, kind]
    else:
        with pytest.raises(RuntimeError):
            sender.send(message)
        assert sender.state is WireState.DEAD


def test_a_dead_session_stays_dead():
    """After any exception nothing is received or sent, and the message names the first error."""
    end = WireSession(Side.COLLECTOR)
    with pytest.raises(ProtocolError):
        list(end.receive(b"GET / HTTP/1.1\r\n\r\n"))
    for act in (lambda: list(end.receive(b"")) or end.next_event(), lambda: end.send(wire.Refuse(True, "no"))):
        with pytest.raises(ProtocolError, match="dead: message type 71"):
            act()


def test_a_hello_of_another_version_can_only_be_refused():
    """The Collector learns the version without reading more, and its refusal reaches a pump of any version."""
    data = bytearray(bytes_of(WireSession(Side.PUMP), HELLO))
    data[FRAME.size + 4 : FRAME.size + 6] = b"\0\2"
    end = WireSession(Side.COLLECTOR)
    assert list(end.receive(bytes(data))) == [wire.Foreign(2)]
    assert end.state is WireState.FOREIGN
    assert not end.may_send(Type.WELCOME)
    refuse = wire.Refuse(True, "version 2, here 1")
    pump = WireSession(Side.PUMP)
    pump.send(HELLO)
    assert list(pump.receive(bytes_of(end, refuse))) == [refuse]


def test_a_welcome_of_another_version_names_both():
    """VersionError, not ProtocolError: no retry can help."""
    ends = pair()
    list(ends[Side.COLLECTOR].receive(bytes_of(ends[Side.PUMP], HELLO)))
    data = bytearray(bytes_of(ends[Side.COLLECTOR], WELCOME))
    data[FRAME.size : FRAME.size + 2] = b"\0\x09"
    with pytest.raises(VersionError, match=r"version 9.*speaks 1"):
        list(ends[Side.PUMP].receive(bytes(data)))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("group", 7),
        ("trail_id", b"short"),
        ("source", {"a": 1}),
        ("alter", True),
        ("alter", -1),
        ("alter", 1 << 63),
        ("start", [1]),
        ("start", [1, 2.0]),
        ("start", [1 << 32, 0]),
        ("megabytes", None),
    ],
)
def test_a_greeting_with_a_wrong_field_names_it(key, value):
    """Type, range and presence of each field are checked."""
    import msgpack

    plain = msgpack.unpackb(bytes_of(WireSession(Side.PUMP), HELLO)[FRAME.size + 6 :])
    for body in ({**plain, key: value}, {k: v for k, v in plain.items() if k != key}):
        packed = wire.GREETING.pack(wire.MAGIC, wire.VERSION) + msgpack.packb(body)
        with pytest.raises(ProtocolError, match=f"HELLO.*{key}"):
            list(WireSession(Side.COLLECTOR).receive(FRAME.pack(Type.HELLO, len(packed)) + packed))


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x93", b"\x01", b"\x81\x90\x01", b"\x91" * 5000])
def test_a_greeting_that_is_no_map_is_an_error(body):
    """Truncated, nested without end, not a map: one kind of error."""
    packed = wire.GREETING.pack(wire.MAGIC, wire.VERSION) + body
    with pytest.raises(ProtocolError, match="map"):
        list(WireSession(Side.COLLECTOR).receive(FRAME.pack(Type.HELLO, len(packed)) + packed))


def test_unknown_keys_of_a_greeting_are_ignored():
    """So a later release can say more without a new version."""
    import msgpack

    plain = msgpack.unpackb(bytes_of(WireSession(Side.PUMP), HELLO)[FRAME.size + 6 :]) | {"later": [1, 2]}
    packed = wire.GREETING.pack(wire.MAGIC, wire.VERSION) + msgpack.packb(plain)
    assert list(WireSession(Side.COLLECTOR).receive(FRAME.pack(Type.HELLO, len(packed)) + packed)) == [HELLO]


def test_a_greeting_has_all_of_its_keys():
    for side, message, name, key in (
        (Side.PUMP, HELLO, "encrypt", b"\xa7encrypt\xc2"), (Side.COLLECTOR, WELCOME, "now_us", b"\xa6now_us\x00"),
    ):  # fmt: skip
        ends = pair()
        if side is Side.COLLECTOR:
            list(ends[Side.COLLECTOR].receive(bytes_of(ends[Side.PUMP], HELLO)))
        data = bytearray(bytes_of(ends[side], message))
        at = data.index(key)
        del data[at : at + len(key)]
        data[1:5] = (len(data) - FRAME.size).to_bytes(4, "big")
        # one pair fewer in the msgpack map: its first byte stands behind magic and version, or version alone
        data[FRAME.size + (6 if side is Side.PUMP else 2)] -= 1
        with pytest.raises(ProtocolError, match=f"the key '{name}' is missing"):
            list(ends[other(side)].receive(data))


@pytest.mark.parametrize("text", ["a\nERROR", "a\x1b[2J", "x" * 2000, "\u202e"])
def test_a_greeting_can_not_write_lines_of_its_own_into_a_log(text):
    """Group, host and trail go there: printable, and no longer than a line."""
    for key in ("group", "host", "trail", "home"):
        ends = pair()
        data = bytes_of(ends[Side.PUMP], replace(HELLO, **{key: text}))
        with pytest.raises(ProtocolError, match=f"'{key}': expected at most 1024 printable"):
            list(ends[Side.COLLECTOR].receive(data))
    for source in ({text: "a"}, {"a": text}):  # logdump shows these
        data = bytes_of(pair()[Side.PUMP], replace(HELLO, source=source))
        with pytest.raises(ProtocolError, match="'source': expected at most 1024 printable"):
            list(pair()[Side.COLLECTOR].receive(data))


def test_last_words_are_cleaned_before_a_person_sees_them():
    """A refusal's control characters are no terminal's commands."""
    ends = greeted()
    data = bytes_of(ends[Side.COLLECTOR], wire.Refuse(True, "disk\x1b[31m full\r\nsecond line"))
    assert list(ends[Side.PUMP].receive(data)) == [wire.Refuse(True, "disk?[31m full?\nsecond line")]


@pytest.mark.parametrize(("start", "end"), [((1, 4095), (1, 4202)), ((1, 5000), (1, 4999)), ((0, 9999), (0, 10_000))])
def test_places_never_go_back(start, end):
    """A block that starts before WELCOME's origin, or ends before it starts, is refused at both ends."""
    ends = greeted()
    block = replace(BLOCK, start=Position(*start), end=Position(*end))
    free = greeted()[Side.PUMP]
    free._sent_end = Position(0, 0)
    with pytest.raises(ProtocolError, match="never go back"):
        ends[Side.PUMP].send(block)
    data = FRAME.pack(Type.BLOCK, 130) + wire.BLOCK_PLACES.pack(*start, *end) + bytes(96) + bytes(10)
    with pytest.raises(ProtocolError, match="never go back"):
        list(ends[Side.COLLECTOR].receive(data))


@pytest.mark.parametrize("origin", [(1, 4095), (1, 4203), (2, 0)])
def test_an_ack_of_what_was_not_sent_is_an_error(origin):
    """An ACK lies between the last one and the last block's end."""
    ends = greeted()
    list(ends[Side.COLLECTOR].receive(bytes_of(ends[Side.PUMP], BLOCK)))
    with pytest.raises(ProtocolError, match="ACK"):
        list(ends[Side.PUMP].receive(bytes_of(ends[Side.COLLECTOR], wire.Ack(Position(*origin), Position(7, 1)))))


@pytest.mark.parametrize(
    ("side", "state", "kind", "body"),
    [
        (Side.COLLECTOR, WireState.STREAMING, Type.BLOCK, bytes(119)),
        (Side.PUMP, WireState.STREAMING, Type.ACK, bytes(23)),
        (Side.PUMP, WireState.STREAMING, Type.PING, bytes(7)),
        (Side.PUMP, WireState.STREAMING, Type.PONG, bytes(15)),
        (Side.PUMP, WireState.STREAMING, Type.PONG, bytes(8) + b"\xff" * 8),
        (Side.COLLECTOR, WireState.STREAMING, Type.PONG, bytes(15) + b"\1"),
        (Side.PUMP, WireState.STREAMING, Type.REFUSE, b""),
        (Side.PUMP, WireState.STREAMING, Type.REFUSE, b"\2no"),
        (Side.PUMP, WireState.GREETING, Type.WELCOME, b"\0"),
        (Side.COLLECTOR, WireState.NEW, Type.HELLO, b"TGWL"),
        (Side.COLLECTOR, WireState.NEW, Type.HELLO, b"NOPE\0\1\x80"),
    ],
)
def test_a_body_of_the_wrong_shape_is_an_error(side, state, kind, body):
    """Short bodies, wrong first bytes, a time that is none, and one that only a Collector tells."""
    end = WireSession(side)
    end.state = state
    with pytest.raises(ProtocolError):
        list(end.receive(FRAME.pack(kind, len(body)) + body))


def test_a_closed_session_drops_what_was_on_its_way():
    """Blocks still in the pipe when the Collector refuses are no error."""
    ends = greeted()
    data = bytes_of(ends[Side.PUMP], BLOCK)
    list(ends[Side.COLLECTOR].receive(data[:50]))
    ends[Side.COLLECTOR].send(wire.Refuse(False, "disk full"))
    assert list(ends[Side.COLLECTOR].receive(data[50:] + bytes(200_000))) == []
    assert ends[Side.COLLECTOR].state is WireState.CLOSED


def test_long_texts_are_cut_to_the_limit():
    """A message to a person never fails for its length."""
    ends = greeted()
    (event,) = ends[Side.PUMP].receive(bytes_of(ends[Side.COLLECTOR], wire.Refuse(True, "ö" * 9000)))
    assert event.text.startswith("ööö")
    assert len(event.text.encode()) <= wire.LIMITS[Type.REFUSE] + 2


def test_the_page_has_the_same_numbers_and_tables():
    """docs/wire.md: types, limits, version, and every state transition of both ends."""
    page = (Path(__file__).parents[2] / "docs" / "wire.md").read_text()
    for kind in Type:
        assert re.search(rf"^\| {kind:d} \| {kind.name} \|.*\| {wire.LIMITS[kind]:,} \|$", page, re.MULTILINE), kind
    assert f"The present version is {wire.VERSION}." in page
    for side, table in re.findall(r"^(Pump|Collector):\n\n(.*?)\n\n", page, re.MULTILINE | re.DOTALL):
        end = Side.PUMP if side == "Pump" else Side.COLLECTOR
        assert _page_table(table) == _code_table(end), side


def _code_table(side: Side) -> set[tuple[str, str, str, str]]:
    both = [(">", wire.SENDS[side]), ("<", wire.RECEIVES[side])]
    found = {(s.name, arrow, k.name, new.name) for arrow, table in both for (s, k), new in table.items()}
    return found | ({("NEW", "<", "HELLO of another version", "FOREIGN")} if side is Side.COLLECTOR else set())


def _page_table(table: str) -> set[tuple[str, str, str, str]]:
    found = set()
    for line in table.splitlines()[2:]:
        states, messages, new = (cell.strip() for cell in line.strip("|").split("|"))
        for state in states.split(", "):
            for message in messages.split(", "):
                found.add((state, message[0], message[2:], new))
    return found


def test_a_heartbeat_pings_every_third_and_gives_up_after_the_whole():
    """Silence counts from the last byte heard; our own sending never does."""
    beat = Heartbeat(9.0, 100.0)
    assert beat.due(102.9) is None
    assert beat.due(103.0) == wire.Ping(103_000_000)
    assert beat.due(105.0) is None
    assert beat.due(106.0) == wire.Ping(106_000_000)
    assert not beat.silent(108.9)
    assert beat.silent(109.0)
    beat.heard_at = 109.0
    assert not beat.silent(117.9)
    assert beat.wait(108.0) == 1.0
    assert beat.silent(118.0)
    assert beat.wait(120.0) == 0.0
