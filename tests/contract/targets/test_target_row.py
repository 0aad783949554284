"""The checkpoint row of every target, and what is left of a transaction that was cut off: all of it, or nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from demo.patience import PATIENCE, wait_for
from replicat.model.again import PlaceLostError
from replicat.model.target import CheckpointRow
from tests.contract.targets.bench import GROUP, KEY, Bench, images
from tests.contract.targets.places import Place
from trails.errors import AwayError, OperatorError
from trails.position import Position

pytestmark = pytest.mark.e2e

ROW = CheckpointRow(
    Position(3, 4096), bytes(range(16)), "00000001/0A2B3C40", "77", 1_700_000_000_123_456, 9, 1_690_000_000_000_000,
    Position(2, 96), 41, ">=00000001/0A2B3C40",
)  # fmt: skip


def test_every_field_of_the_row_comes_back(bench: Bench):
    """And each part of its place decides whether it is where it was left."""
    bench.target.flush(bench.row, ROW)
    assert bench.target.load_row() == ROW
    lost = (
        replace(ROW, split=0), replace(ROW, skip_until=">x"), replace(ROW, position=Position(3, 4097)),
        replace(ROW, position=Position(4, 4096)), replace(ROW, trail_id=b"\x01" * 16), replace(ROW, alter_no=8),
        replace(ROW, added_us=1),
    )  # fmt: skip
    for old in lost:
        for move in (bench.target.flush, bench.target.begin):
            with pytest.raises(PlaceLostError):
                move(old, replace(ROW, position=Position(9, 0)))
    bench.target.flush(replace(ROW, csn="", xid="", time_us=None, flushed=Position(0, 0)), ROW)
    assert bench.target.load_row() == ROW
    bench.target.flush(ROW, replace(ROW, csn="next"))
    assert bench.target.read(f"SELECT log_cmplt_csn, log_csn FROM {bench.target.row_table}") == [(ROW.csn, "next")]


@pytest.mark.parametrize("name", ['a%chk"', "ü{0}`c%s?"])
def test_a_checkpoint_table_may_be_called_anything(place: Place, name: str):
    """It is made, told, moved, read, forgotten and dropped."""
    table = (place.schema, name)
    bench = Bench(place, table).open()
    admin, url = bench.admin, place.url
    bench.do()
    bench.close()
    assert bench.row.position == Position(0, 100)
    (shown,) = admin.rows_of_table(url, table) or []
    assert (shown.group, str(shown.group_key), shown.seqno, shown.rba) == (GROUP, str(KEY), 0, 100)
    made = admin.row_table_made(url, table)
    assert made is not None
    assert abs(made - time.time_ns() // 1000) < 3_600_000_000, "in UTC, whatever the zone here"
    assert table in admin.tables(url)
    with admin.statements(url) as run:
        assert run(bench.kind.about)
    assert set(admin.database_info(url)) == {"user", "database", "server"}
    assert admin.delete_row(url, table, GROUP, KEY)
    assert not admin.delete_row(url, table, GROUP, KEY)
    assert admin.rows_of_table(url, table) == []
    admin.drop_row_table(url, table)
    assert admin.rows_of_table(url, table) is None
    with pytest.raises(OperatorError, match="ADD CHECKPOINTTABLE"):
        bench.target.connect()


def test_each_group_has_a_row_of_its_own(bench: Bench):
    """One connection speaks for one after the other; who has none finds none."""
    bench.do()
    bench.target.speak_for("OTHER", 5)
    assert bench.target.load_row() is None
    bench.target.add_row(ROW)
    bench.target.begin(ROW, replace(ROW, position=Position(4, 0)))
    bench.target.commit()
    bench.target.speak_for(GROUP, KEY)
    assert bench.target.load_row() == bench.row
    assert bench.target.write(f"UPDATE {bench.target.row_table} SET rba = 7 WHERE group_key = 5", []) == 1
    assert sorted(bench.target.read(f"SELECT rba FROM {bench.target.row_table}")) == [(7,), (100,)]


@pytest.mark.parametrize("ends", ["commit", "close"])
def test_CW_01_a_second_process_waits_or_is_refused_until_the_first_ends(bench: Bench, kv: Any, ends: str):
    """The row is moved first: while the first process's transaction is open, no other goes on from the same row."""
    second = bench.second()
    new = bench.begin()
    bench.target.apply((bench.rows(kv, inserts=images(["1 first b"])),))
    told: list[Any] = []
    late = threading.Thread(target=lambda: told.append(_tried(second.begin)))
    late.start()
    # MariaDB looks anew only where nobody has asked for a tenth of a second: who asks faster sees the old for ever.
    wait_for(lambda: told or bench.place.waits(), "the second one's wait", every=0.25)
    if told:
        assert isinstance(told[0], AwayError), "it was not refused, and does not wait"
    getattr(bench.target, ends)()
    late.join(PATIENCE)
    if isinstance(told[0], AwayError):
        second.target.connect()
        second.target.load_row()
        told[0] = _tried(second.begin)
    assert isinstance(told[0], PlaceLostError if ends == "commit" else CheckpointRow)
    if ends == "commit":
        assert second.again() == new
    else:
        second.target.apply((second.rows(kv, inserts=images(["1 second b"])),))
        second.target.commit()
    assert bench.look() == [("1", "first" if ends == "commit" else "second", "b")]
    second.close()


