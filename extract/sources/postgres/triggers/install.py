"""The queue in the source database: made, looked at, and taken away again; and the triggers of one table.

    trailgate_queue.install    one row: a random id, the version of all this, who reads
    trailgate_queue.log        one row a change (queue.sql)
    trailgate_queue.tick       the snapshots up to which the trail's transactions go
    trailgate_queue.shape      shapes of captured tables
    trailgate_queue.captured   which tables are captured, and by which triggers

Triggers fire always, also where session_replication_role is replica: what a Replicat or a subscription writes is a
change like any other, and nobody would miss it before somebody compares tables.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from extract.sources.postgres import ddl as pgddl
from extract.sources.postgres.driver import SETTINGS, Session
from extract.sources.postgres.pgoutput import quoted
from extract.sources.postgres.tables import QUEUE_SCHEMA as SCHEMA
from extract.sources.postgres.triggers.snapshot import Tick, XidSnapshot
from trails.errors import OperatorError

VERSION: Final = 1
OLDEST_VERSION: Final = 130000
LOG, TICK, SHAPE, CAPTURED, INSTALL = (f"{SCHEMA}.{name}" for name in ("log", "tick", "shape", "captured", "install"))
NOW_US: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_MONEY: Final = 790
_FUNCTIONS: Final = ("inner_names", "shape_of")
_ROW_TRIGGERS: Final = ("insert", "update", "delete")

_TABLES = """
SELECT c.oid, n.nspname, c.relname, c.relpersistence, coalesce(pg_partition_root(c.oid)::oid, c.oid),
    coalesce((SELECT string_agg(a.attname, ', ' ORDER BY a.attnum) FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid = 790), ''),
    coalesce(k.triggers, ''), coalesce(trailgate_queue.triggers_of(c.oid), '')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN trailgate_queue.captured k ON k.relid = c.oid
WHERE c.relkind = 'r' AND c.relpersistence <> 't' AND n.nspname NOT LIKE 'pg\\_%'
AND n.nspname NOT IN ('information_schema', 'trailgate', 'trailgate_queue') ORDER BY 2, 3
"""


@dataclass(frozen=True, slots=True)
class TriggeredTable:
    """A table as it is today. `root`: of the partitioned table that it is a part of, or its own oid.

    `unfit`: why it can't be captured; `noted`: its triggers as they were made; `there`: as they are.
    """

    oid: int
    schema: str
    name: str
    root: int
    unfit: str
    noted: str
    there: str

    @property
    def sql(self) -> str:
        """Its name in SQL."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def full_name(self) -> str:
        """Its name for people."""
        return f"{self.schema}.{self.name}"

    @property
    def is_captured(self) -> bool:
        """Whether its triggers are those that were made, and were never off."""
        return bool(self.noted) and self.noted == self.there


@dataclass(frozen=True, slots=True)
class QueueInstall:
    """The row of `install`. `reader`: the home and group that REGISTER EXTRACT noted; empty: none."""

    id: str
    reader: str


@dataclass(frozen=True, slots=True)
class QueueSize:
    """Changes in the queue, the bytes that it takes, and when that was counted."""

    rows: int
    bytes: int
    at_us: int


# --- the queue --------------------------------------------------------------------------------------------------------


def installed(session: Session, *, admin: bool = False) -> QueueInstall | None:
    """What is there; None if nothing is. Raises OperatorError where this user may not read it, or it is another's.

    `admin`: for somebody who makes triggers with its functions, or is asked to believe them.
    """
    _trusted(session, admin=admin)
    (there, able) = session.one(
        "SELECT EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace($1) AND relname = 'install'), "
        "coalesce(has_schema_privilege(to_regnamespace($1), 'USAGE'), true)", SCHEMA,
    )  # fmt: skip
    if able != "t":
        raise _not_allowed(session)
    if there != "t":
        return None
    may = session.query(
        "SELECT FROM pg_class WHERE relnamespace = to_regnamespace($1) AND relkind = 'r' "
        "AND NOT has_table_privilege(oid, 'SELECT')", SCHEMA,
    )  # fmt: skip
    if may:
        raise _not_allowed(session)
    rows = session.query(f"SELECT id, version, reader FROM {INSTALL}")
    if not rows or rows[0][1] != str(VERSION):
        raise OperatorError(
            f"the queue in schema {SCHEMA} is of version {rows[0][1] if rows else 'none'}, expected {VERSION}",
            hint="UNREGISTER EXTRACT by the release that made it, then ADD TRANDATA and REGISTER EXTRACT",
        )
    return QueueInstall(rows[0][0] or "", rows[0][2] or "")


