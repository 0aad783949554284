"""TLS between pump and Manager: who is let in, and the one clear message on both sides for everything else."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
from collections import deque
from pathlib import Path

import pytest

from demo.patience import PATIENCE, wait_for
from ggsci.certificates import files, revoking
from pump.build import build
from pump.checking import check_group
from pump.link import greet
from tests.support.homes import make_home
from tests.support.interceptor import JUNK, Interceptor
from tests.support.secure import Listening, certify, folder, without_certificates
from tests.support.trail_script import IDENTITY
from trails.clock import RealClock
from trails.errors import AwayError, OperatorError, ProtocolError, UntrustedError
from trails.link import tls, wire
from trails.link.channel import Channel
from trails.link.wire import Side
from trails.position import Position, TrailName
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration, TrailReg
from trails.runtime.language.params import parse_text
from trails.runtime.language.remotehost import RemoteHost
from trails.runtime.process.loop import Stop
from trails.runtime.process.startup import Context
from trails.runtime.report.report import Log, Report
from trails.runtime.secrets import masterkeys
from trails.writer import TrailWriter

HOST = "127.0.0.1"


@pytest.fixture
def homes(tmp_path):
    """(the pump's home, the Manager's home), with certificates of one CA."""
    near, far = make_home(tmp_path / "near"), make_home(tmp_path / "far")
    certify(near, near, far)
    return near, far


@pytest.fixture
def listening():
    """Make Managers that end with the test."""
    made = []

    def make(home, text=""):
        made.append(Listening(home, text))
        return made[-1]

    yield make
    for each in made:
        each.close()


def ask(near, manager, *, secure=True, host=HOST):
    """As a pump does before it asks for a Collector."""
    greet(RemoteHost(host, manager.port, tls=secure), near, 30)


def test_two_homes_of_one_ca_talk(homes, listening):
    """By address and by name; nothing is worth a warning."""
    near, far = homes
    manager = listening(far)
    ask(near, manager)
    ask(near, manager, host="localhost")
    assert "WARNING" not in manager.log()


def expired_far(near, far, other):
    certify(near, far, days=0)


def expired_near(near, far, other):
    certify(near, near, days=0)


def other_ca_far(near, far, other):
    without_certificates(far)
    certify(other, far)


def other_ca_near(near, far, other):
    """The pump trusts the Manager, but has a certificate of another CA."""
    ca = folder(near).read(tls.CA)
    key = folder(near).file("ca.key")
    without_certificates(near)
    certify(other, near)
    folder(near).write(tls.CA, ca)
    assert not os.path.exists(key)


def other_name_far(near, far, other):
    certify(near, far, names=("elsewhere", "10.1.2.3"))


@pytest.mark.parametrize(
    ("change", "kind", "pump_says", "manager_says"),
    [
        (
            expired_far,
            UntrustedError,
            "Manager at .*: its certificate has expired. RENEW",
            "refused our certificate: it has expired",
        ),
        (
            expired_near,
            OperatorError,
            "refused our certificate: it has expired. RENEW",
            "its certificate has expired. RENEW",
        ),
        (
            other_ca_far,
            UntrustedError,
            "its certificate is of another CA. Both",
            "refused our certificate: it is of another CA",
        ),
        (
            other_ca_near,
            OperatorError,
            "refused our certificate: it is of another CA",
            "its certificate is of another CA. Both",
        ),
        (
            other_name_far,
            UntrustedError,
            "is for other addresses .*HOSTS",
            "refused our certificate: it is not for the name",
        ),
    ],
)
def test_a_certificate_that_does_not_do_is_told_on_both_sides(
    homes, listening, tmp_path, change, kind, pump_says, manager_says
):
    """Expired, of another CA, for another host: with the reason, and the command that mends it.

    What the pump dislikes of the Manager's anybody on the way can show it: no reason to end. What a Manager with a good
    certificate dislikes of the pump's is one.
    """
    near, far = homes
    change(near, far, make_home(tmp_path / "other"))
    manager = listening(far)
    with pytest.raises(kind, match=pump_says):
        ask(near, manager)
    wait_for(lambda: manager_says in manager.log(), told=manager_says)


def test_a_peer_without_a_certificate_is_refused(homes, listening):
    """Knowing the CA is not enough: the Manager wants to see one."""
    near, far = homes
    manager = listening(far)
    context = ssl.create_default_context(cafile=folder(near).file(tls.CA))
    with (
        socket.create_connection((HOST, manager.port)) as sock,
        context.wrap_socket(sock, server_hostname=HOST) as peer,
        contextlib.suppress(ssl.SSLError, ConnectionError),
    ):
        peer.sendall(b'{"trailgate": 1, "verb": "PING"}\n')
        assert not peer.recv(100)
    wait_for(lambda: "showed no certificate" in manager.log())


def test_an_older_tls_is_refused(homes, listening):
    """TLS 1.3 and nothing else."""
    near, far = homes
    manager = listening(far)
    context = tls.client_context(tls.folder_of(near.root))
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection((HOST, manager.port)) as sock, pytest.raises(ssl.SSLError):
        context.wrap_socket(sock, server_hostname=HOST)
    wait_for(lambda: "does not talk TLS 1.3" in manager.log())


@pytest.mark.parametrize(
    ("text", "secure", "kind", "told"),
    [
        ("", False, OperatorError, "this Manager talks TLS only"),
        ("NOTLS", True, UntrustedError, "this Manager talks no TLS"),
    ],
)
def test_plain_and_tls_do_not_meet(homes, listening, text, secure, kind, told):
    """The plain peer at a TLS port and the TLS peer at a plain port both hear why, in the Manager's words."""
    near, far = homes
    manager = listening(far, text)
    with pytest.raises(kind, match=told):
        ask(near, manager, secure=secure)
    wait_for(lambda: told in manager.log())