def test_CW_01_who_read_the_row_before_it_was_moved_to_where_it_was_moves_nothing(bench: Bench):
    """A process may have paused a table meanwhile, or begun a load anew, at the very place."""
    second = bench.second()
    bench.target.flush(bench.row, bench.row)
    for moves in (second.begin, lambda: second.target.flush(second.row, second.row)):
        with pytest.raises(PlaceLostError, match="somebody has moved it meanwhile"):
            moves()
    assert second.again() == bench.row
    second.begin()
    assert second.target.load_row() != bench.row  # its own open move is seen, and counts once
    second.target.commit()
    second.target.flush(second.target.load_row() or second.row, second.row)
    with pytest.raises(PlaceLostError):
        bench.target.begin(bench.row, bench.row)
    second.close()


def test_a_row_is_held_where_it_is_and_moves_on_where_the_end_is_known(bench: Bench, kv: Any):
    """Of a transaction that was begun before its end had come: for others it has moved once, and so has its number."""
    second = bench.second()
    bench.target.flush(bench.row, replace(bench.row, csn="before"))
    bench.again()
    old, new = bench.row, replace(bench.row, position=Position(0, 100), csn="its own")
    bench.target.begin(old, old)
    bench.target.apply((bench.rows(kv, inserts=images(["1 first b"])),), first=True)
    bench.target.move_on(new)
    bench.target.commit()
    assert bench.target.read(f"SELECT log_cmplt_csn, log_csn FROM {bench.target.row_table}") == [("before", "its own")]
    with pytest.raises(PlaceLostError):
        second.target.begin(old, new)
    bench.target.begin(new, replace(new, position=Position(0, 200)))  # whoever moved it knows its number
    bench.target.commit()
    assert bench.again().position == Position(0, 200)
    assert bench.look() == [("1", "first", "b")]
    second.close()


