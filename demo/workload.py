"""A changing workload for the source, and a watcher that shows whether the target ever looks wrong.

Rule: every transaction keeps facts that hold in any state the source ever had: money is neither made nor lost, each
transfer has its two ledger lines (a table without a key), no order line without its order, no order without its
customer. So one look at the target at any instant shows a torn or doubled transaction, long before tables are compared.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, Self

import psycopg

from demo.patience import PATIENCE

SCHEMA = "shop"
ACCOUNTS = 200
MONEY = ACCOUNTS * 1000
_CUSTOMERS = 40

TABLES = """
CREATE SCHEMA shop;
CREATE TABLE shop.accounts (id int PRIMARY KEY, balance bigint NOT NULL, note text);
CREATE TABLE shop.ledger (at timestamptz NOT NULL, writer int NOT NULL, account int NOT NULL, amount bigint NOT NULL);
CREATE TABLE shop.progress (writer int PRIMARY KEY, transfers bigint NOT NULL);
CREATE TABLE shop.customers (id bigint PRIMARY KEY, name text NOT NULL, email text NOT NULL UNIQUE, born date);
CREATE TABLE shop.orders (
    id bigint PRIMARY KEY, customer bigint NOT NULL REFERENCES shop.customers ON UPDATE CASCADE ON DELETE CASCADE,
    placed timestamptz NOT NULL, total numeric(12, 2), state text NOT NULL);
CREATE TABLE shop.lines (
    "order" bigint REFERENCES shop.orders ON UPDATE CASCADE ON DELETE CASCADE, line int, item text NOT NULL,
    price numeric(10, 2), PRIMARY KEY ("order", line));
CREATE TABLE shop.visits (id bigint PRIMARY KEY, page text, seen interval, tags text[], detail jsonb, raw bytea);
CREATE TABLE shop.readings (id bigint PRIMARY KEY, value numeric, weight double precision, during tsrange, remark text);
"""


def create_tables(url: str) -> None:
    """Make the empty tables, with their keys and foreign keys."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(TABLES.encode())


