"""PostgreSQL's tables as they all stood at one place of the log: for an Extract with SOURCEISTABLE.

The snapshot is that with which the server begins a logical slot. It sees every transaction whose commit record lies
before the slot's consistent point, and no other; this is how the server's own subscriptions copy tables. The slot is
temporary and dropped at once: the snapshot lives on in its transaction, and no log is held back for it.

    files       which file each table has, as a session of its own sees it
    snapshot    the server waits for the end of transactions that are open; nobody else waits
    lock        ACCESS SHARE on each table: from here on none is rewritten
    files       the same as before? A table that was rewritten behind the snapshot would look empty to it: anew then

Rule: the lock comes behind the snapshot. Before it, an ALTER TABLE that waits for our lock, and for whose end the
server waits, would be a deadlock. A server that says nothing may have to wait, or to work for long: after each
ANSWER_SECONDS it is asked by another connection if it does. Values are the text that COPY writes, under the settings of
the capture, and get the same forms as the log's.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from psycopg import pq
from psycopg.errors import OperationalError
from psycopg.pq.abc import PGresult

from extract.source import SourceSettings, TablesSnapshot
from extract.sources.postgres import check as pgcheck
from extract.sources.postgres import ddl as pgddl
from extract.sources.postgres import describing, driver
from extract.sources.postgres.driver import Session, SqlError, away, connect, failed
from extract.sources.postgres.pgoutput import Fix, fix_bool, fix_bytea, lsn_text, parse_lsn, quoted
from extract.sources.postgres.tables import QUEUE_SCHEMA
from trails.described import DescribedTable
from trails.errors import AwayError, OperatorError
from trails.record import Image, TableDef, Value

TRIES: Final = 5
"""So often a snapshot is taken anew because a table was rewritten meanwhile."""
_NO_TABLE: Final = "42P01"
PIECE_ROWS: Final = 2000
PIECE_BYTES: Final = 1 << 20
_FILES: Final = """
SELECT n.nspname, c.relname, c.oid, pg_relation_filenode(c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND c.relpersistence = 'p' ORDER BY 1, 2
"""
# What a policy would hide is an error; and a copy may take hours.
_SETTINGS: Final = (
    "SET row_security = off",
    (
        "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('statement_timeout', 'lock_timeout', "
        "'transaction_timeout', 'idle_in_transaction_session_timeout', 'idle_session_timeout')"
    ),
)
_FIXES: Final[Mapping[str, Fix]] = {"boolean": fix_bool, "bytes": fix_bytea}
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPES: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v", b"\\": b"\\"}

Files = dict[tuple[str, str], tuple[str | None, str | None]]


class PostgresTables:
    """extract.source.TableReader says what each method does."""

    def __init__(self, settings: SourceSettings) -> None:
        application = f"trailgate {settings.group}"
        self._settings, self._application = settings, application
        self._slot = f"tgtable_{settings.group.lower()}_{os.getpid()}"
        self._session = Session(settings.url, application)
        try:
            self._connection = connect(settings.url, application, replication=True)
        except BaseException:
            self._session.close()
            raise
        self._opening = self._open()
        self._heard = time.monotonic()

    def identity(self) -> dict[str, str]:
        who = pgcheck.identity(self._session)
        return {"kind": "postgresql", "system": who.system, "database": who.database}

    def poll(self) -> TablesSnapshot | None:
        with away():
            return next(self._opening)

    def _open(self) -> Iterator[TablesSnapshot | None]:
        for statement in _SETTINGS:
            yield from self._do(statement)
        for _ in range(TRIES):
            before = self._files()
            yield from self._do("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield from self._do(f"CREATE_REPLICATION_SLOT {quoted(self._slot)} TEMPORARY LOGICAL pgoutput USE_SNAPSHOT")
            point = self._last_row[1]
            yield from self._do(f"DROP_REPLICATION_SLOT {quoted(self._slot)}")
            if (yield from self._locked(before)) and self._files() == before:
                # A commit record may begin at the very point: its transaction is not seen, and is not left out either.
                csn = lsn_text(parse_lsn(point) - 1)
                yield TablesSnapshot(csn, pgcheck.CSN_LABEL, tuple(self._definitions()), self._now_us())
                return
            yield from self._do("ROLLBACK")
        raise OperatorError(
            f"tables were rewritten, made or dropped in each of {TRIES} tries to take a snapshot of them",
            hint="START again when nobody alters or truncates tables",
        )

    def _locked(self, tables: Files) -> Generator[None, None, bool]:
        """Whether they all are there to be locked."""
        try:
            for place in tables:
                yield from self._do(f"LOCK TABLE ONLY {_name(*place)} IN ACCESS SHARE MODE")
        except SqlError as error:
            if error.state != _NO_TABLE:
                raise
            return False
        return True

    def _captures(self, schema: str, name: str) -> bool:
        own = schema in (pgddl.SCHEMA, QUEUE_SCHEMA) or self._settings.heartbeat.owns(schema, name)
        return not own and self._settings.tables.wants(schema, name)

    def _files(self) -> Files:
        rows = self._session.query(_FILES)
        return {(s, n): (oid, file) for s, n, oid, file in rows if s and n and self._captures(s, n)}

    def _definitions(self) -> Iterator[TableDef]:
        found = describing.describe_tables(self._session, {"pattern": "*.*"})["tables"]
        for wire in found:
            definition = DescribedTable.from_wire(wire).definition
            if self._captures(definition.schema, definition.name):
                yield definition

    def _now_us(self) -> int:
        (text,) = self._session.one("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        return int(text or 0)

    # --- rows -------------------------------------------------------------------------------------------------------

    def rows(self, table: TableDef) -> Iterator[tuple[list[Image], int]]:
        names = ", ".join(quoted(column.name) for column in table.columns)
        fixes = [(i, _FIXES[column.type]) for i, column in enumerate(table.columns) if column.type in _FIXES]
        copy = f"COPY (SELECT {names} FROM ONLY {_name(table.schema, table.name)}) TO STDOUT"
        get: Any = self._connection.get_copy_data
        with away():
            for _ in self._do(copy, pq.ExecStatus.COPY_OUT):
                yield [], 0
            more = True
            while more:
                lines: list[bytes] = []
                size = 0
                while len(lines) < PIECE_ROWS and size < PIECE_BYTES:
                    length, line = get(1)
                    if length <= 0:
                        break
                    lines.append(bytes(line)[:-1])
                    size += length
                yield [_image(line, fixes, len(table.columns)) for line in lines], size
                more = length >= 0
                if size:
                    self._heard = time.monotonic()
                elif more:
                    self._listen()
            for _ in self._ended(pq.ExecStatus.COMMAND_OK):
                yield [], 0

    # --- the connection ---------------------------------------------------------------------------------------------

    def _do(self, statement: str, wanted: int = -1) -> Iterator[None]:
        """Send a statement; None again and again while its answer is not there. Raises what it is refused with."""
        self._connection.send_query(statement.encode("utf-8", "surrogateescape"))
        self._connection.flush()
        self._heard = time.monotonic()
        yield from self._ended(wanted)

    def _ended(self, wanted: int) -> Iterator[None]:
        while True:
            while self._connection.is_busy():
                yield None
                self._listen()
            self._heard = time.monotonic()
            result = self._connection.get_result()
            if result is None:
                return
            self._check(result, wanted)
            if result.status == pq.ExecStatus.COPY_OUT:
                return

    def _listen(self) -> None:
        """Take what has come. Raises SilentError if it has been nothing for too long, and the server does not work."""
        now = time.monotonic()
        if driver.has_come(self._connection):
            self._heard = now
        elif now - self._heard >= driver.ANSWER_SECONDS:
            if not driver.is_worked_on(self._connection, self._settings.url, self._application):
                driver.sever(self._connection)
                raise driver.SilentError(f"the source database has sent nothing for {now - self._heard:.3g} s")
            self._heard = time.monotonic()
        self._connection.consume_input()

    def _check(self, result: PGresult, wanted: int) -> None:
        fine = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK) if wanted < 0 else (wanted,)
        if result.status not in fine:
            raise failed(self._connection, result)
        if result.ntuples:
            self._last_row = [(result.get_value(0, n) or b"").decode() for n in range(result.nfields)]

    def waits(self) -> list[int]:
        return [self._connection.socket]

    def close(self) -> None:
        with suppress(AwayError, OperationalError):
            self._connection.finish()
        self._session.close()


def _name(schema: str, name: str) -> str:
    return f"{quoted(schema)}.{quoted(name)}"


def _image(line: bytes, fixes: list[tuple[int, Fix]], width: int) -> Image:
    """A row of COPY's text."""
    if not width:
        return []
    image: list[Value] = [
        None if value == b"\\N" else _ESCAPED.sub(_escape, value) if b"\\" in value else value
        for value in line.split(b"\t")
    ]
    for i, fix in fixes:
        value = image[i]
        if isinstance(value, bytes):
            image[i] = fix(value)
    return image


def _escape(found: re.Match[bytes]) -> bytes:
    return _ESCAPES[found[1]]
