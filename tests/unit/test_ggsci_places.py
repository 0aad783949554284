"""Where a Replicat is told to begin: ALTER and ADD by CSN or time, START with ATCSN, AFTERCSN, SKIPTRANSACTION."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import datetime

import pytest

from ggsci.grammar import CommandError
from ggsci.groups import order_start
from ggsci.session import Session
from ggsci.table import GRAMMAR
from tests.support.homes import bad, good, make_home
from tests.support.replicat_trail import TrailFeed, table
from trails.fs import RealFs
from trails.position import TrailName
from trails.record import Op
from trails.runtime import registration
from trails.runtime.home import Home

KV = table("s", "kv", "id", "id")


@pytest.fixture
def home(tmp_path) -> Home:
    """A Replicat on a trail with one transaction."""
    made = make_home(tmp_path / "home")
    feed = TrailFeed(RealFs(), TrailName.parse("./dirdat/rt", made.root))
    feed.tx((Op.INSERT, KV, ["1"]))
    feed.close()
    good(made, "ADD REPLICAT rep1, EXTTRAIL ./dirdat/rt, CHECKPOINTTABLE gg.ckpt")
    return made


def rep(home: Home) -> registration.Registration:
    return registration.load(home, "REP1")


def start(home: Home, line: str) -> str:
    """What START notes before it asks the Manager; returns what it says."""
    out = io.StringIO()
    order_start(Session(home.root, out=out), GRAMMAR.parse(line), rep(home))
    return out.getvalue()


def test_alter_by_csn_and_time(home: Home):
    """A CSN gets the trail's form; a time is of this machine's zone; each order has a number."""
    good(home, "ALTER REPLICAT rep1, CSN 42")
    assert (rep(home).alter, rep(home).alter_no) == ({"csn": "0000000000000042"}, 1)
    good(home, "ALTER REPLICAT rep1, BEGIN '2026-02-03 02:30:05'")
    moment = int(datetime(2026, 2, 3, 2, 30, 5).astimezone().timestamp() * 1_000_000)
    assert (rep(home).alter, rep(home).alter_no) == ({"begin_us": moment}, 2)
    good(home, "ALTER REPLICAT rep1, BEGIN NOW")
    assert rep(home).alter["begin_us"] > moment


def test_what_is_wrong_with_a_place(home: Home):
    """One message each; nothing is noted."""
    text = bad(home, "ALTER REPLICAT rep1, CSN 0/16B3748")
    assert "expected a CSN such as 0000000000000001, found '0/16B3748'" in text
    assert "BEGIN: expected NOW or a time as" in bad(home, "ALTER REPLICAT rep1, BEGIN tomorrow")
    assert "found several" in bad(home, "ALTER REPLICAT rep1, BEGIN NOW, CSN 4")
    assert "exclude each other" in bad(home, "START REPLICAT rep1, ATCSN 4, SKIPTRANSACTION")
    assert "for one group at a time" in bad(home, "START REPLICAT *, ATCSN 4")
    assert "unexpected 'ATCSN'" in bad(home, "START EXTRACT ext1, ATCSN 4")
    with pytest.raises(CommandError, match="ATCSN: expected a CSN such as 0000000000000001"):
        start(home, "START REPLICAT rep1, ATCSN x/y")
    assert rep(home).alter_no == rep(home).start_no == 0


def test_start_notes_its_order_beside_alters(home: Home):
    """Numbered in one count, kept apart: an ALTER that waits is not lost by it."""
    good(home, "ALTER REPLICAT rep1, EXTSEQNO 0, EXTRBA 0")
    start(home, "START REPLICAT rep1, AFTERCSN 7")
    assert (rep(home).start, rep(home).start_no) == ({"after_csn": "0000000000000007"}, 2)
    assert (rep(home).alter, rep(home).alter_no) == ({"seqno": 0, "rba": 0}, 1)
    said = start(home, "START REPLICAT rep1, SKIPTRANSACTION")
    assert "The START before this one (after_csn 0000000000000007) was not obeyed yet; it is replaced" in said
    assert (rep(home).start, rep(home).start_no) == ({"skip": 1}, 3)
    assert "was not obeyed yet; now it is" in start(home, "START REPLICAT rep1")
    good(home, "ALTER REPLICAT rep1, CSN 3")
    assert rep(home).alter_no == 4
    assert start(home, "START REPLICAT rep1") == ""


def test_a_damaged_checkpoint_file_keeps_nobody_from_starting(home: Home):
    """Whether the last order was obeyed is only good for a notice: the process asks the target."""
    start(home, "START REPLICAT rep1, SKIPTRANSACTION")
    with open(home.checkpoint("REP1", "REPLICAT"), "wb") as file:
        file.write(b"damaged")
    assert start(home, "START REPLICAT rep1") == ""
    assert start(home, "START REPLICAT rep1, AFTERCSN 7") == ""
    assert rep(home).start_no == 2


def test_a_registration_without_start_orders_reads_as_before(home: Home):
    """Written by an earlier release."""
    path = home.registration("REP1")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    older = text.replace(',\n "start_no": 0,\n "start": {}', "")
    assert older != text
    with open(path, "w", encoding="utf-8") as file:
        file.write(older)
    assert rep(home) == replace(rep(home), start_no=0, start={})
