"""The source databases: one line for each scheme that SOURCEDB's URL may have.

Rule: nothing else imports a database's folder, and an import contract holds that. What a new database must fill in is
`extract.source.SourceKind`, in `extract/sources/<database>/kind.py`, and the `Source` that it opens. Whoever reads a
parameter file loads every kind, so `kind.py` imports no driver: its methods do, when they are called.
"""

from __future__ import annotations

from typing import Any, Final

from extract.source import CaptureMethod, SourceKind
from extract.sources.mysql.kind import MYSQL
from extract.sources.postgres.kind import POSTGRES
from extract.sources.sqlite.kind import SQLITE
from trails.errors import OperatorError
from trails.runtime.home.methods import PLACES
from trails.runtime.language.params import Keyword
from trails.runtime.secrets.logins import Urls

KINDS: Final[dict[str, SourceKind]] = {
    "postgresql": POSTGRES,
    "postgres": POSTGRES,
    "mysql": MYSQL,
    "mariadb": MYSQL,
    "sqlite": SQLITE,
}
# The first scheme is that of `host:port/database`, where nothing says what kind of database is there.
URLS: Final = Urls({scheme: kind.name for scheme, kind in KINDS.items()}, {k.name for k in KINDS.values() if k.is_file})


def of(url: str) -> SourceKind:
    """The kind of database that a URL names. Raises OperatorError for a scheme that is not in the table."""
    scheme, colon, _ = url.partition("://")
    if colon and scheme in KINDS:
        return KINDS[scheme]
    raise OperatorError(f"SOURCEDB: a URL of kind {scheme[:20]!r}", hint=f"Expected a URL such as {examples()}")


def method(kind: SourceKind, word: str) -> CaptureMethod:
    """A way to capture a database by the word of ADD EXTRACT. Raises OperatorError where the database has no such."""
    found = kind.methods.get(word) if word else next(iter(kind.methods.values()))
    if found is None:
        raise OperatorError(
            f"{kind.name} can't be captured by {word}; expected {' or '.join(kind.methods)}",
            hint=f"DELETE EXTRACT, then ADD EXTRACT with {next(iter(kind.methods))}",
        )
    return found


def placed(kind: SourceKind, order: dict[str, Any], who: str = "ALTER EXTRACT") -> dict[str, Any]:
    """The order of an ADD or ALTER as the source takes it. Raises OperatorError where its log is not found so."""
    for key, word in PLACES.items():
        if key in order and key not in kind.places:
            raise OperatorError(
                f"{who}: the log of {kind.name} is not found by {word}",
                hint="Use BEGIN NOW, CSN, or EXTSEQNO and EXTRBA. To apply changes of the trail again, ALTER its "
                "readers with BEGIN",
            )
    if "lognum" not in order:
        return order
    left = {key: value for key, value in order.items() if key not in ("lognum", "logpos")}
    return {**left, "seqno": order["lognum"], "rba": order["logpos"]}


def examples() -> str:
    """A URL of each kind, for messages."""
    return " or ".join(dict.fromkeys(kind.example for kind in KINDS.values()))


def untyped() -> str:
    """The databases in which one column may hold values of several types."""
    return " or ".join(dict.fromkeys(kind.name for kind in KINDS.values() if kind.untyped))


def keywords() -> dict[str, Keyword]:
    """The parameters of all kinds that have some of their own."""
    return {name: keyword for kind in KINDS.values() for name, keyword in kind.keywords.items()}
