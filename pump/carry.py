"""`python -P -m pump.carry`: sends the file of a task that reads tables, whole (RMTFILE). Its Extract starts it.

    first line of standard input     where to: the Manager there is greeted at once, so that a mistake is told early
    second line                      the file is finished: it is sent, by a Pump that ends where the file does; then the
                                     Manager there is asked to start the Replicat that RMTTASK names, if it does
    standard output                  a line of JSON: how far it is, that it is there, or why it can't be

Rule: the Extract knows no link, and this knows no source. It ends with its input, so also when its Extract is killed;
the other host then has the file of the run before.
"""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Iterator
from typing import Any

from pump.job import PumpJob
from pump.link import LinkRequest, ask
from pump.params import DEFAULT_RETRY_DELAY, DEFAULT_RETRY_SECONDS, PumpParams
from pump.pump import Pump
from trails.clock import RealClock
from trails.errors import AwayError, GateError
from trails.link import tls
from trails.position import START, Position, TrailName
from trails.runtime.home.home import Home
from trails.runtime.language.remotehost import CarryOrder
from trails.runtime.masking import mask
from trails.runtime.process import clockdiff
from trails.runtime.process.backoff import Backoff
from trails.runtime.report.report import Log, quietly

PRODUCT = "EXTRACT"
MEGABYTES = 1 << 40
"""Of a file at the other host: it never rolls over."""
TELL_SECONDS = 1.0


def main() -> int:
    """The exit code, which the last line says too where it is not 0."""
    os.umask(0o077)
    lines = _lines()
    first = next(lines, None)
    if first is None:
        return 0
    order = CarryOrder.of(first)
    home = Home.at(order.home)
    log = Log(home, PRODUCT, order.group, RealClock())
    try:
        _greet(order, home)
        second = next(lines, None)
        if second is not None and _send(_job(order, home, second), home, log) and _start(order, home):
            tell(done=True)
    except GateError as error:
        tell(error=mask(error.message), hint=error.hint, code=error.exit_code)
        return error.exit_code
    finally:
        quietly(log.end)
    return 0


def tell(**said: Any) -> None:
    """One line to the Extract; if that is gone, the input says so too."""
    try:
        print(json.dumps(said), flush=True)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  -- for what Python flushes at its end


def _lines() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        yield json.loads(line)


def _asked(order: CarryOrder, home: Home) -> LinkRequest:
    remote = order.remote
    folder = tls.folder_of(home.root) if remote.tls else ""
    return LinkRequest(remote.host, remote.port, order.file, f"{home.id}/{order.group}", b"", folder)


def _greet(order: CarryOrder, home: Home) -> None:
    """A mistake ends the Extract before it reads anything; who is away may have come back by then."""
    seconds = float(order.remote.dead_seconds)
    try:
        ask(_asked(order, home), seconds, seconds, "PING")
        tell(waits="")
    except AwayError as error:
        tell(waits=_waits(order, error))


def _waits(order: CarryOrder, error: AwayError) -> str:
    return f"Waiting for the Manager at {order.remote.host}:{order.remote.port}: {mask(error.message)}"


def _job(order: CarryOrder, home: Home, told: dict[str, Any]) -> PumpJob:
    folder, prefix, wallet = told["trail"]
    params = PumpParams(order.group, order.remote, order.file, encrypt=order.encrypt)
    return PumpJob(
        params, home.id, order.host, TrailName(folder, prefix, wallet), prefix, MEGABYTES,
        home.pinned(order.group), tls.folder_of(home.root) if order.remote.tls else "",
        clock_diff_s=clockdiff.DEFAULT_SECONDS, whole=Position(*told["whole"]),
    )  # fmt: skip


def _send(job: PumpJob, home: Home, log: Log) -> bool:
    """Until the file is there; False if the Extract is gone."""
    clock = RealClock()
    pump = Pump(job, home.fs, log, clock)
    try:
        due = clock.monotonic()
        while True:
            more = pump.step()
            here = pump.status().read
            place = Position(here.seqno, here.rba) if here is not None else START
            if place == job.whole:
                tell(sent=place.rba)
                return True
            if (now := clock.monotonic()) >= due:
                due = now + TELL_SECONDS
                tell(sent=place.rba, waits=pump.waits_for())
            if _is_over(home, pump.waits(), 0.0 if more else pump.idle_seconds()):
                return False
    finally:
        pump.close()


def _start(order: CarryOrder, home: Home) -> bool:
    """Have the Replicat started that RMTTASK names, if it does; False if the Extract is gone.

    Its Manager may have gone since, or a run of it is not over yet. If only the answer was lost, that run ends, and
    another one finds nothing to do.
    """
    seconds, clock = float(order.remote.dead_seconds), RealClock()
    backoff = Backoff(DEFAULT_RETRY_SECONDS, DEFAULT_RETRY_DELAY)
    while order.task:
        try:
            ask(_asked(order, home), seconds, seconds, "START TASK")
            break
        except AwayError as error:
            again = backoff.again(clock.monotonic())
            if again is None:
                raise
            tell(waits=_waits(order, error))
        while (left := again - clock.monotonic()) > 0:
            if _is_over(home, [], left):
                return False
    return True


def _is_over(home: Home, waits: list[int], seconds: float) -> bool:
    """Wait until there is something to do; whether the Extract is gone."""
    found = home.fs.host.poll([*waits, sys.stdin.fileno()], min(TELL_SECONDS, seconds))
    return any(fd == sys.stdin.fileno() and events & (select.POLLIN | select.POLLHUP) for fd, events in found)


if __name__ == "__main__":
    sys.exit(main())
