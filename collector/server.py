"""The Collector as a process: recover, bind, say the port, serve one session, end.

Rule: one loop on one thread; only the disk's sync runs beside it. Whoever does not greet in time is no pump and is
dropped (door.py); after the first HELLO nothing else is accepted, and when that session ends so does the process.
Every bad end is told to the pump first, as a refusal, where the link still carries it.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import traceback
from collections.abc import Callable, Sequence

from collector.collector import Collector, refuse
from collector.door import CODE_REFUSED, PumpDoor
from collector.params import CollectorParams
from trails.clock import RealClock
from trails.errors import EXIT_BUG, EXIT_STOPPED, SAME_RELEASE, AwayError, GateError, OperatorError, ProtocolError
from trails.fs import Fs
from trails.host import THIS_HOST, Host
from trails.lasting import keep_imports
from trails.link import tls, wire
from trails.link.channel import Channel
from trails.link.wire import WireState
from trails.runtime.home import purge
from trails.runtime.home.home import Home
from trails.runtime.language.globals import read as read_globals
from trails.runtime.masking import mask
from trails.runtime.process import diskguard
from trails.runtime.process.diskguard import DiskGuard, Limits
from trails.runtime.process.loop import Stop
from trails.runtime.report.report import Log, quietly
from trails.taming import tame

PRODUCT = "Trailgate Collector"
LINGER_SECONDS = 2.0
# How often an idle session looks if the trail's file is still there.
LOOK_SECONDS = 1.0
# The bounds of the dead time that a pump may ask for: RMTHOST's TIMEOUT ends there too.
LEAST_DEAD, MOST_DEAD = 0.1, 300.0

CODE_WAITING = "TG-01677"
CODE_CONNECTED = "TG-01229"
CODE_ENDED = "TG-01225"
CODE_NOBODY = "TG-01228"
CODE_FAILED = "TG-01224"


def listen(bind: str, ports: Sequence[int]) -> socket.socket:
    """A listener on the first free port of the list. Raises OperatorError if none is free or the address is wrong."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    for port in ports:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((bind, port))
            listener.listen(8)
        except OSError as error:
            listener.close()
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise OperatorError(f"can't listen on {bind}: {error.strerror}", hint="Mend BIND in mgr.prm") from None
        else:
            listener.setblocking(False)
            return listener
    raise OperatorError(
        f"no port of {ports[0]}-{ports[-1]} is free on {bind}", hint="Widen the Manager's DYNAMICPORTLIST"
    )


def tell_ready(fd: int, **said: object) -> None:
    """One line of JSON for the Manager, then the end of its pipe."""
    if fd < 0:
        return
    try:
        os.write(fd, json.dumps(said).encode() + b"\n")
    except OSError:
        pass  # the Manager is gone; the pump will ask the next one
    os.close(fd)


class Server:
    """One Collector process after its start: waits for its pump and serves it."""

    def __init__(
        self, collector: Collector, door: PumpDoor, log: Log, stop: Stop, patience: float, host: Host = THIS_HOST
    ) -> None:
        self._host = host
        self._collector = collector
        self._door = door
        self._log = log
        self._stop = stop
        self._patience = patience
        self._look_due = 0.0
        self.guard: DiskGuard | None = None
        self.revocations: tls.RevocationWatch | None = None

    def run(self) -> None:
        """Serve one session to its end. Raises what ended it badly; the trail is closed in any case."""
        try:
            channel = self._wait_for_pump()
            if channel is None:
                return
            try:
                text = self._stream(channel)
                self._log.info(CODE_ENDED, f"Session with {channel.peer} ended: {text}.")
            except AwayError as error:
                self._log.warning(CODE_ENDED, f"{error}; ending.")
            except GateError as error:
                self._tell(channel, error)
                raise
            finally:
                channel.close()
        finally:
            self._door.close()
            self._collector.close()

    # waiting for a pump

    def _wait_for_pump(self) -> Channel | None:
        """A channel whose HELLO was answered by WELCOME, or None if nobody came in time."""
        deadline = self._host.monotonic() + self._patience
        while not self._stop.requested and (left := deadline - self._host.monotonic()) > 0:
            self._host.poll([*self._door.waits(), self._stop.fileno()], min(1.0, left))
            if found := self._door.step():
                channel, event = found
                try:
                    self._answer(channel, event)
                except BaseException:
                    channel.close()
                    raise
                return channel
        if not self._stop.requested:
            self._log.warning(CODE_NOBODY, f"No pump came within {self._patience:g} seconds; ending.")
        return None

    def _answer(self, channel: Channel, event: wire.Event) -> None:
        """WELCOME; a refusal ends the process."""
        if not isinstance(event, wire.Hello):
            version = event.version if isinstance(event, wire.Foreign) else "(unknown)"
            text = f"the pump speaks version {version} of the link's protocol, this Collector speaks {wire.VERSION}"
            self._last_words(channel, wire.Refuse(True, f"{text}. {SAME_RELEASE}"))
            raise OperatorError(text, hint=SAME_RELEASE)
        try:
            welcome = self._collector.greet(event)
        except GateError as error:
            self._tell(channel, error)
            raise
        channel.live_by(min(MOST_DEAD, max(LEAST_DEAD, event.dead / 1000)), self._host.monotonic())
        channel.now_us = self._host.now_us
        channel.send(welcome)
        who = f"{event.group} of {event.host}, {channel.peer}"
        self._log.info(CODE_CONNECTED, f"Linked to {who}; it goes on from {welcome.origin}.")

    # the session

    def _stream(self, channel: Channel) -> str:
        """Until BYE of either side; returns its text."""
        fds = [channel.fileno(), self._stop.fileno()]
        while True:
            now = self._host.monotonic()
            channel.flush()
            for event in channel.receive(now):
                if isinstance(event, wire.Bye):
                    return self._farewell(channel, event.text)
                if not isinstance(event, wire.BlockMessage):
                    raise ProtocolError(f"{channel.peer} sent {event.type.name} in a session")
                self._collector.take(event)
                self._end_if_full(channel, now)  # after each: what came at once may be more than the disk has
            if (ack := self._collector.acknowledge()) is not None:
                channel.send(ack)
            channel.tick(now)
            self._end_if_full(channel, now)
            if now >= self._look_due:
                self._look_due = now + LOOK_SECONDS
                self._collector.look()
            if self.revocations is not None and self.revocations.changed(now):
                return self._farewell(channel, "another list of revoked certificates came: connect anew")
            if self._stop.requested:
                return self._farewell(channel, "the Collector was told to stop")
            left = min(tls.LOOK_SECONDS, channel.wait(self._host.monotonic()))
            self._host.poll([*fds, *self._collector.waits()], left)

    def _end_if_full(self, channel: Channel, now: float) -> None:
        """Below DISKSTOP: sync and acknowledge what was taken, then refuse; not permanently, space may come."""
        if self.guard is not None:
            self.guard(now)
        if self._stop.error is not None:
            channel.send(self._collector.sync())
            raise self._stop.error

    def _farewell(self, channel: Channel, text: str) -> str:
        """Sync, acknowledge, BYE."""
        channel.send(self._collector.sync())
        self._last_words(channel, wire.Bye(text))
        return text

    def _tell(self, channel: Channel, error: GateError) -> None:
        self._log.error(CODE_REFUSED, f"{channel.peer}: {error}")
        self._last_words(channel, refuse(error))

    def _last_words(self, channel: Channel, message: wire.Bye | wire.Refuse) -> None:
        """Send the session's last message and see it off: closing at once could reset the link and lose it."""
        if channel.state is WireState.DEAD or not channel.may_send(message.type):
            return
        channel.send(message)
        deadline = self._host.monotonic() + LINGER_SECONDS
        while channel.unsent and self._host.monotonic() < deadline:
            self._host.poll([channel.fileno()], 0.1)
            channel.flush()
        channel.finish_sending()
        while not channel.drained() and self._host.monotonic() < deadline:
            self._host.poll([channel.fileno()], 0.1)


