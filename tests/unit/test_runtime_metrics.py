"""METRICS: rates of the last ten seconds, busy and blocked shares, and what waits in a trail. Time is set by hand."""

from __future__ import annotations

from tests.support.trail_script import IDENTITY, MAX_BYTES, SCRIPT, TRAIL, write_tx
from trails.checkpoint import Checkpoint
from trails.clock import Clock
from trails.position import Position
from trails.reader import BlockReader
from trails.runtime.process.loop import Process, Stop, run
from trails.runtime.report.answers import LagAnswer, MetricsAnswer, PlaceAnswer
from trails.runtime.report.metrics import Counters, Meter, reply, trail_backlog
from trails.testing import FakeClock, FaultFs
from trails.writer import TrailWriter


class Work:
    """A process's counters, moved by the test."""

    def __init__(self) -> None:
        self.done = Counters()

    def __call__(self) -> Counters:
        """As the process gives them."""
        return self.done


def test_rates_are_of_the_last_ten_seconds_not_of_the_whole_run():
    """A process that worked for an hour and does nothing now shows zero, and one that began to work shows it."""
    clock, work = FakeClock(), Work()
    meter = Meter(work, clock)
    for second in range(1, 101):
        clock.sleep(1)
        work.done = Counters(operations=10 * second, transactions=second, bytes_in=1000 * second, bytes_out=7 * second)
        meter(clock.monotonic())
    found = meter.reply()
    assert (found.ops_s, found.bytes_s, found.operations) == (10.0, 1000.0, 1000)
    assert (found.bytes_out_s, found.bytes_out) == (7.0, 700)
    for _ in range(10):
        clock.sleep(1)
        meter(clock.monotonic())
    found = meter.reply()
    assert (found.ops_s, found.bytes_s) == (0.0, 0.0)
    assert (found.operations, found.transactions, found.bytes_in) == (1000, 100, 100_000)


def test_without_a_second_of_history_there_is_no_rate():
    """What is not known is None, never zero."""
    clock = FakeClock()
    meter = Meter(Work(), clock)
    clock.sleep(0.5)
    found = meter.reply()
    assert found.ops_s is found.bytes_s is found.busy is None
    assert found.extra == {"blocked": None, "output_share": None}


def test_busy_is_what_was_not_rested_and_blocked_is_told_apart():
    """Of ten seconds six rested for want of input, two because the output was full, half a second in the output."""
    clock, work = FakeClock(), Work()
    meter = Meter(work, clock)
    for _ in range(10):
        meter.rested(0.6, blocked=False)
        meter.rested(0.2, blocked=True)
        clock.sleep(1)
        work.done = Counters(output_s=work.done.output_s + 0.05)
        meter(clock.monotonic())
    found = meter.reply()
    assert (found.busy, found.extra) == (0.2, {"blocked": 0.2, "output_share": 0.05})


def test_a_turn_that_does_not_end_grows_old():
    """GG-19: who asks sees how long the loop has not come round."""
    clock = FakeClock()
    meter = Meter(Work(), clock)
    meter(clock.monotonic())
    clock.sleep(42)
    assert meter.reply().turn_age_us == 42_000_000


class Sleeper(Process):
    """Works for a second, rests for three (a signal of time alone), five times."""

    def __init__(self, clock: Clock, stop: Stop) -> None:
        self.clock, self.stop, self.steps = clock, stop, 0

    def step(self) -> bool:
        """A second of work."""
        self.clock.sleep(1)
        self.steps += 1
        if self.steps == 5:
            self.stop.request()
        return False

    def idle_seconds(self) -> float:
        """The loop waits for this long; the test's clock is moved by what it waits on."""
        self.clock.sleep(3)
        return 0.0

    def blocked(self) -> bool:
        """It rests because nobody takes its output."""
        return True

    def flush(self) -> Checkpoint | None:
        """None."""
        return None

    def close(self) -> None:
        """Nothing to close."""


def test_the_loop_tells_the_meter_each_rest():
    """One second of work and three of rest. The oldest look is 11 s old, after two of work and nine of rest."""
    clock, stop = FakeClock(), Stop()
    meter = Meter(Counters, clock)
    run(Sleeper(clock, stop), lambda c: None, stop, clock=clock, meter=meter)
    found = meter.reply()
    assert found.busy == round(2 / 11, 3)
    assert found.extra["blocked"] == round(9 / 11, 3)


def test_the_answer_has_what_the_process_and_its_lag_tell():
    """One flat JSON object; an unknown lag has no time at which it was true."""
    clock = FakeClock()
    own = MetricsAnswer(backlog_bytes=5, read=PlaceAnswer(1, 2), extra={"state": "x"})
    known = reply("PUMP", "PMP1", Meter(Counters, clock), 77, own, LagAnswer(3))
    assert (known.program, known.group, known.at_us, known.lag_us, known.lag_at_us) == (
        "PUMP", "PMP1", 77, 3, 77,
    )  # fmt: skip
    assert known.backlog_us is known.write is None
    assert known.extra == {"blocked": None, "state": "x"}, "a pump does not know what share its output took"
    unknown = reply("PUMP", "PMP1", Meter(Counters, clock), 77, MetricsAnswer(), LagAnswer(None, "no heartbeat"))
    assert (unknown.lag_us, unknown.lag_at_us, unknown.lag_why) == (None, None, "no heartbeat")


def test_backlog_is_what_lies_behind_a_position_over_all_files():
    """Smaller with each block read, by the blocks' sizes; zero at the end; all of it for who has read nothing."""
    fs = FaultFs()
    writer = TrailWriter.open(fs, TRAIL, IDENTITY, max_bytes=MAX_BYTES, restart_open=True)
    for tx in SCRIPT:
        write_tx(writer, tx)
    writer.sync()
    assert writer.seqno >= 2
    everything = trail_backlog(fs, TRAIL, None)
    reader, left = BlockReader(fs, TRAIL), []
    while (block := reader.read()) is not None:
        left.append(trail_backlog(fs, TRAIL, block.end))
    assert everything > left[0]
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0


def test_backlog_counts_durable_bytes_only():
    """I4: what is not synced is nobody's to read yet."""
    fs = FaultFs()
    writer = TrailWriter.open(fs, TRAIL, IDENTITY, restart_open=True)
    write_tx(writer, SCRIPT[0])
    writer.sync()
    before = trail_backlog(fs, TRAIL, Position(0, 0))
    write_tx(writer, SCRIPT[1])
    assert trail_backlog(fs, TRAIL, Position(0, 0)) == before
    assert trail_backlog(fs, TRAIL, None) == before
    writer.sync()
    assert trail_backlog(fs, TRAIL, None) > before


def test_a_trail_that_is_not_there_has_no_backlog():
    """Its Extract has not started yet."""
    assert trail_backlog(FaultFs(), TRAIL, None) == 0
