"""Pump and Collector killed, links cut at random bytes, peers that stall: the remote trail stays a true copy."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

from demo.patience import PATIENCE, wait_for
from demo.proxy import Cut, Proxy
from tests.support.link import LinkBench, Source
from trails.reader import BlockReader, last_header

pytestmark = pytest.mark.e2e


@pytest.fixture
def bench(tmp_path, request):
    made = LinkBench(tmp_path, **getattr(request, "param", {}))
    yield made
    made.close()


soon_given_up = pytest.mark.parametrize("bench", [{"timeout": 3}], indirect=True, ids=["TIMEOUT 3"])
"""For tests in which an end is silent for good."""


@pytest.fixture
def proxy(bench):
    """A proxy between pump and Collector, off until `bench.manager.via` uses it."""
    target = {"port": 0}
    made = Proxy(lambda: ("127.0.0.1", target["port"]))

    def via(port):
        target["port"] = port
        return made.port

    bench.manager.via = via
    yield made
    made.close()


def test_a_remote_file_deleted_under_its_collector_costs_a_session(bench):
    """I2: nothing is acknowledged of a deleted file; the next Collector goes on in what was written anew."""
    source = Source(bench.fs, bench.local, max_bytes=200_000)
    source.mixed(30)
    bench.start()
    bench.drain()
    for _ in range(3):
        name = max(path for path in os.listdir(bench.remote.folder) if path.startswith(bench.remote.prefix))
        os.unlink(os.path.join(bench.remote.folder, name))
        source.mixed(30)
        bench.drain()
        bench.assert_equal()
        assert f"{name} was removed while it was written" in bench.log()


@pytest.mark.soak
def test_GG_05_GG_07_kills_of_both_sides_at_random_times_lose_and_double_nothing(bench):
    """CW-02, CW-03: SIGKILL of pump or Collector while blocks flow, twenty times; each transaction stands once.

    The pump's checkpoints of both trails are its own: they move on whoever died.
    """
    chance = random.Random(2)
    source = Source(bench.fs, bench.local, max_bytes=200_000, seed=2)
    bench.start()
    for _ in range(20):
        source.mixed(chance.randrange(5, 40))
        time.sleep(chance.random() * 0.15)
        collector = bench.manager.collector
        if chance.random() < 0.5 and collector is not None:
            collector.kill()
        else:
            bench.pump.kill()
            bench.pump.wait()
            bench.start()
    source.mixed(10)
    bench.drain()
    assert bench.assert_equal() > 200
    assert bench.stop() == 0
    saved = bench.checkpoint()
    read, written = saved.reads[0].current, saved.writes[0]
    assert (read.seqno, read.rba) == (source.writer.durable.seqno, source.writer.durable.rba)
    assert (written.trail, written.seqno) == ("./dirdat/rt", last_header(bench.fs, bench.remote).seqno)


@pytest.mark.soak
@pytest.mark.parametrize("bench", [{}, {"parameters": "NOPASSTHRU"}], indirect=True, ids=["PASSTHRU", "NOPASSTHRU"])
def test_a_link_cut_at_random_bytes_loses_and_doubles_nothing(bench, proxy):
    """Cuts inside greetings, block headers, payloads and acknowledgements; only whole blocks reach the trail."""
    chance, cuts = random.Random(3), 15
    sizes = (40, 300, 3_000, 30_000)

    def limit():
        proxy.cut = chance.choice((Cut.RESET, Cut.CLOSED, Cut.TOGETHER))
        return chance.choice(sizes) + chance.randrange(20_000) if proxy.cuts < cuts else None

    proxy._limit = limit
    source = Source(bench.fs, bench.local, max_bytes=300_000, seed=3)
    bench.start()
    # How often the same load is cut depends on which end is faster: there is load until the cuts were had.
    for _ in range(20):
        source.mixed(100)
        bench.drain()
        if proxy.cuts >= cuts:
            break
    assert proxy.cuts >= cuts
    assert bench.assert_equal() > cuts
    # What was sent twice counts once, and what arrived without our hearing of it counts too.
    assert sum(table["operations"] for table in bench.ask("STATS")["tables"]) == changes_in(bench)


def changes_in(bench):
    """How many changes the local trail's blocks hold."""
    reader = BlockReader(bench.fs, bench.local)
    try:
        blocks = iter(lambda: reader.read(payload=False), None)
        return sum(block.header.changes for block in blocks)
    finally:
        reader.close()


def test_a_byte_that_changes_on_the_way_is_sent_again(bench, proxy):
    """The Collector's CRC check refuses the block, not for good; a new session delivers it right."""
    source = Source(bench.fs, bench.local, seed=4)
    source.mixed(100)
    proxy.flip = 20_000
    bench.start()
    bench.drain()
    assert bench.assert_equal() > 100
    assert "damaged" in bench.log()
    assert bench.manager.asked >= 2


