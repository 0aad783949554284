"""A session over real sockets, plain and TLS: what is sent arrives whole, in order, and unread by others."""

from __future__ import annotations

import contextlib
import random
import re
import select
import socket
import time

import pytest

from demo.patience import PATIENCE, wait_for
from tests.support.homes import make_home
from tests.support.secure import certify
from trails.errors import GateError
from trails.format import BLOCK_HEADER_SIZE
from trails.link import tls, wire
from trails.link.channel import PONG_UNSENT, Channel
from trails.link.wire import Side, WireSession
from trails.position import Position

HELLO = wire.Hello("a" * 32, "PMP1", "here", "./dirdat/rt", b"\1" * 16, {}, 0, None, 100, 60_000)
WELCOME = wire.Welcome(Position(0, 0), b"\2" * 16, False, 0, Position(0, 4096), 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A certificate that is good for both ends."""
    home = make_home(tmp_path_factory.mktemp("channel") / "home")
    certify(home, home)
    return tls.folder_of(home.root)


def pair(folder: str, small: bool = False) -> tuple[Channel, Channel]:
    """(pump, Collector) over a connection; `small` send buffers make every write a partial one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    for sock in (near, far):
        sock.setblocking(False)
        if small:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    if folder:
        client, server = tls.client_context(folder), tls.server_context(folder)
        near = client.wrap_socket(near, server_hostname="127.0.0.1", do_handshake_on_connect=False)
        far = server.wrap_socket(far, server_side=True, do_handshake_on_connect=False)
    return Channel(near, Side.PUMP, "Collector", 60, 0.0), Channel(far, Side.COLLECTOR, "pump", 60, 0.0)


def run(*ends: Channel) -> list[wire.Event]:
    """Wait as an owner does, by fileno() alone, then let each end send and receive; what came."""
    select.select([end.fileno() for end in ends], [], [], 1)
    events: list[wire.Event] = []
    for end in ends:
        end.flush()
        events += end.receive(0.0, budget=1)
    return events


def until(count: int, *ends: Channel) -> list[wire.Event]:
    """So many events."""
    events: list[wire.Event] = []
    deadline = time.monotonic() + PATIENCE
    while len(events) < count:
        assert time.monotonic() < deadline, f"only {len(events)} of {count} events came"
        events += run(*ends)
    return events


def error_of(end: Channel) -> str:
    """What ends this session, once something does; it is nothing but an error of ours."""
    end.flush()
    try:
        end.receive(0.0)
    except GateError as error:
        return str(error)
    return ""


def blocks(count: int) -> list[wire.BlockMessage]:
    """Blocks of many sizes, around those of TLS records and of the joining of small pieces."""
    source = random.Random(7)
    sizes = [0, 1, 100, 16_383, 16_384, 16_385, 70_000, 1 << 20, *(source.randrange(60_000) for _ in range(count))]
    return [
        wire.BlockMessage(Position(0, at), Position(0, at + 1), bytes(BLOCK_HEADER_SIZE), source.randbytes(size))
        for at, size in enumerate(sizes)
    ]


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("secure", [False, True])
def test_blocks_and_acks_arrive_as_they_were_sent(folder, secure, small):
    """Both ways at once, the handshake on the way; nobody but fileno() says when to go on."""
    pump, collector = pair(folder if secure else "", small)
    pump.send(HELLO)
    assert until(1, pump, collector) == [HELLO]
    collector.send(WELCOME)
    assert until(1, pump, collector) == [WELCOME]
    sent = blocks(40)
    for block in sent:
        pump.send(block)
    for number in range(len(sent)):
        collector.send(wire.Ping(number))
    found = until(len(sent), pump, collector)
    assert [bytes(block.payload) for block in found] == [block.payload for block in sent]
    collector.send(wire.Ack(Position(0, len(sent)), Position(0, 5000)))
    assert until(1, pump, collector) == [wire.Ack(Position(0, len(sent)), Position(0, 5000))]
    assert (pump.unsent, collector.unsent) == (0, 0)
    for end in (pump, collector):
        end.close()


def test_who_listens_on_the_way_reads_nothing(folder):
    """The bytes of a TLS session hold neither the trail's name nor a payload."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        heard, _ = listener.accept()
    near.setblocking(False)
    client = tls.client_context(folder).wrap_socket(near, server_hostname="127.0.0.1", do_handshake_on_connect=False)
    pump = Channel(client, Side.PUMP, "Collector", 60, 0.0)
    pump.send(HELLO)
    heard.settimeout(60)
    bytes_on_the_way = heard.recv(100_000)
    assert bytes_on_the_way[0] == tls.FIRST_BYTE
    assert b"dirdat" not in bytes_on_the_way
    assert pump.unsent > 0, "nothing goes out before the peer has shown its certificate"
    pump.close()
    heard.close()


def test_a_collector_that_refuses_the_certificate_is_told_by_name(folder, tmp_path):
    """In TLS 1.3 the pump hears of it at its first read; it is a person's matter, not a lost link."""
    other = make_home(tmp_path / "other")
    certify(other, other)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    near.setblocking(False)
    far.setblocking(False)
    mine = tls.client_context(tls.folder_of(other.root))
    mine.load_verify_locations(f"{folder}/ca.crt")
    pump = Channel(
        mine.wrap_socket(near, server_hostname="127.0.0.1", do_handshake_on_connect=False), Side.PUMP, "C", 60, 0.0
    )
    server = tls.server_context(folder).wrap_socket(far, server_side=True, do_handshake_on_connect=False)
    pump.send(HELLO)

    def told() -> str:
        with contextlib.suppress(OSError):
            server.do_handshake()
        return error_of(pump)

    assert "C refused our certificate: it is of another CA" in wait_for(told)
    pump.close()
    server.close()


def test_a_cut_link_is_away_in_both_kinds(folder):
    """No bug, no traceback: the pump tries again."""
    for kind in ("", folder):
        pump, collector = pair(kind)
        pump.send(HELLO)
        until(1, pump, collector)
        collector.close()
        assert re.search("closed the link|link is lost", wait_for(lambda: error_of(pump)))  # noqa: B023
        pump.close()


def test_pings_without_end_do_not_make_us_hoard_answers():
    """A peer that sends PINGs and reads nothing costs bounded memory."""
    pump, collector = pair("", small=True)
    session = WireSession(Side.PUMP)
    raw = pump._sock
    raw.setblocking(True)
    raw.sendall(b"".join(map(bytes, session.send(HELLO))))
    until(1, collector)
    collector.send(WELCOME)
    ping = b"\5\0\0\0\x08" + bytes(8)
    raw.settimeout(0.2)
    for _ in range(200):
        try:
            raw.sendall(ping * 2000)
        except TimeoutError:
            break
        collector.receive(0.0)
        collector.flush()
    assert collector.unsent <= PONG_UNSENT + 100
    pump.close()
    collector.close()


class Endless:
    """A socket on which more bytes always wait."""

    reads = 0

    def recv_into(self, buffer: bytearray) -> int:
        self.reads += 1
        assert self.reads < 1000, "somebody reads without end"
        return len(buffer)

    def close(self) -> None:
        """As a socket."""


def test_the_end_is_bounded_whatever_the_peer_still_sends():
    """What comes after the last words is dropped piece by piece, so the owner gets to see its deadline."""
    pump, collector = pair("")
    collector._sock.close()
    collector._sock = Endless()
    assert not collector.drained()
    assert not collector.drained()
    collector.close()
    pump.close()
