"""Database work, done by a sub-process of extract or replicat, because ggsci itself loads no driver.

A JSON request in a line on its standard input, a JSON reply in a line on its standard output. A password travels only
there: never on a command line, where everyone on the host could read it, nor in the environment.

Rule: a process answers one request and ends, as its input does then. Inside of `kept`, which is a run of ggsci, it is
kept for the next request, as its start takes longer than most answers. It holds no connection meanwhile. Who did not
answer in time, or was asked about a parameter file (that may have begun Spark), is not kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

from trails.errors import AwayError, OperatorError

TIMEOUT_S = 120.0
LEAVE_S = 5.0
"""How long a kept process may take to end; it has nothing left to do."""
PIECE = 1 << 16

# Tests put a program of their own here.
COMMANDS: dict[str, list[str]] = {
    "extract": [sys.executable, "-P", "-m", "extract.admin"],
    "pump": [sys.executable, "-P", "-m", "pump.admin"],
    "replicat": [sys.executable, "-P", "-m", "replicat.admin"],
}
_spare: list[_Answerer] | None = None


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Until it is left, processes are kept for the next request."""
    global _spare
    before, _spare = _spare, []
    try:
        yield
    finally:
        spare, _spare = _spare, before
        for one in spare:
            one.leave()


def ask(program: str, verb: str, *, seconds: float | None = None, **request: Any) -> dict[str, Any]:
    """Have `extract.admin`, `pump.admin` or `replicat.admin` do one thing.

    Raises OperatorError with what it says went wrong.
    """
    body, limit = json.dumps({"verb": verb, **request}).encode(), TIMEOUT_S if seconds is None else seconds
    asked, keep = _answerer(program), _spare is not None and verb != "check_params"
    try:
        data = asked.answer(body, limit, last=not keep)
    except BaseException as error:
        asked.kill()
        if isinstance(error, TimeoutError):
            raise AwayError(f"{verb}: no answer from the database within {limit:.0f} s") from None
        raise
    reply = _reply(data)
    if reply is None:
        raise OperatorError(f"{program}.admin {verb} ended with {asked.end()}", hint="Report it")
    if keep and _spare is not None:
        _spare.append(asked)
    else:
        asked.leave()
    return _told(reply, verb)


def _answerer(program: str) -> _Answerer:
    """One that is kept and was started as this one would be, or a new one."""
    told = _start(program)
    for one in _spare or ():
        if one.start == told:
            assert _spare is not None
            with contextlib.suppress(ValueError):  # another thread took it meanwhile
                _spare.remove(one)
                if one.runs():
                    return one
                one.leave()
                break
    try:
        return _Answerer(told)
    except OSError as error:
        raise OperatorError(
            f"{program}.admin can't be run: {error.strerror}", hint="See that this host has memory and processes left"
        ) from None


_Start = tuple[list[str], dict[str, str], str]


def _start(program: str) -> _Start:
    """Its command, environment and folder."""
    return COMMANDS[program], dict(os.environ), os.getcwd()


class _Answerer:
    """A process that answers one request after the other. Its complaints stay in memory: the disk may be full."""

    def __init__(self, start: _Start) -> None:
        self.start = start
        self._complaints: IO[bytes] = os.fdopen(os.memfd_create("complaints"), "w+b")
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(start[0], stdin=pipe, stdout=pipe, stderr=self._complaints, bufsize=0)
        except BaseException:
            self._complaints.close()
            raise
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)

    def answer(self, body: bytes, seconds: float, *, last: bool) -> bytes:
        """The reply's line; less of it if the process ended. `last`: no more will be asked. Raises TimeoutError."""
        asked, told = self._process.stdin, self._process.stdout
        assert asked is not None and told is not None
        deadline, left, found = time.monotonic() + seconds, memoryview(body + b"\n"), bytearray()
        poll = select.poll()
        poll.register(asked, select.POLLOUT)
        poll.register(told, select.POLLIN)
        while not found.endswith(b"\n"):
            ready = [fd for fd, _ in poll.poll(max(0.0, deadline - time.monotonic()) * 1000)]
            if not ready:
                raise TimeoutError
            if told.fileno() not in ready:
                left = left[self._write(left) :]
                if not left:
                    poll.unregister(asked)
                    if last:
                        asked.close()
            else:
                piece = os.read(told.fileno(), PIECE)
                if not piece:
                    break
                found += piece
        return bytes(found)

    def _write(self, data: memoryview) -> int:
        """How many bytes of it are done with: all, if nobody reads them any more."""
        assert self._process.stdin is not None
        try:
            return self._process.stdin.write(data) or 0
        except BrokenPipeError:
            return len(data)

    def runs(self) -> bool:
        """Whether it still does."""
        return self._process.poll() is None

    def end(self) -> str:
        """How it ended, in words: its exit code, and the last line of its complaints."""
        self._wait()
        self._complaints.seek(0)
        lines = self._complaints.read().decode("utf-8", "replace").strip().splitlines()
        self._close()
        return f"code {self._process.returncode}: {lines[-1] if lines else 'it said nothing'}"

    def leave(self) -> None:
        """Nothing more is asked: it ends."""
        self._wait()
        self._close()

    def _wait(self) -> None:
        self._close_input()
        try:
            self._process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """End it now."""
        self._process.kill()
        self._process.wait()
        self._close()

    def _close_input(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def _close(self) -> None:
        self._close_input()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._complaints.close()


def follow(program: str, verb: str, tell: Callable[[str], None], **request: Any) -> dict[str, Any]:
    """As ask(), for what takes as long as it takes: each line of its standard error is told as it comes."""
    from concurrent.futures import ThreadPoolExecutor

    body = json.dumps({"verb": verb, **request}).encode()
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(COMMANDS[program], stdin=pipe, stdout=pipe, stderr=pipe)
    except OSError as error:
        raise OperatorError(
            f"{program}.admin can't be run: {error.strerror}", hint="See that this host has memory and processes left"
        ) from None
    with process, ThreadPoolExecutor(max_workers=1) as pool:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        reply = pool.submit(process.stdout.read)
        try:
            process.stdin.write(body)
            process.stdin.close()
            for line in process.stderr:
                tell(line.decode("utf-8", "replace").rstrip())
        except BaseException:
            process.kill()
            raise
        found = _reply(reply.result())
    if found is None:
        raise OperatorError(
            f"{program}.admin {verb} ended with code {process.returncode}, and said nothing",
            hint="Report it",
        )
    return _told(found, verb)


def _told(reply: dict[str, Any], verb: str) -> dict[str, Any]:
    """What was answered. Raises OperatorError if that is a no."""
    if not reply.pop("ok", False):
        raise OperatorError(str(reply.get("error") or f"{verb} failed"))
    return reply


def _reply(data: bytes) -> dict[str, Any] | None:
    try:
        reply = json.loads(data)
    except ValueError:
        return None
    return reply if isinstance(reply, dict) else None
