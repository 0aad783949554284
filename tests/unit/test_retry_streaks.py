"""RETRYSECS and RECONNECTSECS count one loss: what was up meanwhile begins anew, what only came up for a moment not."""

from __future__ import annotations

import time

import pytest

from extract.sources.pgoutput import ManyTablesError
from extract.sources.postgres import STEADY_SECONDS, PostgresSettings, PostgresSource
from pump.params import PumpParams, RemoteHost
from pump.pump import Job, Phase, Pump
from tests.support.homes import make_home
from trails.errors import AwayError
from trails.fs import RealFs
from trails.position import TrailName
from trails.runtime.report import Log
from trails.testing import FakeClock
from trails.wire import Bye

DAY = 86_400


@pytest.mark.parametrize("steady", [True, False])
def test_a_pumps_losses_days_apart_are_two(tmp_path, steady):
    """Nothing was sent in between: the link was up for longer than TIMEOUT, or it was not."""
    home, clock = make_home(tmp_path / "home"), FakeClock()
    params = PumpParams("PMP1", RemoteHost("127.0.0.1", 1, dead_seconds=10), "./dirdat/rt", retry_seconds=DAY)
    job = Job(params, home.id, "here", TrailName.parse("./dirdat/lt", home.root), "./dirdat/lt", 1)
    pump = Pump(job, RealFs(), Log(home, "Trailgate Pump", "", clock), clock)
    try:
        pump._lost(AwayError("gone"), clock.monotonic())
        clock.sleep(2 * DAY)
        pump._phase, pump._greeted_at = Phase.STREAMING, clock.monotonic() - (11 if steady else 9)
        if steady:
            pump._lost(AwayError("gone again"), clock.monotonic())
            assert pump._retry_at > clock.monotonic()
        else:
            with pytest.raises(AwayError, match="tried again for 86400 seconds"):
                pump._lost(AwayError("gone again"), clock.monotonic())
    finally:
        pump.close()


def test_a_link_that_a_rollover_ends_did_its_work(tmp_path):
    """ROLLOVER days after a loss, with nothing sent in between: what fails then is another loss."""
    home, clock = make_home(tmp_path / "home"), FakeClock()
    params = PumpParams("PMP1", RemoteHost("127.0.0.1", 1), "./dirdat/rt", retry_seconds=DAY)
    job = Job(params, home.id, "here", TrailName.parse("./dirdat/lt", home.root), "./dirdat/lt", 1)
    pump = Pump(job, RealFs(), Log(home, "Trailgate Pump", "", clock), clock)
    try:
        pump._lost(AwayError("gone"), clock.monotonic())
        clock.sleep(2 * DAY)
        pump._phase, pump._rolling = Phase.STREAMING, True
        pump._closed(Bye("as asked"))
        pump._lost(AwayError("gone again"), clock.monotonic())
        assert pump._retry_at > clock.monotonic()
    finally:
        pump.close()


class _Ended:
    """A connection that is no more."""

    def close(self) -> None:
        pass


@pytest.mark.parametrize("steady", [True, False])
def test_an_extracts_losses_days_apart_are_two(steady):
    """As a pump's, with the seconds that a connection must hold."""
    settings = PostgresSettings("postgresql://x/y", "EXT1", "tg", "tg", "", {}, reconnect_seconds=60)
    source = PostgresSource(settings, lambda schema, name: True, lambda line: None)
    source._lost(AwayError("gone"))
    source._away_since = time.monotonic() - 2 * DAY
    source._stream = _Ended()
    source._begun = time.monotonic() + (-1 - STEADY_SECONDS if steady else 60)
    if steady:
        source._lost(AwayError("gone again"))
    else:
        with pytest.raises(AwayError, match="gave up after 60 s"):
            source._lost(AwayError("gone again"))


def test_a_session_that_ended_for_its_many_tables_did_its_work():
    """The server may hold the slot for a moment yet: that is another loss than the one of days ago."""
    settings = PostgresSettings("postgresql://x/y", "EXT1", "tg", "tg", "", {}, reconnect_seconds=60)
    source = PostgresSource(settings, lambda schema, name: True, lambda line: None)
    source._lost(AwayError("gone"))
    source._away_since = time.monotonic() - 2 * DAY
    source._stream = _Ended()
    source._renew(ManyTablesError("10001 tables were met"))
    source._lost(AwayError("the slot is active"))
    assert source._retry_at > 0
