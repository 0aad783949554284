"""MySQL and MariaDB as a source: what others ask of them. No driver is imported here, but by methods that need it.

One kind for both: which of them answers is seen when it is asked (flavour.py), whatever the URL's scheme says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from extract.heartbeat import Owner, Seed
from extract.source import CaptureMethod, Reply, Say, Source, SourceKind, SourceSettings, TableReader, Verb
from extract.sources.mysql.words import KEYWORDS
from trails.errors import OperatorError
from trails.runtime.home.methods import METHODS, PLACES
from trails.runtime.language.params import Keyword
from trails.runtime.process import checking
from trails.runtime.process.checking import Findings
from trails.runtime.report.stats import DdlCounts

if TYPE_CHECKING:
    from extract.sources.mysql.link import MysqlSession


class MysqlKind:
    """This database as a source; extract.source.SourceKind says what each method does."""

    name = "MySQL"
    example = "mysql://user:password@host:3306/database"
    is_file = False
    keeps_csns = True
    untyped = False
    places = tuple(PLACES)
    keywords: Mapping[str, Keyword] = KEYWORDS

    @property
    def methods(self) -> Mapping[str, CaptureMethod]:
        return {METHODS[0]: self}

    def unverified(self, url: str) -> str:
        from extract.sources.mysql.link import SourceUrl

        where = SourceUrl.parse(url)
        return "" if where.unix_socket or where.verifies else checking.unverified([where.host], "ssl_ca=/path/ca.crt")

    def connect(self, url: str, application: str) -> MysqlSession:
        from extract.sources.mysql.link import MysqlSession

        return MysqlSession(url, application)

    def verbs(self) -> Mapping[str, Verb]:
        from extract.sources.mysql.admin import verbs

        return verbs()

    def check(self, connection: MysqlSession, settings: SourceSettings, found: Findings) -> None:
        from extract.sources.mysql.check import check

        check(connection, settings, found)

    def tables(self, connection: MysqlSession) -> list[tuple[str, str]]:
        from extract.sources.mysql.tables import names

        return names(connection)

    def table_reader(self, settings: SourceSettings) -> TableReader:
        raise OperatorError(
            f"EXTRACT {settings.group}: SOURCEISTABLE does not read MySQL or MariaDB",
            hint="INSTANTIATE REPLICAT loads tables of it (docs/initial-load.md)",
        )

    def kept(self, connection: MysqlSession, settings: SourceSettings) -> Reply:
        from extract.sources.mysql.guard import kept

        return kept(connection, settings)

    def captured(self, connection: MysqlSession, settings: SourceSettings, goal: str, seconds: float) -> Reply:
        from extract.sources.mysql.guard import captured

        return captured(connection, settings, goal, seconds)

    def source(self, settings: SourceSettings, say: Say, warn: Say, counts: DdlCounts) -> Source:
        from extract.sources.mysql.source import MysqlSource

        return MysqlSource(settings, say, warn, counts)

    def seed(self, settings: SourceSettings, owner: Owner) -> Seed:
        from extract.sources.mysql.heartbeat import MysqlSeed

        return MysqlSeed(settings, owner)


MYSQL: Final[SourceKind] = MysqlKind()
