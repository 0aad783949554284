"""ggsci's processes in tests: each is forked off one that has loaded all of its code, which is nine tenths of the work.

    python -m tests.support.warm_ggsci SOCKET

Rule: what is asked for runs in a process of its own, with its own arguments, environment, folder and standard files, as
`python -P -m ggsci` would: only what it imports is there already. What it starts is started as ever. README's and the
demo's walks, the wheel and whatever is run by other words (`ip netns exec`) still begin with a new Python.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parents[2]
GGSCI = [sys.executable, "-P", "-m", "ggsci"]
MOST_BYTES = 1 << 17
"""Of a request; the environment is most of it."""
UNLOADED = ("__main__", "web", "manager")
"""Parts of ggsci that are processes of their own."""


class WarmGgsci:
    """The process that is forked, begun when it is first asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, command: Sequence[str], **how: Any) -> subprocess.CompletedProcess[str]:
        """As demo.pipeline.ggsci_process; by a fork where it is ggsci as it comes."""
        words = list(command)
        if words[: len(GGSCI)] != GGSCI:
            return subprocess.run(words, capture_output=True, text=True, check=False, **how)
        files = [os.memfd_create(name) for name in ("in", "out", "err")]
        try:
            os.write(files[0], how["input"].encode())
            os.lseek(files[0], 0, os.SEEK_SET)
            request = {"words": words[len(GGSCI) :], "environment": dict(how["env"]), "cwd": str(how["cwd"])}
            code = self._asked(request, files, how["timeout"], words)
            texts = [os.pread(file, os.fstat(file).st_size, 0).decode() for file in files[1:]]
        finally:
            for file in files:
                os.close(file)
        return subprocess.CompletedProcess(words, code, *texts)

    def _asked(self, request: dict[str, Any], files: list[int], seconds: float, words: list[str]) -> int:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            message = json.dumps(request).encode()
            with self._lock:
                socket.send_fds(self._begun(), [message], [theirs.fileno(), *files])
            theirs.close()
            with ours.makefile() as answers:
                ours.settimeout(seconds)
                try:
                    pid = int(answers.readline())
                    with contextlib.suppress(ProcessLookupError):  # it was quick
                        _await_end(pid, seconds)
                except TimeoutError:
                    raise subprocess.TimeoutExpired(words, seconds) from None
                return int(answers.readline() or -signal.SIGKILL)

    def _begun(self) -> socket.socket:
        if self._socket is None:
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                theirs.set_inheritable(True)
                command = [sys.executable, "-m", "tests.support.warm_ggsci", str(theirs.fileno())]
                self._process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()])
        return self._socket

    def close(self) -> None:
        """It ends when nobody can ask it any more."""
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.wait()


def _await_end(pid: int, seconds: float) -> None:
    """Until it holds no lock any more; it is killed if that takes too long."""
    process = os.pidfd_open(pid)
    try:
        if not select.select([process], [], [], seconds)[0]:
            signal.pidfd_send_signal(process, signal.SIGKILL)
            raise TimeoutError
    finally:
        os.close(process)


# --- the process that is forked ---------------------------------------------------------------------------------------


def serve(number: int) -> None:
    """One child a request, until nobody can ask any more."""
    _load()
    asked = socket.socket(fileno=number)
    while True:
        message, files, *_ = socket.recv_fds(asked, MOST_BYTES, 4)
        if not message:
            return
        if os.fork() == 0:
            asked.close()
            _live(json.loads(message), *files)
        for file in files:
            os.close(file)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _load() -> None:
    import ggsci

    for module in pkgutil.walk_packages(ggsci.__path__, "ggsci."):
        if not any(part in module.name.split(".") for part in UNLOADED):
            importlib.import_module(module.name)
    gc.freeze()


def _live(request: dict[str, Any], answers: int, *files: int) -> NoReturn:
    """In the child: ggsci from its first line to its end."""
    code = 1
    os.write(answers, b"%d\n" % os.getpid())
    try:
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["cwd"])
        sys.argv[1:] = request["words"]
        sys.stdin, sys.stdout, sys.stderr = (
            io.TextIOWrapper(open(number, mode, closefd=False), line_buffering=number == 2)  # noqa: SIM115
            for number, mode in enumerate(("rb", "wb", "wb"))
        )
        code = _code()
        threading._shutdown()  # type: ignore[attr-defined]  # as Python's own end does it
        atexit._run_exitfuncs()
        sys.stdout.flush()
    finally:
        os.write(answers, b"%d\n" % code)
        os._exit(code)


def _code() -> int:
    from ggsci.__main__ import main

    try:
        return main()
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001  -- Python's own end
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    serve(int(sys.argv[1]))
