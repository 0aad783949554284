"""TCP links to a host that may vanish without a word: the system finds out, and whoever waits is told.

Not everybody who waits says something: without this a link to a host without power lives for ever.
"""

from __future__ import annotations

import socket

_TIMES = 3


def keep_alive(link: socket.socket, *, idle: int, every: int) -> None:
    """After `idle` seconds of silence the system asks up to three times, each `every` seconds, and then ends the link.

    What was sent, and is not acknowledged for as long, ends it too. Small messages don't wait for others.
    """
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_NODELAY, 1), (socket.TCP_KEEPIDLE, idle), (socket.TCP_KEEPINTVL, every),
        (socket.TCP_KEEPCNT, _TIMES), (socket.TCP_USER_TIMEOUT, (idle + _TIMES * every) * 1000),
    ):  # fmt: skip
        link.setsockopt(socket.IPPROTO_TCP, option, value)
