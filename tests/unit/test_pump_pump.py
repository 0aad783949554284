"""The pump's own states, where the link fails between two of them."""

from __future__ import annotations

import socket
import struct

from pump.params import PumpParams, RemoteHost
from pump.pump import Job, Phase, Pump
from tests.support.homes import make_home
from tests.support.link import Source, wait_until
from trails.fs import RealFs
from trails.position import TrailName
from trails.runtime.clock import RealClock
from trails.runtime.report import Log


def test_a_collector_that_dies_before_we_look_is_a_lost_link(tmp_path):
    """CW-02: the connection was taken and reset at once: tried again, not a bug that ends the pump for the night."""
    home = make_home(tmp_path / "home")
    trail = TrailName.parse("./dirdat/lt", home.root)
    Source(RealFs(), trail).writer.close()
    remote = RemoteHost("127.0.0.1", 1)
    job = Job(PumpParams("PMP1", remote, "./dirdat/rt"), home.id, "here", trail, "./dirdat/lt", 1)
    pump = Pump(job, RealFs(), Log(home, "Trailgate Pump", "", RealClock()), RealClock())
    try:
        with socket.create_server(("127.0.0.1", 0)) as collector:
            taken = socket.create_connection(collector.getsockname())
            other, _ = collector.accept()
            other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            other.close()
        wait_until(lambda: _is_reset(taken))
        pump._source = object()
        pump._dialler = _Got(taken)
        pump._phase = Phase.DIALLING
        assert not pump.step()
        assert pump._phase is Phase.AWAY
        assert taken.fileno() == -1
    finally:
        pump.close()
    with open(home.ggserr) as log:
        assert "Collector at 127.0.0.1: the link is lost: Transport endpoint is not connected" in log.read()


def _is_reset(sock: socket.socket) -> bool:
    try:
        sock.getpeername()
    except OSError:
        return True
    return False


class _Got:
    """A try that has ended with this socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def result(self) -> socket.socket:
        return self._sock

    def close(self) -> None:
        pass