def fill(url: str, writers: int = 2) -> None:
    """The rows to begin with, in one transaction: from then on the facts hold."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "INSERT INTO shop.accounts SELECT n, 1000, 'account ' || n FROM generate_series(1, %s) n", [ACCOUNTS]
        )
        connection.execute("INSERT INTO shop.progress SELECT n, 0 FROM generate_series(1, %s) n", [writers])
        connection.execute(
            "INSERT INTO shop.customers"
            " SELECT n, 'Customer ' || n, 'c' || n || '@example.com', date '1970-01-01' + n::int"
            " FROM generate_series(1, %s) n",
            [_CUSTOMERS * writers],
        )


_READINGS = """
INSERT INTO shop.readings
SELECT n, n * 1.1, sqrt(n), tsrange('2024-01-01', '2024-01-01'::timestamp + n * interval '1 s'), repeat(md5(n::text), 3)
FROM (SELECT coalesce(max(id), 0) AS last FROM shop.readings) l, generate_series(last + 1, last + %s) n
"""


def large_transaction(url: str, rows: int) -> None:
    """Insert many rows, change many, delete many, in one transaction."""
    with psycopg.connect(url) as connection:
        connection.execute(_READINGS.encode(), [rows])
        connection.execute("UPDATE shop.readings SET value = 'NaN', remark = upper(remark) WHERE id % 3 = 0")
        connection.execute("DELETE FROM shop.readings WHERE id % 10 = 7")


_LINES = """
INSERT INTO shop.lines SELECT id, n, 'item ' || n, n * 1.25 FROM shop.orders, generate_series(1, %s) n WHERE id = %s
"""
_VISIT = """
INSERT INTO shop.visits
VALUES (%s, %s, make_interval(secs => %s), ARRAY[%s, NULL], jsonb_build_object('page', %s::text), %s)
"""


class Writer:
    """One connection's work: each action is one transaction. Writers keep to rows of their own, but for accounts."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]], number: int, chance: random.Random) -> None:
        self._connection = connection
        self._number = number
        self._chance = chance
        self._last_id = 0
        self._actions: list[tuple[Callable[[], None], int]] = [
            (self.transfer, 50), (self.order, 15), (self.ship, 12), (self.cancel, 4), (self.visit, 12),
            (self.rename_customer, 3), (self.move_order, 3), (self.swap_emails, 2), (self.forget_visits, 1),
        ]  # fmt: skip

    def step(self) -> None:
        """One transaction of some kind."""
        actions, weights = zip(*self._actions, strict=True)
        action = self._chance.choices(actions, weights)[0]
        with self._connection.transaction():
            action()

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def _new_id(self) -> int:
        """Above all ids so far, of earlier runs too; its last digit is the writer's."""
        self._last_id = max(self._last_id + 10, time.time_ns() // 1000 * 10 + self._number)
        return self._last_id

    def _mine(self) -> tuple[int, int]:
        """(one of this writer's own customers, the number before the first of them)."""
        low = (self._number - 1) * _CUSTOMERS
        return low + 1 + self._chance.randrange(_CUSTOMERS), low

    def _email(self) -> str:
        """Names a customer of ours: the key may have moved, the set of e-mails stays."""
        return f"c{self._mine()[0]}@example.com"

    def transfer(self) -> None:
        """Move money between two accounts, with two lines in the ledger."""
        first, second = sorted(self._chance.sample(range(1, ACCOUNTS + 1), 2))
        amount = self._chance.randint(-50, 50)
        for account, sum_ in ((first, amount), (second, -amount)):
            self._run("UPDATE shop.accounts SET balance = balance + %s WHERE id = %s", sum_, account)
            self._run("INSERT INTO shop.ledger VALUES (now(), %s, %s, %s)", self._number, account, sum_)
        self._run("UPDATE shop.progress SET transfers = transfers + 1 WHERE writer = %s", self._number)

    def order(self) -> None:
        """An order with its lines; the customer's key may have moved, so take one that is there."""
        order, lines = self._new_id(), self._chance.randint(1, 5)
        email = self._email()
        self._run(
            "INSERT INTO shop.orders SELECT %s, id, now(), 0, 'new' FROM shop.customers WHERE email = %s", order, email
        )
        self._run(_LINES, lines, order)
        self._run(
            'UPDATE shop.orders o SET total = (SELECT sum(price) FROM shop.lines WHERE "order" = o.id) WHERE id = %s',
            order,
        )

    _SOME_ORDER = (
        "(SELECT o.id FROM shop.orders o JOIN shop.customers c ON c.id = o.customer"
        " WHERE c.email = %s AND o.state = %s ORDER BY o.id LIMIT 1)"
    )

    def ship(self) -> None:
        """Change an order."""
        self._run(f"UPDATE shop.orders SET state = 'sent' WHERE id = {self._SOME_ORDER}", self._email(), "new")

    def cancel(self) -> None:
        """Delete an order; its lines go by cascade."""
        self._run(f"DELETE FROM shop.orders WHERE id = {self._SOME_ORDER}", self._email(), "sent")

    def move_order(self) -> None:
        """Give an order another key; its lines follow by cascade."""
        self._run(f"UPDATE shop.orders SET id = %s WHERE id = {self._SOME_ORDER}", self._new_id(), self._email(), "new")

    def rename_customer(self) -> None:
        """Give a customer another key; orders follow by cascade."""
        self._run(
            "UPDATE shop.customers SET id = %s, name = name || '.' WHERE email = %s", self._new_id(), self._email()
        )

    def swap_emails(self) -> None:
        """Two customers exchange a unique value, by way of a third one."""
        one, low = self._mine()
        other = low + 1 + (one - low) % _CUSTOMERS
        a, b = f"c{one}@example.com", f"c{other}@example.com"
        for old, new in ((a, "-" + a), (b, a), ("-" + a, b)):
            self._run("UPDATE shop.customers SET email = %s WHERE email = %s", new, old)

    def visit(self) -> None:
        """A row of many types, among them wide values."""
        page = self._chance.choice(["/", "/cart", "/naïve ☃", "tab\there", "back\\slash", "quote'\"", ""])
        self._run(
            _VISIT, self._new_id(), page, self._chance.random() * 1000, page, page,
            self._chance.randbytes(self._chance.randint(0, 4000)),
        )  # fmt: skip

    def forget_visits(self) -> None:
        """Truncate a table; seldom, and by the first writer only."""
        if self._number == 1 and self._chance.random() < 0.3:
            self._run("TRUNCATE shop.visits")


class Steps(Protocol):
    """A writer."""

    def step(self) -> None:
        """One transaction of some kind."""


class Workload:
    """Writers in threads of their own, `rate` transactions a second together, until stop().

    With `ride_out` a lost connection is made anew, as an application would.
    """

    LOST: tuple[type[Exception], ...] = (psycopg.OperationalError,)
    """A connection that is gone."""
    WRONG: tuple[type[Exception], ...] = (psycopg.Error,)
    """What else a writer may meet; it ends it."""

    def __init__(
        self, url: str, *, writers: int = 2, rate: float = 100.0, seed: int = 1, ride_out: bool = False
    ) -> None:
        self.transactions = 0
        self._url = url
        self._pause = writers / rate
        self._ride_out = ride_out
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._work, args=(n, random.Random(seed * 1000 + n)), daemon=True)
            for n in range(1, writers + 1)
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> int:
        """End; the number of transactions. Raises what a writer met."""
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE)
        if self._errors:
            raise self._errors[0]
        return self.transactions

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE)

    def _work(self, number: int, chance: random.Random) -> None:
        while not self._stop.is_set():
            try:
                with self._writer(number, chance) as writer:
                    self._write(writer)
            except self.LOST as error:
                if not self._ride_out:
                    self._errors.append(error)
                    return
                self._stop.wait(0.2)
            except self.WRONG as error:
                self._errors.append(error)
                return

    @contextmanager
    def _writer(self, number: int, chance: random.Random) -> Iterator[Steps]:
        with psycopg.connect(self._url, autocommit=True) as connection:
            yield Writer(connection, number, chance)

    def _write(self, writer: Steps) -> None:
        while not self._stop.is_set():
            begin = time.monotonic()
            try:
                writer.step()
                self.transactions += 1
            except (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure):
                pass  # rolled back whole; the next one
            self._stop.wait(max(0.0, self._pause - (time.monotonic() - begin)))


