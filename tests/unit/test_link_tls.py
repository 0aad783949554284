"""TLS between pump and Manager: who is let in, and the one clear message on both sides for everything else."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
from pathlib import Path

import pytest

from pump.build import build
from pump.link import greet
from pump.params import RemoteHost
from tests.support.homes import make_home
from tests.support.link import wait_until
from tests.support.secure import Listening, certify, folder, without_certificates
from tests.support.trail_script import IDENTITY
from trails import tls
from trails.errors import AwayError, OperatorError, ProtocolError
from trails.position import TrailName
from trails.runtime import masterkeys
from trails.runtime.clock import RealClock
from trails.runtime.params import parse_text
from trails.runtime.process import Context, Stop
from trails.runtime.registration import Registration, TrailReg
from trails.runtime.report import Log, Report
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
    ("change", "pump_says", "manager_says"),
    [
        (expired_far, "Manager at .*: its certificate has expired. RENEW", "refused our certificate: it has expired"),
        (expired_near, "refused our certificate: it has expired. RENEW", "its certificate has expired. RENEW"),
        (other_ca_far, "its certificate is of another CA. Both", "refused our certificate: it is of another CA"),
        (other_ca_near, "refused our certificate: it is of another CA", "its certificate is of another CA. Both"),
        (other_name_far, "is for other addresses .*HOSTS", "refused our certificate: it is not for the name"),
    ],
)
def test_a_certificate_that_does_not_do_is_told_on_both_sides(
    homes, listening, tmp_path, change, pump_says, manager_says
):
    """Expired, of another CA, for another host: with the reason, and the command that mends it."""
    near, far = homes
    change(near, far, make_home(tmp_path / "other"))
    manager = listening(far)
    with pytest.raises(OperatorError, match=pump_says):
        ask(near, manager)
    wait_until(lambda: manager_says in manager.log(), what=manager_says)


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
    wait_until(lambda: "showed no certificate" in manager.log())


def test_an_older_tls_is_refused(homes, listening):
    """TLS 1.3 and nothing else."""
    near, far = homes
    manager = listening(far)
    context = tls.client_context(tls.folder_of(near.root))
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection((HOST, manager.port)) as sock, pytest.raises(ssl.SSLError):
        context.wrap_socket(sock, server_hostname=HOST)
    wait_until(lambda: "does not talk TLS 1.3" in manager.log())


@pytest.mark.parametrize(
    ("text", "secure", "told"),
    [("", False, "this Manager talks TLS only"), ("NOTLS", True, "this Manager talks no TLS")],
)
def test_plain_and_tls_do_not_meet(homes, listening, text, secure, told):
    """The plain peer at a TLS port and the TLS peer at a plain port both hear why, in the Manager's words."""
    near, far = homes
    manager = listening(far, text)
    with pytest.raises(OperatorError, match=told):
        ask(near, manager, secure=secure)
    wait_until(lambda: told in manager.log())


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
    with pytest.raises(OperatorError, match=r"no certificates that it can use.*CREATE CERTIFICATES") as error:
        ask(near, manager)
    assert far.root not in str(error.value), "a stranger is told no paths"
    wait_until(lambda: f"refused: the link is TLS and {folder(far).file(tls.CA)} is missing" in manager.log())
    certify(near, far)
    ask(near, manager)


def test_a_renewed_certificate_needs_no_restart(homes, listening):
    """Each connection reads the files anew."""
    near, far = homes
    certify(near, far, days=0)
    manager = listening(far)
    with pytest.raises(OperatorError, match="expired"):
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
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", OperatorError, "does not talk TLS, and we do. Give NOTLS at both"),
        (b'{"ok": false, "error": "no\\nway \\u001b[31m", "permanent": false}\n', AwayError, r"refused: no way  \[31m"),
        (b"{nonsense\n", OperatorError, "does not talk TLS"),
        (b'{"ok": true, "port": 1}\n', ProtocolError, "plain text where TLS was asked for"),
        (None, AwayError, "no TLS handshake in time"),
    ],
)
def test_whoever_is_no_manager_is_named(homes, answer, kind, told):
    """A plain yes is never taken for one, and its text can't write lines into our log."""
    near, _ = homes
    with stranger(answer) as listener, pytest.raises(kind, match=told):
        greet(RemoteHost(HOST, listener.getsockname()[1]), near, 1)
