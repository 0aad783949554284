"""Handing out Collectors: a pump asks at the Manager's port, and is told the port of a Collector of its own.

               one line of JSON came through the door          -> refuse, or (door)
    ENDING     the older Collector of the same pump is ended   (SIGTERM, after a while SIGKILL)
    STARTING   a new one recovers the trail and says its port  -> answer

PING, and START TASK for the Replicat that RMTTASK names, are answered at once: the port is the Manager's own.

Nothing a pump names leaves dirdat: the trail is looked at with all links followed. A Collector is told the address and
the pump that asked for it, and serves no other. One home gets so many Collectors and no more (COLLECTORSPERHOME), so
that a few ports are always left for others. While a request is worked on, a space each half second tells the pump that
this Manager lives: JSON may begin with any number of them. Nothing here blocks the Manager: each request is moved on by
`step()` when something happened. Collectors outlive the Manager, so which pump each serves is noted in a file, with
process id and time of birth: a process id alone may have been given to a stranger since, and a boot begins anew.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from ggsci.certificates.files import Expiry
from ggsci.manager import ports as manager_ports
from ggsci.manager.door import MAX_REQUEST, ManagerDoor, Refusal, Visitor
from ggsci.manager.noted import Noted
from ggsci.manager.params import ManagerParams
from ggsci.spawning import THIS_SYSTEM, Processes, Spawned
from trails import wholefile
from trails.clock import Clock
from trails.errors import GateError, OperatorError
from trails.link import tls
from trails.position import TrailName
from trails.runtime.home import registration as registrations
from trails.runtime.home import status as statuses
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration
from trails.runtime.report.report import Log, quietly

VERSION = 1
COLLECTOR, TASK = "START COLLECTOR", "START TASK"
VERBS = (COLLECTOR, TASK, "PING")
TERM_SECONDS = 5.0
KILL_SECONDS = 10.0
START_SECONDS = 120.0
MAX_TRAIL = 1024
LIFE_SECONDS = 0.5

RECEIVED, STARTED = "TG-00963", "TG-00974"

_HOME = re.compile(r"[0-9a-f]{32}")
_PUMP = re.compile(r"[0-9a-f]{32}/[A-Z][A-Z0-9_]{0,7}\Z")


class RequestPhase(Enum):
    """Where a request stands."""

    ENDING = auto()
    STARTING = auto()


@dataclass(slots=True)
class HandedOut:
    """A Collector that was handed out. `process` is None if an earlier Manager did."""

    pid: int
    pump: str
    trail: str
    port: int
    assigned_us: int
    birth: str
    process: Spawned | None = None


@dataclass(slots=True, eq=False)
class CollectorRequest:
    """What one visitor asked for."""

    visitor: Visitor
    pump: str
    trail: TrailName
    deadline: float
    phase: RequestPhase = RequestPhase.ENDING
    process: Spawned | None = None
    ready_fd: int = -1
    ready: bytes = b""
    killed: bool = False
    done: bool = False
    lived: float = 0.0
    """When the pump was last told that we live."""


CommandLine = Callable[[Home, TrailName, ManagerParams, str, str, int], list[str]]
MakeDoor = Callable[[ManagerParams, str, Log, Clock], ManagerDoor]


def command_line(home: Home, trail: TrailName, params: ManagerParams, peer: str, pump: str, ready_fd: int) -> list[str]:
    """How a Collector is started, for a pump (home id and group) at the address `peer`."""
    return [
        sys.executable, "-P", "-m", "collector", "--home", home.root, "--trail", home.shown(str(trail)),
        "--ports", manager_ports.text(params.ports), "--bind", params.bind, "--peer", peer, "--pump", pump,
        *([] if params.tls else ["--notls"]), "--ready-fd", str(ready_fd),
    ]  # fmt: skip


def _handed_out(rows: Any) -> dict[str, HandedOut]:
    """Who serves which trail, as an earlier Manager noted it."""
    return {row["trail"]: HandedOut(**row) for row in rows}


class Collectors:
    """The Manager's TCP side."""

    def __init__(
        self,
        home: Home,
        params: ManagerParams,
        log: Log,
        clock: Clock,
        command: CommandLine = command_line,
        processes: Processes = THIS_SYSTEM,
        door: MakeDoor = ManagerDoor,
    ) -> None:
        self._home = home
        self._processes = processes
        self._params = params
        self._log = log
        self._clock = clock
        self._command = command
        self._noted = Noted(home, "MGR.collectors")  # lost or damaged, it costs a pump a retry
        self._running: dict[str, HandedOut] = self._noted.load(_handed_out, {})
        self._requests: list[CollectorRequest] = []
        self._pool = manager_ports.Pool()
        self.no_space: Callable[[TrailName], str] = lambda _trail: ""
        """Why no Collector for this trail may be started now (the Manager's disk guard sets it); empty if one may."""
        self.start_task: Callable[[str], object] = lambda _name: None
        """Starts a Replicat that is a task, by its name (the Manager's groups set it)."""
        self._door = door(params, tls.folder_of(home.root), log, clock)
        self._certificates = Expiry(home, log)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._door.port

    def waits(self) -> list[int]:
        """What to wake on."""
        starting = [request.ready_fd for request in self._requests if request.phase is RequestPhase.STARTING]
        return [*self._door.waits(), *starting]

    @property
    def busy(self) -> bool:
        """Is anything under way that time moves on?"""
        return bool(self._requests)

    def rows(self) -> list[dict[str, Any]]:
        """For GETPORTINFO."""
        self._reap()
        names = ("port", "pid", "assigned_us", "pump")
        return [
            {name: getattr(one, name) for name in names} | {"trail": self._home.shown(one.trail)}
            for one in self._running.values()
        ]

    def pool_rows(self) -> list[dict[str, Any]]:
        """For GETPORTINFO DETAIL: every port of DYNAMICPORTLIST."""
        used = {running.port for running in self._running.values()}
        return self._pool.rows(self._params.ports, used, self._clock.monotonic(), self._params.reassign_s)

    def refresh(self, params: ManagerParams) -> None:
        """REFRESH MANAGER: new Collectors go by these; the Manager's own port stays as it is."""
        self._params = self._door.params = params

    def close(self) -> None:
        """Stop listening. Collectors that serve go on; one still starting is ended, as nobody will be told of it."""
        self._door.close()
        for request in self._requests:
            self._drop(request)
        self._requests = []

    # --- moving on ---

    def step(self) -> None:
        """Hear who asks, and move each request on as far as it goes now."""
        self._reap()
        if self._params.tls:
            self._certificates.look(self._clock.monotonic())
        for visitor, line in self._door.step():
            self._hear(visitor, line)
        for request in self._requests:
            self._advance(request)
        self._requests = [request for request in self._requests if not request.done]

    def _hear(self, visitor: Visitor, line: bytes) -> None:
        try:
            asked = _object(line)
            _check_home(visitor, asked)
            if asked.get("verb") == "PING" and not asked.get("trail"):
                self._door.answer(visitor, {"ok": True, "port": self.port})
                return
            pump, trail = self._understand(asked)
            task = self._task_of(trail)
            if asked["verb"] != COLLECTOR:
                if asked["verb"] == TASK:
                    self._start_task(task, visitor)
                self._door.answer(visitor, {"ok": True, "port": self.port})
                return
            self._check_share(pump, trail)
            if why := self.no_space(trail):
                raise Refusal(why, permanent=False)
        except Refusal as error:
            self._door.refuse(visitor, error)
            return
        except (GateError, OSError) as error:  # such as a registration that can't be read: the pump tries again
            self._log.error(RECEIVED, f"{visitor.peer}: no Collector: {error}", alike="no Collector")
            self._door.refuse(visitor, Refusal(str(error), permanent=False))
            return
        self._log.info(RECEIVED, f"Command received from EXTRACT {pump} on {visitor.peer}: START COLLECTOR {trail}.")
        now = self._clock.monotonic()
        self._requests.append(CollectorRequest(visitor, pump, trail, now + TERM_SECONDS, lived=now))

    def _advance(self, request: CollectorRequest) -> None:
        try:
            if request.phase is RequestPhase.ENDING:
                self._end_older(request)
            if request.phase is RequestPhase.STARTING:
                self._await_ready(request)
            if not request.done and (now := self._clock.monotonic()) - request.lived >= LIFE_SECONDS:
                request.lived = now
                self._door.sign_of_life(request.visitor)
        except Refusal as error:
            self._drop(request)
            self._door.refuse(request.visitor, error)
        except (GateError, OSError) as error:
            self._log.error(RECEIVED, f"{request.visitor.peer}: no Collector: {error}")
            self._answer(request, {"ok": False, "error": str(error), "permanent": False})

    def _answer(self, request: CollectorRequest, reply: dict[str, Any]) -> None:
        self._door.answer(request.visitor, reply)
        self._drop(request)

    def _drop(self, request: CollectorRequest) -> None:
        request.done = True
        if request.ready_fd >= 0:
            self._processes.close(request.ready_fd)
            request.ready_fd = -1
        if request.process is not None:
            request.process.kill()
            request.process.wait()
            request.process = None

    # --- what is asked ---

    def _understand(self, asked: dict[str, Any]) -> tuple[str, TrailName]:
        version, verb, trail, pump = (asked.get(key) for key in ("trailgate", "verb", "trail", "pump"))
        if version != VERSION:
            raise Refusal(
                f"this Manager speaks version {VERSION}, the pump {version!r:.40}; use the same release", permanent=True
            )
        named = isinstance(trail, str) and isinstance(pump, str) and _PUMP.match(pump)
        if verb not in VERBS or not (named and isinstance(trail, str) and isinstance(pump, str)):
            raise Refusal(f"expected {COLLECTOR} with trail and pump", permanent=True)
        return pump, self._trail(trail)

    def _trail(self, text: str) -> TrailName:
        """The trail, if it lies in dirdat (links followed) and no Extract of this home writes it."""
        dirdat = os.path.realpath(self._home.folder("dirdat"))
        if len(text) > MAX_TRAIL or not text.isprintable():
            raise Refusal(f"a trail has a printable name of at most {MAX_TRAIL} characters", permanent=True)
        try:
            trail = TrailName.parse(text, self._home.root)
        except (OperatorError, ValueError) as error:
            raise Refusal(str(error), permanent=True) from None
        folder = os.path.realpath(trail.folder)
        if folder != dirdat and not folder.startswith(dirdat + os.sep):
            raise Refusal(f"trail {text!r} lies outside this home's dirdat; name it like ./dirdat/rt", permanent=True)
        for group in registrations.all(self._home):
            for path in group.writes:
                if TrailName.parse(path, self._home.root) == trail:
                    raise Refusal(f"trail {text} is written by EXTRACT {group.name} of this home", permanent=True)
        return trail

    def _task_of(self, trail: TrailName) -> Registration | None:
        """The Replicat that a file of RMTTASK is for, None where it is another file or trail. Raises Refusal."""
        group = wholefile.task_of(str(trail))
        if not group:
            return None
        for found in registrations.all(self._home):
            if found.name == group and found.kind == "REPLICAT" and found.is_task and self._is_of(found, trail):
                if statuses.status_of(self._home, found).status.is_alive:
                    raise Refusal(f"REPLICAT {group} is running; its file is not replaced under it", permanent=False)
                return found
        what = f"this home has no task REPLICAT {group} that names no file"
        raise Refusal(f"{what}: ADD REPLICAT {group}, SPECIALRUN", permanent=True)

    def _is_of(self, group: Registration, trail: TrailName) -> bool:
        return TrailName.parse(group.trail, self._home.root) == trail

    def _start_task(self, task: Registration | None, visitor: Visitor) -> None:
        if task is None:
            raise Refusal(f"{TASK}: expected the file of a Replicat that names none", permanent=True)
        self._log.info(RECEIVED, f"Command received from {visitor.peer}: {TASK} {task.name}.")
        self.start_task(task.name)

    def _check_share(self, pump: str, trail: TrailName) -> None:
        """Refuse a home that has its share of the Collectors; the one that this request replaces does not count."""
        home = pump.partition("/")[0] + "/"
        held = {key for key, running in self._running.items() if running.pump.startswith(home)}
        held |= {str(request.trail) for request in self._requests if request.pump.startswith(home)}
        most = self._params.collectors_per_home
        if len(held - {str(trail)}) >= most:
            raise Refusal(
                f"this home has {most} Collectors already, and gets no more at once. Raise COLLECTORSPERHOME, or widen "
                "DYNAMICPORTLIST, in the Manager's mgr.prm",
                permanent=False,
            )

    # --- ENDING ---

    def _end_older(self, request: CollectorRequest) -> None:
        """Go on once nobody else writes the trail; end whoever is this pump's older Collector."""
        trail = request.trail
        holder = self._home.fs.lock_holder(trail.lock_path())
        older = self._running.get(str(trail))
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

    def _end(self, older: HandedOut, request: CollectorRequest) -> None:
        """SIGTERM first: a Collector then syncs what it holds. The deadline of the request bounds it."""
        if request.killed and self._clock.monotonic() < request.deadline:
            return
        first = not request.killed
        if not first:
            request.deadline = self._clock.monotonic() + KILL_SECONDS
        request.killed = True
        with contextlib.suppress(ProcessLookupError):
            fd = self._processes.open(older.pid)
            try:
                if not self._is_gone(older):  # only now the descriptor is known to be of him
                    self._processes.signal(fd, signal.SIGTERM if first else signal.SIGKILL)
            finally:
                self._processes.close(fd)
        how = "ended" if first else "killed, as it did not end"
        self._log.info(
            RECEIVED, f"Older Collector {older.pid} of {older.pump} on {older.trail} {how}: the pump connects anew."
        )

    # --- STARTING ---

    def _spawn(self, request: CollectorRequest, trail: TrailName) -> None:
        offer = self._offer()
        reader, writer = self._processes.pipe()
        command = self._command(self._home, trail, offer, request.visitor.address, request.pump, writer)
        try:
            request.process = self._processes.spawn(self._home, command, f"COLLECTOR_{trail.prefix}", (writer,))
        except OSError:
            self._processes.close(reader)
            raise
        finally:
            self._processes.close(writer)
        request.ready_fd = reader
        request.phase = RequestPhase.STARTING
        request.deadline = self._clock.monotonic() + START_SECONDS

    def _offer(self) -> ManagerParams:
        ports = self._pool.offer(self._params.ports, self._clock.monotonic(), self._params.reassign_s)
        return dataclasses.replace(self._params, ports=ports)

    def _await_ready(self, request: CollectorRequest) -> None:
        try:
            data = self._processes.read(request.ready_fd, MAX_REQUEST)
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

    def _answer_ready(self, request: CollectorRequest) -> None:
        trail, process = request.trail, request.process
        try:
            said = json.loads(request.ready)
            port = said.get("port")
        except (ValueError, AttributeError, RecursionError):
            said, port = {}, None
        if process is None or not isinstance(port, int):
            error = said.get("error") or f"the Collector ended at its start; see dirrpt/COLLECTOR_{trail.prefix}.out"
            raise Refusal(str(error), permanent=bool(said.get("permanent", False)))
        request.process = None  # from here on it lives on its own
        now = self._clock.now_us()
        self._running[str(trail)] = HandedOut(
            process.pid, request.pump, str(trail), port, now, self._home.fs.host.birth(process.pid) or "", process
        )
        self._note()
        self._log.info(
            STARTED, f"Collector started as process {process.pid} on port {port} for {request.pump}, trail {trail}."
        )
        self._answer(request, {"ok": True, "port": port})

    def _reap(self) -> None:
        """Forget Collectors that have ended."""
        ended = [key for key, running in self._running.items() if self._is_gone(running)]
        for key in ended:
            self._pool.ended(self._running.pop(key).port, self._clock.monotonic())
        if ended:
            # On a full disk the old notes stay, and name what is gone: the next Manager sees that by its birth.
            quietly(self._note)

    def _note(self) -> None:
        """For the next Manager; a process object is this one's alone."""
        names = [one.name for one in dataclasses.fields(HandedOut) if one.name != "process"]
        self._noted.save([{name: getattr(one, name) for name in names} for one in self._running.values()])

    def _is_gone(self, running: HandedOut) -> bool:
        if running.process is not None:
            return running.process.poll() is not None
        return self._home.fs.host.birth(running.pid) != running.birth


def _check_home(visitor: Visitor, asked: dict[str, Any]) -> None:
    """Nobody asks in another home's name: its Collector would be ended for it. Raises Refusal."""
    pump = asked.get("pump")
    said = _HOME.match(pump) if isinstance(pump, str) else None
    try:
        tls.check_home(visitor.shown, said[0] if said else "", f"the pump at {visitor.peer}")
    except OperatorError as error:
        raise Refusal(str(error), permanent=True) from None


def _object(line: bytes) -> dict[str, Any]:
    """What one line asks. Raises Refusal."""
    try:
        asked = json.loads(line.partition(b"\n")[0])
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        raise Refusal("expected one line of JSON: a START COLLECTOR request", permanent=True)
    return asked
