"""STATUS, GETLAG and METRICS on the wire: the keys and their order, and what a reader makes of another release's."""

from __future__ import annotations

import json

from trails.checkpoint import Place, WriteCheckpoint
from trails.runtime.report.answers import (
    LagAnswer,
    MetricsAnswer,
    PlaceAnswer,
    StatusAnswer,
    WriteAnswer,
    plain,
    read_answer,
)

PLACE = PlaceAnswer.of(Place(7, 4711, 5, "0/1", "f"))
WRITE = WriteAnswer.of(WriteCheckpoint(9, 2964, None, "./dirdat/rt", "RMTTRAIL"))


def test_keys_come_in_their_order_and_seldom_ones_only_where_they_are_known():
    """A script reads them by name; what only a pump, or only a Replicat, tells is not there for the others."""
    assert json.dumps(plain(StatusAnswer("At EOF", read=PLACE, write=(WRITE,), in_transaction=3))) == (
        '{"status": "At EOF", "read": {"seqno": 7, "rba": 4711, "time_us": 5, "csn": "0/1", "file": "f"}, '
        '"write": [{"seqno": 9, "rba": 2964, "time_us": null, "trail": "./dirdat/rt"}], "in_transaction": 3}'
    )
    pump = StatusAnswer("At EOF", 12, PlaceAnswer.of(Place(0, 0), thread=0), clocks={})
    assert json.dumps(plain(pump)) == (
        '{"status": "At EOF", "pid": 12, "read": {"seqno": 0, "rba": 0, "time_us": null, "csn": "", "file": "", '
        '"thread": 0}, "write": [], "in_transaction": null, "clocks": {}}'
    )
    assert plain(LagAnswer(0, at_eof=True)) == {"lag_us": 0, "lag_why": "", "at_eof": True, "heartbeats": []}
    assert list(plain(LagAnswer(None, "late", lag_at_us=8)))[-1] == "lag_at_us"
    assert list(plain(MetricsAnswer())) == [
        "program", "group", "at_us", "lag_us", "lag_at_us", "lag_why", "turn_age_us", "operations", "transactions",
        "bytes_in", "bytes_out", "ops_s", "bytes_s", "bytes_out_s", "busy", "backlog_bytes", "backlog_us", "read",
        "write", "heartbeats", "extra",
    ]  # fmt: skip


def test_what_is_told_is_read_back():
    """Both ways through JSON, parts and all."""
    for answer in (
        StatusAnswer("Processing data", 5, PLACE, (WRITE, WRITE), 3, {"ahead_us": 1}, "a full disk"),
        LagAnswer(7, "", True, [{"path": "EXT1 ==> REP1"}], 8),
        MetricsAnswer("PUMP", "PMP1", 9, lag_us=0, busy=0.5, read=PLACE, write=WRITE, extra={"blocked": 0.1}),
    ):
        assert read_answer(type(answer), json.loads(json.dumps(plain(answer)))) == answer


def test_the_answer_of_another_release_is_no_error():
    """Keys that are not known are passed over, also inside a part; missing and null ones have their defaults."""
    newer = {"ok": True, "status": "At EOF", "moon": "full", "read": {"seqno": 1, "color": "red"}, "write": None}
    assert read_answer(StatusAnswer, newer) == StatusAnswer("At EOF", read=PlaceAnswer(1))
    for kind in (StatusAnswer, LagAnswer, MetricsAnswer):
        assert read_answer(kind, {"ok": False, "error": "busy"}) == kind()
    assert read_answer(MetricsAnswer, {"extra": None, "lag_us": None, "heartbeats": None}) == MetricsAnswer()
    assert MetricsAnswer().operations is None, "a count that nobody told is no zero"
