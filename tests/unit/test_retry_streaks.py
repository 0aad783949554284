"""Trying again: pauses, limits, and what counts as one loss: what was up meanwhile begins anew, a moment does not."""

from __future__ import annotations

import pytest

from pump.job import PumpJob
from pump.params import PumpParams
from pump.phase import LinkPhase
from pump.pump import Pump
from tests.support.homes import make_home
from trails.errors import AwayError
from trails.fs import RealFs
from trails.link.wire import Bye
from trails.position import TrailName
from trails.runtime.language.remotehost import RemoteHost
from trails.runtime.process.backoff import Backoff
from trails.runtime.report.report import Log
from trails.testing import FakeClock

DAY = 86_400


def test_pauses_double_up_to_the_longest_and_end_at_the_limit():
    """0.1, 0.2, ... longest; success begins anew."""
    backoff = Backoff(10, 0.5)
    assert [round(backoff.again(0.0) or 0, 3) for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]
    backoff.succeeded()
    assert not backoff.failing and not backoff.is_over(1e9)
    assert backoff.again(100.0) == pytest.approx(100.1)
    assert backoff.again(109.9) is not None and backoff.again(110.0) is None


@pytest.mark.parametrize("steady", [True, False])
def test_a_pumps_losses_days_apart_are_two(tmp_path, steady):
    """Nothing was sent in between: the link was up for longer than TIMEOUT, or it was not."""
    home, clock = make_home(tmp_path / "home"), FakeClock()
    params = PumpParams("PMP1", RemoteHost("127.0.0.1", 1, dead_seconds=10), "./dirdat/rt", retry_seconds=DAY)
    job = PumpJob(
        params, home.id, "here", TrailName.parse("./dirdat/lt", home.root), "./dirdat/lt", 1, home.pinned("PMP1")
    )
    pump = Pump(job, RealFs(), Log(home, "Trailgate Pump", "", clock), clock)
    try:
        pump._lost(AwayError("gone"), clock.monotonic())
        clock.sleep(2 * DAY)
        pump._phase, pump._greeted_at = LinkPhase.STREAMING, clock.monotonic() - (11 if steady else 9)
        if steady:
            pump._lost(AwayError("gone again"), clock.monotonic())
            assert pump._caller.retry_at > clock.monotonic()
        else:
            with pytest.raises(AwayError, match="tried again for 86400 seconds"):
                pump._lost(AwayError("gone again"), clock.monotonic())
    finally:
        pump.close()


def test_a_link_that_a_rollover_ends_did_its_work(tmp_path):
    """ROLLOVER days after a loss, with nothing sent in between: what fails then is another loss."""
    home, clock = make_home(tmp_path / "home"), FakeClock()
    params = PumpParams("PMP1", RemoteHost("127.0.0.1", 1), "./dirdat/rt", retry_seconds=DAY)
    job = PumpJob(
        params, home.id, "here", TrailName.parse("./dirdat/lt", home.root), "./dirdat/lt", 1, home.pinned("PMP1")
    )
    pump = Pump(job, RealFs(), Log(home, "Trailgate Pump", "", clock), clock)
    try:
        pump._lost(AwayError("gone"), clock.monotonic())
        clock.sleep(2 * DAY)
        pump._phase = LinkPhase.ROLLING
        pump._closed(Bye("as asked"))
        pump._lost(AwayError("gone again"), clock.monotonic())
        assert pump._caller.retry_at > clock.monotonic()
    finally:
        pump.close()
