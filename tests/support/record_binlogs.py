"""Record the binary logs that tests/unit/test_mysql_decoder.py reads: what both servers write, as they write it.

    python -m tests.support.record_binlogs tests/support/binlogs

For each server a folder with its log files, and tables.json: what SELECT gave at the end of each file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from demo.mariadb import MariaServer
from demo.mysql import MysqlServer

TABLES = {"item": "InnoDB", "plain": "MyISAM", "part": "InnoDB"}
SHAPE = "(id int NOT NULL PRIMARY KEY, name varchar(40), note text) CHARACTER SET utf8mb4"
LONG = "a long text that packs well, " * 8


class Recorder:
    """One server, one session and its files."""

    def __init__(self, server: Any, maria: bool) -> None:
        self.server, self.maria = server, maria
        self.session = server.connect()
        self.tables: dict[str, Any] = {}
        server.sql("RESET MASTER")

    def run(self, *statements: str) -> None:
        """Each by itself, in the session."""
        for statement in statements:
            with self.session.cursor() as cursor:
                cursor.execute(statement)

    def file(self) -> None:
        """End the file, and note what the tables hold."""
        with self.session.cursor() as cursor:
            cursor.execute("SHOW MASTER STATUS")
            name = cursor.fetchone()[0]
        found = {}
        for table in TABLES:
            if self.server.sql(f"SELECT 1 FROM information_schema.tables WHERE table_name = '{table}'"):
                found[table] = self.server.sql(f"SELECT id, name, note FROM shop.{table} ORDER BY id")
        self.tables[name] = found
        self.run("FLUSH BINARY LOGS")


def record(recorder: Recorder) -> None:
    """All that a log may have, and the tables still agree."""
    run, file = recorder.run, recorder.file
    run("CREATE DATABASE shop", "USE shop")
    for table, engine in TABLES.items():
        run(f"CREATE TABLE {table} {SHAPE} ENGINE={engine}")
    run("INSERT INTO item VALUES (1, 'one', NULL), (2, NULL, 'two'), (3, 'drei', '')")
    run("BEGIN", "UPDATE item SET id = 4, name = 'four' WHERE id = 3", "DELETE FROM item WHERE id = 1", "COMMIT")
    run("INSERT INTO plain VALUES (1, 'stays', 'p')", "BEGIN", "INSERT INTO item VALUES (9, 'goes', NULL)", "ROLLBACK")
    run("BEGIN", "INSERT INTO item VALUES (5, 'five', NULL)", "SAVEPOINT a", "INSERT INTO item VALUES (6, 'x', NULL)")
    run("ROLLBACK TO a", "INSERT INTO item VALUES (7, 'seven', NULL)", "COMMIT")
    file()
    # XA: prepared here, decided in later files; and one that is decided at once.
    run(
        "XA START 'left', 'b', 7",
        "INSERT INTO item VALUES (20, 'xa', NULL), (21, 'xa', 'two')",
        "XA END 'left', 'b', 7",
    )
    run("XA PREPARE 'left', 'b', 7")
    other = recorder.server.connect("shop")
    with other.cursor() as cursor:
        cursor.execute("XA START 'gone'")
        cursor.execute("INSERT INTO part VALUES (30, 'never', NULL)")
        cursor.execute("XA END 'gone'")
        cursor.execute("XA PREPARE 'gone'")
    other.close()
    recorder.session.close()
    recorder.session = recorder.server.connect("shop")
    run("XA START 'once'", "UPDATE item SET note = 'once' WHERE id = 4", "XA END 'once'", "XA COMMIT 'once' ONE PHASE")
    run("INSERT INTO part VALUES (1, 'between', NULL)")
    file()
    run("XA COMMIT 'left', 'b', 7", "INSERT INTO part VALUES (2, 'later', NULL)")
    file()
    run("XA ROLLBACK 'gone'", "TRUNCATE TABLE part")
    # A table that is dropped and made again may have an id of another one, and a changed shape.
    run("ALTER TABLE part ADD COLUMN more int", "INSERT INTO part VALUES (3, 'wide', NULL, 8)")
    run("ALTER TABLE part DROP COLUMN more", "UPDATE part SET name = 'narrow'")
    if recorder.maria:
        recorder.run("SET GLOBAL log_bin_compress = ON", "SET GLOBAL log_bin_compress_min_len = 10")
        run(
            f"INSERT INTO item VALUES (40, 'packed', '{LONG}'), (41, 'packed', '{LONG}')",
            "INSERT INTO item (id) VALUES (42)",
        )
        run("UPDATE item SET name = note WHERE FALSE", f"UPDATE item SET note = CONCAT(note, '{LONG}') WHERE id = 40")
        run("DELETE FROM item WHERE id = 41", f"CREATE TABLE other (id int) COMMENT '{LONG}'", "DROP TABLE other")
        run("CREATE TEMPORARY TABLE t (id int)", "BEGIN", "INSERT INTO item VALUES (43, 'kept', NULL)")
        run("CREATE TEMPORARY TABLE u (id int)", "SAVEPOINT s", f"INSERT INTO item VALUES (44, 'undone', '{LONG}')")
        run("ROLLBACK TO s", f"INSERT INTO item VALUES (45, 'kept', '{LONG}')", "COMMIT")
        recorder.run("SET GLOBAL log_bin_compress = OFF")
        run("INSERT INTO item VALUES (50, 'plain again', NULL)")
        run("CREATE TABLE made AS SELECT * FROM item", "DROP TABLE made")
    file()
    # From here on nothing can be captured: a file each.
    run("SET SESSION binlog_row_image = MINIMAL", "UPDATE item SET name = 'thin' WHERE id = 2")
    run("SET SESSION binlog_row_image = FULL")
    file()
    run("SET GLOBAL binlog_row_metadata = MINIMAL", "UPDATE item SET name = 'nameless' WHERE id = 2")
    run("SET GLOBAL binlog_row_metadata = FULL")
    file()


def main(folder: Path) -> None:
    """Both servers."""
    for name, server_of, maria in (("mariadb", MariaServer, True), ("mysql", MysqlServer, False)):
        more = {} if maria else {"binlog-rows-query-log-events": "ON"}
        with server_of(options=server_of.BINLOG | more) as server:
            recorder = Recorder(server, maria)
            record(recorder)
            target = folder / name
            target.mkdir(parents=True, exist_ok=True)
            for file in recorder.tables:
                (target / file).write_bytes((Path(server.data) / file).read_bytes())
            (target / "tables.json").write_text(json.dumps(recorder.tables) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
