"""Spark's JVM as a process of ours: started, asked whether it lives, ended; and py4j's gateway to it.

Rule: what fails once the JVM is gone fails because of that, whatever it looks like: a broken connection, a result that
ends too early, a wrong expression, an error inside pyspark. So `check` is asked before anybody else is blamed.
Rule: nobody waits without a bound for a JVM that is stopped or hangs. SIGKILL ends that one too.
It leads a group of processes, with what its start scripts run: so nothing of a start that is given up is left behind.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import IO, Any, TypeVar

from trails.controlflow import ControlFlowError
from trails.errors import AnewError

T = TypeVar("T")

LOOK_SECONDS = 0.1
PORT_SECONDS = 0.01
"""How often it is looked whether it runs; it is waited for at each START."""
GONE_SECONDS = 10.0
"""So long a process that does not answer may take to be gone: its sockets close first."""
WATCH_SECONDS = 60.0
"""How often one that runs is asked whether it answers."""
SILENT_SECONDS = 60.0
"""And how long it may take, also while it collects garbage."""
BRIEF = "-XX:TieredStopAtLevel=1"
"""For the JVM in which Spark's script works out the command of ours, and which ends at once. No collector is named: a
JVM does not start where JAVA_TOOL_OPTIONS names another."""
HINT = "See {log}; a JVM that was killed had often too little memory: see the system's log and SPARKMEMORY"


class StopAskedError(ControlFlowError):
    """The process is to stop, so nobody waits any longer."""


def within(seconds: float, work: Callable[[], T], is_unwanted: Callable[[], bool] = lambda: False) -> T:
    """What `work` gives, on a thread of its own. Raises TimeoutError, and StopAskedError once it is not wanted."""
    future: Future[T] = Future()
    threading.Thread(target=_fulfil, args=(future, work), name="spark-wait", daemon=True).start()
    end = time.monotonic() + seconds
    while not future.done():
        if is_unwanted():
            raise StopAskedError("a stop is asked for")
        if time.monotonic() >= end:
            raise TimeoutError(f"nothing came within {seconds:g} seconds")
        wait([future], timeout=LOOK_SECONDS)
    return future.result()


def _fulfil(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001  -- it is raised where the result is asked for
        future.set_exception(error)


class Jvm:
    """Runs from the beginning on; `gateway` is there once connect() came back."""

    def __init__(
        self,
        options: Sequence[tuple[str, str]],
        folder: str,
        output: IO[bytes],
        log: str,
        held: Sequence[int] = (),
    ) -> None:
        """`folder`: private, and empty; the JVM tells its port there. `log`: what `output` is, for messages. `held`:
        descriptors that it keeps open as long as it lives.
        """
        from pyspark.find_spark_home import _find_spark_home

        self.gateway: Any = None
        self._log = log
        self._why = ""  # it was ended by us
        self._over = threading.Event()
        self._port = os.path.join(folder, "gateway")
        home = _find_spark_home()
        command = [os.path.join(home, "bin", "spark-submit")]
        for name, value in options:
            command += ["--conf", f"{name}={value}"]
        command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        environment = os.environ | {
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": self._port,
            "SPARK_HOME": home,  # or its script starts a Python that finds it again
            "SPARK_LAUNCHER_OPTS": os.environ.get("SPARK_LAUNCHER_OPTS") or BRIEF,
        }
        # It ends when its input does, so when we do. A group of its own: Ctrl-C at a terminal is for us.
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=environment,
            process_group=0,
            pass_fds=held,
        )

    def connect(self) -> Any:
        """py4j's gateway, once the JVM has told its port. Raises ChildProcessError if it ends before."""
        from py4j.protocol import INPUT_CONVERTER
        from pyspark.java_gateway import launch_gateway

        while not os.path.exists(self._port):  # it appears whole, by a rename
            if self.process.poll() is not None:
                raise ChildProcessError(f"Java ended, {self.ended()}")
            time.sleep(PORT_SECONDS)
        port, secret = _told(self._port)
        os.unlink(self._port)
        # So pyspark takes a JVM that runs. Without this it starts one itself, and waits for it without a bound.
        # py4j tells each call that fails, with its stack, to the root logger: on the terminal, if nobody else listens.
        logging.getLogger().addHandler(logging.NullHandler())
        told = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
        os.environ.update(told)
        try:
            self.gateway = launch_gateway()  # type: ignore[no-untyped-call]
        finally:
            for name in told:
                os.environ.pop(name, None)
        self.gateway.proc = self.process
        # Each of pyspark's own is asked about every argument, and one loads NumPy, Arrow and pandas for it: 80 MB, and
        # half a second of CPU. We give the JVM no such values.
        of_py4j = [one for one in INPUT_CONVERTER if type(one).__module__.startswith("py4j.")]
        self.gateway._gateway_client.converters = of_py4j  # noqa: SLF001  -- it has no other door
        return self.gateway

    def ended(self) -> str:
        """How it ended; empty while it runs."""
        code = self.process.poll()
        if code is None:
            return ""
        return f"killed by signal {-code}" if code < 0 else f"exit code {code}"

    def check(self) -> None:
        """Raise AnewError unless it lives and answers."""
        if self.process.poll() is None and self._answers(GONE_SECONDS):
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GONE_SECONDS)
        why = self._why or self.ended() or "it does not answer"
        raise AnewError(f"Spark's JVM is gone: {why}", hint=HINT.format(log=self._log))

    def watch(self) -> None:
        """Ask it now and then until it is gone. One that is silent is killed: all who wait for it fail, and ask check.

        For a thread of its own.
        """
        while not self._over.wait(WATCH_SECONDS):
            if not self._answers(SILENT_SECONDS):
                if self.process.poll() is None and not self._over.is_set():
                    self._why = f"it has not answered for {SILENT_SECONDS:g} seconds"
                    self.kill()
                return

    def _answers(self, seconds: float) -> bool:
        try:
            within(seconds, self._time)
        except Exception:  # noqa: BLE001  -- py4j's errors share no base, and each says the same here
            return False
        return True

    def _time(self) -> object:
        return self.gateway.jvm.System.currentTimeMillis()  # each part of this is found by a question to it

    def leave(self, seconds: float) -> None:
        """Give it time to end by itself, which it does when its input ends. It answers nobody while it does."""
        self._over.set()
        self._close_input()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)

    def kill(self) -> None:
        """End it now, in whatever state it is. Calls that are under way fail."""
        self._over.set()
        with contextlib.suppress(ProcessLookupError):
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._close_input()
        if self.gateway is not None:
            with contextlib.suppress(Exception):  # it closes our end; whatever it says, the other end is gone
                self.gateway.shutdown()

    def _close_input(self) -> None:
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()


def _told(path: str) -> tuple[int, str]:
    """The port and the secret that the JVM has written down: an int, and a text with its length before it."""
    with open(path, "rb") as file:
        port, length = struct.unpack(">ii", file.read(8))
        return port, file.read(length).decode()
