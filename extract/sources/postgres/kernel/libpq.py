"""Where libpq's functions lie, for code that calls them without Python.

Rule: only those of the very library that psycopg has loaded. Another one may lay out a connection in another way.
"""

from __future__ import annotations

import ctypes
import os
import re
from functools import cache

_MAPS = "/proc/self/maps"
_NAME = re.compile(r"/libpq[-.][^/]*$")
_NOLOAD = getattr(os, "RTLD_NOLOAD", 0)


@cache
def functions() -> tuple[int, int] | None:
    """The addresses of PQgetCopyData and PQfreemem; None where not exactly one libpq is in memory."""
    try:
        with open(_MAPS, encoding="utf-8", errors="surrogateescape") as maps:
            paths = {line.split(maxsplit=5)[-1].rstrip("\n") for line in maps if _NAME.search(line.rstrip("\n"))}
        (path,) = paths
        library = ctypes.CDLL(path, mode=os.RTLD_NOW | _NOLOAD)
        first, second = (ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _NAMES)
    except (OSError, ValueError, AttributeError):  # no such file, two libraries, another one of that name
        return None
    return (first, second) if first and second else None


_NAMES = ("PQgetCopyData", "PQfreemem")
