"""What only a person at a terminal gets: colour, a line that shows a long command is alive, and paging.

Rule: none of it reaches a pipe, a file or JSON. NO_COLOR and TERM=dumb turn colour off.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import Self, TextIO

_COLOURS = {
    "RUNNING": "32", "STARTING": "36", "STOPPED": "33", "UNKNOWN": "33", "WARNING": "33", "ABENDED": "31", "DOWN": "31",
    "CRITICAL": "31", "ERROR": "31",
}  # fmt: skip
_WORDS = re.compile(rf"(?<![\w./-])(?:{'|'.join(_COLOURS)})(?![\w./-])")


def is_terminal(stream: TextIO) -> bool:
    """Does a person see what goes there?"""
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def has_colour(stream: TextIO) -> bool:
    """May colour go there?"""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in ("", "dumb")


def paint(line: str) -> str:
    """The line with its status words coloured; columns stay where they are."""
    return _WORDS.sub(lambda found: f"\x1b[{_COLOURS[found[0]]}m{found[0]}\x1b[0m", line)


class Progress:
    """Shows on one line that a command still works, and for how long; on no terminal a plain line now and then.

    Everything else that is printed meanwhile goes through `aside`, which takes that line away first.
    """

    FIRST_SECONDS = 1.0
    SPIN_SECONDS = 0.2
    PLAIN_SECONDS = 15.0
    _SPINNER = "|/-\\"

    def __init__(self, stream: TextIO, what: str, outer: Progress | None = None) -> None:
        self._stream = stream
        self._what = what
        self._outer = outer
        self._spins = is_terminal(stream)
        self._began = time.monotonic()
        self._shown = False
        self._paused = 0
        self._lock = threading.RLock()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)

    def __enter__(self) -> Self:
        if self._outer:
            self._outer.pause()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()
        self.clear()
        if self._outer:
            self._outer.resume()

    def pause(self) -> None:
        """Nothing is shown until resume(): somebody else has the terminal."""
        with self._lock:
            self._paused += 1
            self.clear()

    def resume(self) -> None:
        """The opposite of pause()."""
        with self._lock:
            self._paused -= 1

    def clear(self) -> None:
        """Take the line away, so that something else can be printed."""
        with self._lock:
            if self._shown:
                self._write("\r\x1b[K")
                self._shown = False

    def aside(self, text: str, stream: TextIO) -> None:
        """Print something that stays."""
        with self._lock:
            self.clear()
            print(text, file=stream, flush=True)

    def _watch(self) -> None:
        wait = self.FIRST_SECONDS if self._spins else self.PLAIN_SECONDS
        turn = 0
        while not self._done.wait(wait):
            wait = self.SPIN_SECONDS if self._spins else self.PLAIN_SECONDS
            with self._lock:
                if self._paused or (self._spins and not _echoes(self._stream)):
                    continue
                self._show(turn)
            turn += 1

    def _show(self, turn: int) -> None:
        seconds = time.monotonic() - self._began
        if self._spins:
            room = shutil.get_terminal_size().columns - 12
            self._write(f"\r{self._SPINNER[turn % 4]} {self._what[:room]} {seconds:.0f} s\x1b[K")
            self._shown = True
        else:
            self._write(f"{self._what}: {seconds:.0f} s so far\n")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the reader is gone, which whoever prints next is told
            self._done.set()


def _echoes(stream: TextIO) -> bool:
    """False while a password is typed: nothing may be written over its question."""
    import termios

    try:
        return bool(termios.tcgetattr(stream.fileno())[3] & termios.ECHO)
    except (OSError, ValueError, termios.error):
        return True


def page(lines: Sequence[str]) -> bool:
    """Show lines in the operator's pager; False if there is none, or they fit the screen."""
    if len(lines) < shutil.get_terminal_size().lines:
        return False
    command = os.environ.get("PAGER") or ("less -FRX" if shutil.which("less") else "more")
    try:
        pager = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, text=True, errors="replace")
    except (OSError, ValueError):
        return False
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the pager's now
    try:
        pager.communicate("".join(f"{line}\n" for line in lines))
    finally:
        signal.signal(signal.SIGINT, before)
    return True
