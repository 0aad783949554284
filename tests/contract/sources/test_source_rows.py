"""Every source: what its transactions hold. Rows whole and in order, whatever values, tables and shapes there are."""

from __future__ import annotations

from contextlib import suppress

import pytest

from extract import kinds
from extract.heartbeat import Owner
from tests.contract.sources.bench import GROUP, HEARTBEATS, HOME_ID, KV, SourceBench, ask
from trails.ddl import ALTER, DROP, RENAME
from trails.errors import OperatorError
from trails.format import Indicator
from trails.reader import BlockReader
from trails.record import MISSING, Op

pytestmark = pytest.mark.e2e

INSERT, UPDATE, DELETE = int(Op.INSERT), int(Op.UPDATE), int(Op.DELETE)
ODD = ("", " ", "NULL", "'quoted' \"twice\"", "a\\b", "tab\tline\nend", "Ünï 日本語 🙂", "x" * 300_000)
NUMBERS = (0.5, -0.25, 1e300, 5e-324)


def test_every_change_comes_whole_and_in_order(bench: SourceBench):
    """An insert, an update, one of the key, one to NULL and a delete: each row as it became, and whose row it was."""
    bench.register(KV)
    extract = bench.start()
    mirror = bench.sees(
        extract, "INSERT INTO kv VALUES (1, 'a', NULL)", "UPDATE kv SET b = 7", "UPDATE kv SET id = 2, a = NULL",
        "INSERT INTO kv VALUES (1, 'again', 0)", "UPDATE kv SET id = id + 10", "DELETE FROM kv WHERE id = 12",
    )  # fmt: skip
    insert, update, moved, again, *both, delete = [(r[0], *map(plain, r[2:])) for r in mirror.records]
    assert insert == (INSERT, ("1", "a", None))
    assert (update[:2], moved[:2]) == ((UPDATE, ("1", "a", "7")), (UPDATE, ("2", None, "7")))
    assert moved[2][0] == "1", "the old key"
    assert again == (INSERT, ("1", "again", "0"))
    assert sorted((new[0], old[0]) for _, new, old in both) == [("11", "1"), ("12", "2")]
    assert (delete[0], delete[1][0]) == (DELETE, "12")
    bench.same(mirror, "kv")


def plain(image: object) -> object:
    """A row's values; none where there is no row."""
    return None if image is None else tuple(image)  # type: ignore[call-overload]


def test_whole_old_rows_come_where_they_are_asked_for(bench: SourceBench):
    """GETUPDATEBEFORES: also values that the update left as they were. START says what ALLCOLS is needed for."""
    bench.tables = "GETUPDATEBEFORES\nTABLE {}.*;"
    long = "y" * 20_000
    bench.register("CREATE TABLE wide (id integer PRIMARY KEY, a integer, b integer)")
    if not bench.place.whole:
        with pytest.raises(OperatorError, match=r"ADD TRANDATA \w+\.wide, ALLCOLS"):
            bench.start()
    bench.sql("DROP TABLE wide", f"CREATE TABLE wide (id integer PRIMARY KEY, a {bench.place.large}, b integer)")
    asked = {"url": bench.place.url, "method": bench.place.method}
    ask("add_trandata", **asked, pattern=f"{bench.place.schema}.*", allcols=True)
    bench.insert("wide", (1, long, None))
    bench.sql("UPDATE wide SET b = 1", "UPDATE wide SET id = 2", "UPDATE wide SET a = NULL")
    images = [[plain(image) for image in record[2:]] for record in bench.capture().records if record[0] == UPDATE]
    assert images[0] == [("1", long, "1"), ("1", long, None)]
    assert images[1:] == [[("2", long, "1"), ("1", long, "1")], [("2", None, "1"), ("2", long, "1")]]


def test_values_of_every_size_arrive_exact(bench: SourceBench):
    """Empty, odd and large texts, bytes and numbers, NULLs in each place; also where an update left them alone."""
    place = bench.place
    bench.register(
        f"CREATE TABLE odd (id integer PRIMARY KEY, t {place.large}, n {place.double}, d {place.binary}, i bigint)"
    )
    rows = [(n, text, None, None, None) for n, text in enumerate(ODD)]
    rows += [(100 + n, None, number, None, None) for n, number in enumerate(NUMBERS)]
    rows += [(200, None, None, b"", None), (201, None, None, bytes(range(256)) * 400, None)]
    rows += [(300 + n, None, None, None, whole) for n, whole in enumerate((-(2**63), 2**63 - 1, 0))]
    bench.insert("odd", *rows)
    bench.sql("UPDATE odd SET id = id + 1000", "UPDATE odd SET i = 5 WHERE id < 1100")
    mirror = bench.capture()
    bench.same(mirror, "odd")
    assert not any(MISSING in record[2] for record in mirror.records if record[0] != DELETE)


def test_what_is_rolled_back_leaves_nothing(bench: SourceBench):
    """A transaction, a part of one, and one that changes nothing: the others come, in the order of their commits."""
    bench.register(KV)
    with suppress(ZeroDivisionError), bench.place.transaction() as application:
        application.execute("INSERT INTO kv VALUES (1, 'lost', 1)")
        raise ZeroDivisionError
    bench.together(
        "INSERT INTO kv VALUES (2, 'kept', 2)", "SAVEPOINT s", "DELETE FROM kv", "INSERT INTO kv VALUES (3, 'lost', 3)",
        "ROLLBACK TO s", "UPDATE kv SET b = 4",
    )  # fmt: skip
    bench.together("SELECT 1", "DELETE FROM kv WHERE id = 99")
    mirror = bench.capture()
    assert [record[2][0] for record in mirror.records] == ["2", "2"]
    bench.same(mirror, "kv")


