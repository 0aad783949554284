"""Many new rows to MariaDB and MySQL: straight into their table, in pieces.

By way of a staging table come those with the errors that LOAD DATA LOCAL would pass over.
"""

from __future__ import annotations

import pytest

from replicat.model.target import RefusedError
from tests.e2e.test_target_mysql import ONLY_MARIADB, database, direct, server
from tests.support.direct_target import Direct

pytestmark = pytest.mark.e2e
FIXTURES = server, database, direct
"""Those of the target's other tests."""


def kv_rows(first: int, last: int) -> list[list[str]]:
    """Rows with these keys, the last one left out."""
    return [[str(n), f"v{n}"] for n in range(first, last)]


def went_straight(direct: Direct) -> bool:
    """Whether the last rows needed no staging table."""
    database = direct.target.database
    return list(database._plain.values()) == [True] and not database._stages


def test_many_new_rows_go_straight_into_their_table(direct: Direct):
    """And come in one piece after the other; few ones go by way of a staging table."""
    direct.sql("CREATE TABLE kv (id bigint PRIMARY KEY, v varchar(20))")
    layout = direct.layout("kv", "id v", "id", "bigint text")
    direct.do(direct.rows(layout, inserts=kv_rows(0, 9_500)))
    assert went_straight(direct)
    assert direct.sql("SELECT count(*), min(v), max(id) FROM kv") == [("9500", "v0", "9499")]
    direct.do(direct.rows(layout, inserts=kv_rows(9_500, 9_600)))
    assert direct.sql("SELECT count(*) FROM kv WHERE v = concat('v', id)") == [("9600",)]


def refused_among_many(direct: Direct, more: str, row: list[str], refusal: str) -> None:
    """Nothing of the batch is there, and what comes next goes on."""
    direct.sql(f"CREATE TABLE kv (id bigint PRIMARY KEY, v varchar(20){more})")
    direct.sql("INSERT INTO kv VALUES (4321, 'old')")
    layout = direct.layout("kv", "id v", "id", "bigint text")
    rows = kv_rows(0, 6_000)
    rows[4321] = row
    new = direct.begin()
    for _ in range(2):
        with pytest.raises(RefusedError, match=refusal):
            direct.target.apply((direct.rows(layout, inserts=rows),))
    rows[4321] = ["10000", "new"]
    direct.target.apply((direct.rows(layout, inserts=rows),))
    direct.target.commit()
    direct.row = new
    assert direct.sql("SELECT count(*), count(DISTINCT v) FROM kv") == [("6001", "6001")]
    assert not went_straight(direct)


@pytest.mark.parametrize(
    ("more", "row", "refusal"),
    [
        ("", ["4321", "v4321"], "Duplicate entry '4321' for key"),
        (", UNIQUE (v)", ["10000", "v1"], "Duplicate entry 'v1' for key"),
    ],
    ids=["key", "unique"],
)
def test_a_row_that_is_refused_among_many_is_an_error_and_no_warning(
    direct: Direct, more: str, row: list[str], refusal: str
):
    """LOAD DATA LOCAL would pass over it."""
    refused_among_many(direct, more, row, refusal)


@ONLY_MARIADB
def test_a_row_that_a_check_refuses_among_many_is_an_error_and_no_warning(direct: Direct):
    """As above; the other server has such checks from 8.0.16 on."""
    refused_among_many(direct, ", CHECK (v <> 'bad')", ["10000", "bad"], "CONSTRAINT .* failed")


def test_a_value_that_fits_nowhere_among_many_leaves_the_link_as_it_was(direct: Direct):
    """Some pieces are on their way by then, and the server waits for the rest."""
    direct.sql("CREATE TABLE kv (id bigint PRIMARY KEY, v datetime(2))")
    layout = direct.layout("kv", "id v", "id", "bigint timestamp")
    rows = [[str(n), "2026-01-01 00:00:00.25"] for n in range(9_000)]
    wrong = [*rows[:8_500], ["8500", "2026-01-01 00:00:00.253"], *rows[8_501:]]
    new = direct.begin()
    with pytest.raises(RefusedError, match=r"row \(8500\).*keeps 2 digits"):
        direct.target.apply((direct.rows(layout, inserts=wrong),))
    assert direct.target.database.ask("SELECT count(*) FROM kv") == [(0,)]
    direct.target.apply((direct.rows(layout, inserts=rows),))
    direct.target.commit()
    direct.row = new
    assert direct.sql("SELECT count(*) FROM kv") == [("9000",)]


def test_where_a_trigger_fires_its_warnings_are_its_own(direct: Direct):
    """They refuse nothing: such a table's rows go by way of a staging table."""
    direct.sql("CREATE TABLE kv (id bigint PRIMARY KEY, v varchar(20))")
    direct.sql("CREATE TRIGGER t BEFORE INSERT ON kv FOR EACH ROW SIGNAL SQLSTATE '01000' SET MESSAGE_TEXT = 'so'")
    layout = direct.layout("kv", "id v", "id", "bigint text")
    direct.do(direct.rows(layout, inserts=kv_rows(0, 2_000)))
    assert direct.sql("SELECT count(*) FROM kv") == [("2000",)]
    assert not went_straight(direct)
