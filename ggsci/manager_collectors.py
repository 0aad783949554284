"""Handing out Collectors: a pump asks at the Manager's port, and is told the port of a Collector of its own.

    READING    one line of JSON, bounded in bytes and time     -> refuse, or
    ENDING     the older Collector of the same pump is ended   (SIGTERM, after a while SIGKILL)
    STARTING   a new one recovers the trail and says its port  -> answer

Nothing here blocks the Manager: each request is moved on by `step()` when something happened. Collectors outlive the
Manager, so which pump each serves is noted in a file, with process id and time of birth: a process id alone may have
been given to a stranger since.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from ggsci.manager_params import ManagerParams
from trails.errors import GateError, OperatorError
from trails.fs import read_bytes, replace_durably
from trails.position import TrailName
from trails.runtime.clock import Clock
from trails.runtime.home import Home
from trails.runtime.report import Log, quietly
from trails.runtime.status import lock_holder

VERSION = 1
MAX_REQUEST = 8 << 10
MAX_CLIENTS = 64
READ_SECONDS = 10.0
TERM_SECONDS = 5.0
KILL_SECONDS = 10.0
START_SECONDS = 120.0

RECEIVED, STARTED = "TG-00963", "TG-00974"

_PUMP = re.compile(r"[0-9a-f]{32}/[A-Z][A-Z0-9_]{0,7}\Z")


class Refusal(Exception):  # noqa: N818  -- an answer, not a fault of ours
    """An answer that says no; permanent if asking again can't help."""

    def __init__(self, text: str, *, permanent: bool) -> None:
        super().__init__(text)
        self.permanent = permanent


class Phase(Enum):
    """Where a request stands."""

    READING = auto()
    ENDING = auto()
    STARTING = auto()


@dataclass(slots=True)
class Running:
    """A Collector that was handed out. `process` is None if an earlier Manager did."""

    pid: int
    pump: str
    trail: str
    port: int
    assigned_us: int
    birth: int
    process: subprocess.Popen[bytes] | None = None


@dataclass(slots=True)
class Request:
    """One connection of a pump."""

    link: socket.socket
    peer: str
    deadline: float
    phase: Phase = Phase.READING
    data: bytes = b""
    pump: str = ""
    trail: TrailName | None = None
    process: subprocess.Popen[bytes] | None = None
    ready_fd: int = -1
    ready: bytes = b""
    killed: bool = False


CommandLine = Callable[[Home, TrailName, ManagerParams, int], list[str]]


def command_line(home: Home, trail: TrailName, params: ManagerParams, ready_fd: int) -> list[str]:
    """How a Collector is started."""
    first, last = params.ports
    return [
        sys.executable, "-P", "-m", "collector", "--home", home.root, "--trail", home.shown(str(trail)),
        "--ports", f"{first}-{last}", "--bind", params.bind, "--ready-fd", str(ready_fd),
    ]  # fmt: skip


@dataclass(slots=True)
class _Notes:
    """Which Collector serves which pump, on disk for the next Manager. Lost or damaged, it costs a pump a retry."""

    home: Home
    by_trail: dict[str, Running] = field(default_factory=dict)

    @property
    def _path(self) -> str:
        return os.path.join(self.home.folder("dirpcs"), "MGR.collectors")

    def load(self) -> None:
        try:
            rows = json.loads(read_bytes(self.home.fs, self._path))
            self.by_trail = {row["trail"]: Running(**row) for row in rows}
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            self.by_trail = {}

    def save(self) -> None:
        rows = [
            {
                "pid": r.pid,
                "pump": r.pump,
                "trail": r.trail,
                "port": r.port,
                "assigned_us": r.assigned_us,
                "birth": r.birth,
            }
            for r in self.by_trail.values()
        ]
        replace_durably(self.home.fs, self._path, json.dumps(rows).encode())