def main(argv: Sequence[str], make_fs: Callable[[Home], Fs] = lambda home: home.fs) -> int:
    """Run one Collector; returns its exit code. Errors before the session go to --ready-fd, later ones to the pump."""
    os.umask(0o077)
    keep_imports()
    log: Log | None = None
    try:
        params = CollectorParams.from_arguments(argv)
        home = Home.at(params.home)
        log = Log(home, PRODUCT, os.path.basename(params.trail), RealClock())
        server = _start(params, home, make_fs(home), log)
        server.run()
    except GateError as error:
        print(tame(f"collector: {mask(str(error))}"), file=sys.stderr, flush=True)
        if log is not None:
            quietly(log.error, CODE_FAILED, str(error))
        return error.exit_code
    except Exception as error:  # noqa: BLE001  -- whatever it is, it is told and has its exit code
        if log is not None:
            quietly(log.error, "TG-00001", f"bug in Trailgate: {type(error).__name__}: {error}")
        traceback.print_exc()
        return EXIT_BUG
    finally:
        if log is not None:
            quietly(log.end)
    return EXIT_STOPPED


def _start(params: CollectorParams, home: Home, fs: Fs, log: Log) -> Server:
    """Recover the trail and bind; only then the Manager hears of a port."""
    stop = Stop()
    stop.install()
    collector: Collector | None = None
    try:
        guard = _disk_guard(params, home, log, stop)
        collector = Collector(fs, params.trail_name(home.root), params.trail, home.id)
        if collector.lost:
            log.warning(purge.GONE, purge.gone(home, fs, params.trail_name(home.root), collector.lost))
        folder = "" if params.notls else tls.folder_of(home.root)
        if folder:
            tls.check_own(folder, home.id)  # what is wrong with it is told to the Manager, not to a stranger
        listener = listen(params.bind, params.ports)
    except GateError as error:
        if collector is not None:
            collector.close()
        tell_ready(params.ready_fd, error=str(error), permanent=refuse(error).permanent)
        raise
    guard.written = lambda: collector.written_bytes
    collector.before_file(guard.look)
    port = listener.getsockname()[1]
    log.info(CODE_WAITING, f"Waiting for a pump on port {port} for trail {params.trail}.")
    tell_ready(params.ready_fd, port=port)
    door = PumpDoor(listener, log, folder, params.peer, params.pump, fs.host)
    server = Server(collector, door, log, stop, params.patience, fs.host)
    server.guard, server.revocations = guard, tls.RevocationWatch(folder)
    return server


def _disk_guard(params: CollectorParams, home: Home, log: Log, stop: Stop) -> DiskGuard:
    """The guard of our trail's disk. Raises DiskFullError if there is no space to begin with."""
    folders = [params.trail_name(home.root).folder, *diskguard.folders_of(home)]
    end = lambda error: stop.request(error=error)  # noqa: E731
    guard = DiskGuard(folders, Limits.of(read_globals(home)), log, writes_trail=True, stop=end)
    guard.at_start()
    return guard
