"""PostgreSQL's text of a whole row, such as `(1,"a, b",,"")`, to its values.

Rule: a value that is empty text stands in quotes, one that is NULL is not there at all. Values stay the bytes that
came.
"""

from __future__ import annotations

import re
from typing import Final

_FIELD: Final = re.compile(rb'[,(]("(?:[^"\\]++|""|\\\\)*+"|[^",()\\]*+)(?=[,)])')


def fields(text: bytes) -> list[bytes | None]:
    """The values of a row."""
    if b'"' not in text:
        return [value or None for value in text[1:-1].split(b",")] if len(text) > 2 else [None]
    return [_plain(value) if value else None for value in _FIELD.findall(text)]


def _plain(value: bytes) -> bytes:
    if value[0] != 34:
        return value
    value = value[1:-1]
    if b'""' in value:
        value = value.replace(b'""', b'"')
    return value.replace(b"\\\\", b"\\") if b"\\" in value else value
