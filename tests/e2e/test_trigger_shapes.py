"""PostgreSQL captured by triggers: triggers that get lost, changes of shape, and tables that are refused."""

from __future__ import annotations

import re
from collections.abc import Sequence

import psycopg
import pytest

from tests.support.capturing import step_until
from tests.support.trail_script import TRAIL
from tests.support.trigger_lives import ITEM, caught, changes, refusal
from tests.support.trigger_source import TriggeredDb, capture, run_until_captured
from trails.errors import OperatorError
from trails.testing import FaultFs

pytestmark = pytest.mark.e2e


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """One change a piece, three rows a fetch: a transaction goes out as begin, middle ..., end."""
    monkeypatch.setattr("extract.sources.postgres.triggers.reader.PIECE_BYTES", 1)
    monkeypatch.setattr("extract.sources.postgres.triggers.reader.FETCH_ROWS", 3)


# --- triggers that are lost -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how",
    [
        ("ALTER TABLE item DISABLE TRIGGER ALL", "INSERT INTO item VALUES (2)", "ALTER TABLE item ENABLE TRIGGER ALL"),
        ('DROP TRIGGER "00_trailgate_update" ON item',),
        ('ALTER TABLE item ENABLE TRIGGER "00_trailgate_insert"',),
        (
            "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            'CREATE OR REPLACE TRIGGER "00_trailgate_delete" AFTER DELETE ON item FOR EACH ROW EXECUTE FUNCTION f()',
        ),
        ("DROP TABLE item", ITEM),
    ],
)
def test_triggers_that_were_gone_off_or_replaced_are_missed(plain_db: str, how: Sequence[str]) -> None:
    """Also if all is as before by the time somebody looks. ADD TRANDATA mends it."""
    db, fs = TriggeredDb.make(plain_db, ITEM), FaultFs()
    db.run("INSERT INTO item VALUES (1)")
    capture(db, fs, TRAIL)
    db.run(*how)
    assert re.search(
        r"table public\.item (are not those that were made|has no triggers).*ADD TRANDATA public\.item, TRIGGERLOG",
        refusal(db, fs),
    )
    assert re.search("Triggers made", str(db.ask("add_trandata", pattern="public.item")))
    db.run("INSERT INTO item VALUES (5)")
    assert caught(db, fs)[-1] == ("INSERT", "item", ["5", None, None])


