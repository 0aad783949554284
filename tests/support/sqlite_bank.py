"""Applications that write to an SQLite file: transfers in transactions, which keep the sum of the accounts.

Each transaction moves an amount between two accounts, so the sum is the same wherever one ends. There are rollbacks,
savepoints, REPLACE, unique values that change hands, and changes of keys.
"""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.sqlite_source import SourceFile

TABLES = ("account", "ticket", "counter")
ACCOUNTS = 20
SCHEMA = (
    "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, owner TEXT UNIQUE)",
    "CREATE TABLE ticket (n INTEGER, writer INTEGER, note TEXT UNIQUE, PRIMARY KEY (n, writer)) WITHOUT ROWID",
    "CREATE TABLE counter (writer INTEGER PRIMARY KEY, n INTEGER NOT NULL)",
)


class Writer(threading.Thread):
    """One application."""

    def __init__(self, file: SourceFile, number: int, end: threading.Event) -> None:
        super().__init__()
        self._file, self._number, self._end = file, number, end
        self._dice = random.Random(number)

    def run(self) -> None:
        """Write until the end."""
        conn = self._file.connect()
        conn.execute("INSERT INTO counter VALUES (?, 0)", (self._number,))
        while not self._end.is_set():
            try:
                conn.execute("BEGIN IMMEDIATE")
                self._transact(conn)
                conn.execute("COMMIT" if self._dice.random() < 0.8 else "ROLLBACK")
            except sqlite3.OperationalError:
                if conn.in_transaction:
                    conn.execute("ROLLBACK")
            time.sleep(self._dice.random() * 0.01)
        conn.close()

    def _transact(self, conn: sqlite3.Connection) -> None:
        dice, me = self._dice, self._number
        one, other = dice.sample(range(1, ACCOUNTS + 1), 2)
        conn.execute("UPDATE counter SET n = n + 1 WHERE writer = ?", (me,))
        conn.execute("UPDATE account SET balance = balance - 7 WHERE id = ?", (one,))
        conn.execute("UPDATE account SET balance = balance + 7 WHERE id = ?", (other,))
        conn.execute("SAVEPOINT s")
        conn.execute("DELETE FROM ticket")
        conn.execute("ROLLBACK TO s")
        n, note = dice.randrange(30), f"note {dice.randrange(40)}"
        conn.execute("REPLACE INTO ticket VALUES (?, ?, ?)", (n, me, note))
        conn.execute("UPDATE OR IGNORE ticket SET n = n + 1 WHERE writer = ? AND n < 5", (me,))
        conn.execute("INSERT OR IGNORE INTO ticket VALUES (?, ?, ?)", (n + 1, me, note))
        conn.execute("UPDATE OR REPLACE ticket SET note = ? WHERE n = ?", (note + "!", dice.randrange(30)))
        conn.execute("DELETE FROM ticket WHERE n = ?", (dice.randrange(30),))


@contextmanager
def writing(file: SourceFile, writers: int = 3) -> Iterator[None]:
    """Fill the accounts, and let so many applications write meanwhile."""
    file.run(*(f"INSERT INTO account VALUES ({n}, 100, 'owner {n}')" for n in range(1, ACCOUNTS + 1)))
    end = threading.Event()
    threads = [Writer(file, number, end) for number in range(writers)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        end.set()
        for thread in threads:
            thread.join()
