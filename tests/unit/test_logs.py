"""Sources that send their log: a connection that breaks, and comes up again, or does not."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from extract import logs
from extract.logs import STEADY_SECONDS, LogSource
from extract.retention import Retained, RetentionGuard
from extract.source import Sink
from trails.checkpoint import Place
from trails.errors import EXIT_AWAY, AnewError, AwayError, OperatorError
from trails.position import Position

LIMIT = 60.0
SEVEN = Position(0, 7)


@dataclass
class ListSink:
    """What a source did to it."""

    origin: Position = SEVEN
    state: str = "s7"
    cache: dict[Any, Any] = field(default_factory=dict)
    abandoned: int = 0

    def abandon(self) -> None:
        self.abandoned += 1


class Feed(LogSource):
    """A log whose connections do what a script says, each turn: an error, or whether there is more."""

    def __init__(self, kept: Retained | None = None) -> None:
        self.said: list[str] = []
        super().__init__(LIMIT, self.said.append, RetentionGuard(lambda: kept, self.said.append))
        self.script: deque[Any] = deque()
        self.calls: list[str] = []
        self.now = 0.0

    def turn(self, call: str) -> bool:
        """One item of the script; without one all is well and there is no more."""
        self.calls.append(call)
        item = self.script.popleft() if self.script else False
        if isinstance(item, Exception):
            raise item
        return bool(item)

    def connect(self, sink: Sink, *, again: bool) -> None:
        self.turn(f"connect{' again' if again else ''} {sink.origin.rba} {sink.state}")

    def read(self, sink: Sink, now: float) -> bool:
        return self.turn("read")

    def hang_up(self) -> None:
        self.calls.append("hang up")

    def fileno(self) -> int:
        return 7

    def place(self, origin: Position, time_us: int | None) -> Place:
        return Place(0, origin.rba, time_us, f"{origin.rba:020d}")


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Feed:
    """One that has not begun, with a clock that a test moves."""
    made = Feed()
    monkeypatch.setattr(logs, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def begin(feed: Feed, *script: Any) -> ListSink:
    """Start with a script; the first item is the first connection's."""
    sink = ListSink()
    feed.script.extend(script)
    feed.start(sink.origin, sink.state, sink)  # type: ignore[arg-type]
    return sink


def test_a_connection_that_breaks_comes_up_again_behind_the_last_transaction(feed: Feed):
    """What is open is dropped, the broken one is hung up, and both are told: once each."""
    sink = begin(feed, None, True, False, AwayError("gone"), AwayError("still gone"), None, True)
    assert [feed.poll(), feed.poll(), feed.poll()] == [True, False, False]
    assert (feed.waits(), feed.waits_for) == ([], "Waiting for the source database: gone")
    sink.origin, sink.state, sink.cache[1] = Position(0, 9), "s9", 1
    assert feed.poll() is False and feed.calls[-1] == "hang up", "not before the pause is over"
    feed.now = feed.idle_seconds()
    assert feed.poll() is False
    feed.now += feed.idle_seconds()
    assert [feed.poll(), feed.poll()] == [True, True]
    assert feed.calls == [
        "connect 7 s7", "read", "read", "read", "hang up",
        "connect again 9 s9", "hang up", "connect again 9 s9", "read",
    ]  # fmt: skip
    assert feed.said == [
        "gone; trying again for 60 s", "connected to the source database, going on at 00000000000000000009",
    ]  # fmt: skip
    assert (sink.abandoned, sink.cache, feed.waits(), feed.waits_for) == (2, {}, [7], "")


def test_a_first_connection_that_fails_is_waited_for_too(feed: Feed):
    """A database that still thinks a dead process connected refuses the next one for a while."""
    begin(feed, AwayError("in use"))
    feed.now = 1.0
    assert feed.poll() and feed.connected


@pytest.mark.parametrize("steady", [True, False])
def test_losses_days_apart_are_two_if_the_connection_held_in_between(feed: Feed, steady: bool):
    """RECONNECTSECS counts one of them: a connection that only comes up is the same one."""
    begin(feed, None, AwayError("gone"), None)
    feed.poll()
    feed.now = 2 * LIMIT
    assert feed.poll() and feed.connected
    feed.now += STEADY_SECONDS + (0.1 if steady else -0.1)
    feed.script.append(AwayError("gone again"))
    if steady:
        assert feed.poll() is False
        assert feed.said[-1] == "gone again; trying again for 60 s"
    else:
        with pytest.raises(AwayError, match=r"gone again; gave up after 60 s\. START again"):
            feed.poll()


def test_a_session_that_was_renewed_did_its_work(feed: Feed):
    """The next one begins at once; what fails then is another loss than the one of before."""
    begin(feed, None, AwayError("gone"), None)
    feed.poll()
    feed.now = 2 * LIMIT
    feed.poll()
    feed.renew("too much was met")
    assert feed.waits_for.endswith("too much was met") and feed.idle_seconds() == 0
    feed.script.append(AwayError("in use"))
    assert feed.poll() is False and feed.said[-2:] == ["too much was met", "in use; trying again for 60 s"]


def test_a_database_that_moved_ends_the_process_so_that_the_trail_can_say_so(feed: Feed):
    """It is not tried again here; AUTORESTART does it."""
    begin(feed, None, AwayError("gone"), AnewError("promoted"))
    feed.poll()
    feed.now = 1.0
    with pytest.raises(AnewError) as error:
        feed.poll()
    assert error.value.exit_code == EXIT_AWAY


def test_what_is_released_never_goes_back_and_what_is_lost_ends_the_process(monkeypatch: pytest.MonkeyPatch):
    """The guard is asked each turn, before anything is read."""
    feed = Feed(Retained(0, (0, 0), str, lost=OperatorError("the log is gone")))
    begin(feed)
    assert feed.released == SEVEN
    feed.release(Position(0, 9))
    feed.release(Position(0, 8))
    assert feed.released == Position(0, 9)
    with pytest.raises(OperatorError, match="the log is gone"):
        feed.poll()
    feed.close()
    assert feed.calls == ["connect 7 s7", "hang up"]