def _trusted(session: Session, *, admin: bool) -> None:
    """Refuse a queue that somebody made as a trap, before anything in it runs: it would with this user's rights.

    To read the queue of another ordinary user is nothing but what the reader was granted; a superuser never does.
    """
    rows = session.query(
        "SELECT quote_ident(r.rolname) FROM (SELECT nspowner AS oid FROM pg_namespace WHERE nspname = $1 "
        "UNION SELECT relowner FROM pg_class WHERE relnamespace = to_regnamespace($1) "
        "UNION SELECT proowner FROM pg_proc WHERE pronamespace = to_regnamespace($1)) o "
        "JOIN pg_roles r USING (oid) CROSS JOIN pg_roles me WHERE me.rolname = current_user AND NOT r.rolsuper "
        "AND r.rolname <> current_user AND (me.rolsuper OR $2::bool) LIMIT 1", SCHEMA, str(admin),
    )  # fmt: skip
    if rows:
        raise OperatorError(
            f"schema {SCHEMA}, or something in it, belongs to {rows[0][0]}",
            hint="Log in as that user; or, if it is none of yours, look at it and drop it",
        )


def _not_allowed(session: Session) -> OperatorError:
    (user,) = session.one("SELECT quote_ident(current_user)")
    return OperatorError(
        f"user {user} may not read schema {SCHEMA}, in which the queue is",
        hint=f"GRANT USAGE ON SCHEMA {SCHEMA} TO {user}; "
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {SCHEMA} TO {user}",
    )


def statements() -> list[str]:
    """What makes the queue where it is not there yet, for one transaction."""
    text = Path(__file__).with_name("queue.sql").read_text(encoding="utf-8")
    given = [setting.split("=", 1) for setting in SETTINGS.replace("-c ", "").split()]
    # lc_monetary takes as long as all else, so columns of money are refused; xmloption is about reading.
    settings = " ".join(
        f"SET {name} = {value.replace(',', ', ')}" for name, value in given if name not in ("lc_monetary", "xmloption")
    )
    parts = [part.replace("$version$", str(VERSION)) for part in text.replace("$settings$", settings).split("\n----\n")]
    made = [part for part in pgddl.statements() if any(f"FUNCTION trailgate.{name}" in part for name in _FUNCTIONS)]
    parts += [part.replace("trailgate.", f"{SCHEMA}.") for part in made]
    parts += [
        f"REVOKE ALL ON FUNCTION {SCHEMA}.log_{kind}() FROM PUBLIC" for kind in (*_ROW_TRIGGERS, "truncate", "beat")
    ]
    parts.append(f"REVOKE ALL ON ALL TABLES IN SCHEMA {SCHEMA} FROM PUBLIC")
    return parts


def install(session: Session) -> QueueInstall:
    """Make the queue where it is not there yet."""
    if session.server_version < OLDEST_VERSION:
        raise OperatorError(
            f"PostgreSQL {session.server_version // 10000} is too old", hint="Version 13 or newer is needed"
        )
    found = installed(session, admin=True)
    if found is None:
        session.script(statements())
        found = installed(session)
    assert found is not None
    return found


def uninstall(session: Session) -> None:
    """Take the triggers away, and the queue with what is in it."""
    if installed(session, admin=True) is None:
        return
    roots = {table.root for table in tables(session) if table.there}
    for root in sorted(roots):
        session.script(_drops(_name(session, root), _leaves(session, root)))
    session.query(f"DROP SCHEMA {SCHEMA} CASCADE")


def begin(session: Session, reader: str) -> Tick:
    """Note who reads, and a first tick, whose number is above those of any queue that was here before."""
    session.query("BEGIN ISOLATION LEVEL REPEATABLE READ")
    snapshot, now = session.one(f"SELECT pg_current_snapshot()::text, {NOW_US}")
    tick = Tick(XidSnapshot.of(snapshot or ""), int(now or 0))
    session.query(f"UPDATE {INSTALL} SET reader = $1", reader)
    session.query(f"DELETE FROM {TICK}")
    session.query(f"INSERT INTO {TICK} VALUES ($1::bigint, $2)", tick.at_us, tick.state)
    session.query("COMMIT")
    return tick


# --- tables -----------------------------------------------------------------------------------------------------------


def tables(session: Session) -> list[TriggeredTable]:
    """All ordinary tables of today, as far as capturing goes. The queue must be there."""
    found = []
    for oid, schema, name, persistence, root, money, noted, there in session.query(_TABLES):
        unfit = "it is unlogged, and a crash empties it unseen" if persistence == "u" else ""
        if money:
            unfit = f"column {money} is of type money, whose text depends on the application's lc_monetary"
        found.append(
            TriggeredTable(
                int(oid or 0), schema or "", name or "", int(root or 0), unfit, noted or "", there or ""
            )
        )  # fmt: skip
    return found


