"""Who comes to the door of resident tasks and was not called, and whom a task calls."""

from __future__ import annotations

import os
import pickle
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from demo.patience import PATIENCE, wait_for
from replicat.batches import residents
from replicat.batches.residents import ResidentJob
from replicat.work.orders import Greeting, HungUpError, OrderLink, Says, Summons
from replicat.work.resident import connected
from tests.support.resident_jobs import abroad, piece, stays


def test_a_stranger_is_hung_up_on(begin: Callable[..., ResidentJob]) -> None:
    """Noise, a greeting too long, another run's secret, nothing at all: the tasks that were called come in beside."""

    def crowd(call: Summons, number: int) -> None:
        hello = Greeting(number, 0, 1)
        others = Summons(call.address).run, Summons(call.address).secret
        wrong = [replace(call, run=others[0]), replace(call, secret=others[1])]
        frames = [b"", b"\0" * 13, b"\xff" * 4000, os.urandom(100)]
        for sent in frames:
            with connected(call) as end:
                end.sendall(sent)
                socket.socket.shutdown(end, socket.SHUT_WR)
                with suppress(OSError):  # what it has not read is thrown away
                    assert end.recv(1) == b""
        for one in wrong:
            link = OrderLink(connected(call))
            link.send(Says.HELLO, 0, hello.packed(one))
            with pytest.raises((HungUpError, OSError)):
                link.receive()
            link.close()
        stays(call, number)

    assert begin(crowd).ask([piece(7)]) == [(7, {})]


def test_no_stranger_keeps_a_task_waiting(begin: Callable[..., ResidentJob], monkeypatch: pytest.MonkeyPatch) -> None:
    """One that speaks another language, one that says nothing, one that says a byte now and then: who was called comes
    in beside, and each of them is sent away.
    """
    monkeypatch.setattr(residents, "HELLO_SECONDS", 0.4)
    over: list[int] = []

    def crowd(call: Summons, number: int) -> None:
        silent, noisy, slow = (stranger(call) for _ in range(3))
        noisy.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(OSError, match=r"reset|Broken pipe|aborted"):
            drip(slow, first_words(call))
        link = OrderLink(connected(call))
        link.send(Says.HELLO, 0, Greeting(number, 0, 1).packed(call))
        assert link.receive()[0] is Says.ORDER
        for end in (silent, noisy, slow):
            with suppress(OSError):
                while end.recv(100):
                    pass
            end.close()
            over.append(1)
        link.send(Says.ANSWER, 1, pickle.dumps("done"))
        with pytest.raises(HungUpError):
            link.receive()
        link.close()

    assert begin(crowd).ask([piece(1)]) == ["done"]
    assert len(over) == 3


def test_who_is_still_at_the_door_when_all_have_come_is_sent_away(
    begin: Callable[..., ResidentJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before its time to say hello is over."""
    monkeypatch.setattr(residents, "HELLO_SECONDS", 10 * PATIENCE)
    left: list[socket.socket] = []

    def beside(call: Summons, number: int) -> None:
        left.append(stranger(call))
        stays(call, number)

    assert begin(beside).ask([piece(1)]) == [(1, {})]
    (end,) = left
    end.settimeout(PATIENCE)
    with suppress(ConnectionResetError):
        assert end.recv(1) == b""
    end.close()


def stranger(call: Summons) -> socket.socket:
    """Who has connected, and says nothing yet."""
    host, _, port = call.address.rpartition(":")
    end = socket.socket(socket.AF_INET if call.certificate else socket.AF_UNIX)
    end.connect((host, int(port)) if call.certificate else call.address)
    return end


def drip(end: socket.socket, words: bytes) -> None:
    """A byte now and then, for half a minute and longer."""
    for byte in words:
        end.sendall(bytes([byte]))
        time.sleep(0.1)


def first_words(call: Summons) -> bytes:
    """What begins as a task's own words do: TLS's, or a head."""
    if not call.certificate:
        return b"\x01" + bytes(4) + (66).to_bytes(8, "big") + bytes(300)
    said = ssl.MemoryBIO()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname = False
    with suppress(ssl.SSLWantReadError):
        tls.wrap_bio(ssl.MemoryBIO(), said).do_handshake()
    return said.read()


def test_a_task_calls_nobody_else(short: Path) -> None:
    """Who has another certificate, at the same address, hears nothing of the secret."""
    ours, other = abroad(short), abroad(short)
    heard: list[object] = []

    def come() -> socket.socket | None:
        try:
            return other.accept()
        except TimeoutError:
            return None

    def answer() -> None:
        with suppress(ssl.SSLError):
            heard.append(other.welcome(wait_for(come), PATIENCE).recv(1))

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
            connected(replace(other.call, certificate=ours.call.certificate))
    finally:
        thread.join(PATIENCE)
        ours.close()
        other.close()
    assert heard == []
    assert list(short.iterdir()) == []
