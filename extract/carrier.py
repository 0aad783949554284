"""The process that sends a task's file to another host (RMTFILE): `pump.carry`, whose head says what is said to it.

Rule: an Extract knows no link. The process ends with our end, as its standard input does.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import asdict
from typing import Any, Final

from trails.errors import EXIT_AWAY, AwayError, OperatorError
from trails.position import Position, TrailName
from trails.runtime.language.remotehost import CarryOrder

COMMAND: Final = (sys.executable, "-P", "-m", "pump.carry")
CLOSE_SECONDS: Final = 10.0


class Carrier:
    """One such process, from START on."""

    def __init__(self, order: CarryOrder, command: tuple[str, ...] = COMMAND) -> None:
        self.where = order.remote.host
        self.sent = 0
        self.waits_for = ""
        self._heard = b""
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        os.set_blocking(self._out, False)
        self._say(**asdict(order))

    @property
    def _out(self) -> int:
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def _say(self, **order: Any) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # why it has ended is heard
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()

    def begin(self, file: TrailName, whole: Position) -> None:
        """The file is finished, and ends at `whole`."""
        self._say(trail=[file.folder, file.prefix, file.wallet_folder], whole=[whole.seqno, whole.rba])

    def step(self) -> bool:
        """Hear how far it is; whether the file is there. Raises what the process could not mend."""
        while True:
            try:
                data = os.read(self._out, 1 << 16)
            except BlockingIOError:
                return False
            if not data:
                raise self._gone()
            *lines, self._heard = (self._heard + data).split(b"\n")
            if any(self._hear(json.loads(line)) for line in lines):
                return True

    def _hear(self, said: dict[str, Any]) -> bool:
        if "error" in said:
            kind = AwayError if said["code"] == EXIT_AWAY else OperatorError
            raise kind(said["error"], hint=said["hint"])
        self.sent, self.waits_for = said.get("sent", self.sent), said.get("waits", "")
        return bool(said.get("done"))

    def _gone(self) -> AwayError:
        code = self._process.wait()
        return AwayError(
            f"the process that sends the file to {self.where} ended with exit code {code}",
            hint="The report and ggserr.log may say why; then START",
        )

    def fileno(self) -> int:
        """Readable when there is something to hear."""
        return self._out

    def close(self) -> None:
        """End it, with its input; one that does not end is killed."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
