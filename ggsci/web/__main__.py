"""The page's process: `python -P -m ggsci.web --home DIR`, started by the Manager, which never waits for it.

Standard input carries its parameters as one line of JSON, and is its leash: when that ends, so does the process,
because then its Manager is gone. Exit codes as of every process: 2 somebody must mend something, 3 trying again may
help.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

from ggsci.manager.webparams import MAX_LINE, WebParams
from trails.clock import RealClock
from trails.errors import EXIT_AWAY, EXIT_BUG, EXIT_OPERATOR, EXIT_STOPPED, GateError, OperatorError
from trails.runtime.home.home import Home
from trails.runtime.masking import mask
from trails.runtime.report.report import Log
from trails.taming import tame

END_SECONDS = 5.0
SERVES, FAILED, REFUSED = "TG-01960", "TG-01961", "TG-01964"
MAX_UNTOLD = 100


class _PageArguments(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OperatorError(f"ggsci.web: {message}")


def main(argv: list[str]) -> int:
    """Serve until the Manager ends; returns the exit code."""
    try:
        home, params = _given(argv)
    except (GateError, ValueError) as error:
        print(tame(f"ERROR: {mask(str(error))}"), file=sys.stderr)
        return EXIT_OPERATOR
    log = Log(home, "Trailgate Web", "mgr.prm", RealClock())
    try:
        _serve(home, params, log)
    except GateError as error:
        print(tame(f"ERROR: {mask(str(error))}"), file=sys.stderr)
        log.error(FAILED, f"The page ends: {error}")
        return EXIT_OPERATOR if isinstance(error, OperatorError) else EXIT_AWAY
    except Exception as error:  # noqa: BLE001  -- a thread that hangs would hold up the end of a plain traceback
        log.error(FAILED, f"The page ends by a bug in Trailgate: {error!r}")
        traceback.print_exc()
        return EXIT_BUG
    finally:
        log.end()
    return EXIT_STOPPED


def _given(argv: list[str]) -> tuple[Home, WebParams]:
    parser = _PageArguments(prog="ggsci.web")
    parser.add_argument("--home", required=True)
    options = parser.parse_args(argv)
    line = sys.stdin.buffer.readline(MAX_LINE).decode("utf-8", "replace")
    return Home.at(options.home), WebParams.from_line(line)


def _serve(home: Home, params: WebParams, log: Log) -> None:
    from ggsci.manager.webtokens import ensure_token
    from ggsci.web import server
    from ggsci.web.watch import HomesWatch

    ensure_token(home)
    ended = threading.Event()
    threading.Thread(target=_wait_for_end, args=(ended,), daemon=True).start()
    if not params.is_loopback and params.plain:
        log.warning(SERVES, f"The page is served without TLS at {params.bind}: anybody on the way can read the token.")
    for other in params.homes:
        if other.is_open_to_others:
            log.warning(
                SERVES, f"WEBHOME {other.name}: its token goes to {other.url} without TLS: anybody can read it."
            )
    served = f"The page is served at {params.url(os.uname().nodename)}"
    server.serve(home, params, HomesWatch(home, params), ended, lambda: log.info(SERVES, served), _teller(log))


def _teller(log: Log) -> Callable[[str], None]:
    """Writes lines about wrong tokens on a thread of its own: the site waits for no disk, and no stranger fills one."""
    lines: queue.Queue[str] = queue.Queue(MAX_UNTOLD)

    def write() -> None:
        while True:
            log.warning(REFUSED, lines.get(), alike="wrong token")

    def tell(line: str) -> None:
        with contextlib.suppress(queue.Full):
            lines.put_nowait(line)

    threading.Thread(target=write, name="tell", daemon=True).start()
    return tell


def _wait_for_end(ended: threading.Event) -> None:
    """The Manager never writes a second line: whatever comes is the end, also of a page that hangs."""
    with contextlib.suppress(OSError, ValueError):
        os.read(sys.stdin.fileno(), 1)
    ended.set()
    time.sleep(END_SECONDS)
    os._exit(EXIT_AWAY)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a look that hangs in a thread must not hold up the end
