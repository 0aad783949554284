"""Who is on the way ends no pump, and who was revoked is let in no more: real pump, Manager and Collector."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from demo.patience import wait_for
from demo.ports import free_ports
from ggsci.certificates import files, revoking
from tests.support.homes import good
from tests.support.interceptor import JUNK, Interceptor
from tests.support.link import LinkBench, Source, end
from tests.support.secure import certify, folder
from trails.fs import RealFs
from trails.link import tls

pytestmark = pytest.mark.e2e


@pytest.fixture
def bench(tmp_path):
    """A LinkBench over TLS; its pump reaches the real Manager of the far home through an Interceptor."""
    made = LinkBench(tmp_path, retry=600)
    made.manager.close()
    port, *others = free_ports(40)
    Path(made.far.prm("mgr")).write_text(f"PORT {port}\nDYNAMICPORTLIST {others[0]}-{others[-1]}\n")
    made.interceptor = Interceptor(port, b"", 0)
    prm = Path(made.near.prm("PMP1"))
    text = prm.read_text().replace(str(made.manager.port), str(made.interceptor.port)).replace(", NOTLS", "")
    prm.write_text(text)
    certify(made.far, made.far, made.near)
    made.real = subprocess.Popen([sys.executable, "-P", "-m", "ggsci.manager", "--home", made.far.root])
    try:
        wait_for(lambda: listens(port))  # who puts in junk does it when a Manager answers
        yield made
    finally:
        made.close()
        made.interceptor.close()
        end(made.real, gently=3)
        if pid := RealFs().lock_holder(made.remote.lock_path()):
            os.kill(pid, signal.SIGKILL)


def listens(port: int) -> bool:
    """Whether somebody answers there."""
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def test_junk_on_the_way_delays_a_pump_and_does_not_end_it(bench):
    """Forged alerts, plain answers, noise: each is told, and tried again; once they cease it goes on by itself."""
    source = Source(bench.fs, bench.local, seed=31)
    source.mixed(5)
    bench.interceptor.junk = JUNK["an alert: certificate expired"]
    bench.start()
    told = (
        ("an alert: certificate expired", "refused our certificate: it has expired"),
        ("an alert: unknown CA", "refused our certificate: it is of another CA"),
        ("plain text", "does not talk TLS, and we do"),
        ("a yes", "answered in plain text where TLS was asked for"),
    )
    for junk, words in told:
        bench.interceptor.junk = JUNK[junk]
        wait_for(lambda words=words: words in bench.log(), told=words)
        assert bench.pump.poll() is None
    bench.interceptor.junk = b""
    bench.drain()
    assert bench.assert_equal() > 5
    assert bench.stop() == 0


def test_junk_for_too_long_is_a_lost_link(bench):
    """RETRYSECS later it ends as for any lost link: exit code 3, for AUTORESTART; with the words and the hint."""
    prm = Path(bench.near.prm("PMP1"))
    prm.write_text(prm.read_text().replace("RETRYSECS 600", "RETRYSECS 1"))
    Source(bench.fs, bench.local, seed=32).mixed(2)
    bench.interceptor.junk = JUNK["an alert: unknown CA"]
    bench.start()
    code, said = bench.ended()
    assert code == 3
    assert "refused our certificate: it is of another CA; tried again for 1 seconds" in said + bench.log()
    assert "Both homes need certificates of one CA" in said + bench.log()


def test_a_revoked_home_is_let_in_no_more(bench):
    """Its session ends when the list comes, and its next request is refused for good; new keys let it in again."""
    source = Source(bench.fs, bench.local, seed=33)
    source.mixed(5)
    bench.start()
    bench.drain()
    assert f"certificates of home {bench.near.id} revoked" in good(
        bench.far, f"REVOKE CERTIFICATES, HOMEID {bench.near.id}!"
    )
    code, said = bench.ended()
    assert code == 2
    assert "refused our certificate: it was revoked" in said + bench.log()
    assert "another list of revoked certificates came" in bench.log()
    for name in ("home.crt", "home.key"):
        os.remove(os.path.join(bench.near.root, "dircrd", "tls", name))
    source.mixed(5)
    certify(bench.far, bench.near)
    bench.start()
    bench.drain()
    assert bench.assert_equal() > 5


def test_a_pump_leaves_a_revoked_home(bench):
    """The list at the pump's end: it sends nothing more, and tries again: anybody might have shown that certificate."""
    source = Source(bench.fs, bench.local, seed=34)
    source.mixed(5)
    bench.start()
    bench.drain()
    revoking.revoke(folder(bench.far), files.CA_KEY, [folder(bench.far).facts(tls.CERTIFICATE).serial])
    os.rename(folder(bench.far).file(tls.REVOKED), folder(bench.near).file(tls.REVOKED))
    wait_for(lambda: "its certificate was revoked (ca.crl here says so)" in bench.log())
    source.mixed(5)
    assert bench.pump.poll() is None and not bench.drained()
    os.remove(folder(bench.near).file(tls.REVOKED))
    bench.drain()
    assert bench.assert_equal() > 5
