"""How long the reader of a stream waits between two gulps while changes come thick.

A reader that wakes for each message slows the server's sender to half, so it naps for a moment and takes many at once.
A unix socket holds only some hundred messages: there a nap would stop the sender, and none is taken.

By TCP on one host the system sends each row's packet through all its layers at once, a third of what the server has
to do. Where the reader's buffer is full, it gathers them. So there the buffer is small, and the nap longer than it
lasts. To another host so small a buffer would cost the link its speed.

Equal addresses can also be those of a proxy on this host (a tunnel, a balancer). It hands over what the buffer holds
and no more, however much it has. So a long nap that brought less than the system gathers is followed by a short one,
and as long as a short one fills the buffer again, by another.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Final

NAP: Final = 0.0005
"""Seconds behind a rich gulp."""
NEAR_NAP: Final = 0.004
"""Seconds where the system gathers."""
NEAR_BUFFER: Final = 32 << 10
"""Bytes of the reader's buffer there; the system makes twice as much of it, for its own needs."""
GATHERED: Final = 2 * NEAR_BUFFER
"""A gulp of so many bytes holds more than the buffer: the system gathered."""


class Naps:
    """The naps of one stream."""

    __slots__ = ("_near", "_next")

    def __init__(self, host: bytes, link: int) -> None:
        """`host` as libpq tells it (a path is a unix socket), `link` the stream's socket."""
        self._near = False
        if host[:1] in (b"/", b"@"):
            self._next = 0.0
            return
        self._near = _narrowed(link)
        self._next = NEAR_NAP if self._near else NAP

    def after(self, size: int) -> float:
        """Seconds to wait behind a rich gulp of `size` bytes, before the next one."""
        if self._near:
            short = size < GATHERED if self._next == NEAR_NAP else size >= NEAR_BUFFER
            self._next = NAP if short else NEAR_NAP
        return self._next


def _narrowed(link: int) -> bool:
    """Whether the link stays on this host; its buffer is made small then."""
    with suppress(OSError), socket.socket(fileno=os.dup(link)) as end:  # who reads will tell that it is lost
        if end.getsockname()[0] == end.getpeername()[0]:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, NEAR_BUFFER)
            return True
    return False