def _tried(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except (AwayError, PlaceLostError) as error:
        return error


def _calls(bench: Bench, layout: Any) -> list[tuple[str, Callable[[], Any]]]:
    """A transaction, call by call, and a flush behind it."""
    target, token = bench.target, []
    new = replace(bench.row, position=Position(0, bench.row.position.rba + 100))
    many = [[str(n), "x", "y"] for n in range(1000, 1300)]
    return [
        ("begin", lambda: target.begin(bench.row, bench.row)),
        ("mark", lambda: token.append(target.mark())),
        ("apply", lambda: target.apply((bench.rows(layout, updates=images(["1 new b"])),))),
        ("undo", lambda: target.undo(token[0])),
        ("apply", lambda: target.apply((bench.rows(layout, inserts=many),), border=True)),
        ("apply", lambda: target.apply((bench.rows(layout, upserts=many),), rewrite=True)),
        ("current", lambda: target.current(layout, ("1",))),
        ("put", lambda: target.put(layout, ("2", "put", "b"))),
        ("remove", lambda: target.remove(layout, ("3",))),
        ("check_commit", target.check_commit),
        ("write", lambda: target.write(f"DELETE FROM {target.row_table} WHERE group_key = 1", [])),
        ("read", lambda: target.read(f"SELECT count(*) FROM {target.row_table}")),
        ("move_on", lambda: target.move_on(new)),
        ("commit", target.commit),
        ("flush", lambda: target.flush(new, replace(new, flushed=new.position))),
        ("load_row", target.load_row),
    ]


BEFORE = [("1", "old", "b"), ("2", "old", "b"), ("3", "old", "b")]


def _seen(bench: Bench) -> bool:
    """Whether the transaction of _calls() is there; and it is whole, or not there at all."""
    found = bench.look()
    if found == BEFORE:
        return False
    assert ("1", "old", "b") in found and ("2", "put", "b") in found and ("3", "old", "b") not in found
    assert len(found) == 302
    return True


def _do_again(bench: Bench, layout: Any) -> None:
    """From where the row says, the transaction arrives once."""
    landed = bench.again().position.rba == 200
    assert landed == _seen(bench)
    if not landed:
        for name, call in _calls(bench, layout):
            if name != "flush":
                call()
    assert _seen(bench)
    assert bench.again().position.rba == 200


def _reset(bench: Bench, layout: Any) -> None:
    bench.again()
    found = [[key] for (key,) in bench.look(columns="id")]
    bench.target.begin(bench.row, replace(bench.row, position=Position(0, 100)))
    bench.target.apply((bench.rows(layout, deletes=found), bench.rows(layout, inserts=BEFORE)))
    bench.target.commit()
    bench.again()


def test_away_at_every_call_and_again_from_the_row(bench: Bench, kv: Any):
    """The connection is cut before each call in turn: that call or a later one says so, nothing of it is half there."""
    for number, (name, _) in enumerate(_calls(bench, kv)):
        _reset(bench, kv)
        calls = _calls(bench, kv)
        for _, call in calls[:number]:
            call()
        bench.place.cut(bench.target)
        with pytest.raises(AwayError):
            calls[number][1]()
        with pytest.raises(AwayError):
            bench.target.commit()
        assert _seen(bench) == (name in ("flush", "load_row"))
        _do_again(bench, kv)


def test_I10_killed_between_every_two_calls(bench: Bench, kv: Any):
    """A process of its own, and SIGKILL behind each call in turn; the next one goes on from the row."""
    names = [name for name, _ in _calls(bench, kv)]
    for number in range(len(names)):
        _reset(bench, kv)
        bench.close()
        pid = os.fork()
        if pid == 0:
            _die_behind(bench, kv, number)
        _, status = os.waitpid(pid, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL
        bench.again()
        assert _seen(bench) == (number >= names.index("commit")), names[number]
        _do_again(bench, kv)


def _die_behind(bench: Bench, layout: Any, number: int) -> None:
    with contextlib.suppress(BaseException):
        bench.again()
        for _, call in _calls(bench, layout)[: number + 1]:
            call()
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(1)


def test_what_is_flushed_survives_the_server(bench: Bench, kv: Any):
    """Commits may be lost with a server that dies, row and rows together; behind a flush none is."""
    bench.do(bench.rows(kv, inserts=images(["1 a b"])))
    flushed = replace(bench.row, flushed=bench.row.position)
    bench.target.flush(bench.row, flushed)
    bench.place.crash()
    assert bench.again() == flushed
    assert bench.look() == [("1", "a", "b")]
    bench.do(bench.rows(kv, inserts=images(["2 a b"])))
    bench.place.crash()
    assert (bench.again().position.rba == 200) == (len(bench.look()) == 2)