def test_notls_on_both_sides_is_plain(homes, listening):
    """Off only by explicit parameter; certificates are not needed then."""
    near, far = homes
    without_certificates(near)
    without_certificates(far)
    ask(near, listening(far, "NOTLS"), secure=False)


@pytest.mark.parametrize(("bind", "warned"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_notls_outside_loopback_is_warned_of_by_the_manager(homes, listening, bind, warned):
    """At each start, in ggserr.log."""
    manager = listening(homes[1], f"NOTLS\nBIND {bind}")
    assert ("plain TCP on 0.0.0.0" in manager.log()) is warned


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("localhost", False), ("there", True)])
def test_notls_outside_loopback_is_warned_of_by_the_pump(homes, host, warned):
    """At each start, in ggserr.log and in the report."""
    near, _ = homes
    for text in said_at_start(near, f"RMTHOST {host}, MGRPORT 1, NOTLS\nRMTTRAIL ./dirdat/rt\n"):
        assert ("NOTLS: the link to there is plain TCP" in text) is warned


def said_at_start(home, text) -> list[str]:
    """ggserr.log and report of a pump that was made of these parameters."""
    clock, report = RealClock(), Report(home, "PMP1")
    reg = Registration("PMP1", "EXTRACT", "TRAIL", trail="./dirdat/lt", trails=(TrailReg("./dirdat/rt", "RMTTRAIL"),))
    log = Log(home, "Trailgate Pump", "pmp1.prm", clock, report)
    statements = parse_text(f"EXTRACT PMP1\n{text}", "p")
    context = Context(home, home.fs, "PMP1", "EXTRACT", statements, reg, report, log, clock, Stop(), 0, "p")
    build(context).close()
    return [Path(path).read_text() for path in (home.ggserr, report.path)]


