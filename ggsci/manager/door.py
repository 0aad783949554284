"""The Manager's port: who may come in, and the one line that each visitor asks.

    KNOCKING   the first byte tells TLS from plain      -> refused in plain text if it is not what this home talks
    HANDSHAKE  TLS with the home's certificates         -> the peer's certificate is refused by an alert, and logged
    READING    one line of JSON, bounded in bytes       -> given to the caller by step(), or
    SERVED     the caller works on its answer           -> answer()
    CLOSING    what still comes is dropped until the peer closes: a reset could overtake our last words

Rule: nothing waits, everything has a deadline, and no stranger can make the Manager spin, grow or fill its log:
visitors are bounded in all and by address, requests by address and time, log lines muffled. A Manager without
certificates, and one whose ACCESSRULE denies the address, still answers readably: in plain text, before any handshake.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from ggsci.manager import access
from ggsci.manager.params import ManagerParams
from trails.clock import Clock
from trails.controlflow import ControlFlowError
from trails.errors import AwayError, OperatorError
from trails.link import tls
from trails.runtime.report.limits import EXHAUSTED, PAUSE_SECONDS, Rates, address_of, crowd_of
from trails.runtime.report.report import Log

MAX_REQUEST = 8 << 10
MAX_VISITORS = 128
MAX_PER_ADDRESS = 32
BURST, PER_SECOND = 64, 8.0
READ_SECONDS = 10.0
LINGER_SECONDS = 2.0

REFUSED, UNENCRYPTED, CROWDED = "TG-01230", "TG-01231", "TG-01232"

_NO_TLS = "this Manager talks no TLS: its mgr.prm says NOTLS, the pump's RMTHOST does not"
_NO_CERTIFICATE = (
    "this Manager has no certificates that it can use (its ggserr.log says what is wrong): CREATE CERTIFICATES for "
    "both homes in GGSCI of one of them"
)
_ONLY_TLS = "this Manager talks TLS only: the pump's RMTHOST says NOTLS, its mgr.prm does not"


class Refusal(ControlFlowError):  # noqa: N818  -- an answer, not a fault of ours
    """An answer that says no; permanent if asking again can't help. `detail` is for our log, not for a stranger."""

    def __init__(self, text: str, *, permanent: bool, detail: str = "") -> None:
        super().__init__(text)
        self.permanent = permanent
        self.detail = detail


class VisitPhase(Enum):
    """Where a visitor stands."""

    KNOCKING = auto()
    HANDSHAKE = auto()
    READING = auto()
    SERVED = auto()
    CLOSING = auto()


@dataclass(slots=True, eq=False)
class Visitor:
    """One connection. `crowd`: whom its limits count it to. `denied`: what it will be told instead of being heard."""

    link: socket.socket
    address: str
    crowd: str
    peer: str
    deadline: float
    denied: str = ""
    phase: VisitPhase = VisitPhase.KNOCKING
    data: bytes = b""
    shown: tls.Shown | None = None
    """What its certificate says, once hands were shaken."""

    @property
    def gone(self) -> bool:
        """Whether the link is closed."""
        return self.link.fileno() < 0


