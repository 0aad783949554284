"""What a client library says of a connection that it did not get: each attempt's own words.

To one URL a library makes several attempts: with TLS and without it, at each address, at each host. Its message has the
words of all of them, one part each:

    connection to server at "db1" (10.0.0.1), port 5432 failed: SSL error: unexpected eof while reading
    connection to server at "db1" (10.0.0.1), port 5432 failed: FATAL:  no pg_hba.conf entry for host ...

Rule: a person must act only if each attempt says so, in words that are known here. One that was cut, or met nobody, can
end otherwise the next time; so can one that ended with words that nobody knows (of a proxy, in another language).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_PART: Final = "connection to server "
_LIST: Final = "All failures were:"
_ITEM: Final = "\n- host: "
_NAME: Final = re.compile(r"""\"[^"]*"|(?<!\w)'[^']*'""")
"""What stands in quotes is a host, a user or a database, and may be called anything."""

_VERDICTS: Final = (
    "authentication failed", "does not exist", "no pg_hba.conf entry", "pg_hba.conf rejects", "no password supplied",
    "empty password", "permission denied", "not permitted to log in", "must be superuser", "invalid connection option",
    "invalid port number", "invalid integer value",
)  # fmt: skip
_PASSING: Final = ("starting up", "shutting down", "recovery", "too many", "terminating", "canceling", "try again")
"""Whatever else is said beside it."""


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
        found += ["" for host in hosts if not any(f"{quote}{host}{quote}" in text for quote in "'\"")]
    return found


def refused_for_good(text: str, hosts: Sequence[str]) -> bool:
    """Whether each attempt ended with a verdict, and none with words of what passes by itself."""
    return all(_is_verdict(_NAME.sub("", words)) for words in attempts(text, hosts))


def _is_verdict(words: str) -> bool:
    return any(verdict in words for verdict in _VERDICTS) and not any(known in words for known in _PASSING)
