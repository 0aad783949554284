"""SHOWTRANS and WARNLONGTRANS: what is open in the source, and who is told."""

from __future__ import annotations

from threading import Event

import pytest

from demo.patience import PATIENCE
from extract import longtrans
from extract.extract import Extract, Settings
from extract.longtrans import LongSetting, LongTransactions, OpenTransaction, Outstanding, long_setting, seconds_of
from tests.support.scripted import ScriptedLog, ScriptedSource
from tests.support.trail_script import SCRIPT, TRAIL
from trails.errors import AwayError, OperatorError, ParamError
from trails.runtime.language.params import parse_text
from trails.testing import FakeClock, FaultFs

HOUR = 3_600_000_000


def transaction(xid: str, hours: float | None, **more: object) -> OpenTransaction:
    """One of that age."""
    facts = {"user": "app", "database": "shop", "client": "psql process 4711", "pid": 4711, "state": "idle"} | more
    facts.setdefault("mend", "SELECT pg_terminate_backend(4711)")
    age = None if hours is None else int(hours * HOUR)
    return OpenTransaction(xid, start_us=0 if age is not None else None, age_us=age, **facts)  # type: ignore[arg-type]


class Looking:
    """LongTransactions on a source that says what the test wants."""

    def __init__(self, setting: LongSetting) -> None:
        self.clock = FakeClock()
        self.found = Outstanding()
        self.error: Exception | None = None
        self.asked = 0
        self.said: list[str] = []
        self.fields: list[dict[str, object]] = []
        self.long = LongTransactions(self._outstanding, self._warn, self.clock, setting)

    def _warn(self, text: str, **fields: object) -> None:
        self.said.append(text)
        self.fields.append(fields)

    def _outstanding(self) -> Outstanding:
        self.asked += 1
        if self.error:
            raise self.error
        return self.found

    def after(self, seconds: float, *transactions: OpenTransaction) -> list[str]:
        """What is said when so much time has passed and these are open."""
        self.said.clear()
        self.found = Outstanding(transactions, "slot gg_ext1", "LSN 0/1A", 120 << 20, "GRANT pg_read_all_stats")
        self.clock.sleep(seconds)
        self.long.look(self.clock.monotonic())
        if self.long.under_way is not None:
            self.long.under_way.exception(60)
            self.long.look(self.clock.monotonic())
        return list(self.said)


def test_a_long_transaction_is_warned_of_again_each_time_it_got_as_old_once_more() -> None:
    """The oldest with what it costs and how to end it; young ones and those whose age is not known are none."""
    looking = Looking(LongSetting(3600, 300))
    assert looking.after(299, transaction("7", 2)) == []
    assert looking.asked == 0
    masked, said = looking.after(1, transaction("7", 1.5), transaction("8", 0.5), transaction("9", None))
    assert masked.endswith("GRANT pg_read_all_stats TO that user")
    assert said == (
        "Long Running Transaction: XID 7, open for 01:30:00, user app in database shop, psql process 4711, idle. It is "
        "the oldest, and holds back slot gg_ext1, which keeps 120 MB of log. Have its owner end it, or SELECT "
        "pg_terminate_backend(4711)"
    )
    assert (looking.fields[-1]["xid"], looking.fields[-1]["kept_bytes"]) == ("7", 120 << 20)
    assert looking.after(300, transaction("7", 1.9), transaction("8", 1.0)) == [
        "Long Running Transaction: XID 8, open for 01:00:00, user app in database shop, psql process 4711, idle."
    ]
    assert len(looking.after(300, transaction("7", 2.5), transaction("8", 1.1))) == 1
    assert looking.after(300) == []
    assert len(looking.after(300, transaction("7", 1.2))) == 1  # another one: ids come round again
    prepared = transaction(
        "5", 3, name="gid 1", pid=None, state="", mend="ROLLBACK PREPARED or COMMIT PREPARED 'gid 1'"
    )
    assert looking.after(300, prepared)[0].endswith("or ROLLBACK PREPARED or COMMIT PREPARED 'gid 1'")


def test_transactions_that_are_hidden_altogether_are_told_once() -> None:
    """Whoever sees nothing does not know that nothing is open."""
    looking = Looking(LongSetting(3600, 300))
    blind = Outstanding(unhide="GRANT PROCESS ON *.*", hidden=True)
    looking.long._outstanding = lambda: blind
    (said,) = looking.after(300)
    assert said == (
        "WARNLONGTRANS can't judge open transactions of other users: they are not shown to this Extract's user. "
        "GRANT PROCESS ON *.* TO that user"
    )
    assert looking.after(300) == []


