"""The page on real sockets: TLS, and connections that ask nothing, too much, or nonsense."""

from __future__ import annotations

import json
import logging
import os
import socket
import ssl
import threading
import urllib.error
import urllib.request

import pytest

from demo.patience import PATIENCE, wait_for
from demo.ports import free_port
from ggsci.manager.webparams import WebHome, WebParams
from ggsci.manager.webtokens import ensure_token, token_path
from ggsci.web import remote, server
from ggsci.web.watch import HomesWatch
from tests.support.homes import make_home
from tests.support.secure import certify
from trails.errors import AwayError, OperatorError
from trails.link import tls


@pytest.fixture
def home(tmp_path):
    made = make_home(tmp_path / "home")
    ensure_token(made)
    return made


@pytest.fixture
def serving(home):
    """Serves the home in a thread; returns how."""
    ended, threads, failures = threading.Event(), [], []

    def start(params, watch=None):
        def run():
            try:
                server.serve(home, params, watch or HomesWatch(home, params, lambda *_: []), ended)
            except AwayError as error:
                failures.append(error)

        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()
        return threads[-1], failures

    yield start
    ended.set()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "it ends when its Manager does"


def fetch(url, token="", context=None):
    """(status, body)."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def answers(url, context=None):
    """The body; empty as long as nobody is there."""
    try:
        return fetch(url, context=context)[1]
    except OSError:
        return ""


@pytest.fixture
def hasty(monkeypatch):
    """Who asks nothing is given up quickly; and whoever asks, while this machine stands still: then he asks again."""
    monkeypatch.setattr(server, "FIRST_SECONDS", 0.5)


def test_elsewhere_it_speaks_tls_and_asks_everybody_for_the_token(home, serving):
    """The home's certificate, checked by its CA; a renewed one is shown without a restart; plain HTTP gets nothing."""
    port = free_port()
    certify(home, home)
    serving(WebParams(port=port, bind="0.0.0.0"))
    trusting = ssl.create_default_context(cafile=os.path.join(tls.folder_of(home.root), tls.CA))
    url = f"https://127.0.0.1:{port}"
    wait_for(lambda: "needs the token" in answers(f"{url}/", trusting))
    for path in ("/", "/metrics", "/api/home.json"):
        assert fetch(url + path, context=trusting)[0] == 401
    token = ensure_token(home)
    wait_for(lambda: fetch(f"{url}/metrics", token, trusting)[0] == 200)
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        fetch(url, context=ssl.create_default_context())
    assert answers(f"http://127.0.0.1:{port}/") == ""
    before = ssl.get_server_certificate(("127.0.0.1", port))
    certify(home, home)
    wait_for(lambda: ssl.get_server_certificate(("127.0.0.1", port)) != before, told="the renewed certificate")


def test_another_home_asks_the_page_over_tls(home, serving, tmp_path):
    """Certificates of one CA: trusted. Of another CA, or for another name: refused, and told."""
    port, friend, stranger = free_port(), make_home(tmp_path / "friend"), make_home(tmp_path / "stranger")
    certify(home, home, friend)
    certify(stranger, stranger)
    serving(WebParams(port=port, bind="0.0.0.0"))
    given = WebHome("far", url=f"https://127.0.0.1:{port}", token_file=token_path(home))

    def answer():
        try:
            return remote.fetch(friend, given)
        except AwayError:
            return None

    assert wait_for(answer).home == "home"
    with pytest.raises(AwayError, match="its certificate is not trusted"):
        remote.fetch(stranger, given)
    other_name = WebHome("far", url=f"https://127.0.0.2:{port}", token_file=token_path(home))
    with pytest.raises(AwayError, match="its certificate is not trusted"):
        remote.fetch(friend, other_name)
    with pytest.raises(AwayError, match="gives no answer"):
        remote.fetch(friend, WebHome("far", url=f"http://127.0.0.1:{port}", token_file=token_path(home)))