@pytest.mark.parametrize(("local", "remote"), [(True, False), (True, True), (False, False)])
def test_a_plain_copy_of_an_encrypted_trail_is_warned_of(homes, local, remote):
    """Who knows it from GoldenGate takes the copy for encrypted too."""
    near, _ = homes
    masterkeys.add(near, 1)
    trail = TrailName.parse("./dirdat/lt", near.root)
    TrailWriter.open(near.fs, trail, IDENTITY, restart_open=True, encrypt=local).close()
    text = "RMTHOST localhost, MGRPORT 1, NOTLS\nRMTTRAIL ./dirdat/rt\n" + ("ENCRYPTTRAIL\n" if remote else "")
    for said in said_at_start(near, text):
        assert ("is encrypted, its copy ./dirdat/rt will not be" in said) is (local and not remote)


def test_a_manager_without_certificates_says_so(homes, listening):
    """It runs, and refuses pumps with what mends it; with certificates it serves, without a restart."""
    near, far = homes
    without_certificates(far)
    manager = listening(far)
    with pytest.raises(UntrustedError, match=r"no certificates that it can use.*CREATE CERTIFICATES") as error:
        ask(near, manager)
    assert far.root not in str(error.value), "a stranger is told no paths"
    wait_for(lambda: f"refused: the link is TLS and {folder(far).file(tls.CA)} is missing" in manager.log())
    certify(near, far)
    ask(near, manager)


def test_a_renewed_certificate_needs_no_restart(homes, listening):
    """Each connection reads the files anew."""
    near, far = homes
    certify(near, far, days=0)
    manager = listening(far)
    with pytest.raises(UntrustedError, match="expired"):
        ask(near, manager)
    certify(near, far)
    ask(near, manager)


def damage(path):
    Path(path).write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda home: os.remove(folder(home).file(tls.KEY)), r"home.key is missing. Make certificates"),
        (lambda home: os.remove(folder(home).file(tls.CA)), r"ca.crt is missing"),
        (lambda home: os.chmod(folder(home).file(tls.KEY), 0o640), r"expected mode 0600, found 0640. chmod 600"),
        (lambda home: damage(folder(home).file(tls.CERTIFICATE)), "can't be used"),
        (lambda home: damage(folder(home).file(tls.CA)), "can't be used"),
        (
            lambda home: folder(home).write(tls.KEY, folder(home).read("ca.key")),
            "the key does not belong to the certificate",
        ),
    ],
)
def test_files_that_can_not_be_used_are_named(homes, change, told):
    """Before any connection, with what mends it."""
    near, _ = homes
    change(near)
    with pytest.raises(OperatorError, match=told):
        tls.client_context(tls.folder_of(near.root))


def stranger(answer: bytes | None) -> socket.socket:
    """A listener that is no Manager: reads a little, then says `answer`, or nothing and stays."""
    listener = socket.create_server((HOST, 0))

    def serve() -> None:
        sock, _ = listener.accept()
        with sock:
            sock.recv(10_000)
            if answer is not None:
                sock.sendall(answer)
            with contextlib.suppress(ConnectionError):
                sock.recv(10_000)

    threading.Thread(target=serve, daemon=True).start()
    return listener


@pytest.mark.parametrize(
    ("answer", "kind", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", UntrustedError, "does not talk TLS, and we do. Give NOTLS at both"),
        (b'{"ok": false, "error": "no\\nway \\u001b[31m", "permanent": false}\n', AwayError, r"refused: no way  \[31m"),
        (b'{"ok": false, "error": "go away", "permanent": true}\n', UntrustedError, "refused: go away"),
        (b"{nonsense\n", UntrustedError, "does not talk TLS"),
        (b'{"ok": true, "port": 1}\n', ProtocolError, "plain text where TLS was asked for"),
        (None, AwayError, "no TLS handshake in time"),
    ],
)
def test_whoever_is_no_manager_is_named(homes, answer, kind, told):
    """A plain yes is never taken for one, and its text can't write lines into our log."""
    near, _ = homes
    with stranger(answer) as listener, pytest.raises(kind, match=told):
        greet(RemoteHost(HOST, listener.getsockname()[1]), near, 1 if answer is None else 60)


