"""What a click on a stage or a home shows: the same text that ggsci prints, and the ends of files.

Rule: commands that look are run as ggsci runs them, so the page and the prompt can't say different things, but leave no
line in ggserr.log. Files are read a piece at a time; passwords are masked on the way out.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ggsci.commands.session import OperatorSession
from trails.errors import GateError
from trails.runtime.home import registration as registrations
from trails.runtime.home.home import MANAGER, Home, group_name
from trails.runtime.home.registration import Registration
from trails.runtime.masking import mask, mask_parameters
from trails.runtime.secrets.credentials import hide_file
from trails.taming import tame

PIECE = 128 << 10
MAX_TEXT = 1 << 20
MAX_PARAMETERS = 1 << 20
AGED = 10
MAX_PIECES = 64
"""So many pieces of a log are looked through for one page."""


@dataclass(frozen=True, slots=True)
class TextShown:
    """A text to show; `before` and `after` are where the neighbouring pieces of the file end, None if there is none."""

    text: str
    title: str = ""
    before: int | None = None
    after: int | None = None


class _Looking(OperatorSession):
    """A session whose commands leave no trace."""

    def _log(self, line: str) -> None:  # noqa: ARG002  -- the signature of Session
        return


def ggsci(home: Home, line: str) -> TextShown:
    """What ggsci prints for this command. Only commands made here are given to it, never a browser's words."""
    out = io.StringIO()
    session = _Looking(home.root, out=out, err=out)
    session.run_quietly(line)
    text = out.getvalue()
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}\n... and {len(text) - MAX_TEXT} characters more: use ggsci"
    return TextShown(mask(text).strip("\n"), line)


def group(home: Home, name: str) -> Registration | None:
    """The registered group of that name."""
    try:
        return registrations.load(home, group_name(name))
    except GateError:
        return None


def reports(home: Home, name: str) -> list[int]:
    """The ages of the older reports that exist."""
    return [age for age in range(AGED) if os.path.exists(home.report(name, age))]


def parameters(home: Home, name: str) -> TextShown:
    """A parameter file, passwords masked."""
    path = home.prm("mgr" if name == MANAGER else name)
    hide_file(path)
    try:
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            return TextShown(mask_parameters(file.read(MAX_PARAMETERS)).rstrip("\n"), home.shown(path))
    except OSError as error:
        return TextShown(f"{home.shown(path)}: {error.strerror}", home.shown(path))


SEVERITIES: Mapping[str, tuple[str, ...]] = {
    "all": (), "warnings": ("WARNING", "ERROR"), "errors": ("ERROR",),
}  # fmt: skip
"""What may be chosen of the event log; nothing is all of it."""
_HEAD = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S*\s+(INFO|WARNING|ERROR)\b")


def events(home: Home, path: str, end: int | None, severity: str) -> TextShown:
    """The piece of the event log that ends at `end`, of one severity and worse; empty pieces are left out.

    A message may have several lines: those behind its first are of its severity.
    """
    wanted = SEVERITIES[severity]
    found = piece(home, path, end)
    if not wanted:
        return found
    after = found.after
    for _ in range(MAX_PIECES):
        if (text := _only(found.text, wanted)) or found.before is None:
            break
        found = piece(home, path, found.before)
    return TextShown(text, f"{found.title}, {severity}", found.before, after)


def _only(text: str, wanted: tuple[str, ...]) -> str:
    kept, take = [], False
    for line in text.split("\n"):
        if head := _HEAD.match(line):
            take = head[1] in wanted
        if take:
            kept.append(line)
    return "\n".join(kept)


def piece(home: Home, path: str, end: int | None) -> TextShown:
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
        return TextShown(f"{shown}: {error.strerror}", shown)
    if start and b"\n" in data:
        cut = data.index(b"\n") + 1
        start, data = start + cut, data[cut:]
    after = min(size, stop + PIECE) if stop < size else None
    return TextShown(tame(mask(data.decode("utf-8", "replace"))).rstrip("\n"), shown, start or None, after)