def test_a_source_that_is_away_is_told_once() -> None:
    """Until it can be asked again; the capture goes on."""
    looking = Looking(LongSetting(3600, 300))
    looking.error = AwayError("the source database is away")
    said = [looking.after(300) for _ in range(3)]
    assert said == [["Open transactions of the source can't be looked at: the source database is away"], [], []]
    looking.error = None
    assert looking.after(300) == []
    looking.error = AwayError("again")
    assert len(looking.after(300)) == 1


def test_zero_is_never_and_send_changes_it() -> None:
    """SEND ..., WARNLONGTRANS 10m, CHECKINTERVAL 1m: looks at once, and by the new bounds."""
    looking = Looking(LongSetting(0, 300))
    assert looking.after(3000, transaction("7", 2)) == []
    assert looking.asked == 0
    assert looking.long.set({"after": "10m", "every": "1m"}) == {"after": 600, "every": 60}
    assert len(looking.after(0, transaction("7", 0.2))) == 1
    assert looking.long.set({"after": "3h"}) == {"after": 10_800, "every": 60}
    with pytest.raises(OperatorError, match="WARNLONGTRANS: expected a duration such as 30s, 10m, 2h or 1d"):
        looking.long.set({"after": "soon"})


def test_a_source_that_does_not_answer_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that hangs: capturing goes on, no second one is begun, and SHOWTRANS says so in bounded time."""
    monkeypatch.setattr(longtrans, "ANSWER_SECONDS", 0.01)
    answer = Event()
    asked: list[int] = []

    def stuck() -> Outstanding:
        asked.append(1)
        answer.wait(PATIENCE)
        return Outstanding((transaction("7", 2),))

    clock, said = FakeClock(), []
    long = LongTransactions(stuck, lambda text, **_: said.append(text), clock, LongSetting(3600, 300))
    for _ in range(3):
        clock.sleep(300)
        long.look(clock.monotonic())
    with pytest.raises(AwayError, match=r"did not say within 0.01 seconds what is open\. Try again"):
        long.reply({}, None)
    assert (len(asked), said) == (1, [])
    answer.set()
    assert long.under_way is not None
    long.under_way.result(60)
    long.look(clock.monotonic())
    assert (len(asked), len(said)) == (1, 1)


def test_the_parameter() -> None:
    """Durations with their unit; both, or the first alone."""
    (one, two) = parse_text("WARNLONGTRANS 2h, CHECKINTERVAL 3m\nWARNLONGTRANS 0s\n", "x")
    assert (long_setting(one), long_setting(two)) == (LongSetting(7200, 180), LongSetting(0, 300))
    assert [seconds_of(text) for text in ("30s", "10M", "1d")] == [30, 600, 86_400]
    assert [seconds_of(text) for text in ("30SECS", "10min", "12HOURS", "1DAY")] == [30, 600, 43_200, 86_400]
    for words in ("", "2hrs", "2se", "2", "2 h", "2h CHECKINTERVAL", "2h EVERY 3m", "2h CHECKINTERVAL 0s"):
        with pytest.raises(ParamError, match="WARNLONGTRANS: expected"):
            long_setting(parse_text(f"WARNLONGTRANS {words}", "x")[0])


def test_showtrans_chooses_and_shows_what_is_being_received(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction that the source is handing over is committed there, and its changes so far are counted."""
    monkeypatch.setattr(longtrans, "ANSWER_SECONDS", 60.0)
    log = ScriptedLog(list(SCRIPT[:3]))
    log.open = Outstanding((transaction("70", 3), transaction("71", 1), transaction("72", None)), "s", "0/1A", 5)
    settings = Settings("EXT1", "home", "host", TRAIL, "./dirdat/lt")
    extract = Extract.start(FaultFs(), settings, ScriptedSource(log), FakeClock())

    def xids(**args: object) -> list[str]:
        return [one["xid"] for one in extract.command("SHOWTRANS", args)["transactions"]]

    assert xids() == ["70", "71", "72"]
    extract.step()
    own, *_ = extract.command("SHOWTRANS", {})["transactions"]
    assert (own["xid"], own["items"], own["status"]) == (str(SCRIPT[0].number), 1, "Committed")
    assert xids(count=2) == [own["xid"], "70"]
    assert xids(seconds=2 * 3600) == ["70"]
    assert xids(xid="71") == ["71"]
    assert extract.command("SHOWTRANS", {})["kept_bytes"] == 5
    extract.close()
