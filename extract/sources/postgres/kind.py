"""PostgreSQL as a source: what others ask of it. No driver is imported here; the methods import what they need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from extract import queueguard
from extract.heartbeat import Owner, Seed
from extract.source import CaptureMethod, Reply, Say, Source, SourceKind, SourceSettings, TableReader, Verb
from extract.sources.postgres.limits import CRITICAL, WARN
from extract.sources.postgres.triggers.kind import TRIGGERLOG
from trails.runtime.home.methods import METHODS
from trails.runtime.language.freespace import Bound, parse_bound
from trails.runtime.language.params import Keyword, table
from trails.runtime.process.checking import Findings
from trails.runtime.report.stats import DdlCounts

if TYPE_CHECKING:
    from extract.sources.postgres.driver import Session


def _usual(bounds: tuple[Bound, Bound]) -> str:
    return f"If not given it is {bounds[0].amount >> 30}G, or {bounds[1]} if that is less."


KEYWORDS: Final = table(
    Keyword(
        "WALWARN", "{n[K | M | G | T] | n%}",
        "Warn once the slot keeps back so much of the source's log, in bytes or as a share of the server's "
        f"max_slot_wal_keep_size. 0 is never. {_usual(WARN)}",
        "WALWARN 20G", parse_bound,
    ),
    Keyword(
        "WALCRITICAL", "{n[K | M | G | T] | n%}",
        f"As WALWARN, but for when somebody must act. {_usual(CRITICAL)}",
        "WALCRITICAL 90%", parse_bound,
    ),
)  # fmt: skip


class TranLog:
    """Capture from the log, by a logical slot; extract.source.CaptureMethod says what each method does."""

    keywords: Mapping[str, Keyword] = KEYWORDS
    keeps_csns = True

    def check(self, connection: Session, settings: SourceSettings, found: Findings) -> None:
        from extract.sources.postgres.check import check

        check(connection, settings, found)

    def kept(self, connection: Session, settings: SourceSettings) -> Reply:
        from extract.sources.postgres.guard import kept

        return kept(connection, settings)

    def captured(self, connection: Session, settings: SourceSettings, goal: str, seconds: float) -> Reply:
        from extract.sources.postgres.guard import captured

        return captured(connection, settings, goal, seconds)

    def source(self, settings: SourceSettings, say: Say, warn: Say, counts: DdlCounts) -> Source:
        from extract.sources.postgres.source import PostgresSource

        return PostgresSource(settings, say, warn, counts)

    def seed(self, settings: SourceSettings, owner: Owner) -> Seed:
        from extract.sources.postgres.heartbeat import PostgresSeed

        return PostgresSeed(settings, owner)


class PostgresKind:
    """This database as a source; extract.source.SourceKind says what each method does."""

    name = "PostgreSQL"
    example = "postgresql://user:password@host:5432/database"
    is_file = False
    untyped = False
    places = ()
    keywords: Mapping[str, Keyword] = KEYWORDS | queueguard.KEYWORDS

    @property
    def methods(self) -> Mapping[str, CaptureMethod]:
        return {METHODS[0]: TRANLOG, METHODS[1]: TRIGGERLOG}

    def unverified(self, url: str) -> str:
        from extract.sources.postgres.driver import unverified

        return unverified(url)

    def connect(self, url: str, application: str) -> Session:
        from extract.sources.postgres.driver import Session

        return Session(url, application, None)

    def verbs(self) -> Mapping[str, Verb]:
        from extract.sources.postgres.admin import verbs

        return verbs()

    def tables(self, connection: Session) -> list[tuple[str, str]]:
        from extract.sources.postgres.check import names

        return names(connection)

    def table_reader(self, settings: SourceSettings) -> TableReader:
        from extract.sources.postgres.tablereader import PostgresTables

        return PostgresTables(settings)


TRANLOG: Final[CaptureMethod] = TranLog()
POSTGRES: Final[SourceKind] = PostgresKind()