def test_without_certificate_it_refuses(home):
    params = WebParams(port=free_port(), bind="0.0.0.0")
    watch = HomesWatch(home, params, lambda *_: [])
    with pytest.raises(OperatorError, match="is missing"):
        server.serve(home, params, watch, threading.Event())


def test_connections_that_ask_nothing_keep_nobody_out(home, serving, hasty):
    """More of them than it takes: those beyond are dropped at once, the others soon; it never stops to answer."""
    port = free_port()
    serving(WebParams(port=port))
    url = f"http://127.0.0.1:{port}"
    wait_for(lambda: answers(url))
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(server.MAX_OF_ADDRESS + 8)]
    try:
        idle[0].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        wait_for(lambda: "Trailgate" in answers(url), told="an answer in spite of them")
        for one in idle:
            wait_until_dropped(one)
    finally:
        for one in idle:
            one.close()


def test_tls_handshakes_that_never_end_are_bounded_too(home, serving, hasty):
    """They count from the moment they are accepted, and are closed as those that ask nothing."""
    port = free_port()
    certify(home, home)
    serving(WebParams(port=port, bind="0.0.0.0"))
    trusting = ssl.create_default_context(cafile=os.path.join(tls.folder_of(home.root), tls.CA))
    wait_for(lambda: answers(f"https://127.0.0.1:{port}/", trusting))
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(server.MAX_OF_ADDRESS + 8)]
    try:
        wait_for(lambda: "token" in answers(f"https://127.0.0.1:{port}/", trusting), told="an answer in spite of them")
        for one in idle:
            wait_until_dropped(one)
    finally:
        for one in idle:
            one.close()


def test_so_many_complaints_are_written_and_no_more():
    """Whatever anybody can set off must not fill a disk."""
    few = server._Few()
    record = logging.LogRecord("x", logging.ERROR, "x", 1, "x", (), None)
    assert sum(few.filter(record) for _ in range(1000)) == server.MAX_TOLD


def wait_until_dropped(link):
    """Its other end closes."""
    link.settimeout(60)
    try:
        assert link.recv(4096) == b""
    except ConnectionError:
        return


@pytest.mark.parametrize(
    "asked",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 100_000,
        b"\x16\x03\x01" * 1000,
        b"\0" * 20_000,
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\nxxxx",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    ],
    ids=["headers", "tls", "zeros", "body", "upgrade"],
)
def test_nonsense_is_cut_short(home, serving, hasty, asked):
    """A named refusal or a closed connection; the next request is answered as ever."""
    port = free_port()
    serving(WebParams(port=port))
    wait_for(lambda: answers(f"http://127.0.0.1:{port}"))
    with socket.create_connection(("127.0.0.1", port)) as link:
        link.settimeout(60)
        try:
            link.sendall(asked)
            assert link.recv(100)[:12] in (b"HTTP/1.1 200", b"HTTP/1.1 400", b"HTTP/1.1 405", b"")
        except ConnectionError:
            pass  # cut off while it was still talking
    assert json.loads(wait_for(lambda: answers(f"http://127.0.0.1:{port}/api/home.json")))["home"] == "home"


def test_a_port_in_use_is_told(monkeypatch):
    """With what to do; a moment's patience for the page of a Manager killed just now."""
    monkeypatch.setattr(server, "BIND_SECONDS", 0.2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        params = WebParams(port=taken.getsockname()[1])
        with pytest.raises(OperatorError, match=r"can't be had: Address already in use.*REFRESH MANAGER"):
            server.bind(params)
    server.bind(params).close()


def test_without_a_watch_nothing_is_served(home, serving):
    """A bug in the watch ends the page, to be started again: it never shows an old picture for ever."""
    port = free_port()

    def broken(*_):
        raise ZeroDivisionError("a bug")

    params = WebParams(port=port)
    thread, failures = serving(params, HomesWatch(home, params, broken))
    thread.join(PATIENCE)
    assert "a bug" in str(failures[0])
