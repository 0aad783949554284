"""An SQLite file as a source: what others ask of it. No driver is imported here; the methods import what they need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from extract.heartbeat import Owner, Seed
from extract.queueguard import KEYWORDS
from extract.source import CaptureMethod, Reply, Say, Source, SourceKind, SourceSettings, TableReader, Verb
from trails.errors import OperatorError
from trails.runtime.home.methods import METHODS
from trails.runtime.language.params import Keyword
from trails.runtime.process.checking import Findings
from trails.runtime.report.stats import DdlCounts

if TYPE_CHECKING:
    from sqlite3 import Connection


class SqliteKind:
    """This database as a source; extract.source.SourceKind says what each method does."""

    name = "SQLite"
    example = "sqlite:////var/lib/shop.db"
    is_file = True
    keeps_csns = False  # what is read in one look is one transaction
    untyped = True
    places = ()
    keywords: Mapping[str, Keyword] = KEYWORDS

    @property
    def methods(self) -> Mapping[str, CaptureMethod]:
        return {METHODS[0]: self}

    def unverified(self, url: str) -> str:  # noqa: ARG002  -- the protocol's signature
        """Nothing: a file has no link."""
        return ""

    def connect(self, url: str, application: str) -> Connection:  # noqa: ARG002  -- the protocol's signature
        from extract.sources.sqlite.link import connect

        return connect(url)

    def verbs(self) -> Mapping[str, Verb]:
        from extract.sources.sqlite.admin import verbs

        return verbs()

    def check(self, connection: Connection, settings: SourceSettings, found: Findings) -> None:
        from extract.sources.sqlite.link import mapped
        from extract.sources.sqlite.source import faults

        with mapped():
            found.mistakes += [f"{what}. {mend}" for what, mend in faults(connection, settings)]
        if settings.registered is None:
            found.notes.append(f"The queue was not checked: REGISTER EXTRACT {settings.group} makes it")

    def tables(self, connection: Connection) -> list[tuple[str, str]]:
        from extract.sources.sqlite.link import SCHEMA, mapped
        from extract.sources.sqlite.tables import names

        with mapped():
            return [(SCHEMA, name) for name in names(connection)]

    def table_reader(self, settings: SourceSettings) -> TableReader:
        raise OperatorError(
            f"EXTRACT {settings.group}: SOURCEISTABLE does not read SQLite",
            hint="INSTANTIATE REPLICAT loads tables of it (docs/initial-load.md)",
        )

    def kept(self, connection: Connection, settings: SourceSettings) -> Reply:
        from extract.sources.sqlite.admin import kept

        return kept(connection, settings)

    def captured(self, connection: Connection, settings: SourceSettings, goal: str, seconds: float) -> Reply:  # noqa: ARG002
        from extract.sources.sqlite.admin import captured

        return captured(connection, goal, seconds)

    def source(self, settings: SourceSettings, say: Say, warn: Say, counts: DdlCounts) -> Source:
        from extract.sources.sqlite.source import SqliteSource

        return SqliteSource(settings, say, warn, counts)

    def seed(self, settings: SourceSettings, owner: Owner) -> Seed:
        from extract.sources.sqlite.heartbeat import SqliteSeed

        return SqliteSeed(settings, owner)


SQLITE: Final[SourceKind] = SqliteKind()