# --- what comes from the way, and not from the peer -------------------------------------------------------------------


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
@pytest.mark.parametrize("after", [0, 3, 130, 900], ids=lambda after: f"after {after} bytes")
def test_nobody_on_the_way_ends_a_pump(homes, listening, junk, after):
    """Whatever is put in, from before the Manager's first byte to behind its certificate: a reason to try again.

    A forged alert before the handshake is done names a wrong set-up; it may be one, and it may be forged.
    """
    near, far = homes
    interceptor = Interceptor(listening(far).port, junk, after)
    try:
        with pytest.raises((AwayError, ProtocolError)):
            greet(RemoteHost(HOST, interceptor.port), near, 30)
    finally:
        interceptor.close()


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
def test_nor_one_that_is_linked(homes, junk):
    """In a session that stands, what is put in is no more than a lost link, at either end."""
    near, far = homes
    pump, collector, raw = linked(near, far)
    with pump, collector, raw:
        for sock, side in ((pump, Side.PUMP), (collector, Side.COLLECTOR)):
            other = socket.socket(fileno=os.dup((collector if side is Side.PUMP else pump).fileno()))
            with other:
                other.sendall(junk)
            channel = Channel(sock, side, "peer", 60, 0.0)
            if side is Side.COLLECTOR:
                channel._bytes_in = 1  # it has heard a HELLO
            with pytest.raises(AwayError, match="link") as caught:
                wait_for(lambda channel=channel: channel.receive(0.0))
            assert not isinstance(caught.value, UntrustedError)


def linked(near, far):
    """(pump's end, Collector's end, the listener) of a connection whose handshake is done."""
    listener = socket.create_server((HOST, 0))
    pump = socket.create_connection(listener.getsockname())
    collector, _ = listener.accept()
    found = []
    server = tls.server_context(tls.folder_of(far.root))
    thread = threading.Thread(target=lambda: found.append(server.wrap_socket(collector, server_side=True)))
    thread.start()
    pump = tls.client_context(tls.folder_of(near.root)).wrap_socket(pump, server_hostname=HOST)
    thread.join(PATIENCE)
    return pump, found[0], listener


# --- whose certificate it is ------------------------------------------------------------------------------------------


def with_id(home, home_id):
    """The same home under another id, its certificates unchanged: what a copy of a home is after a new dirpcs/HOME."""
    Path(home.root, "dirpcs", "HOME").write_text(home_id + "\n")
    return Home.at(home.root)


def without_home(home, ca_home):
    """A certificate as older releases made it."""
    files.issue(folder(ca_home), folder(home), "old", files.ALWAYS, 60, "")


def test_nobody_asks_in_another_homes_name(homes, listening):
    """With a good certificate of the CA: both sides say whose it is, and it is no reason to try again."""
    near, far = homes
    manager = listening(far)
    other = with_id(near, "f" * 32)
    with pytest.raises(
        OperatorError, match=f"says to be home {'f' * 32}; its certificate is home {near.id}'s. A copied home"
    ):
        ask(other, manager)
    wait_for(lambda: f"says to be home {'f' * 32}; its certificate is home {near.id}'s" in manager.log())


