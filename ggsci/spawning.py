"""Starting processes of a home: the Manager, groups and Collectors, which outlive their starter, and the page.

Each gets a session of its own (a terminal's signals don't reach it), the home as its folder, nothing or a pipe as
standard input, and `dirrpt/<NAME>.out` for what it says before it has a report: an import error, a wrong command line.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import IO

from trails.fs import NO_SPACE
from trails.runtime.home.home import Home

Child = subprocess.Popen[bytes]


def spawn(home: Home, command: Sequence[str], name: str, *, pipe: bool = False, keep: Sequence[int] = ()) -> Child:
    """Start it; `keep`: descriptors that it inherits. Raises OSError."""
    with _output(home, name) as out:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE if pipe else subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            pass_fds=keep, start_new_session=True, cwd=home.root,
        )  # fmt: skip


def _output(home: Home, name: str) -> IO[bytes]:
    """Its file; on a full disk, nowhere."""
    try:
        return open(out_file(home, name), "wb")
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        return open(os.devnull, "wb")


def out_file(home: Home, name: str) -> str:
    """What it said outside its report; of its last start only."""
    return os.path.join(home.folder("dirrpt"), f"{name}.out")


def last_words(home: Home, name: str) -> str:
    """The last line of that."""
    try:
        with open(out_file(home, name), encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
    except OSError:
        lines = []
    return lines[-1] if lines else "it said nothing"
