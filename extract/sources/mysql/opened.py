"""Open transactions of a MySQL or MariaDB server, for SHOWTRANS.

Only those that have changed rows are shown. The server writes a transaction into its log when it commits, so an open
one keeps no log back; a prepared one (XA) is in the log already, and waits there for its COMMIT or ROLLBACK.
"""

from __future__ import annotations

from typing import Final

from extract.longtrans import PREPARED, RUNNING, OpenTransaction, Outstanding
from extract.sources.mysql import server
from extract.sources.mysql.guard import bounded
from extract.sources.mysql.link import MysqlError, MysqlSession, Row

MOST: Final = 1000
_XA_DENIED: Final = 1401

_AGE: Final = "TIMESTAMPDIFF(SECOND, t.trx_started, NOW())"
_OPEN: Final = f"""
SELECT t.trx_id, t.trx_mysql_thread_id, p.user, p.db, p.host, p.command, {_AGE}, UNIX_TIMESTAMP(t.trx_started)
FROM information_schema.innodb_trx t LEFT JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id
WHERE t.trx_rows_modified > 0 ORDER BY t.trx_started LIMIT {MOST}
"""


def outstanding(session: MysqlSession) -> Outstanding:
    """What is open now, by a session that is for this alone. Raises AwayError or MysqlError."""
    bounded(session)
    try:
        rows = session.query(_OPEN)
    except MysqlError as error:
        if not server.is_denied(error):
            raise
        return Outstanding(_prepared(session), unhide="GRANT PROCESS ON *.*", hidden=True)
    found = [_running(row) for row in rows if int(row[1] or 0)]
    return Outstanding((*_prepared(session), *found))


def _running(row: Row) -> OpenTransaction:
    xid, thread, user, database, client, command, age, start = row
    return OpenTransaction(
        xid=xid or "", status=RUNNING, start_us=int(float(start or 0) * 1_000_000), age_us=int(age or 0) * 1_000_000,
        user=user or "", database=database or "", client=client or "", pid=int(thread or 0),
        state=command or "", mend=f"KILL {thread}",
    )  # fmt: skip


def _prepared(session: MysqlSession) -> tuple[OpenTransaction, ...]:
    """XA transactions that were prepared; who may not ask sees none."""
    try:
        rows = session.query("XA RECOVER")
    except MysqlError as error:
        if server.is_denied(error) or error.number == _XA_DENIED:
            return ()
        raise
    return tuple(
        _xa(int(form or 0), int(first or 0), int(second or 0), _bytes(data)) for form, first, second, data in rows
    )


def _xa(form: int, first: int, second: int, data: bytes) -> OpenTransaction:
    """Named as the statement that ends it names it."""
    name = f"X'{data[:first].hex()}',X'{data[first : first + second].hex()}',{form}"
    return OpenTransaction(xid=name, status=PREPARED, name=name, mend=f"XA ROLLBACK {name} or XA COMMIT {name}")


def _bytes(data: str | None) -> bytes:
    return (data or "").encode("utf-8", "surrogateescape")
