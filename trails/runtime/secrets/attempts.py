"""What a client library says of a connection that it did not get: each attempt's own words.

To one URL a library makes several attempts: with TLS and without it, at each address, at each host. Its message has the
words of all of them, one part each:

    connection to server at "db1" (10.0.0.1), port 5432 failed: SSL error: unexpected eof while reading
    connection to server at "db1" (10.0.0.1), port 5432 failed: FATAL:  no pg_hba.conf entry for host ...

Rule: a person must act only if each attempt says so. One that was cut, or met nobody, can end otherwise the next time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_PART: Final = "connection to server "
_LIST: Final = "All failures were:"
_ITEM: Final = "\n- host: "


def attempts(text: str, hosts: Sequence[str] = ()) -> list[str]:
    """The words of each attempt; empty ones for each of several `hosts` of which the text says nothing.

    A text that names no attempt is one itself.
    """
    _, listed, items = text.rpartition(_LIST)
    found: list[str] = []
    for item in items.split(_ITEM)[1:] if listed else [text]:
        parts = item.split(_PART)
        found += parts[1:] or parts
    if len(hosts) > 1:
        found += ["" for host in hosts if host not in text]
    return found


def refused_for_good(text: str, hosts: Sequence[str], verdicts: Sequence[str], passing: Sequence[str] = ()) -> bool:
    """Whether each attempt ended with one of the `verdicts`, and with none of the words of what passes by itself."""
    return all(
        any(verdict in words for verdict in verdicts) and not any(known in words for known in passing)
        for words in attempts(text, hosts)
    )