@pytest.mark.parametrize("whose", ["pump", "Manager"])
def test_a_certificate_without_a_home_is_refused(homes, listening, whose):
    """By who meets it; with the command that mends it, and after that it is taken."""
    near, far = homes
    without_home(near if whose == "pump" else far, near)
    manager = listening(far)
    with pytest.raises(OperatorError, match=rf"{whose} at .*: its certificate names no home. .*RENEW CERTIFICATES"):
        ask(near, manager)
    certify(near, near, far)
    ask(near, manager)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda near, far: without_home(near, near), "home.crt: its certificate names no home. .*RENEW"),
        (
            lambda near, far: with_id(near, "f" * 32),
            "expected the certificate of home f+, found home .*. A copied home",
        ),
        (lambda near, far: certify(near, near, days=0), "home.crt: its certificate has expired. RENEW"),
        (lambda near, far: with_ca_of(far, near), "home.crt: its certificate is of another CA"),
        (lambda near, far: revoke(near, near), "home.crt: its certificate was revoked"),
    ],
)
def test_a_home_sees_its_own_certificate_as_peers_will(homes, tmp_path, change, told):
    """At START, before it asks anybody; nothing else of the home is touched."""
    near, _ = homes
    tls.check_own(tls.folder_of(near.root), near.id)
    change(near, make_home(tmp_path / "other"))
    with pytest.raises(OperatorError, match=told):
        tls.check_own(tls.folder_of(near.root), Home.at(near.root).id)
    with pytest.raises(OperatorError, match=told):
        said_at_start(Home.at(near.root), "RMTHOST 127.0.0.1, MGRPORT 1\nRMTTRAIL ./dirdat/rt\n")


def test_check_params_finds_what_start_would(homes):
    """Also while nobody answers at RMTHOST, which by itself is no mistake."""
    near, _ = homes
    with socket.socket() as nobody:
        nobody.bind((HOST, 0))  # and does not listen
        text = f"EXTRACT PMP1\nRMTHOST {HOST}, MGRPORT {nobody.getsockname()[1]}\nRMTTRAIL ./dirdat/rt\n"
        Path(near.prm("PMP1")).write_text(text)
        assert not [text for text in check_group(near, "PMP1").mistakes if "certificate" in text]
        certify(near, near, days=0)
        assert "home.crt: its certificate has expired" in " ".join(check_group(near, "PMP1").mistakes)


def with_ca_of(other, home):
    files.ensure_ca(folder(other), other.id, 60)
    folder(home).write(tls.CA, folder(other).read(tls.CA))


def revoke(ca_home, home):
    """As REVOKE CERTIFICATES, but of the CA's own home too."""
    revoking.revoke(folder(ca_home), files.CA_KEY, [folder(home).facts(tls.CERTIFICATE).serial])


@pytest.mark.parametrize("side", [Side.PUMP, Side.COLLECTOR])
def test_a_session_holds_a_peer_to_its_certificate(homes, side):
    """HELLO and WELCOME: the id that is said must be the certificate's."""
    near, far = homes
    pump, collector, raw = linked(near, far)
    with pump, collector, raw:
        sock, peer = (pump, far) if side is Side.PUMP else (collector, near)
        channel = Channel(sock, side, "the peer", 60, 0.0)
        channel.check_home(peer.id)
        for said, hint in (("", "same release"), ("f" * 32, "own"), (peer.id.upper(), "own")):
            with pytest.raises(OperatorError, match=rf"the peer says to be home .*; its certificate is home .*{hint}"):
                channel.check_home(said)


@pytest.mark.parametrize("side", [Side.PUMP, Side.COLLECTOR])
def test_a_link_that_breaks_with_the_greeting_tells_who_greeted(homes, side):
    """A peer is killed right behind its greeting: both are read at once, and then OpenSSL tells no certificate."""
    near, far = homes
    pump, collector, raw = linked(near, far)
    with pump, collector, raw:
        ends = {Side.PUMP: Channel(pump, Side.PUMP, "the peer", 60, 0.0),
                Side.COLLECTOR: Channel(collector, Side.COLLECTOR, "the peer", 60, 0.0)}  # fmt: skip
        channel, home, raw_peer = ends[side], *((far, collector) if side is Side.PUMP else (near, pump))
        ends[Side.PUMP].send(wire.Hello(near.id, "P1", HOST, "./dirdat/rt", b"1" * 16, {}, 0, None, 1, 60_000))
        if side is Side.PUMP:
            wait_for(lambda: ends[Side.COLLECTOR].receive(0.0))
            ends[Side.COLLECTOR].send(wire.Welcome(Position(0, 0), b"2" * 16, False, 0, Position(0, 0), 1, far.id))
        else:
            channel._shown = None  # a Collector's channel is there before hands are shaken
        with socket.socket(fileno=os.dup(raw_peer.fileno())) as junk:
            junk.sendall(b"junk" * 10)
        (event,) = wait_for(lambda: channel.receive(0.0))
        assert event.home == home.id
        with pytest.raises(ValueError, match="handshake not done"):
            channel._sock.getpeercert()
        channel.check_home(home.id)
        with pytest.raises(AwayError, match="the peer"):
            channel.receive(0.0)


