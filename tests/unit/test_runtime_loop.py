"""The loop and the control socket inside one process: when it saves, waits, wakes and answers."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from demo.patience import PATIENCE
from trails.checkpoint import Checkpoint
from trails.clock import RealClock
from trails.errors import AwayError, OperatorError
from trails.runtime.home.home import Home
from trails.runtime.process import control as control_module
from trails.runtime.process.control import MAX_CLIENTS, MAX_REQUEST, ControlServer
from trails.runtime.process.loop import Process, Stop, Wait, run
from trails.testing import FakeClock

LONG = 600.0
"""Seconds a process here would sleep, and the time between two saves: a wake-up that is lost is a test that doesn't end
before the suite's own limit, however slow the machine is; one that comes is a test that just ends.
"""


ask = partial(control_module.ask, timeout=PATIENCE)  # a loaded machine may need a while for any answer


def run_asleep(process: Process, stop: Stop) -> None:
    """Run with nothing due for ten minutes, so that only an event can wake an idle process."""
    run(process, lambda c: None, stop, clock=RealClock(), checkpoint_every=LONG)


class Scripted(Process):
    """Does what `work` says at each step; notes what the loop asks of it."""

    def __init__(self, work: Callable[[Scripted], bool], waits: list[Wait] | None = None, idle: float = LONG) -> None:
        self.work = work
        self.steps = 0
        self.notes: list[str] = []
        self._waits = waits or []
        self._idle = idle

    def step(self) -> bool:
        """One call of `work`."""
        self.steps += 1
        return self.work(self)

    def flush(self) -> Checkpoint:
        """Tells after how many steps."""
        self.notes.append("flush")
        return Checkpoint("EXT1", "EXTRACT", lag_us=self.steps)

    def close(self) -> None:
        """Noted."""
        self.notes.append("close")

    def waits(self) -> list[Wait]:
        """As given."""
        return self._waits

    def idle_seconds(self) -> float:
        """As given."""
        return self._idle

    def command(self, verb: str, args: dict[str, Any]) -> dict[str, Any]:
        """Knows nothing."""
        raise OperatorError(f"no verb {verb}")


@pytest.fixture
def stop() -> Iterator[Stop]:
    """A Stop that takes this process's signals, and gives them back."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    one = Stop()
    one.install()
    yield one
    signal.set_wakeup_fd(-1)
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_saves_are_due_by_time_also_while_busy(stop: Stop) -> None:
    """35 busy steps of a second each: a save soon, then each ten seconds, and one at the end, marked as graceful."""
    clock = FakeClock()
    saves: list[Checkpoint] = []

    def work(process: Scripted) -> bool:
        clock.sleep(1)
        if process.steps == 35:
            stop.request()
        return True

    process = Scripted(work)
    run(process, saves.append, stop, clock=clock, checkpoint_every=10)
    assert [(c.lag_us, c.stop_status) for c in saves] == [(1, "A"), (11, "A"), (21, "A"), (31, "A"), (35, "G")]
    assert process.notes[-2:] == ["flush", "close"]


def test_the_first_save_comes_as_soon_as_there_is_something_to_save(stop: Stop) -> None:
    """A pump knows its place only once it is linked: it is asked each second until then, and not first at ten."""
    clock = FakeClock()
    saves: list[Checkpoint] = []

    class Linking(Scripted):
        def flush(self) -> Checkpoint | None:  # type: ignore[override]
            return super().flush() if self.steps > 3 else None

    def work(process: Scripted) -> bool:
        clock.sleep(1)
        if process.steps == 20:
            stop.request()
        return True

    run(Linking(work), saves.append, stop, clock=clock, checkpoint_every=10)
    assert [c.lag_us for c in saves] == [4, 14, 20]


def test_an_error_takes_the_road_of_a_crash(stop: Stop) -> None:
    """No last save; closed; the first error comes out even if close fails too."""

    def work(process: Scripted) -> bool:
        raise OperatorError("the disk is full")

    process = Scripted(work)

    def close() -> None:
        process.notes.append("close")
        raise RuntimeError("from close")

    process.close = close  # type: ignore[method-assign]
    with pytest.raises(OperatorError, match="disk is full"):
        run(process, lambda c: pytest.fail("saved"), stop, clock=FakeClock())
    assert process.notes == ["close"]


def test_a_forced_stop_skips_the_last_save(stop: Stop) -> None:
    """As a crash would."""

    def work(process: Scripted) -> bool:
        stop.request(forced=True)
        return True

    process = Scripted(work)
    run(process, lambda c: pytest.fail("saved"), stop, clock=FakeClock())
    assert process.notes == ["close"]


def test_an_idle_process_sleeps_until_something_comes(stop: Stop) -> None:
    """No step while nothing happens, a step at once when a descriptor is readable."""
    reader, writer = os.pipe()

    def work(process: Scripted) -> bool:
        if process.steps == 1:
            threading.Timer(0.3, os.write, (writer, b"x")).start()
        elif select.select([reader], [], [], 0)[0]:
            os.read(reader, 9)
            stop.request()  # made inside a step, it is no lost wake-up either
        return False

    process = Scripted(work, [reader])
    run_asleep(process, stop)
    assert process.steps == 2


