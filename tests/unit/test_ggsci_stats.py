"""STATS: counters that are there only for who uses what they count, and REPORTCDR."""

from __future__ import annotations

from ggsci import view
from trails.record import Op
from trails.runtime.stats import CDR_CONFLICTS, CDR_SUCCEEDED, IGNORED, Stats, cdr_conflicts, report_lines


def counted() -> Stats:
    """One table with rarer counters, one without."""
    stats = Stats(0)
    stats.count("s.a", "p.a", Op.INSERT, 3)
    stats.count("s.a", "p.a", IGNORED, 2)
    for counter in (CDR_CONFLICTS, CDR_SUCCEEDED, cdr_conflicts("UPDATEROWEXISTS")):
        stats.count("s.a", "p.a", counter)
    stats.count("s.b", "p.b", Op.DELETE)
    return stats


def shown(*, cdr: bool) -> list[str]:
    lines = view.stats("REPLICAT", counted().to_reply(), 0, cdr=cdr)
    return [" ".join(line.split()) for line in lines if "ignored" in line or "CDR" in line]


def test_rarer_counters_stand_with_their_table_alone():
    """Operations don't count them; a table without any has no such key."""
    first, second = counted().to_reply()["tables"]
    assert (first["operations"], first["more"][IGNORED], "more" in second) == (3, 2, False)
    assert any("ignored:         2" in line for line in report_lines(counted().to_reply()))


def test_conflicts_are_told_when_asked_for():
    """REPORTCDR: conflicts and resolutions of each table, also where there were none, and conflicts by type."""
    assert shown(cdr=False) == ["Total ignored 2.00"]
    assert shown(cdr=True) == [
        "Total CDR conflicts 1.00", "CDR resolutions succeeded 1.00", "CDR resolutions failed 0.00",
        "Total ignored 2.00", "Total CDR UPDATEROWEXISTS conflicts 1.00",
        "Total CDR conflicts 0.00", "CDR resolutions succeeded 0.00", "CDR resolutions failed 0.00",
    ]  # fmt: skip
