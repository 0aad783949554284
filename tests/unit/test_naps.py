"""How long a reader of PostgreSQL's stream naps: by what its link is, and by what the last nap brought."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from extract.sources.postgres.naps import GATHERED, NAP, NEAR_BUFFER, NEAR_NAP, Naps


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def linked(server: socket.socket, ours: str) -> tuple[socket.socket, int]:
    """A link from the address `ours`, and its buffer as it was before anybody asked for naps."""
    link = socket.socket()
    link.bind((ours, 0))
    link.connect(server.getsockname())
    return link, link.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def test_on_one_host_the_buffer_is_small_and_naps_last_until_the_system_gathers(server: socket.socket) -> None:
    link, _ = linked(server, "127.0.0.1")
    with link:
        naps = Naps(b"127.0.0.1", link.fileno())
        assert link.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * NEAR_BUFFER
        assert [naps.after(GATHERED) for _ in range(3)] == [NEAR_NAP] * 3


def test_behind_a_proxy_on_this_host_naps_are_short_while_they_fill_the_buffer(server: socket.socket) -> None:
    """A proxy gives what the buffer holds, however long the nap was; a slow server gives less in a short one."""
    link, _ = linked(server, "127.0.0.1")
    with link:
        naps = Naps(b"127.0.0.1", link.fileno())
        full = NEAR_BUFFER + 12_000
        assert [naps.after(size) for size in (full, full, full, NEAR_BUFFER - 1, full, 3000, GATHERED)] == [
            NAP, NAP, NAP, NEAR_NAP, NAP, NEAR_NAP, NEAR_NAP,
        ]  # fmt: skip


def test_to_another_host_the_buffer_stays_and_naps_are_short(server: socket.socket) -> None:
    """One of another address may be of another host, where so small a buffer would take the link its speed."""
    link, before = linked(server, "127.0.0.2")
    with link:
        naps = Naps(b"127.0.0.1", link.fileno())
        assert link.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == before
        assert [naps.after(size) for size in (GATHERED, 3000, NEAR_BUFFER)] == [NAP] * 3


@pytest.mark.parametrize("host", [b"/run/postgresql", b"@abstract"])
def test_by_a_unix_socket_there_is_no_nap(host: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        before = ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        naps = Naps(host, ours.fileno())
        assert [naps.after(size) for size in (GATHERED, 3000)] == [0.0, 0.0]
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == before


def test_a_link_that_is_lost_already_is_told_by_who_reads_it() -> None:
    with socket.socket() as link:
        assert Naps(b"127.0.0.1", link.fileno()).after(GATHERED) == NAP