def add(session: Session, table: TriggeredTable, *, beats: bool = False) -> None:
    """Have a table's changes logged, or those of all partitions that it belongs to; whatever there was before.

    In a transaction of its own, as it waits until nobody is writing the table. `beats`: it is the heartbeat's.
    """
    root, leaves = _name(session, table.root), _leaves(session, table.root)
    made = [*_drops(root, leaves), f"LOCK TABLE {root} IN SHARE ROW EXCLUSIVE MODE"]
    for kind in _ROW_TRIGGERS:
        name, does = f'"00_trailgate_{kind}"', "beat" if beats and kind != "delete" else kind
        made.append(
            f"CREATE TRIGGER {name} AFTER {kind.upper()} ON {root} FOR EACH ROW EXECUTE FUNCTION {SCHEMA}.log_{does}()"
        )
        made.append(f"ALTER TABLE {root} ENABLE ALWAYS TRIGGER {name}")  # a new partition gets it as it is here
    for oid, leaf in leaves:
        made.append(
            f'CREATE TRIGGER "00_trailgate_truncate" AFTER TRUNCATE ON {leaf} FOR EACH STATEMENT '
            f"EXECUTE FUNCTION {SCHEMA}.log_truncate()"
        )
        made += [
            f'ALTER TABLE {leaf} ENABLE ALWAYS TRIGGER "00_trailgate_{kind}"' for kind in (*_ROW_TRIGGERS, "truncate")
        ]
        made += [_shape(oid), _captured(oid)]
    session.script(made)


def note_shape(session: Session, table: TriggeredTable) -> None:
    """Its triggers are as they were; its shape of now holds from here on."""
    session.script([f"LOCK TABLE {table.sql} IN SHARE ROW EXCLUSIVE MODE", _shape(table.oid)])


def _shape(oid: int) -> str:
    """Note a table's shape if it is another one than before.

    The first is told as a table that is new. What was written since a later one differs and that is still in the queue
    is counted: nothing tells which of these rows were written before the change.
    """
    return f"""
INSERT INTO {SHAPE} (relid, shape, message)
SELECT {oid}, now.shape, CASE WHEN last.shape IS NULL THEN jsonb_build_object('op', 'CREATE', 'oid', {oid},
        'old', NULL, 'new', now.shape, 'sql', '', 'flags', CASE WHEN pg_relation_size({oid}) > 0 THEN 4 ELSE 0 END)
    ELSE jsonb_build_object('waiting', (SELECT count(*) FROM {LOG} WHERE relid = {oid} AND op <> 'T')) END
FROM (SELECT {SCHEMA}.shape_of({oid}) AS shape) now
LEFT JOIN (SELECT s.shape FROM {SHAPE} s WHERE s.relid = {oid} ORDER BY s.id DESC LIMIT 1) last ON true
WHERE last.shape IS DISTINCT FROM now.shape AND now.shape IS NOT NULL
"""


def _captured(oid: int) -> str:
    return (
        f"INSERT INTO {CAPTURED} VALUES ({oid}, {SCHEMA}.triggers_of({oid})) "
        "ON CONFLICT (relid) DO UPDATE SET triggers = excluded.triggers"
    )


def remove(session: Session, table: TriggeredTable) -> None:
    """Log a table's changes no more, nor those of the partitions beside it. What is in the queue is still read."""
    leaves = _leaves(session, table.root)
    gone = [f"DELETE FROM {CAPTURED} WHERE relid = {oid}" for oid, _ in leaves]
    session.script([*_drops(_name(session, table.root), leaves), *gone])


def _drops(root: str, leaves: list[tuple[int, str]]) -> list[str]:
    rows = [f'DROP TRIGGER IF EXISTS "00_trailgate_{kind}" ON {root}' for kind in _ROW_TRIGGERS]
    return rows + [f'DROP TRIGGER IF EXISTS "00_trailgate_truncate" ON {leaf}' for _, leaf in leaves]


def _leaves(session: Session, root: int) -> list[tuple[int, str]]:
    """The tables that hold the rows: the partitions, or the table itself."""
    rows = session.query(
        "SELECT c.oid, format('%I.%I', n.nspname, c.relname) FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND (c.oid = $1::bigint::oid "
        "OR c.oid IN (SELECT relid FROM pg_partition_tree($1::bigint::oid::regclass))) ORDER BY 1", root,
    )  # fmt: skip
    return [(int(oid or 0), name or "") for oid, name in rows]


def _name(session: Session, oid: int) -> str:
    (name,) = session.one(
        "SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.oid = $1::bigint::oid", oid,
    )  # fmt: skip
    return name or ""


def waiting(session: Session) -> QueueSize:
    """What the queue holds now."""
    count, size = session.one(f"SELECT (SELECT count(*) FROM {LOG}), pg_total_relation_size($1)", LOG)
    return QueueSize(int(count or 0), int(size or 0), time.time_ns() // 1000)
