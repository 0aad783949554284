"""The demo's shop in MariaDB or MySQL, with a PostgreSQL target: the facts of workload.py, and all rows compared.

Rule: as there, each transaction keeps facts that hold in any state the source ever had, so workload.Watcher's looks at
the target count. Foreign keys don't cascade here: these servers write no rows of a cascade into their log.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pymysql

from demo.mysqld import Mysqld
from demo.workload import ACCOUNTS, Workload

SCHEMA = "shop"
_CUSTOMERS = 40
_TABLES = (
    "accounts (id int PRIMARY KEY, balance bigint NOT NULL, note text)",
    "ledger (at {moment} NOT NULL, writer int NOT NULL, account int NOT NULL, amount bigint NOT NULL)",
    "progress (writer int PRIMARY KEY, transfers bigint NOT NULL)",
    "customers (id bigint PRIMARY KEY, name varchar(100) NOT NULL, email varchar(100) NOT NULL UNIQUE, born date)",
    (
        "orders (id bigint PRIMARY KEY, customer bigint NOT NULL, placed {moment} NOT NULL, total decimal(12, 2), "
        "state varchar(9) NOT NULL, FOREIGN KEY (customer) REFERENCES {shop}customers (id))"
    ),
    (
        '"lines" ("order" bigint, line int, item varchar(100) NOT NULL, price decimal(10, 2), '
        'PRIMARY KEY ("order", line), FOREIGN KEY ("order") REFERENCES {shop}orders (id))'
    ),
    "visits (id bigint PRIMARY KEY, page text, seen decimal(10, 6), detail {json}, raw {binary})",
    "readings (id bigint PRIMARY KEY, value decimal(20, 1), remark text)",
)
_AGAIN = (1205, 1213, 1020)
_TEXT = {
    "datetime": "date_format({}, '%Y-%m-%d %H:%i:%s.%f')",
    "longblob": "hex({})",
    "timestamp without time zone": "to_char({}, 'YYYY-MM-DD HH24:MI:SS.US')",
    "bytea": "upper(encode({}, 'hex'))",
}


def names() -> list[str]:
    """The tables."""
    return [table.split()[0].strip('"') for table in _TABLES]


def create_source(server: Mysqld) -> None:
    """The empty database."""
    server.sql(f"CREATE DATABASE {SCHEMA} CHARACTER SET utf8mb4")
    for table in _TABLES:
        made = table.format(moment="datetime(6)", json="json", binary="longblob", shop="")
        server.sql(f"CREATE TABLE {made} ENGINE = InnoDB", SCHEMA)


def create_target(url: str) -> None:
    """The empty tables in PostgreSQL."""
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(f"CREATE SCHEMA {SCHEMA}")
        for table in _TABLES:
            made = table.format(moment="timestamp", json="text", binary="bytea", shop=f"{SCHEMA}.")
            conn.execute(f"CREATE TABLE {SCHEMA}.{made}".encode())


def fill(server: Mysqld, writers: int = 2) -> None:
    """The rows to begin with, in one transaction: from then on the facts hold."""
    with closing(server.connect(SCHEMA)) as conn, conn.cursor() as cursor:
        conn.begin()
        accounts = "INSERT INTO accounts VALUES (%s, 1000, concat('account ', id))"
        cursor.executemany(accounts, zip(range(1, ACCOUNTS + 1)))
        cursor.executemany("INSERT INTO progress VALUES (%s, 0)", zip(range(1, writers + 1)))
        cursor.executemany(
            "INSERT INTO customers VALUES (%s, concat('Customer ', id), concat('c', id, '@example.com'), "
            "date '1970-01-01' + INTERVAL id DAY)",
            zip(range(1, _CUSTOMERS * writers + 1)),
        )
        conn.commit()


def large_transaction(server: Mysqld, rows: int) -> None:
    """Insert many rows, change many, delete many, in one transaction."""
    numbers = "WITH RECURSIVE n AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM n WHERE n < {}) "
    ((last,),) = server.sql("SELECT coalesce(max(id), 0) FROM readings", SCHEMA)
    with closing(server.connect(SCHEMA)) as conn, conn.cursor() as cursor:
        conn.begin()
        for first in range(int(last), int(last) + rows, 1000):
            some = min(1000, int(last) + rows - first)
            cursor.execute(
                "INSERT INTO readings "
                + numbers.format(some)
                + f"SELECT {first} + n, ({first} + n) * 1.1, repeat(md5({first} + n), 3) FROM n"
            )
        cursor.execute("UPDATE readings SET value = -value, remark = upper(remark) WHERE id % 3 = 0")
        cursor.execute("DELETE FROM readings WHERE id % 10 = 7")
        conn.commit()


class MariaWriter:
    """One connection's work: each action is one transaction. Writers keep to rows of their own, but for accounts."""

    def __init__(self, conn: Any, number: int, chance: random.Random) -> None:
        self._conn, self._cursor, self._number, self._chance = conn, conn.cursor(), number, chance
        self._last_id = 0
        self._actions = [
            (self._transfer, 50), (self._order, 15), (self._ship, 12), (self._cancel, 4), (self._visit, 12),
            (self._swap_emails, 2), (self._forget_visits, 1),
        ]  # fmt: skip

    def step(self) -> None:
        """One transaction of some kind; now and then one that is rolled back."""
        actions, weights = zip(*self._actions, strict=True)
        self._conn.begin()
        try:
            self._chance.choices(actions, weights)[0]()
        except pymysql.MySQLError as error:
            self._conn.rollback()
            if error.args[0] not in _AGAIN:
                raise
            return
        if self._chance.random() < 0.95:
            self._conn.commit()
        else:
            self._conn.rollback()

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        self._cursor.execute(statement, values)
        return list(self._cursor.fetchall()) if self._cursor.description else []

    def _new_id(self) -> int:
        """Above all ids so far, of earlier runs too; its last digit is the writer's."""
        self._last_id = max(self._last_id + 10, time.time_ns() // 1000 * 10 + self._number)
        return self._last_id

    def _customer(self) -> int:
        return (self._number - 1) * _CUSTOMERS + 1 + self._chance.randrange(_CUSTOMERS)

    def _transfer(self) -> None:
        """Move money between two accounts, with two lines in the ledger, which has no key."""
        first, second = sorted(self._chance.sample(range(1, ACCOUNTS + 1), 2))
        amount = self._chance.randint(-50, 50)
        for account, sum_ in ((first, amount), (second, -amount)):
            self._run("UPDATE accounts SET balance = balance + %s WHERE id = %s", sum_, account)
            self._run("INSERT INTO ledger VALUES (now(6), %s, %s, %s)", self._number, account, sum_)
        if self._chance.random() < 0.1:
            self._run("UPDATE ledger SET at = now(6) WHERE writer = %s ORDER BY at LIMIT 1", self._number)
        self._run("UPDATE progress SET transfers = transfers + 1 WHERE writer = %s", self._number)

    def _order(self) -> None:
        order = self._new_id()
        self._run("INSERT INTO orders VALUES (%s, %s, now(6), 0, 'new')", order, self._customer())
        for line in range(1, self._chance.randint(2, 6)):
            self._run("INSERT INTO `lines` VALUES (%s, %s, concat('item ', line), line * 1.25)", order, line)
        total = "(SELECT sum(price) FROM `lines` WHERE `order` = %s)"
        self._run(f"UPDATE orders SET total = {total} WHERE id = %s", order, order)

    def _some_order(self, state: str) -> int | None:
        found = self._run("SELECT min(id) FROM orders WHERE state = %s AND id %% 10 = %s", state, self._number)
        return None if found[0][0] is None else int(found[0][0])

    def _ship(self) -> None:
        self._run("UPDATE orders SET state = 'sent' WHERE id = %s", self._some_order("new"))

    def _cancel(self) -> None:
        """Its lines first: their foreign key holds."""
        order = self._some_order("sent")
        self._run("DELETE FROM `lines` WHERE `order` = %s", order)
        self._run("DELETE FROM orders WHERE id = %s", order)

    def _swap_emails(self) -> None:
        """Two customers exchange a unique value, by way of a third one."""
        low = (self._number - 1) * _CUSTOMERS
        one = self._customer()
        other = low + 1 + (one - low) % _CUSTOMERS
        a, b = (f"c{n}@example.com" for n in (one, other))
        for old, new in ((a, "-" + a), (b, a), ("-" + a, b)):
            self._run("UPDATE customers SET email = %s WHERE email = %s", new, old)

    def _visit(self) -> None:
        """A row of many types, among them wide values."""
        page = self._chance.choice(["/", "/cart", "/naïve ☃", "tab\there", "back\\slash", "quote'\"", ""])
        seen, raw = round(self._chance.random() * 1000, 6), self._chance.randbytes(self._chance.randint(0, 4000))
        self._run(
            "INSERT INTO visits VALUES (%s, %s, %s, json_object('page', %s), %s)",
            self._new_id(), page, seen, page, raw,
        )  # fmt: skip

    def _forget_visits(self) -> None:
        """All at once; seldom, and by the first writer only."""
        if self._number == 1 and self._chance.random() < 0.3:
            self._run("DELETE FROM visits")


class MariaWorkload(Workload):
    """Writers on such a server."""

    LOST = (pymysql.OperationalError, pymysql.InterfaceError, pymysql.InternalError)
    WRONG = (pymysql.MySQLError,)

    def __init__(self, server: Mysqld, **how: Any) -> None:
        super().__init__("", **how)
        self._server = server

    @contextmanager
    def _writer(self, number: int, chance: random.Random) -> Iterator[MariaWriter]:
        with closing(self._server.connect(SCHEMA)) as conn:
            yield MariaWriter(conn, number, chance)


def differences(server: Mysqld, url: str) -> dict[str, tuple[int, list[Any], list[Any]]]:
    """Of each table its rows, and some that only the source, or only the target, has; all compared, each as text."""
    found = {}
    with psycopg.connect(url) as target:
        for name in names():
            ours, theirs = Counter(_source_rows(server, name)), Counter(_target_rows(target, name))
            found[name] = (ours.total(), list((ours - theirs).elements())[:3], list((theirs - ours).elements())[:3])
    return found


def _source_rows(server: Mysqld, name: str) -> list[tuple[Any, ...]]:
    columns = server.sql(
        "SELECT column_name, data_type FROM information_schema.columns "
        f"WHERE table_schema = '{SCHEMA}' AND table_name = '{name}' ORDER BY ordinal_position"
    )
    shown = ", ".join(_TEXT.get(kind, "{}").format(f"`{column}`") for column, kind in columns)
    return server.sql(f"SELECT {shown} FROM `{name}`", SCHEMA)


def _target_rows(target: psycopg.Connection[Any], name: str) -> Sequence[tuple[Any, ...]]:
    columns = target.execute(
        "SELECT column_name, data_type FROM information_schema.columns "
        "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
        [SCHEMA, name],
    ).fetchall()
    shown = ", ".join(_TEXT.get(kind, "{}").format(f'"{column}"') + "::text" for column, kind in columns)
    return target.execute(f'SELECT {shown} FROM {SCHEMA}."{name}"'.encode()).fetchall()
