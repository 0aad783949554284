"""TCP ports of 127.0.0.1 that are free and stay so until their taker listens, or for good if nobody is to listen.

Rule: a port is given once. Each process has ranges of its own for as long as it lives: the name of an abstract socket
tells the others, and goes with the process. All are below the ports that the system gives to outgoing connections.
"""

from __future__ import annotations

import random
import socket
import threading

_FIRST, _LAST, _SIZE = 15_000, 30_000, 250


class _Ports:
    """What this process has claimed and not yet given."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = range(0)
        self._claims: list[socket.socket] = []

    def take(self, count: int) -> range:
        """The next so many that are free, side by side."""
        with self._lock:
            while True:
                if len(self._left) < count:
                    self._left = self._claim()
                ports, self._left = self._left[:count], self._left[count:]
                if all(map(_is_free, ports)):
                    return ports

    def _claim(self) -> range:
        """A range that no process on this machine has."""
        starts = list(range(_FIRST, _LAST, _SIZE))
        random.shuffle(starts)
        for start in starts:
            claim = socket.socket(socket.AF_UNIX)
            try:
                claim.bind(f"\0trailgate-ports-{start}")
            except OSError:
                claim.close()
                continue
            self._claims.append(claim)
            return range(start, start + _SIZE)
        raise RuntimeError(f"no free TCP ports between {_FIRST} and {_LAST} on 127.0.0.1: other tests have them all")


_ports = _Ports()


def free_ports(count: int) -> range:
    """Neighbouring ports, at most some hundred."""
    return _ports.take(count)


def free_port() -> int:
    """One port."""
    return _ports.take(1)[0]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
