"""What the demo shows: one line a phase, which changes while it runs; plain finished lines where no terminal is."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_TITLE = 26


class Line:
    """The line of a running phase."""

    def __init__(self, title: str, stream: TextIO) -> None:
        self._title = title.ljust(_TITLE)
        self._stream = stream
        self._changes = stream.isatty()
        self._begin = time.monotonic()
        self._result = ""
        self.update("")

    def update(self, text: str) -> None:
        """Show how far it is, and remember it as the result unless another comes."""
        self._result = text
        if self._changes:
            line = f"{self._stamp()} {self._title}{text}"
            self._stream.write(f"\r{line[: shutil.get_terminal_size().columns - 1]}\x1b[K")
            self._stream.flush()

    def end(self, *, failed: bool = False) -> None:
        """Leave the line as it is and go to the next."""
        if self._changes:
            self._stream.write("\r\x1b[K")
        mark = "FAILED " if failed else ""
        self._stream.write(f"{self._stamp()} {self._title}{mark}{self._result}\n")
        self._stream.flush()

    def _stamp(self) -> str:
        return f"{time.monotonic() - self._begin:5.1f} s"


class Screen:
    """Phases, headings, and what commands print."""

    def __init__(self, stream: TextIO = sys.stdout) -> None:
        self._stream = stream

    @contextmanager
    def phase(self, title: str) -> Iterator[Line]:
        """A phase of the demo with its line."""
        line = Line(title, self._stream)
        try:
            yield line
        except BaseException:
            line.end(failed=True)
            raise
        line.end()

    def say(self, text: str = "") -> None:
        """Plain text."""
        print(text, file=self._stream, flush=True)

    def show(self, command: str, output: str) -> None:
        """A command with what it printed."""
        self.say(f"\n$ {command}")
        self.say("\n".join(f"    {line}".rstrip() for line in output.strip("\n").splitlines()))
