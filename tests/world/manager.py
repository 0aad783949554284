"""The Managers of the two homes, which are the product's own; and the door at which the pump finds the far one.

A Manager's door is a list of visitors here: the request line and the answer are the real ones, TCP is not. A
Manager that dies is started again after a moment, as a system does it with a service.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from ggsci.manager.manager import Manager
from ggsci.manager.params import ManagerParams
from pump.link import LinkRequest, parse_reply, secured
from tests.world.machines import HOME_IDS, SimLimits
from tests.world.network import NEAR, Link, SimListener
from tests.world.tls import ClientContext
from trails.errors import AwayError, OperatorError
from trails.link.tls import Shown
from trails.runtime.language.params import parse_text
from trails.runtime.process.diskguard import Limits

if TYPE_CHECKING:
    from ggsci.manager.door import Refusal
    from tests.world.fibers import Proc
    from tests.world.plan import Sizes
    from tests.world.world import World
    from trails.runtime.process.startup import Context

PORT = 7809


@cache
def manager_params(retries: int, restart: int, purge: int, secure: bool) -> ManagerParams:
    """mgr.prm of both homes, read."""
    lines = [
        f"PORT {PORT}", *([] if secure else ["NOTLS"]), "BIND 0.0.0.0", "DYNAMICPORTLIST 7810-7813", "AUTOSTART ER *",
        f"AUTORESTART ER *, RETRIES {retries}, WAITSECONDS {restart}, RESETSECONDS 15",
        f"PURGEOLDEXTRACTS ./dirdat/*, MINKEEPFILES 1, FREQUENCYSECONDS {purge}", "CHECKSECONDS 3",
    ]  # fmt: skip
    return ManagerParams.from_statements(parse_text("\n".join([*lines, ""]), "mgr.prm"))


def params_of(sizes: Sizes) -> ManagerParams:
    """Those of a life."""
    return manager_params(sizes.retries, sizes.restart, sizes.purge, sizes.tls)


class LifeManager(Manager):
    """Its disk is the world's, which also hears when it purges."""

    def __init__(self, context: Context, proc: Proc, *given: Any) -> None:
        self._proc = proc
        super().__init__(context, *given)

    def _limits(self) -> Limits:
        return SimLimits(self._proc.machine)

    def _purge(self) -> None:
        self._proc.world.windows.purge(self._proc.machine)
        super()._purge()


class Visitor:
    """A pump at the door, as Collectors see it."""

    address = NEAR
    peer = f"{NEAR}:5000"

    def __init__(self, line: bytes, now: int, shown: Shown | None) -> None:
        self.line, self.heard, self.shown = line, now, shown
        self.is_stranger = False
        self.reply = b""


class SimDoor:
    """See ManagerDoor."""

    def __init__(self, world: World, params: ManagerParams) -> None:
        self.world, self.params = world, params
        proc = world.running
        if proc.machine.door is not None and not proc.machine.door.closed:
            raise OperatorError(f"PORT {params.port} can't be used: Address already in use", hint="End who has it")
        proc.machine.door = self
        self.queue: list[Visitor] = []
        self.closed = self.vanished = False
        self._number = world.descriptor(self)
        proc.sockets.append(self)

    @property
    def port(self) -> int:
        """See ManagerDoor."""
        return self.params.port

    def readable(self) -> bool:
        return bool(self.queue)

    def waits(self) -> list[int]:
        """See ManagerDoor."""
        return [self._number]

    def step(self) -> list[tuple[Visitor, bytes]]:
        """See ManagerDoor."""
        self.world.edge("accept", "door")
        found, self.queue = self.queue, []
        return [(visitor, visitor.line) for visitor in found]

    def answer(self, visitor: Visitor, reply: dict[str, Any]) -> None:
        """See ManagerDoor."""
        self.world.edge("answer", "door")
        visitor.reply = json.dumps(reply).encode() + b"\n"
        if visitor.is_stranger and reply["ok"]:
            self.world.rules.broken(f"a Manager obeys a stranger: {visitor.line[:200]!r}")

    def refuse(self, visitor: Visitor, error: Refusal) -> None:
        """See ManagerDoor."""
        self.answer(visitor, {"ok": False, "error": str(error), "permanent": error.permanent})

    def sign_of_life(self, visitor: Visitor) -> None:
        """See ManagerDoor."""
        visitor.heard = self.world.now

    def close(self) -> None:
        """See ManagerDoor."""
        self.closed = True


def dial(world: World, request: LinkRequest, timeout: float) -> Any:
    """See pump.link.dial; in the pump's own process."""
    who = request.manager
    _reach(world, who, timeout)
    door = world.far.door
    if door is None or door.closed:
        raise AwayError(f"{who} can't be reached: Connection refused")
    visitor = Visitor(
        request.line("START COLLECTOR"), world.now, Shown("near", (HOME_IDS["near"],)) if request.tls else None
    )
    door.queue.append(visitor)
    while not visitor.reply:
        world.wait(lambda: visitor.reply or (door.closed and not door.vanished), timeout)
        if visitor.reply:
            break
        if door.closed and not door.vanished:
            raise AwayError(f"{who} closed the link before it answered")
        if world.now - visitor.heard >= timeout * 1e6:
            raise AwayError(f"{who} took the connection and said nothing for {timeout:g} seconds")
    return _connect(world, request, parse_reply(visitor.reply, who), timeout)


def _reach(world: World, who: str, timeout: float) -> None:
    world.edge("connect", "link")
    if not world.far.up or world.now < world.unreachable_until:
        world.wait(lambda: False, timeout)
        raise AwayError(f"{who} can't be reached: timed out")


def _connect(world: World, request: LinkRequest, port: int, timeout: float) -> Any:
    who, pump = f"Collector at far:{port}", world.running
    _reach(world, who, 0.5)
    listener = world.far.listeners.get(port)
    if listener is None or listener.closed:
        raise AwayError(f"{who} can't be reached: Connection refused")
    link = _link(world, listener)
    pump.sockets.append(link.near)
    world.greets("near end", pump)
    world.greets("far end", listener.proc)
    if (said := world.echo) is not None:
        world.echo = None
        world.met("connected twice")
        world.tell("network", f"{len(said.data)} bytes that a link carried come a second time, by one of their own")
        pipe = _link(world, listener).pipes[0]
        pipe.greetings += said.greetings
        pipe.flying += said.data
        if world.draws["link"].random() < 0.5:
            listener.queue.reverse()
    if world.strangers:
        _let_strangers_in(world, listener)
    if not request.tls:
        return link.near
    deadline, near = world.now / 1e6 + timeout, world.near
    return secured(link.near, ClientContext(), "far", who, deadline, near)  # type: ignore[arg-type]


def _let_strangers_in(world: World, listener: SimListener) -> None:
    """They come together with the pump; none of them listens."""
    world.met("strangers")
    world.tell("network", f"{len(world.strangers)} strangers come to the Collector's door as well")
    for said in world.strangers:
        link = _link(world, listener)
        link.pipes[0].flying += said
        link.near.closed = True
    world.strangers.clear()
    world.draws["link"].shuffle(listener.queue)


def _link(world: World, listener: SimListener) -> Link:
    link = Link(world, world.near, world.far)
    world.links.append(link)
    listener.queue.append(link.far)
    listener.proc.sockets.append(link.far)
    return link