class ManagerDoor:
    """The listening socket and everybody who came through it."""

    def __init__(self, params: ManagerParams, folder: str, log: Log, clock: Clock) -> None:
        self.params = params
        self._folder = folder  # of the certificates
        self._log = log
        self._clock = clock
        self._visitors: list[Visitor] = []
        self._rates = Rates(PER_SECOND, BURST)
        self._pause_until = 0.0
        self._exhausted = ""
        self._listener = _listen(params)
        if not params.tls and not tls.is_loopback(params.bind):
            log.warning(
                UNENCRYPTED, f"NOTLS: pumps and Collectors talk in plain TCP on {params.bind}; whoever is on the way "
                "can read and change the data.",
            )  # fmt: skip

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._listener.getsockname()[1])

    def waits(self) -> list[int]:
        """What to wake on."""
        fds = [visitor.link.fileno() for visitor in self._visitors if visitor.phase is not VisitPhase.SERVED]
        if len(self._visitors) < MAX_VISITORS and self._clock.monotonic() >= self._pause_until:
            fds.append(self._listener.fileno())
        return fds

    def close(self) -> None:
        """Stop listening, and let everybody go."""
        self._listener.close()
        for visitor in self._visitors:
            visitor.link.close()
        self._visitors = []

    def step(self) -> list[tuple[Visitor, bytes]]:
        """Move everybody on as far as it goes now; those whose request is complete, with it."""
        self._accept()
        asked = [(visitor, visitor.data) for visitor in self._visitors if self._advance(visitor)]
        self._visitors = [visitor for visitor in self._visitors if not visitor.gone]
        return asked

    def answer(self, visitor: Visitor, reply: dict[str, Any]) -> None:
        """The one line that a visitor gets. It is far smaller than any socket's send buffer: it goes, or he is gone."""
        with contextlib.suppress(OSError):
            visitor.link.send(json.dumps(reply).encode() + b"\n")
        self._see_off(visitor)

    def sign_of_life(self, visitor: Visitor) -> None:
        """A space before the answer. One that does not go at once is left out: then much is on its way already."""
        if not visitor.gone:
            with contextlib.suppress(OSError):
                visitor.link.send(b" ")

    # --- coming in ---

    def _accept(self) -> None:
        while len(self._visitors) < MAX_VISITORS and self._clock.monotonic() >= self._pause_until:
            try:
                link, where = self._listener.accept()
            except OSError as error:
                if error.errno in EXHAUSTED:
                    # Told afterwards: without a descriptor no log can be opened either.
                    self._exhausted = error.strerror or ""
                    self._pause_until = self._clock.monotonic() + PAUSE_SECONDS
                else:
                    self._tell_exhausted()
                return
            self._tell_exhausted()
            self._receive(link, where)

    def _tell_exhausted(self) -> None:
        if self._exhausted:
            self._say(CROWDED, "accept", f"No pump could be served for a moment: {self._exhausted}.")
            self._exhausted = ""

    def _receive(self, link: socket.socket, where: tuple[Any, ...]) -> None:
        now, address = self._clock.monotonic(), address_of(str(where[0]))
        crowd = crowd_of(address)
        here = sum(visitor.crowd == crowd for visitor in self._visitors)
        if here >= MAX_PER_ADDRESS or not self._rates.take(crowd, now):
            link.close()
            self._say(CROWDED, crowd, f"{address} asks too often or too much at once; not served.")
            return
        link.setblocking(False)
        denied = access.why_denied(self.params.access_rules, address)
        seconds = LINGER_SECONDS if denied else READ_SECONDS
        self._visitors.append(Visitor(link, str(address), crowd, f"{address}:{where[1]}", now + seconds, denied))

    # --- moving on ---

    def _advance(self, visitor: Visitor) -> bool:
        """True if a request has just become complete."""
        steps: dict[VisitPhase, Callable[[Visitor], bool]] = {
            VisitPhase.KNOCKING: self._knock, VisitPhase.HANDSHAKE: self._shake, VisitPhase.READING: self._read,
            VisitPhase.CLOSING: self._drop,
        }  # fmt: skip
        while (before := visitor.phase) in steps and not visitor.gone:
            try:
                if steps[before](visitor):
                    visitor.phase = VisitPhase.SERVED
                    return True
                if visitor.phase is before:
                    self._watch_deadline(visitor)
                    return False
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                self._watch_deadline(visitor)
                return False
            except Refusal as error:
                self.refuse(visitor, error)
            except ssl.SSLError as error:
                self._say(REFUSED, visitor.crowd, f"{tls.explain(error, f'The pump at {visitor.peer}')}.")
                self._see_off(visitor)
            except OSError:
                visitor.link.close()
        return False

    def _watch_deadline(self, visitor: Visitor) -> None:
        if visitor.gone or self._clock.monotonic() <= visitor.deadline:
            return
        if visitor.phase is VisitPhase.CLOSING:
            visitor.link.close()
        elif visitor.phase is VisitPhase.HANDSHAKE:
            self._say(REFUSED, visitor.crowd, f"{visitor.peer}: no TLS handshake within {READ_SECONDS:g} seconds.")
            visitor.link.close()
        else:
            self.refuse(visitor, Refusal(f"no request came within {READ_SECONDS:g} seconds", permanent=False))

    def _knock(self, visitor: Visitor) -> bool:
        first = visitor.link.recv(1, socket.MSG_PEEK)
        if not first:
            visitor.link.close()
            return False
        if visitor.denied:
            raise Refusal(f"{visitor.address} is denied by ACCESSRULE", permanent=True, detail=visitor.denied)
        secure = first[0] == tls.FIRST_BYTE
        if secure and not self.params.tls:
            raise Refusal(_NO_TLS, permanent=True)
        if not self.params.tls:
            visitor.phase = VisitPhase.READING
            return False
        if not secure:
            raise Refusal(_ONLY_TLS, permanent=True)
        try:
            context = tls.server_context(self._folder)
        except OperatorError as error:
            raise Refusal(_NO_CERTIFICATE, permanent=True, detail=str(error)) from None
        visitor.link = context.wrap_socket(visitor.link, server_side=True, do_handshake_on_connect=False)
        visitor.phase = VisitPhase.HANDSHAKE
        return False

    def _shake(self, visitor: Visitor) -> bool:
        link = visitor.link
        assert isinstance(link, ssl.SSLSocket)
        link.do_handshake()
        try:
            visitor.shown = tls.shown(link, visitor.peer)
        except AwayError:
            link.close()
            return False
        visitor.peer += f" ({visitor.shown.name})"
        visitor.phase = VisitPhase.READING
        return False

    def _read(self, visitor: Visitor) -> bool:
        while b"\n" not in visitor.data:
            data = visitor.link.recv(MAX_REQUEST)
            if not data:
                visitor.link.close()
                return False
            visitor.data += data
            if len(visitor.data) > MAX_REQUEST:
                raise Refusal(f"a request has at most {MAX_REQUEST} bytes", permanent=True)
        return True

    # --- the end ---

    def refuse(self, visitor: Visitor, error: Refusal) -> None:
        """Say no, to the visitor and to the log."""
        self._say(REFUSED, visitor.crowd, f"{visitor.peer}: Collector refused: {error.detail or error}.")
        self.answer(visitor, {"ok": False, "error": str(error), "permanent": error.permanent})

    def _see_off(self, visitor: Visitor) -> None:
        with contextlib.suppress(OSError):
            visitor.link.shutdown(socket.SHUT_WR)
        visitor.phase = VisitPhase.CLOSING
        visitor.deadline = self._clock.monotonic() + LINGER_SECONDS

    def _drop(self, visitor: Visitor) -> bool:
        """A piece each turn: whoever sends without end does not keep the Manager here."""
        if not visitor.link.recv(1 << 16):
            visitor.link.close()
        return False

    def _say(self, code: str, key: str, text: str) -> None:
        self._log.warning(code, text, alike=key)


def _listen(params: ManagerParams) -> socket.socket:
    """The Manager's port; one clear message if it is taken."""
    family = socket.AF_INET6 if ":" in params.bind else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # So that a Manager can come back at once; a port that somebody listens on is refused all the same.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((params.bind, params.port))
        listener.listen(MAX_VISITORS)
    except OSError as error:
        listener.close()
        raise OperatorError(
            f"PORT {params.port} at {params.bind} can't be used: {error.strerror}",
            hint="Another Manager or program may listen there; end it, or choose another PORT in dirprm/mgr.prm",
        ) from None
    listener.setblocking(False)
    return listener
