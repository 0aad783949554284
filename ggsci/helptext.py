"""The text of a help entry, on a terminal and in Markdown.

Rule: a text is lines. A line that begins with `- ` is an item of a list, any other line is a paragraph of its own.
"""

from __future__ import annotations

import textwrap
from itertools import pairwise

WIDTH = 100


def wrapped(text: str) -> list[str]:
    """For HELP: indented by two, an item's further lines by two more."""
    return [
        part
        for line in text.splitlines()
        for part in textwrap.wrap(line, WIDTH + 2, initial_indent="  ", subsequent_indent="  " + _hang(line))
    ]


def markdown(text: str) -> str:
    """For a page: an empty line parts paragraphs, and parts a list from what stands around it."""
    lines = text.splitlines()
    parts = lines[:1]
    for before, line in pairwise(lines):
        parts += [line] if _hang(before) and _hang(line) else ["", line]
    return "\n".join(parts)


def _hang(line: str) -> str:
    return "  " if line.startswith("- ") else ""