def test_a_transaction_over_several_tables_comes_whole(bench: SourceBench):
    """In the order of its statements; tables that TABLE leaves out are not in it, and leave no transaction behind."""
    bench.tables = "TABLEEXCLUDE {}.secret;\nTABLE {}.kv;\nTABLE {}.o*;"
    bench.register(*(KV.replace("kv", name) for name in ("kv", "other", "secret", "unnamed")))
    bench.together(
        "INSERT INTO kv VALUES (1, 'a', 1)", "INSERT INTO secret VALUES (1, 's', 1)",
        "INSERT INTO other VALUES (1, 'o', 1)", "INSERT INTO unnamed VALUES (1, 'u', 1)", "UPDATE kv SET b = 2",
    )  # fmt: skip
    extract = bench.start()
    mirror = bench.sees(extract)
    assert mirror.changes == [3]
    assert [(record[0], record[2][1]) for record in mirror.records] == [(INSERT, "a"), (INSERT, "o"), (UPDATE, "a")]
    assert bench.sees(extract, "INSERT INTO secret VALUES (2, 's', 2)", "DELETE FROM unnamed").changes == [3]
    assert set(bench.mirror().tables) == {"kv", "other"}


def test_a_large_transaction_comes_in_pieces(bench: SourceBench):
    """No more than a block of it is gathered; it stands in the trail as begin, middle and end, and is read as one."""
    bench.register(KV)
    bench.insert("kv", *((n, f"{n:0100d}", n) for n in range(3000)))
    bench.together("UPDATE kv SET b = b + 1", "DELETE FROM kv WHERE id < 10")
    extract = bench.start()
    gathered, goal = [0], bench.place.end()

    def is_read() -> bool:
        gathered.append(len(extract._assembler.records))
        return bench.place.has_read(extract._assembler.origin, goal)

    bench.until(extract, is_read)  # who steps without a wait keeps a reading thread from its turn
    bench.drain(extract)
    mirror = bench.mirror()
    assert max(gathered) < 3000
    assert sum(mirror.changes) == 6010 and mirror.changes[0] >= 3000
    reader, indicators = BlockReader(bench.fs, bench.trail), []
    while (block := reader.read()) is not None:
        indicators.append(block.header.indicator)
    reader.close()
    assert {Indicator.BEGIN, Indicator.MIDDLE, Indicator.END} <= set(indicators)
    bench.same(mirror, "kv")


def test_each_row_has_the_shape_of_its_place(bench: SourceBench):
    """A column is added and named anew, a table renamed and dropped: rows before and behind each go by their own."""
    bench.lines = ("DDL INCLUDE ALL",)
    bench.follow_ddl()
    bench.register(KV, KV.replace("kv", "gone"))
    extract = bench.start()
    bench.sees(extract, "INSERT INTO kv VALUES (1, 'old', 1)", "INSERT INTO gone VALUES (1, 'x', 1)")
    bench.sees(extract, "ALTER TABLE kv ADD COLUMN c varchar(9)", "INSERT INTO kv VALUES (2, 'new', 2, 'c')")
    bench.sees(extract, "ALTER TABLE kv RENAME COLUMN b TO bb", "UPDATE kv SET bb = 5 WHERE id = 2")
    bench.stop(extract)
    extract = bench.start()
    bench.sees(extract, "ALTER TABLE kv RENAME TO thing", "INSERT INTO thing VALUES (3, 'newest', 3, NULL)")
    mirror = bench.sees(
        extract, "INSERT INTO gone VALUES (2, 'last', 2)", "DROP TABLE gone", "DELETE FROM thing WHERE id = 1"
    )
    assert "last" in [record[2][1] for record in mirror.records], "what was logged before goes out before"
    assert [change.op for change in mirror.ddl] == [ALTER, ALTER, RENAME, DROP]
    assert [change.full_name for change in mirror.ddl[2:]] == [f"{bench.place.schema}.{n}" for n in ("thing", "gone")]
    assert [column.name for column in mirror.ddl[2].shape.columns] == ["id", "a", "bb", "c"]
    rows = {row[1]: row for row in mirror.sorted("thing")}
    assert rows == {"new": ("2", "new", "5", "c"), "newest": ("3", "newest", "3", None)}
    old, delete = mirror.records[0], mirror.records[-1]
    assert (old[2], delete[0], delete[2][0], len(delete[2])) == (["1", "old", "1"], DELETE, "1", 4)
    assert "gone" not in mirror.tables


def test_heartbeats_are_no_rows(bench: SourceBench):
    """Ours stands between what was committed before and behind it; another group's is dropped."""
    bench.heartbeats = True
    bench.register(KV)
    assert bench.registered is not None
    ask("add_heartbeat", url=bench.place.url, heartbeat=HEARTBEATS.text, made=[bench.registered.made])
    kind = kinds.method(kinds.of(bench.place.url), bench.place.method)
    seeds = [kind.seed(bench.told(), Owner(HOME_ID, group)) for group in (GROUP, "ELSE")]
    bench.sql("INSERT INTO kv VALUES (1, 'a', 1)")
    for seed in seeds:
        seed.beat(30)
        seed.close()
    bench.sql("INSERT INTO kv VALUES (2, 'b', 2)")
    mirror = bench.capture()
    assert (mirror.heartbeats, mirror.changes) == (1, [1, 0, 1])
    assert set(mirror.tables) == {"kv"}
    bench.same(mirror, "kv")
