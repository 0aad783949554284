"""Shapes that are kept by place: each TABLE_MAP must agree with them, and their journal outlives every crash."""

from __future__ import annotations

import pytest

from extract.sources.mysql import tablemap as t
from extract.sources.mysql.ddl.agreeing import disagreement
from extract.sources.mysql.ddl.shapes import ShapeRules, Shapes
from extract.sources.mysql.tablemap import MapColumn, TableMap
from tests.support.binlog_statements import LATIN, MARIA, MYSQL, PATH, Asked, Log, T
from trails.ddl import ALTER, DdlChange
from trails.errors import DamageError, OperatorError
from trails.position import Position
from trails.testing import After, Crash, FaultFs

# --- TABLE_MAP --------------------------------------------------------------------------------------------------------


def _map(*columns: MapColumn) -> TableMap:
    return TableMap("shop", "t", columns)


ID = MapColumn("id", t.LONG, 0, False)
A = MapColumn("a", t.VARCHAR, 20, True, collation=8)
B = MapColumn("b", t.LONGLONG, 0, True)


def test_CW_33_a_table_map_must_be_of_the_shape_that_is_known() -> None:
    """Names, order and types; the message has table, place and what to do."""
    log = Log(T)
    assert log.shapes.agrees(_map(ID, A, B), "binlog.000001, position 7").key == ("id",)
    others = [_map(ID, A), _map(ID, B, A), _map(ID, MapColumn("a", t.VARCHAR, 21, True, collation=8), B),
              _map(MapColumn("id", t.LONG, 0, False, unsigned=True), A, B),
              _map(ID, MapColumn("a", t.VARCHAR, 20, True, collation=63), B)]  # fmt: skip
    for other in others:
        with pytest.raises(
            OperatorError, match=r"binlog.000001, position 7: table shop.t is not of the shape known"
        ) as caught:
            log.shapes.agrees(other, "binlog.000001, position 7")
        assert PATH in caught.value.hint
    with pytest.raises(OperatorError, match="no statement before made it"):
        log.shapes.agrees(TableMap("shop", "none", (ID,)), "x")


def test_CW_33_a_day_behind_an_alter_that_swaps_two_columns_of_like_types() -> None:
    """The journal has the shape of each place, whatever the server's table looks like by now."""
    before = "CREATE TABLE `t` (`x` int(11) NOT NULL, `y` int(11) NOT NULL)"
    log = Log(before)
    log.asked = Asked("CREATE TABLE `t` (`y` int(11) NOT NULL, `x` int(11) NOT NULL)")
    again = Log(fs=log.fs)
    again.asked = log.asked
    again.resume(Position(1, 100), continues=True)
    x, y = (MapColumn(name, t.LONG, 0, False) for name in "xy")
    assert again.shapes.agrees(_map(x, y), "here").columns[0].number == 1
    (change,) = again.run("ALTER TABLE t MODIFY x int NOT NULL AFTER y")
    assert [c.number for c in change.new.columns] == [2, 1]
    again.shapes.agrees(_map(y, x), "here")
    with pytest.raises(OperatorError, match="column 1 was expected to be y, found x"):
        again.shapes.agrees(_map(x, y), "here")


def test_labels_and_sizes_are_compared() -> None:
    """Of types whose size or labels the log has."""
    log = Log(server=MYSQL)
    log.run(
        "CREATE TABLE t (e enum('a','ä'), d decimal(6,2), b bit(12), x text, j json, g point, s set('q')) "
        "charset utf8mb4"
    )
    shape = log.shapes.current("shop", "t")
    assert shape is not None
    right = [
        MapColumn("e", t.ENUM, 1, True, collation=45, labels=(b"a", "ä".encode())),
        MapColumn("d", t.NEWDECIMAL, 6 | 2 << 8, True),
        MapColumn("b", t.BIT, 4 | 1 << 8, True),
        MapColumn("x", t.BLOB, 2, True, collation=45),
        MapColumn("j", t.JSON, 4, True),
        MapColumn("g", t.GEOMETRY, 4, True, geometry=1),
        MapColumn("s", t.SET, 1, True, collation=45, labels=(b"q",)),
    ]
    assert disagreement(shape, _map(*right)) == ""
    wrong = [
        MapColumn("e", t.ENUM, 1, True, collation=45, labels=(b"a", b"b")),
        MapColumn("d", t.NEWDECIMAL, 7 | 2 << 8, True),
        MapColumn("b", t.BIT, 5 | 1 << 8, True),
        MapColumn("x", t.BLOB, 3, True, collation=45),
        MapColumn("j", t.BLOB, 2, True, collation=45),
        MapColumn("g", t.BLOB, 4, True),
        MapColumn("s", t.SET, 1, True, collation=45, labels=(b"q", b"r")),
    ]
    for i, other in enumerate(wrong):
        assert other.name in disagreement(shape, _map(*right[:i], other, *right[i + 1 :]))


