"""TRIGGERLOG, a way to capture PostgreSQL: what others ask of it. No driver is imported here, as in ../kind.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from extract.heartbeat import Owner, Seed
from extract.queueguard import KEYWORDS
from extract.source import CaptureMethod, Reply, Say, Source, SourceSettings
from trails.runtime.language.params import Keyword
from trails.runtime.process.checking import Findings
from trails.runtime.report.stats import DdlCounts

if TYPE_CHECKING:
    from extract.sources.postgres.driver import Session


class TriggerLog:
    """Capture by triggers; extract.source.CaptureMethod says what each method does."""

    keywords: Mapping[str, Keyword] = KEYWORDS
    keeps_csns = False  # what is read in one look is one transaction

    def check(self, connection: Session, settings: SourceSettings, found: Findings) -> None:
        from extract.sources.postgres.triggers.check import check
        from extract.sources.postgres.triggers.source import TriggerRules

        rules = TriggerRules(settings, DdlCounts())
        check(connection, settings, rules.gives, rules.tells, found)

    def kept(self, connection: Session, settings: SourceSettings) -> Reply:
        from extract.sources.postgres.triggers.admin import kept

        return kept(connection, settings)

    def captured(self, connection: Session, settings: SourceSettings, goal: str, seconds: float) -> Reply:  # noqa: ARG002
        from extract.sources.postgres.triggers.admin import captured

        return captured(connection, goal, seconds)

    def source(self, settings: SourceSettings, say: Say, warn: Say, counts: DdlCounts) -> Source:
        from extract.sources.postgres.triggers.source import TriggerSource

        return TriggerSource(settings, say, warn, counts)

    def seed(self, settings: SourceSettings, owner: Owner) -> Seed:
        from extract.sources.postgres.triggers.heartbeat import TriggerSeed

        return TriggerSeed(settings, owner)


TRIGGERLOG: Final[CaptureMethod] = TriggerLog()