_LOOK = """
SELECT (SELECT count(*) FROM shop.accounts), (SELECT coalesce(sum(balance), 0) FROM shop.accounts),
       (SELECT count(*) FROM shop.ledger), (SELECT coalesce(sum(amount), 0) FROM shop.ledger),
       (SELECT coalesce(sum(transfers), 0) FROM shop.progress),
       (SELECT count(*) FROM shop.lines l WHERE NOT EXISTS (SELECT FROM shop.orders o WHERE o.id = l."order")),
       (SELECT count(*) FROM shop.orders o WHERE NOT EXISTS (SELECT FROM shop.customers c WHERE c.id = o.customer)),
       (SELECT count(*) FROM shop.orders o WHERE total IS DISTINCT FROM
               (SELECT sum(price) FROM shop.lines l WHERE l."order" = o.id))
"""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at all tables, in one snapshot."""

    accounts: int
    money: int
    ledger: int
    ledger_sum: int
    transfers: int
    orphan_lines: int
    orphan_orders: int
    wrong_totals: int

    def faults(self) -> list[str]:
        """What no state of the source ever showed."""
        checks = [
            (self.accounts in (0, ACCOUNTS), f"{self.accounts} accounts"),
            (
                self.money == (MONEY if self.accounts else 0),
                f"{self.money} money in accounts, never anything but {MONEY}",
            ),
            (self.ledger == 2 * self.transfers, f"{self.ledger} ledger lines for {self.transfers} transfers"),
            (self.ledger_sum == 0, f"ledger sums up to {self.ledger_sum}, never anything but 0"),
            (self.orphan_lines == 0, f"{self.orphan_lines} order lines without an order"),
            (self.orphan_orders == 0, f"{self.orphan_orders} orders without a customer"),
            (self.wrong_totals == 0, f"{self.wrong_totals} orders whose lines don't add up"),
        ]
        return [text for holds, text in checks if not holds]


class Watcher:
    """Looks at the target all the time, in a thread of its own; it rests three times as long as a look takes."""

    def __init__(self, url: str, pause: float = 0.05) -> None:
        self.looks = 0
        self.faults: list[str] = []
        self.last: Look | None = None
        self._url = url
        self._pause = pause
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                with psycopg.connect(self._url, autocommit=True) as connection:
                    pause = self._pause
                    while not self._stop.wait(pause):
                        begin = time.monotonic()
                        self._look(connection)
                        pause = max(self._pause, 3 * (time.monotonic() - begin))
            except psycopg.OperationalError:
                self._stop.wait(0.2)  # a test may have killed the server

    def _look(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        row = connection.execute(_LOOK.encode()).fetchone()
        assert row is not None
        self.last = Look(*map(int, row))
        self.looks += 1
        self.faults += [f"look {self.looks}: {fault}" for fault in self.last.faults()]