def test_a_link_that_broke_before_a_word_was_said_is_a_lost_link(homes):
    """It is not taken for a plain one, which can't tell its home."""
    near, far = homes
    pump, collector, raw = linked(near, far)
    with pump, collector, raw:
        with socket.socket(fileno=os.dup(collector.fileno())) as junk:
            junk.sendall(b"junk" * 10)
        with pytest.raises(ssl.SSLError):
            deque(iter(lambda: pump.recv(4096), b""), maxlen=0)
        with pytest.raises(AwayError, match="the peer: the link is lost"):
            Channel(pump, Side.PUMP, "the peer", 60, 0.0).check_home(far.id)


# --- who was revoked --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revoked", ["pump", "Manager"])
def test_a_revoked_home_is_refused_where_the_list_is(homes, listening, tmp_path, revoked):
    """Without the list it is let in; with it the one who has it says why, at either end, and others still talk."""
    near, far = homes
    manager = listening(far)
    ca_home = make_home(tmp_path / "ca")
    certify(ca_home, near, far, ca_home)
    ask(near, manager)
    if revoked == "pump":
        revoke(ca_home, near)
        ask(near, manager)
        folder(far).write(tls.REVOKED, folder(ca_home).read(tls.REVOKED))
        with pytest.raises(OperatorError, match=r"refused our certificate: it was revoked\. To let that home in again"):
            ask(near, manager)
        wait_for(lambda: "its certificate was revoked (ca.crl here says so)" in manager.log())
    else:
        revoke(ca_home, far)
        ask(near, manager)
        folder(near).write(tls.REVOKED, folder(ca_home).read(tls.REVOKED))
        with pytest.raises(UntrustedError, match="its certificate was revoked"):
            ask(near, manager)
    ask(ca_home, listening(ca_home))


def test_a_list_of_another_ca_lets_nobody_in(homes, listening, tmp_path):
    """Fail closed: it is named, and what mends it."""
    near, far = homes
    other = make_home(tmp_path / "other")
    certify(other, other)
    revoke(other, other)
    folder(near).write(tls.REVOKED, folder(other).read(tls.REVOKED))
    with pytest.raises(UntrustedError, match=r"ca.crl here is not of its CA. Copy ca.crl of the home that keeps"):
        ask(near, listening(far))


@pytest.mark.parametrize("whose", ["pump", "Manager"])
def test_a_list_that_is_being_copied_ends_nobody(homes, listening, whose):
    """A copy made by hand is not there at once: whatever part of it a connection meets is a reason to try again."""
    near, far = homes
    manager, reader = listening(far), near if whose == "pump" else far
    revoke(near, near)
    whole = folder(near).read(tls.REVOKED)
    os.remove(folder(near).file(tls.REVOKED))
    for size in (0, 1, len(whole) // 2, len(whole) - 30):
        folder(reader).write(tls.REVOKED, whole[:size])
        with pytest.raises(AwayError):
            ask(near, manager)
    os.remove(folder(reader).file(tls.REVOKED))
    ask(near, manager)


def test_a_session_looks_for_another_list(homes):
    """Once a second, and only then does it say so."""
    near, _ = homes
    watch = tls.RevocationWatch(tls.folder_of(near.root))
    assert not watch.changed(100.0)
    revoke(near, near)
    assert not watch.changed(100.0 + tls.LOOK_SECONDS - 0.1)
    assert watch.changed(100.0 + tls.LOOK_SECONDS)
    assert not tls.RevocationWatch("").changed(1e9)
