"""Database work, done by a sub-process of extract or replicat, because ggsci itself loads no driver.

One JSON request on its standard input, one JSON reply on its standard output. A password travels only there:
never on a command line, where everyone on the host could read it, nor in the environment.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from trails.errors import AwayError, OperatorError

TIMEOUT_S = 120.0

# Tests put a program of their own here.
COMMANDS: dict[str, list[str]] = {
    "extract": [sys.executable, "-P", "-m", "extract.admin"],
    "pump": [sys.executable, "-P", "-m", "pump.admin"],
    "replicat": [sys.executable, "-P", "-m", "replicat.admin"],
}


def ask(program: str, verb: str, *, seconds: float | None = None, **request: Any) -> dict[str, Any]:
    """Have `extract.admin`, `pump.admin` or `replicat.admin` do one thing.

    Raises OperatorError with what it says went wrong.
    """
    body, limit = json.dumps({"verb": verb, **request}).encode(), TIMEOUT_S if seconds is None else seconds
    try:
        done = subprocess.run(COMMANDS[program], input=body, capture_output=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        raise AwayError(f"{verb}: no answer from the database within {limit:.0f} s") from None
    except OSError as error:
        raise OperatorError(
            f"{program}.admin can't be run: {error.strerror}", hint="See that this host has memory and processes left"
        ) from None
    reply = _reply(done.stdout)
    if reply is None:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        what = lines[-1] if lines else "it said nothing"
        raise OperatorError(
            f"{program}.admin {verb} ended with code {done.returncode}: {what}",
            hint="Report it",
        )
    return _told(reply, verb)


def follow(program: str, verb: str, tell: Callable[[str], None], **request: Any) -> dict[str, Any]:
    """As ask(), for what takes as long as it takes: each line of its standard error is told as it comes."""
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
