"""The pump with the real Manager, over TLS: Collectors on demand, a stopped one replaced, a Manager killed and back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from demo.patience import wait_for
from demo.ports import free_ports
from tests.support.link import LinkBench, Source, end
from tests.support.secure import certify, without_certificates
from trails.fs import RealFs
from trails.runtime.home.registration import TrailReg

pytestmark = pytest.mark.e2e


@pytest.fixture
def bench(tmp_path, request):
    """A LinkBench whose pump asks a real Manager of the far home."""
    made = LinkBench(tmp_path, **getattr(request, "param", {}))
    made.manager.close()
    port, *_, last = free_ports(41)
    Path(made.far.prm("mgr")).write_text(f"PORT {port}\nDYNAMICPORTLIST {port + 1}-{last}\n")
    prm = Path(made.near.prm("PMP1"))
    prm.write_text(prm.read_text().replace(str(made.manager.port), str(port)).replace(", NOTLS", ""))
    certify(made.far, made.far, made.near)
    made.real = start_manager(made)
    yield made
    made.close()
    end(made.real, gently=3)
    if pid := RealFs().lock_holder(made.remote.lock_path()):
        os.kill(pid, signal.SIGKILL)


def start_manager(bench) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-P", "-m", "ggsci.manager", "--home", bench.far.root])


@pytest.mark.parametrize("bench", [{"timeout": 3}], indirect=True, ids=["TIMEOUT 3"])
def test_CW_24_a_stopped_collector_is_replaced_by_the_manager(bench):
    """CW-24: SIGSTOP; the pump asks again, the Manager ends the old one first, the trail stays a true copy."""
    source = Source(bench.fs, bench.local, seed=21)
    source.mixed(20)
    bench.start()
    bench.drain()
    old = RealFs().lock_holder(bench.remote.lock_path())
    os.kill(old, signal.SIGSTOP)
    source.mixed(20)
    bench.drain()
    assert RealFs().lock_holder(bench.remote.lock_path()) != old
    assert bench.assert_equal() > 30


def test_a_trail_named_by_its_whole_path_is_the_same_trail(bench):
    """RMTTRAIL /home/dirdat/rt: the Manager calls it ./dirdat/rt, the Collector takes both for its own."""
    prm = Path(bench.near.prm("PMP1"))
    prm.write_text(prm.read_text().replace("./dirdat/rt", str(bench.remote)))
    bench.register(trails=(TrailReg(str(bench.remote), "RMTTRAIL"),))
    Source(bench.fs, bench.local, seed=23).mixed(5)
    bench.start()
    bench.drain()
    assert bench.assert_equal() > 5


def test_a_killed_manager_does_not_disturb_the_session(bench):
    """The link goes on without it; a lost one waits for the next Manager."""
    source = Source(bench.fs, bench.local, seed=22)
    source.mixed(10)
    bench.start()
    bench.drain()
    bench.real.kill()
    bench.real.wait()
    source.mixed(10)
    bench.drain()
    os.kill(RealFs().lock_holder(bench.remote.lock_path()), signal.SIGKILL)
    source.mixed(10)
    wait_for(lambda: "can't be reached" in bench.log())
    bench.real = start_manager(bench)
    bench.drain()
    assert bench.assert_equal() > 30


def test_a_renewal_while_it_runs_and_a_home_without_certificates(bench):
    """The session goes on, the next connection takes the new certificate; a pump without one does not start."""
    source = Source(bench.fs, bench.local, seed=23)
    source.mixed(10)
    bench.start()
    bench.drain()
    certify(bench.far, bench.far, bench.near)
    os.kill(RealFs().lock_holder(bench.remote.lock_path()), signal.SIGKILL)
    source.mixed(10)
    bench.drain()
    assert bench.assert_equal() > 10
    assert f"({os.path.basename(bench.near.root)})" in bench.log(), "the log names the pump by its certificate"
    assert "NOTLS" not in bench.log()
    assert bench.stop() == 0
    without_certificates(bench.near)
    bench.start()
    code, told = bench.ended(60)
    assert code == 2
    assert "CREATE CERTIFICATES" in told + bench.log()