def test_a_descriptor_may_be_waited_on_for_writing(stop: Stop) -> None:
    """An item of waits() can name its events."""
    left, right = socket.socketpair()

    def work(process: Scripted) -> bool:
        if process.steps == 2:
            stop.request()
        return False

    process = Scripted(work, [(left.fileno(), select.POLLOUT)])
    run_asleep(process, stop)
    right.close()


def test_a_closed_descriptor_is_a_bug_not_a_spin(stop: Stop) -> None:
    """POLLNVAL would return at once for ever."""
    reader, writer = os.pipe()
    os.close(reader)
    os.close(writer)
    with pytest.raises(ValueError, match=f"descriptor {reader}, which is closed"):
        run(Scripted(lambda p: False, [reader]), lambda c: None, stop, clock=RealClock())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_wakes_an_idle_process_at_once(stop: Stop, number: int) -> None:
    """It would sleep ten minutes otherwise."""
    threading.Timer(0.2, os.kill, (os.getpid(), number)).start()
    process = Scripted(lambda p: False)
    run_asleep(process, stop)
    assert process.notes == ["flush", "close"]


def test_a_signal_between_check_and_wait_is_not_lost(stop: Stop) -> None:
    """It comes at the end of the last step, when the flag was looked at before."""

    def work(process: Scripted) -> bool:
        os.kill(os.getpid(), signal.SIGTERM)
        return False

    process = Scripted(work)
    run_asleep(process, stop)
    assert process.steps == 1


def test_an_idle_process_still_saves_when_due(stop: Stop) -> None:
    """The wait is cut to the next save's time, and rounding does not make it spin."""
    saves: list[Checkpoint] = []

    def save(checkpoint: Checkpoint) -> None:
        saves.append(checkpoint)
        if len(saves) == 3:
            stop.request()

    process = Scripted(lambda p: False)
    run(process, save, stop, clock=RealClock(), checkpoint_every=0.05)
    assert 3 <= process.steps <= 5  # one a save; a slow machine makes them later, never more


def test_chores_are_done_between_steps(stop: Stop) -> None:
    """They see the time."""
    clock = FakeClock()
    seen: list[float] = []

    def work(process: Scripted) -> bool:
        clock.sleep(1)
        if process.steps == 3:
            stop.request()
        return True

    process = Scripted(work)
    run(process, lambda c: None, stop, clock=clock, chores=[seen.append])
    assert [round(t - seen[0]) for t in seen] == [0, 1, 2]


# --- the control socket ---------------------------------------------------------------------------------------------


