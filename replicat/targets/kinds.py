"""The target databases: one line for each scheme that TARGETDB's URL may have.

Rule: a kind loads its driver only when a target is opened. A new kind is a folder beside this file, and its line.
"""

from __future__ import annotations

from typing import Final

from replicat.targets.contract import Admin, Kind, Target, TargetSettings
from replicat.targets.mysql.kind import MYSQL
from replicat.targets.postgres.kind import POSTGRES
from replicat.targets.sqlite.kind import SQLITE
from trails.errors import OperatorError
from trails.runtime.secrets.logins import Urls

KINDS: Final[dict[str, Kind]] = {
    "postgresql": POSTGRES,
    "postgres": POSTGRES,
    "mysql": MYSQL,
    "mariadb": MYSQL,
    "sqlite": SQLITE,
}
SOURCES: Final = {**KINDS, "mariadb": MYSQL}
"""Whose dialect a trail's native types and defaults are in, by the kind of source that its header names."""
# The first scheme is that of `host:port/database`, where nothing says what kind of database is there.
TITLES: Final = {kind.title: kind for kind in KINDS.values()}
URLS: Final = Urls(
    {scheme: kind.title for scheme, kind in KINDS.items()}, {k.title for k in KINDS.values() if k.is_file}
)


def kind_of(url: str) -> Kind:
    """The kind that a URL's scheme stands for."""
    scheme = url.partition("://")[0].lower()
    if scheme not in KINDS:
        expected = ", ".join(f"{known}://" for known in KINDS)
        raise OperatorError(f"TARGETDB: a URL of kind {scheme[:20]!r}", hint=f"Expected one of {expected}")
    return KINDS[scheme]


def url_fault(url: str) -> str:
    """What is wrong with a TARGETDB, to be found without a database; empty if nothing is."""
    scheme, sign, _ = url.partition("://")
    if sign and scheme in KINDS:
        return KINDS[scheme].url_fault(url)
    return f"expected {shapes()}; found a URL of kind {repr(scheme[:20]) if sign else 'none'}"


def shapes() -> str:
    """How a URL of each kind is written."""
    *most, last = (kind.url for kind in TITLES.values())
    return f"{', '.join(most)} or {last}"


def open_target(settings: TargetSettings) -> Target:
    """A target, not connected yet."""
    return kind_of(settings.url).open(settings)


def admin_for(url: str) -> Admin:
    """Who does the work of replicat/admin.py in the database of a URL."""
    return kind_of(url).admin()
