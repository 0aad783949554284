"""The progress of an initial load: rate and time left as they follow from its chunks, and how they are told."""

from __future__ import annotations

from dataclasses import replace

from ggsci.views import loadview
from replicat.load.loadtables import CATCHING_UP, COPYING, FAILED, LIVE, ChunkRow, LoadRow, LoadState, TableRow
from replicat.load.progress import LoadProgress
from trails.record import Column, TableDef

PAIR = ("public.a", "copy.a")
TABLE = TableRow(*PAIR, TableDef("public", "a", (Column("id", "int64", "bigint", True),)), COPYING, estimate=900)


def loaded(done: int, of: int = 4, table: TableRow = TABLE) -> LoadState:
    """So many of its chunks are copied, each of 100 rows and 2 MB."""
    chunks = [ChunkRow(*PAIR, n, seen="csn 1", rows=100, bytes=2_000_000) for n in range(done)]
    return LoadState(LoadRow(), (table,), (*chunks, *(ChunkRow(*PAIR, n) for n in range(done, of))))


def test_rate_and_time_left_follow_from_the_chunks_that_were_seen_to_be_copied():
    now = [1000.0]
    progress = LoadProgress(lambda: now[0])
    assert (progress.says(), progress.figures()) == ("", {})
    progress.seen(LoadState(LoadRow(), (replace(TABLE, state="waiting"),)))
    assert progress.says() == "Loading public.a"

    progress.seen(loaded(1))  # copied before this process looked: it knows no rate
    assert progress.says() == "Loading public.a: 1 of 4 chunks, 100 rows, 2.0 MB, rate and time left not known yet"
    (told,) = progress.figures()["loading"]
    assert (told["rows_s"], told["bytes_s"], told["left_us"]) == (None, None, None)

    now[0] += 10
    progress.copied(PAIR, 100, 2_000_000)
    progress.seen(loaded(2))  # the same by the target's word
    (told,) = progress.figures()["loading"]
    assert (told["rows_s"], told["bytes_s"], told["left_us"]) == (10.0, 200_000.0, 20_000_000)
    assert progress.says().endswith("2 of 4 chunks, 200 rows, 4.0 MB, 10 rows/s, 20 s left")

    now[0] += 30  # nothing came: it is slower than it was, as far as anybody knows
    assert progress.figures()["loading"][0]["rows_s"] == 100 / 30
    progress.seen(loaded(3))
    assert progress.figures()["loading"][0]["rows_s"] == 200 / 40

    progress.seen(loaded(0))  # begun anew
    assert "not known" in progress.says()
    progress.seen(loaded(4, table=replace(TABLE, state=CATCHING_UP)))
    assert progress.says() == ""
    assert progress.figures()["loading"][0]["rows_s"] is None
    progress.seen(LoadState(LoadRow(), (replace(TABLE, state=LIVE),)))
    assert progress.figures() == {"load_states": {"live": 1}, "loading": []}


def test_old_rates_are_forgotten_and_what_failed_comes_first():
    now = [0.0]
    progress = LoadProgress(lambda: now[0])
    for done in range(20):
        now[0] += 10 if done < 10 else 20  # half as fast from then on
        progress.seen(loaded(done, of=20))
    assert progress.figures()["loading"][0]["rows_s"] == 5.0
    many = [replace(TABLE, source=f"public.t{n:03}", state="waiting") for n in range(300)]
    progress.seen(LoadState(LoadRow(), (*many, replace(TABLE, source="public.z", state=FAILED))))
    found = progress.figures()
    assert found["load_states"] == {"waiting": 300, "failed": 1}
    assert [one["source"] for one in found["loading"][:2]] == ["public.z", "public.t000"]
    assert len(found["loading"]) == 100


def test_INFO_TABLES_says_what_is_not_known():
    """Of a process that tells nothing, rate and time left are UNKNOWN; a table that was copied has its mean."""
    one = {
        "source": "public.a", "target": "copy.a", "state": "copying", "reason": "", "chunks": 4, "chunks_done": 1,
        "rows": 100, "bytes": 2_000_000, "estimate": 400, "started_us": 1, "ended_us": None, "waiting": 0,
    }  # fmt: skip
    told = {"rows_s": 10.0, "bytes_s": 200_000.0, "left_us": 30_000_000}
    ended = {**one, "state": "live", "started_us": 1_000_000, "ended_us": 5_000_000}
    lines = loadview.tables([loadview.paced(one, None), loadview.paced(one, told), loadview.paced(ended, None)])
    rows = [line.split()[-5:] for line in lines if line.startswith("public.a to copy.a") and "of 4" in line]
    assert rows == [
        ["100", "400", "2.0", "UNKNOWN", "UNKNOWN"], ["100", "400", "2.0", "10", "00:00:30"],
        ["4", "100", "400", "2.0", "25"],
    ]  # fmt: skip