# --- the journal ------------------------------------------------------------------------------------------------------

SCRIPT = (
    "ALTER TABLE t ADD c int",
    "CREATE TABLE u (a int PRIMARY KEY)",
    "RENAME TABLE t TO x, u TO t, x TO u",
    "ALTER TABLE t CHANGE a b bigint",
    "DROP TABLE u",
)


def _known(log: Log) -> list[str]:
    return [log.columns(name) if log.shapes.current("shop", name) else "none" for name in "tux"]


def _expected() -> list[list[str]]:
    log = Log(T)
    found = [_known(log)]
    for statement in SCRIPT:
        log.run(statement)
        found.append(_known(log))
    return found


@pytest.mark.fault
def test_CW_33_shapes_are_right_after_a_crash_at_every_call() -> None:
    """However the machine stops: at any place that the trail may end at, the shapes are those of that place."""
    expected = _expected()
    for how in After:
        crash_at = 1
        while True:
            fs = FaultFs(crash_at)
            done = 0
            try:
                log = Log(T, fs=fs)
                for done, statement in enumerate(SCRIPT):  # noqa: B007  -- wanted where it stopped
                    log.run(statement)
                done = len(SCRIPT)
            except Crash:
                pass
            crashed = fs.calls >= crash_at
            fs.reboot(how)
            # The trail has the statements that were told, or not the last of them.
            for reached in range(max(0, done - 1), done + 1):
                _goes_on(fs.left(After.KILL), reached, expected)
            if not crashed:
                break
            crash_at += 1
        assert crash_at > 10


def _goes_on(fs: FaultFs, reached: int, expected: list[list[str]]) -> None:
    log = Log.__new__(Log)
    log.fs, log.asked = fs, Asked(T)
    log.shapes = Shapes(fs, PATH, MARIA, ShapeRules(lambda _schema, _name: True, lambda _change: True))
    log.resume(Position(1, 100 + 10 * reached), continues=True)
    assert _known(log) == expected[reached] or (log.asked.times != 0 and reached == 0)
    for number, statement in enumerate(SCRIPT[reached:], reached + 1):
        log.run(statement)
        assert _known(log) == expected[number]


def test_a_damaged_journal_stops_and_a_lost_one_is_asked_again() -> None:
    """A wrong line before another is no torn end."""
    log = Log(T)
    log.run(SCRIPT[0])
    log.run(SCRIPT[1])
    end = log.fs.content(PATH).rindex(b"\n", 0, -1)
    log.fs.corrupt(PATH, lambda data: data.__setitem__(end - 5, data[end - 5] ^ 1))
    with pytest.raises(DamageError, match="line 2"):
        log.resume(Position(1, 120), continues=True)
    log.fs.take_away(PATH)
    log.resume(Position(1, 120), continues=True)
    assert log.columns() == f"1 id int!, 2 a varchar(20){LATIN}, 3 b bigint"


def test_shapes_are_asked_anew_where_statements_were_passed_over() -> None:
    """An ALTER ahead of the journal's end, a new trail of another server; not for one that goes back inside it."""
    log = Log(T)
    for statement in SCRIPT[:2]:
        log.run(statement)
    log.asked = Asked("CREATE TABLE `t` (`n` int(11))")
    log.resume(Position(1, 110))
    assert log.columns().endswith("4 c int")
    log.resume(Position(1, 500), end=Position(1, 900))
    assert log.columns() == "1 n int"
    with pytest.raises(OperatorError, match=r"shop.t is changed here, and its shape was asked .* only after"):
        log.run("ALTER TABLE t ADD z int")
    log.at = 891
    assert [c.op for c in log.run("ALTER TABLE t ADD z int")] == [ALTER]


def test_a_long_journal_begins_anew_at_a_start() -> None:
    """So it does not grow for ever."""
    log = Log(T)
    for number in range(2100):
        log.run(f"ALTER TABLE t ALTER b SET DEFAULT {number}")
    size = len(log.fs.content(PATH))
    log.resume(Position(1, log.at), continues=True)
    assert len(log.fs.content(PATH)) < size / 100
    shape = log.shapes.current("shop", "t")
    assert shape is not None
    assert shape.columns[2].default == "2099"
    assert isinstance(log.run("ALTER TABLE t ADD c int")[0], DdlChange)


def test_a_journal_that_is_deleted_under_its_extract_begins_anew_with_all_that_is_known() -> None:
    """The next start knows the shapes of the place behind the statement that found it gone, and asks nobody."""
    log = Log(T)
    log.run(SCRIPT[0])
    log.fs.take_away(PATH)
    log.run(SCRIPT[1])
    known, asked = _known(log), log.asked.times
    log.resume(Position(1, log.at), continues=True)
    assert (_known(log), log.asked.times) == (known, asked)
    log.run(SCRIPT[2])
    assert _known(log) == _expected()[3]