def test_triggers_that_get_lost_under_a_running_extract_end_it(plain_db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the next check; and a new table is told, once."""
    monkeypatch.setattr("extract.sources.postgres.triggers.reader.CHECK_SECONDS", 0.0)
    db, fs = TriggeredDb.make(plain_db, ITEM), FaultFs()
    extract = db.extract(fs, TRAIL)
    db.run("CREATE TABLE fresh (id int)", "INSERT INTO item VALUES (1)")
    run_until_captured(extract, db)
    assert db.told == ["table public.fresh has no triggers and is not captured: ADD TRANDATA public.fresh, TRIGGERLOG"]
    db.run("ALTER TABLE item DISABLE TRIGGER USER")
    with pytest.raises(OperatorError, match=r"the triggers of table public\.item are not those that were made"):
        step_until(extract, lambda: False)
    extract._source.close()
    extract._writer.abandon()


def test_the_queue_can_neither_be_emptied_nor_dropped_unseen(plain_db: str) -> None:
    """By a hand that may: the server refuses it while changes may wait; a queue that is gone is missed."""
    db, fs = TriggeredDb.make(plain_db, ITEM), FaultFs()
    db.run("INSERT INTO item VALUES (1)")
    for statement in ("DELETE FROM trailgate_queue.log", "TRUNCATE trailgate_queue.log"):
        with pytest.raises(psycopg.errors.ObjectInUse, match="may not be in its trail yet"):
            db.run(statement)
    assert len(caught(db, fs)) == 1
    db.run("DROP SCHEMA trailgate_queue CASCADE")
    assert "the source has no queue. DBLOGIN, then REGISTER EXTRACT EXT1" in refusal(db, fs)
    db.ask("add_trandata", pattern="public.*")
    db.register()
    assert "the trail ends at" in (text := refusal(db, fs))
    assert "changes are lost" in text


# --- changes of shape -------------------------------------------------------------------------------------------------


def test_an_added_column_is_taken_in_by_ADD_TRANDATA_exactly(plain_db: str) -> None:
    """Without an event trigger: rows of both shapes wait in the queue, and each is read by its own."""
    db, fs = TriggeredDb.make(plain_db, ITEM), FaultFs()
    db.run(
        "INSERT INTO item VALUES (1, 'old', 1)",
        "ALTER TABLE item ADD more text DEFAULT 'filled', ADD b boolean",
        "INSERT INTO item VALUES (2, 'new', 2, 'm', true)", "UPDATE item SET v = 'both' WHERE id = 1",
    )  # fmt: skip
    text = refusal(db, fs)
    assert "table public.item changed its shape at the source, and nothing has told of it" in text
    assert "ADD TRANDATA public.item, TRIGGERLOG, then START" in text
    assert changes(fs) == []
    db.ask("add_trandata", pattern="public.item")
    assert caught(db, fs) == [
        ("INSERT", "item", ["1", "old", "1"]),
        ("INSERT", "item", ["2", "new", "2", "m", "true"]),
        ("UPDATE", "item", ["1", "both", "1", "filled", None], None),
    ]


@pytest.mark.parametrize(
    "alter",
    ["ALTER TABLE item RENAME v TO w", "ALTER TABLE item DROP v", "ALTER TABLE item ALTER n TYPE text",
     "ALTER TABLE item DROP n, ADD n numeric", "ALTER TABLE item DROP CONSTRAINT item_pkey"],
)  # fmt: skip
def test_a_change_of_shape_that_nothing_places_is_refused_by_name(plain_db: str, alter: str) -> None:
    """With rows of both sides in the queue. Without any it is taken in, exactly."""
    db, fs = TriggeredDb.make(plain_db, ITEM), FaultFs()
    db.run("INSERT INTO item VALUES (1, '1', 1)")
    capture(db, fs, TRAIL)
    db.run(alter)
    db.ask("add_trandata", pattern="public.item")
    db.run("DELETE FROM item")
    assert caught(db, fs)[-1][0] == "DELETE"
    db.run("INSERT INTO item (id) VALUES (2)", "ALTER TABLE item RENAME id TO ident", "UPDATE item SET ident = 3")
    assert "changed its shape at the source" in refusal(db, fs)
    db.ask("add_trandata", pattern="public.item")
    assert "public.item changed its shape while changes of it waited in the queue" in refusal(db, fs)


def test_with_the_event_trigger_each_row_has_the_shape_of_its_place(plain_db: str) -> None:
    """Changes of shape go into the trail at their place, also several in one transaction with rows between."""
    db, fs = TriggeredDb.make(plain_db, ITEM), FaultFs()
    db.ask("add_ddlcapture")
    db.run(
        "INSERT INTO item VALUES (1, 'a', 1)",
        "BEGIN; ALTER TABLE item ADD w int; INSERT INTO item VALUES (2, 'b', 2, 3); ALTER TABLE item DROP v; "
        "INSERT INTO item VALUES (3, 3, 4); ALTER TABLE item RENAME n TO m; COMMIT",
        "ALTER TABLE item ALTER m TYPE text", "INSERT INTO item VALUES (4, 'text', 5)",
        "BEGIN; ALTER TABLE item ADD gone int; ROLLBACK", "INSERT INTO item VALUES (5, 'x', 6)",
        "ALTER TABLE item RENAME TO thing", "INSERT INTO thing VALUES (6, 'y', 7)",
        "CREATE TABLE later (id int PRIMARY KEY)",
    )  # fmt: skip
    db.ask("add_trandata", pattern="public.later")
    db.run("INSERT INTO later VALUES (1)", "DROP TABLE thing")
    found = caught(db, fs, source=db.source("DDL INCLUDE MAPPED"))
    assert [(change[0], change[1], change[2]) for change in found] == [
        ("INSERT", "item", ["1", "a", "1"]), ("DDL", "item", "ALTER"), ("INSERT", "item", ["2", "b", "2", "3"]),
        ("DDL", "item", "ALTER"), ("INSERT", "item", ["3", "3", "4"]), ("DDL", "item", "ALTER"),
        ("DDL", "item", "ALTER"), ("INSERT", "item", ["4", "text", "5"]), ("INSERT", "item", ["5", "x", "6"]),
        ("DDL", "thing", "RENAME"), ("INSERT", "thing", ["6", "y", "7"]), ("DDL", "later", "CREATE"),
        ("INSERT", "later", ["1"]), ("DDL", "thing", "DROP"),
    ]  # fmt: skip


def test_DDL_needs_the_event_trigger_and_a_queue_of_a_superuser(plain_db: str) -> None:
    """Else START refuses it, with what mends it."""
    db, fs = TriggeredDb.make(plain_db, ITEM), FaultFs()
    with pytest.raises(OperatorError, match=r"this database has no event trigger for it.*ADD DDLCAPTURE"):
        db.extract(fs, TRAIL, db.source("DDL INCLUDE MAPPED"))


def test_a_new_partition_is_captured_once_its_shape_is_known(plain_db: str) -> None:
    """Its rows are logged from the first on; ADD TRANDATA makes them readable, and nothing is lost."""
    db = TriggeredDb.make(
        plain_db, "CREATE TABLE part (id int, k int, PRIMARY KEY (id, k)) PARTITION BY LIST (k)",
        "CREATE TABLE part1 PARTITION OF part FOR VALUES IN (1)",
    )  # fmt: skip
    fs = FaultFs()
    db.run("INSERT INTO part VALUES (1, 1)", "CREATE TABLE part2 PARTITION OF part FOR VALUES IN (2)",
           "INSERT INTO part VALUES (2, 2)", "SET session_replication_role = replica",
           "INSERT INTO part VALUES (3, 2)")  # fmt: skip
    assert "ADD TRANDATA public.part2, TRIGGERLOG" in refusal(db, fs)
    db.ask("add_trandata", pattern="public.part2")
    db.run("TRUNCATE part")
    assert [change[:2] for change in caught(db, fs)] == [
        ("INSERT", "part1"), ("INSERT", "part2"), ("INSERT", "part2"), ("TRUNCATE", ("part1", "part2"))
    ]  # fmt: skip


def test_a_captured_table_becomes_a_partition_of_a_captured_one(plain_db: str) -> None:
    """As the page says: without its own triggers, which would have the names of those that it gets."""
    db = TriggeredDb.make(
        plain_db, "CREATE TABLE part (id int, k int, PRIMARY KEY (id, k)) PARTITION BY LIST (k)",
        "CREATE TABLE part1 PARTITION OF part FOR VALUES IN (1)",
        "CREATE TABLE alone (id int, k int, PRIMARY KEY (id, k))",
    )  # fmt: skip
    fs, attach = FaultFs(), "ALTER TABLE part ATTACH PARTITION alone FOR VALUES IN (2)"
    db.run("INSERT INTO alone VALUES (1, 2)")
    with pytest.raises(psycopg.errors.DuplicateObject, match="00_trailgate"):
        db.run(attach)
    capture(db, fs, TRAIL)
    db.ask("delete_trandata", pattern="public.alone")
    db.run(attach)
    db.ask("add_trandata", pattern="public.alone")
    db.run("INSERT INTO part VALUES (2, 2)")
    assert [change[:2] for change in caught(db, fs)] == [("INSERT", "alone")] * 2


def test_tables_that_cannot_be_captured_are_refused_by_name(plain_db: str) -> None:
    """Unlogged ones, and columns of money."""
    db, fs = TriggeredDb.make(plain_db, ITEM), FaultFs()
    db.run("CREATE UNLOGGED TABLE fast (id int PRIMARY KEY)", "CREATE TABLE rich (id int PRIMARY KEY, m money)")
    found = {row["table"]: row["message"] for row in db.ask("add_trandata", pattern="public.*")["tables"]}
    assert "it is unlogged, and a crash empties it unseen" in found["public.fast"]
    assert "column m is of type money, whose text depends on the application's lc_monetary" in found["public.rich"]
    text = refusal(db, fs)
    assert "TABLEEXCLUDE public.fast" in text
    assert "TABLEEXCLUDE public.rich" in text