@pytest.mark.soak
@soon_given_up
def test_CW_23_a_pump_whose_host_lost_power_is_replaced_within_the_bound(bench, proxy):
    """CW-23: the old socket stays open and silent for good; the restarted pump takes over once the old Collector has
    ended by itself, which nothing but its own bound on silence makes it do.
    """
    bench.manager.kill_first = False
    source = Source(bench.fs, bench.local, seed=5)
    source.mixed(20)
    bench.start()
    bench.drain()
    old = bench.manager.collector
    os.kill(bench.pump.pid, signal.SIGSTOP)  # a host without power answers nothing, and its socket is not closed
    frozen = bench.pump
    for path in (bench.near.lock("PMP1"),):
        os.remove(path)  # the restarted host has no such lock holder
    source.mixed(20)
    bench.start()
    bench.drain()
    assert old.wait(PATIENCE) is not None
    frozen.kill()
    frozen.wait()
    assert bench.assert_equal() > 30


@pytest.mark.soak
@soon_given_up
def test_CW_24_a_stopped_collector_that_wakes_writes_nothing(bench):
    """CW-24: SIGSTOP, for good; once the pump's bound on silence is over the Manager ends it, and starts another."""
    source = Source(bench.fs, bench.local, seed=6)
    source.mixed(20)
    bench.start()
    bench.drain()
    old = bench.manager.collector
    os.kill(old.pid, signal.SIGSTOP)
    source.mixed(20)
    bench.drain()
    assert old.poll() == -signal.SIGKILL
    assert bench.assert_equal() > 30


@pytest.mark.soak
@soon_given_up
def test_CW_24_while_a_stopped_collector_is_not_ended_no_other_takes_its_trail(bench):
    """CW-24, the lock's part: without the kill the next Collector finds the lock held; when it is free, all goes on."""
    bench.manager.kill_first = False
    source = Source(bench.fs, bench.local, seed=7)
    source.mixed(20)
    bench.start()
    bench.drain()
    old = bench.manager.collector
    os.kill(old.pid, signal.SIGSTOP)
    source.mixed(20)
    wait_for(lambda: "held by process" in bench.log())
    os.kill(old.pid, signal.SIGCONT)
    bench.drain()
    assert old.wait(PATIENCE) == 0
    assert bench.assert_equal() > 30


@soon_given_up
def test_a_stalled_link_stalls_only_the_pump(bench, proxy):
    """The local trail grows on; when the link moves again, or is given up and made anew, everything arrives."""
    source = Source(bench.fs, bench.local, seed=8)
    source.mixed(20)
    bench.start()
    bench.drain()
    proxy.stall.set()
    source.mixed(200)
    assert bench.ask("STATUS")["ok"]
    assert not bench.drained()
    wait_for(lambda: "nothing was heard" in bench.log())
    proxy.stall.clear()
    bench.drain()
    assert bench.assert_equal() > 200


@soon_given_up
def test_a_stop_ends_a_pump_over_a_silent_link(bench, proxy):
    """What it has sent is not acknowledged, and its goodbye is not answered: neither is waited for without a bound."""
    source = Source(bench.fs, bench.local, seed=9)
    source.mixed(20)
    bench.start()
    bench.drain()
    proxy.stall.set()
    source.mixed(20)
    assert bench.stop() in (0, 3)
    proxy.stall.clear()
    bench.start()
    bench.drain()
    assert bench.assert_equal() > 20


def test_a_manager_that_stays_away_ends_the_pump_with_code_3(tmp_path):
    """Tried with growing pauses for RETRYSECS, then one clear message."""
    bench = LinkBench(tmp_path, retry=2)
    try:
        Source(bench.fs, bench.local).mixed(3)
        bench.manager.close()
        bench.start()
        code, text = bench.ended()
        assert code == 3
        assert f"Manager at 127.0.0.1:{bench.manager.port} can't be reached: Connection refused" in text
        assert "Trying again" in bench.log()
    finally:
        bench.close()


def test_stop_is_obeyed_while_the_manager_does_not_answer(bench):
    """A Manager that takes the connection and says nothing holds up no STOP: the pump still waits for its answer."""
    Source(bench.fs, bench.local).mixed(3)
    bench.manager.silent = True
    bench.start()
    wait_for(lambda: bench.manager.held)
    assert bench.stop() == 0
    assert "nothing for" not in bench.log()


def test_a_manager_that_takes_connections_and_is_silent_is_told_and_given_up(tmp_path):
    """After TIMEOUT, with a line that says so and for whom the pump waits; once it answers all goes on."""
    bench = LinkBench(tmp_path, timeout=2)
    try:
        Source(bench.fs, bench.local).mixed(3)
        bench.manager.silent = True
        bench.start()
        wait_for(lambda: "took the connection and said nothing for 2 seconds" in bench.log(), bench.log)
        wait_for(lambda: "said nothing for" in bench.ask("STATUS")["status"], bench.log)
        bench.manager.silent = False
        bench.drain()
        bench.assert_equal()
    finally:
        bench.close()
