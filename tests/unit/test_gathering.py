"""An Extract gathers small transactions by what one of them costs, and leaves its source alone meanwhile."""

from __future__ import annotations

from concurrent.futures import wait

import pytest

from extract.extract import Extract, Settings
from extract.gathering import MOST_SECONDS, MUCH_BYTES, SHARE, BetweenSyncs
from tests.support.scripted import ScriptedLog, ScriptedSource
from tests.support.trail_script import SCRIPT, TRAIL
from trails.host import RealHost
from trails.testing import FaultFs

COST = MOST_SECONDS * SHARE / 2
SOURCE = 1000


class CountingHost(RealHost):
    """Time and work are what a test says."""

    now = used = 0.0

    def monotonic(self) -> float:
        return self.now

    def cpu_seconds(self) -> float:
        return self.used


@pytest.fixture
def host() -> CountingHost:
    return CountingHost()


def test_it_gathers_until_the_last_sync_has_cost_no_more_than_a_share(host: CountingHost) -> None:
    gathering = BetweenSyncs(host, 1.0)
    assert gathering.seconds == 0
    host.used += COST
    gathering.synced(400)
    assert gathering.seconds == pytest.approx(COST / SHARE)
    host.now += COST / SHARE / 2
    assert gathering.seconds == pytest.approx(COST / SHARE / 2)
    host.now += COST / SHARE
    assert gathering.seconds == 0


def test_it_never_gathers_long(host: CountingHost) -> None:
    """A long pause has a cost of its own, and FLUSHCSECS bounds it too."""
    gathering, bounded = BetweenSyncs(host, 1.0), BetweenSyncs(host, MOST_SECONDS / 2)
    host.used += 100 * COST
    for one in (gathering, bounded):
        one.synced(400)
    assert gathering.seconds == pytest.approx(MOST_SECONDS)
    assert bounded.seconds == pytest.approx(MOST_SECONDS / 2)


@pytest.mark.parametrize("came", [0, MUCH_BYTES])
def test_it_does_not_gather_behind_a_place_nor_where_much_comes(host: CountingHost, came: int) -> None:
    gathering = BetweenSyncs(host, 1.0)
    host.used += COST
    gathering.synced(came)
    assert gathering.seconds == 0
    host.used += COST
    gathering.synced(came + 400)
    assert gathering.seconds == pytest.approx(COST / SHARE)


class WaitingSource(ScriptedSource):
    """One with a descriptor."""

    def waits(self) -> list[int]:
        return [SOURCE]

    def idle_seconds(self) -> float:
        return 0.5


def test_meanwhile_the_source_wakes_nobody(host: CountingHost) -> None:
    """Until all is released nothing is left alone; then the source is, and is looked at again."""
    log = ScriptedLog(list(SCRIPT[:2]))
    settings = Settings("EXT1", "home", "host", TRAIL, "./dirdat/lt")
    extract = Extract.start(FaultFs(host=host), settings, WaitingSource(log), host)
    while log.confirmed < 2:
        assert SOURCE in extract.waits()
        wait([sync] if (sync := extract._writer._syncer._future) else [])
        host.used += COST
        extract.step()
    assert SOURCE not in extract.waits()
    gathers = extract.idle_seconds()
    assert 0 < gathers <= MOST_SECONDS
    host.now += gathers
    extract.step()
    assert SOURCE in extract.waits()
    extract.close()
