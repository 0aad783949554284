"""A table's statement, as sqlite_schema keeps it, for others to read: without what may be a password or a value.

Each literal of text or bytes becomes '...', each number ..., each comment a blank. A default in double quotes is text
to SQLite, everything else in double quotes is taken for a name.
"""

from __future__ import annotations

import re
from typing import Final

_PIECE: Final = re.compile(
    r"""
    (?P<default>\bDEFAULT[\s(]*)"(?:[^"]|"")*"
    | (?P<name>"(?:[^"]|"")*" | `(?:[^`]|``)*` | \[[^\]]*\] | [A-Za-z_\x80-\U0010ffff][\w$]*(?!['\w]))
    | (?P<text>[xX]?'(?:[^']|'')*')
    | (?P<comment>--[^\n]* | /\*.*?(?:\*/|\Z))
    | (?P<number>0[xX][0-9a-fA-F]+ | (?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)


def hidden(sql: str) -> str:
    """The statement without its literals and comments, on one line."""
    return " ".join(_PIECE.sub(_told, sql).split())


def _told(piece: re.Match[str]) -> str:
    match piece.lastgroup:
        case "name":
            return piece[0]
        case "comment":
            return " "
        case "number":
            return "..."
    return f"{piece['default'] or ''}'...'"
