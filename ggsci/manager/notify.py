"""Telling systemd: READY=1 once the port is ours, WATCHDOG=1 while the loop turns, STOPPING=1 at the end.

Plain datagrams to $NOTIFY_SOCKET, as sd_notify(3) describes them; without that variable nothing is sent. The variables
are taken out of the environment, so that groups and Collectors don't speak in the Manager's name.
"""

from __future__ import annotations

import os
import socket


class Notifier:
    """What systemd is told; it never waits and never fails."""

    def __init__(self) -> None:
        address = os.environ.pop("NOTIFY_SOCKET", "")
        watchdog = os.environ.pop("WATCHDOG_USEC", "")
        os.environ.pop("WATCHDOG_PID", None)
        self._socket: socket.socket | None = None
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._every = int(watchdog) / 3_000_000 if watchdog.isdecimal() else None
        self._due = 0.0
        if address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    def ready(self, text: str) -> None:
        """The Manager does its work from now on."""
        self._send(f"READY=1\nSTATUS={text}")

    def alive(self, now: float) -> None:
        """A turn of the loop; told three times within the watchdog's time."""
        if self._every is not None and now >= self._due:
            self._due = now + self._every
            self._send("WATCHDOG=1")

    def close(self) -> None:
        """The Manager ends."""
        self._send("STOPPING=1")
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, text: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto(text.encode(), self._address)
        except OSError:
            return  # systemd is away or busy: the next turn tells it again
