"""What a click on a stage or a home shows: the same text that ggsci prints, and the ends of files.

Rule: commands that look are run as ggsci runs them, so the page and the prompt can't say different things, but leave no
line in ggserr.log. Files are read a piece at a time; passwords are masked on the way out.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass

from ggsci.check import discard_path
from ggsci.session import Session
from trails.errors import GateError
from trails.runtime import registration as registrations
from trails.runtime.credentials import hide_file
from trails.runtime.home import MANAGER, Home, group_name
from trails.runtime.masking import mask, mask_parameters
from trails.runtime.registration import Registration

PIECE = 128 << 10
MAX_TEXT = 1 << 20
MAX_PARAMETERS = 1 << 20
AGED = 10


@dataclass(frozen=True, slots=True)
class Text:
    """A text to show; `before` and `after` are where the neighbouring pieces of the file end, None if there is none."""

    text: str
    title: str = ""
    before: int | None = None
    after: int | None = None


class _Looking(Session):
    """A session whose commands leave no trace."""

    def _log(self, line: str) -> None:  # noqa: ARG002  -- the signature of Session
        return


def ggsci(home: Home, line: str) -> Text:
    """What ggsci prints for this command. Only commands made here are given to it, never a browser's words."""
    out = io.StringIO()
    session = _Looking(home.root, out=out, err=out)
    session.run_quietly(line)
    text = out.getvalue()
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}\n... and {len(text) - MAX_TEXT} characters more: use ggsci"
    return Text(mask(text).strip("\n"), line)


def group(home: Home, name: str) -> Registration | None:
    """The registered group of that name."""
    try:
        return registrations.load(home, group_name(name))
    except GateError:
        return None


def report(home: Home, name: str, age: int | None, end: int | None) -> Text:
    """A piece of a report; `age` 0..9 is an older one."""
    return piece(home, home.report(name, age), end)


def reports(home: Home, name: str) -> list[int]:
    """The ages of the older reports that exist."""
    return [age for age in range(AGED) if os.path.exists(home.report(name, age))]


def discard(home: Home, found: Registration, end: int | None) -> Text:
    """A piece of a Replicat's discard file."""
    return piece(home, discard_path(home, found), end)


def parameters(home: Home, name: str) -> Text:
    """A parameter file, passwords masked."""
    path = home.prm("mgr" if name == MANAGER else name)
    hide_file(path)
    try:
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            return Text(mask_parameters(file.read(MAX_PARAMETERS)).rstrip("\n"), home.shown(path))
    except OSError as error:
        return Text(f"{home.shown(path)}: {error.strerror}", home.shown(path))


def piece(home: Home, path: str, end: int | None) -> Text:
    """At most PIECE bytes of a text file that end at `end` (None: the file's end), whole lines, passwords masked."""
    shown = home.shown(path)
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            stop = size if end is None else max(0, min(end, size))
            start = max(0, stop - PIECE)
            file.seek(start)
            data = file.read(stop - start)
    except OSError as error:
        return Text(f"{shown}: {error.strerror}", shown)
    if start and b"\n" in data:
        cut = data.index(b"\n") + 1
        start, data = start + cut, data[cut:]
    after = min(size, stop + PIECE) if stop < size else None
    return Text(mask(data.decode("utf-8", "replace")).rstrip("\n"), shown, start or None, after)