def _answer(verb: str, args: dict[str, Any]) -> dict[str, Any]:
    if verb == "ECHO":
        return {"args": args}
    if verb == "BIG":
        return {"text": "x" * 3_000_000}
    if verb == "BUG":
        raise KeyError("oops")
    if verb == "ODD":
        return {"odd": object()}
    raise OperatorError(f"no verb {verb}", hint="Try ECHO")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home in a path too long for a socket address."""
    root = tmp_path / ("long" * 25)
    Home(str(root)).create_subdirs()
    return Home.at(str(root))


@pytest.fixture
def served(home: Home) -> Iterator[Home]:
    """A server on a loop of its own thread."""
    stop = Stop()
    server = ControlServer(home, "EXT1", _answer)
    process = Scripted(lambda p: False, idle=0.05)
    thread = threading.Thread(
        target=run, args=(process, lambda c: None, stop), kwargs={"clock": RealClock(), "control": server}
    )
    thread.start()
    yield home
    stop.request()
    thread.join(LONG)
    server.close()


def _raw(home: Home) -> socket.socket:
    link = socket.socket(socket.AF_UNIX)
    with control_module._short_path(home.control("EXT1")) as short:
        link.connect(short)
    link.settimeout(60)
    return link


def _line(link: socket.socket) -> Any:
    data = b""
    while not data.endswith(b"\n"):
        data += link.recv(1 << 16)
    return json.loads(data)


def test_questions_and_answers(served: Home) -> None:
    """Verbs in any case, arguments, refusals with their hint, large answers."""
    assert ask(served, "EXT1", "echo", a=1, b=["é"]) == {"ok": True, "args": {"a": 1, "b": ["é"]}}
    assert ask(served, "EXT1", "NOPE") == {"ok": False, "error": "no verb NOPE. Try ECHO"}
    assert len(ask(served, "EXT1", "BIG")["text"]) == 3_000_000


def test_a_bug_in_an_answer_does_not_end_the_process(served: Home) -> None:
    """Looking must not stop replication."""
    assert "bug in Trailgate: BUG: KeyError('oops')" in ask(served, "EXT1", "BUG")["error"]
    assert "bug in Trailgate" in ask(served, "EXT1", "ODD")["error"]
    assert ask(served, "EXT1", "ECHO")["ok"]


NO_REQUESTS = (b"", b"nonsense", b"[]", b'{"no": "verb"}', b"\xff\xfe", b"[" * 60_000)


@pytest.mark.parametrize("request_line", NO_REQUESTS, ids=range(len(NO_REQUESTS)))
def test_a_request_that_is_none_is_refused(served: Home, request_line: bytes) -> None:
    """With a word on what one looks like; the connection goes on."""
    with _raw(served) as link:
        link.sendall(request_line + b"\n")
        assert _line(link)["ok"] is False
        link.sendall(b'{"verb": "ECHO"}\n')
        assert _line(link)["ok"] is True


def test_a_request_in_pieces_is_one_request(served: Home) -> None:
    """Bytes come as they like."""
    with _raw(served) as link:
        for byte in b'{"verb": "ECHO"}\n':
            link.send(bytes([byte]))
            time.sleep(0.001)
        assert _line(link)["ok"] is True


def test_a_request_without_end_is_cut_off(served: Home) -> None:
    """Memory stays bounded."""
    with _raw(served) as link:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            link.sendall(b"x" * (3 * MAX_REQUEST))
        with contextlib.suppress(ConnectionResetError):
            assert "at most" in _line(link)["error"]
    assert ask(served, "EXT1", "ECHO")["ok"]


def test_a_client_that_ends_at_any_byte_harms_nobody(served: Home) -> None:
    """Its last bytes come together with its end, or half of the link stays. Closing with unread bytes is a reset."""
    request = b'{"verb": "BIG"}\n'
    for at in range(len(request) + 1):
        for reads in ("nothing", "a byte", "all"):
            with _raw(served) as link:
                link.sendall(request[:at])
                if reads != "nothing":
                    link.shutdown(socket.SHUT_WR)
                    link.recv(1)
                while reads == "all" and link.recv(1 << 16):
                    pass
        assert ask(served, "EXT1", "ECHO")["ok"]


def test_clients_that_do_not_read_or_write_stall_nobody(served: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """One asks for megabytes and never reads, others connect and say nothing: nobody is dropped, others are answered.

    PATIENCE is ten minutes here: whoever had to wait for a client to be dropped would not be answered in time.
    """
    monkeypatch.setattr(control_module, "PATIENCE", LONG)
    silent = [_raw(served) for _ in range(MAX_CLIENTS - 2)]
    slow = _raw(served)
    slow.sendall(b'{"verb": "BIG"}\n')
    for _ in range(20):
        assert ask(served, "EXT1", "ECHO")["ok"]
    for link in [*silent, slow]:
        link.close()


def test_too_many_silent_clients_are_dropped_in_time(served: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """All places taken: the next one waits until the silent ones' patience is over."""
    monkeypatch.setattr(control_module, "PATIENCE", 0.3)
    silent = [_raw(served) for _ in range(MAX_CLIENTS + 2)]
    assert ask(served, "EXT1", "ECHO")["ok"]
    for link in silent:
        link.close()


def test_asking_nobody_is_away(home: Home) -> None:
    """No socket, or one left by a killed process."""
    with pytest.raises(AwayError, match="EXT1 can't be asked: No such file"):
        ask(home, "EXT1", "STATUS")
    ControlServer(home, "EXT1", _answer)._listener.close()
    with pytest.raises(AwayError, match="EXT1 can't be asked: Connection refused"):
        ask(home, "EXT1", "STATUS")


def test_a_process_that_does_not_answer_is_away(home: Home) -> None:
    """The wait is bounded (nobody ever answers here), also when the queue of connections is full."""
    server = ControlServer(home, "EXT1", _answer)
    with pytest.raises(AwayError, match=r"did not answer STATUS within 0\.2 seconds"):
        ask(home, "EXT1", "STATUS", timeout=0.2)
    links = []
    with contextlib.suppress(BlockingIOError):
        while True:
            link = socket.socket(socket.AF_UNIX)
            link.setblocking(False)
            links.append(link)
            with control_module._short_path(home.control("EXT1")) as short:
                link.connect(short)
    with pytest.raises(AwayError, match="did not answer"):
        ask(home, "EXT1", "STATUS", timeout=0.2)
    for link in links:
        link.close()
    server.close()


def test_a_process_out_of_descriptors_does_not_spin_on_who_asks(home: Home) -> None:
    """Who can't be accepted keeps the listener readable: it is not waited for until a while later, and then served."""
    server = ControlServer(home, "EXT1", _answer)
    listener, link = server._listener.fileno(), socket.socket(socket.AF_UNIX)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        with control_module._short_path(home.control("EXT1")) as short:
            link.connect(short)
        free = os.dup(link.fileno())
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        server.handle([listener], 0.0)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert server.interest() == []
        server._pause_until = 0.0
        assert [fd for fd, _ in server.interest()] == [listener]
        server.handle([listener], 0.0)
        assert len(server._clients) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        link.close()
        server.close(0)


def test_a_stale_socket_is_replaced_and_a_closed_server_leaves_none(home: Home) -> None:
    """What SIGKILL leaves is no obstacle."""
    ControlServer(home, "EXT1", _answer)._listener.close()
    server = ControlServer(home, "EXT1", _answer)
    assert os.path.exists(home.control("EXT1"))
    server.close()
    assert not os.path.exists(home.control("EXT1"))
