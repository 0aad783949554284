"""Open transactions of a PostgreSQL server, and the log that a slot keeps because of them.

Only those with a transaction id have changed anything, and only they hold back a slot; those of all databases do. The
queries have a bounded time of their own, and longtrans.py asks on a thread: a server that is stuck stops no capture.
"""

from __future__ import annotations

from dataclasses import replace

from extract.longtrans import PREPARED, RUNNING, OpenTransaction, Outstanding
from extract.sources.postgres.driver import Row, Session

MILLISECONDS = 5000
MOST = 1000

_OPEN = f"""
SELECT xid, pid, owner, database, client, state, gid, (extract(epoch FROM began) * 1000000)::bigint,
       (extract(epoch FROM clock_timestamp() - began) * 1000000)::bigint
FROM (
    SELECT backend_xid AS xid, pid, usename AS owner, datname AS database,
           concat_ws(' ', nullif(application_name, ''), 'process ' || pid, 'at ' || client_addr::text) AS client,
           state, NULL AS gid, xact_start AS began
    FROM pg_stat_activity WHERE backend_xid IS NOT NULL
    UNION ALL
    SELECT transaction, NULL, owner, database, '', '', gid, prepared FROM pg_prepared_xacts
) AS found ORDER BY age(xid) DESC LIMIT {MOST}
"""
_KEPT = """
SELECT restart_lsn::text, pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn()
       ELSE pg_current_wal_flush_lsn() END, restart_lsn)::bigint
FROM pg_replication_slots WHERE slot_name = $1
"""


def outstanding(session: Session, slot: str) -> Outstanding:
    """What is open now, by a session that is for this alone. Raises AwayError or SqlError."""
    found = opened(session, f"slot {slot}")
    kept = session.query(_KEPT, slot)
    restart, size = kept[0] if kept else (None, None)
    return replace(found, restart=f"LSN {restart}" if restart else "", kept_bytes=_number(size))


def opened(session: Session, holder: str) -> Outstanding:
    """The same where no log is kept because of what is open."""
    session.query(f"SET statement_timeout = {MILLISECONDS}")
    rows = session.query(_OPEN)
    return Outstanding(tuple(map(_transaction, rows)), holder, unhide="GRANT pg_read_all_stats")


def _transaction(row: Row) -> OpenTransaction:
    xid, pid, owner, database, client, state, gid, start, age = row
    return OpenTransaction(
        xid=xid or "", status=PREPARED if gid is not None else RUNNING, start_us=_number(start), age_us=_number(age),
        user=owner or "", database=database or "", client=client or "", pid=_number(pid), state=state or "",
        name=gid or "", mend=_mend(pid, gid),
    )  # fmt: skip


def _mend(pid: str | None, gid: str | None) -> str:
    if gid:
        return f"ROLLBACK PREPARED or COMMIT PREPARED {gid!r}"
    return f"SELECT pg_terminate_backend({pid})" if pid else ""


def _number(text: str | None) -> int | None:
    return int(text) if text is not None else None
