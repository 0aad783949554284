"""SQLite as a kind of target."""

from __future__ import annotations

from typing import Final

from replicat.targets.contract import Capabilities, Kind
from replicat.targets.sqlite.words import SCHEME, WORDS


def _url_fault(url: str) -> str:
    path = url.removeprefix(SCHEME)
    if not url.startswith(SCHEME):
        return f"expected {SCHEME}file, found two slashes"
    return f"expected {SCHEME}path of a file, found none" if not path.strip("/") or path.endswith("/") else ""


SQLITE: Final = Kind(
    title="SQLite",
    url="sqlite:///file",
    url_fault=_url_fault,
    is_file=True,
    about="SELECT 'SQLite ' || sqlite_version(), 'UTF-8'",
    words=WORDS,
    can=Capabilities(waits_open=False),
    target="replicat.targets.sqlite.target:sqlite_target",
    admins="replicat.targets.sqlite.admin:SqliteAdmin",
    changes="replicat.targets.sqlite.ddl:SqliteDialect",
    reads="replicat.targets.sqlite.grammar:GRAMMAR",
)