class Collectors:
    """The Manager's TCP side."""

    def __init__(
        self, home: Home, params: ManagerParams, log: Log, clock: Clock, command: CommandLine = command_line
    ) -> None:
        self._home = home
        self._params = params
        self._log = log
        self._clock = clock
        self._command = command
        self._notes = _Notes(home)
        self._notes.load()
        self._requests: list[Request] = []
        self._listener = _listen(params)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._listener.getsockname()[1])

    def waits(self) -> list[int]:
        """What to wake on."""
        fds = [] if len(self._requests) >= MAX_CLIENTS else [self._listener.fileno()]
        for request in self._requests:
            if request.phase is Phase.READING:
                fds.append(request.link.fileno())
            elif request.phase is Phase.STARTING:
                fds.append(request.ready_fd)
        return fds

    @property
    def busy(self) -> bool:
        """Is anything under way that only time moves on?"""
        return any(request.phase is Phase.ENDING for request in self._requests)

    def rows(self) -> list[dict[str, Any]]:
        """For GETPORTINFO."""
        self._reap()
        return [
            {
                "port": r.port,
                "pid": r.pid,
                "assigned_us": r.assigned_us,
                "trail": self._home.shown(r.trail),
                "pump": r.pump,
            }
            for r in self._notes.by_trail.values()
        ]

    def close(self) -> None:
        """Stop listening. Collectors that serve go on; one still starting is ended, as nobody will be told of it."""
        self._listener.close()
        for request in self._requests:
            self._drop(request)
        self._requests = []

    # --- moving on ---

    def step(self) -> None:
        """Accept, and move each request on as far as it goes now."""
        self._reap()
        self._accept()
        for request in self._requests:
            self._advance(request)
        self._requests = [request for request in self._requests if request.link.fileno() >= 0]

    def _accept(self) -> None:
        while len(self._requests) < MAX_CLIENTS:
            try:
                link, address = self._listener.accept()
            except OSError:
                return
            link.setblocking(False)
            peer = f"{address[0]}:{address[1]}"
            self._requests.append(Request(link, peer, self._clock.monotonic() + READ_SECONDS))

    def _advance(self, request: Request) -> None:
        try:
            if request.phase is Phase.READING:
                self._read(request)
            if request.phase is Phase.ENDING:
                self._end_older(request)
            if request.phase is Phase.STARTING:
                self._await_ready(request)
        except Refusal as error:
            self._log.warning(RECEIVED, f"{request.peer}: Collector refused: {error}")
            self._answer(request, {"ok": False, "error": str(error), "permanent": error.permanent})
        except (GateError, OSError) as error:
            self._log.error(RECEIVED, f"{request.peer}: no Collector: {error}")
            self._answer(request, {"ok": False, "error": str(error), "permanent": False})

    def _answer(self, request: Request, reply: dict[str, Any]) -> None:
        # A reply is far smaller than any socket's send buffer, so it goes at once or the peer is gone.
        with contextlib.suppress(OSError):
            request.link.send(json.dumps(reply).encode() + b"\n", socket.MSG_NOSIGNAL)
        self._drop(request)

    def _drop(self, request: Request) -> None:
        request.link.close()
        if request.ready_fd >= 0:
            os.close(request.ready_fd)
            request.ready_fd = -1
        if request.process is not None:
            request.process.kill()
            request.process.wait()
            request.process = None

    # --- READING ---

    def _read(self, request: Request) -> None:
        while b"\n" not in request.data:
            try:
                data = request.link.recv(MAX_REQUEST)
            except BlockingIOError:
                if self._clock.monotonic() > request.deadline:
                    raise Refusal(f"no request came within {READ_SECONDS:g} seconds", permanent=False) from None
                return
            if not data:
                self._drop(request)
                return
            request.data += data
            if len(request.data) > MAX_REQUEST:
                raise Refusal(f"a request has at most {MAX_REQUEST} bytes", permanent=True)
        self._understand(request)
        request.phase = Phase.ENDING
        request.deadline = self._clock.monotonic() + TERM_SECONDS

    def _understand(self, request: Request) -> None:
        try:
            asked = json.loads(request.data.partition(b"\n")[0])
            version, verb, trail, pump = (asked.get(key) for key in ("trailgate", "verb", "trail", "pump"))
        except (ValueError, AttributeError, RecursionError):
            raise Refusal("expected one line of JSON: a START COLLECTOR request", permanent=True) from None
        if version != VERSION:
            raise Refusal(
                f"this Manager speaks version {VERSION}, the pump {version!r}; use the same release", permanent=True
            )
        if verb != "START COLLECTOR" or not (isinstance(trail, str) and isinstance(pump, str) and _PUMP.match(pump)):
            raise Refusal("expected START COLLECTOR with trail and pump", permanent=True)
        request.pump, request.trail = pump, self._trail(trail)
        self._log.info(RECEIVED, f"Command received from EXTRACT {pump} on {request.peer}: START COLLECTOR {trail}.")

    def _trail(self, text: str) -> TrailName:
        """The trail, if it lies in dirdat (links followed) and no Extract of this home writes it."""
        dirdat = os.path.realpath(self._home.folder("dirdat"))
        try:
            trail = TrailName.parse(text, self._home.root)
        except (OperatorError, ValueError) as error:
            raise Refusal(str(error), permanent=True) from None
        folder = os.path.realpath(trail.folder)
        if folder != dirdat and not folder.startswith(dirdat + os.sep):
            raise Refusal(f"trail {text!r} lies outside this home's dirdat; name it like ./dirdat/rt", permanent=True)
        for group in self._home.groups():
            for own in group.trails:
                if own.type == "EXTTRAIL" and TrailName.parse(own.path, self._home.root) == trail:
                    raise Refusal(f"trail {text} is written by EXTRACT {group.name} of this home", permanent=True)
        return trail

    # --- ENDING ---

    def _end_older(self, request: Request) -> None:
        """Go on once nobody else writes the trail; end whoever is this pump's older Collector."""
        trail = _needed(request.trail)
        holder = lock_holder(trail.lock_path())
        older = self._notes.by_trail.get(str(trail))
        if older is not None and not self._is_gone(older):
            if older.pump != request.pump:
                raise Refusal(
                    f"trail {trail} is being written for pump {older.pump}, and a trail has one pump. "
                    "Give each pump a remote trail of its own (ADD RMTTRAIL)",
                    permanent=True,
                )
            self._end(older, request)
        elif holder is not None:
            raise Refusal(f"trail {trail} is held by process {holder}; try again when that has ended", permanent=False)
        elif any(other is not request and other.trail == trail and other.process for other in self._requests):
            raise Refusal(f"a Collector for trail {trail} is just being started; try again", permanent=False)
        else:
            self._spawn(request, trail)

    def _end(self, older: Running, request: Request) -> None:
        """SIGTERM first: a Collector then syncs what it holds. The deadline of the request bounds it."""
        if request.killed and self._clock.monotonic() < request.deadline:
            return
        first = not request.killed
        if not first:
            request.deadline = self._clock.monotonic() + KILL_SECONDS
        request.killed = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(older.pid, signal.SIGTERM if first else signal.SIGKILL)
        how = "ended" if first else "killed, as it did not end"
        self._log.info(
            RECEIVED, f"Older Collector {older.pid} of {older.pump} on {older.trail} {how}: the pump connects anew."
        )

    # --- STARTING ---

    def _spawn(self, request: Request, trail: TrailName) -> None:
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        out_path = os.path.join(self._home.folder("dirrpt"), f"COLLECTOR_{trail.prefix}.out")
        try:
            with open(out_path, "wb") as out:
                request.process = subprocess.Popen(
                    self._command(self._home, trail, self._params, writer),
                    stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                    pass_fds=(writer,), start_new_session=True, cwd=self._home.root,
                )  # fmt: skip
        except OSError:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        request.ready_fd = reader
        request.phase = Phase.STARTING
        request.deadline = self._clock.monotonic() + START_SECONDS

    def _await_ready(self, request: Request) -> None:
        try:
            data = os.read(request.ready_fd, MAX_REQUEST)
        except BlockingIOError:
            if self._clock.monotonic() > request.deadline:
                raise Refusal(
                    f"the Collector was not ready within {START_SECONDS:g} seconds", permanent=False
                ) from None
            return
        request.ready += data
        if b"\n" not in request.ready and data and len(request.ready) < MAX_REQUEST:
            return
        self._answer_ready(request)

    def _answer_ready(self, request: Request) -> None:
        trail, process = _needed(request.trail), request.process
        try:
            said = json.loads(request.ready)
            port = said.get("port")
        except (ValueError, AttributeError):
            said, port = {}, None
        if process is None or not isinstance(port, int):
            error = said.get("error") or f"the Collector ended at its start; see dirrpt/COLLECTOR_{trail.prefix}.out"
            raise Refusal(str(error), permanent=bool(said.get("permanent", False)))
        request.process = None  # from here on it lives on its own
        now = self._clock.now_us()
        self._notes.by_trail[str(trail)] = Running(
            process.pid, request.pump, str(trail), port, now, birth_of(process.pid) or 0, process
        )
        self._notes.save()
        self._log.info(
            STARTED, f"Collector started as process {process.pid} on port {port} for {request.pump}, trail {trail}."
        )
        self._answer(request, {"ok": True, "port": port})

    def _reap(self) -> None:
        """Forget Collectors that have ended."""
        ended = [key for key, running in self._notes.by_trail.items() if self._is_gone(running)]
        for key in ended:
            del self._notes.by_trail[key]
        if ended:
            # On a full disk the old notes stay, and name what is gone: the next Manager sees that by its birth.
            quietly(self._notes.save)

    @staticmethod
    def _is_gone(running: Running) -> bool:
        if running.process is not None:
            return running.process.poll() is not None
        return birth_of(running.pid) != running.birth


def birth_of(pid: int) -> int | None:
    """When a process began, in the system's ticks since boot; None if it is gone, or dead and not yet reaped."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The second field is the program's name in parentheses and may hold anything.
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def _needed(trail: TrailName | None) -> TrailName:
    if trail is None:
        raise ValueError("a request without a trail went on")
    return trail


def _listen(params: ManagerParams) -> socket.socket:
    """The Manager's port; one clear message if it is taken."""
    family = socket.AF_INET6 if ":" in params.bind else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # So that a Manager can come back at once; a port that somebody listens on is refused all the same.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((params.bind, params.port))
        listener.listen(MAX_CLIENTS)
    except OSError as error:
        listener.close()
        raise OperatorError(
            f"PORT {params.port} at {params.bind} can't be used: {error.strerror}",
            hint="Another Manager or program may listen there; end it, or choose another PORT in dirprm/mgr.prm",
        ) from None
    listener.setblocking(False)
    return listener
