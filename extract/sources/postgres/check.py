"""What a PostgreSQL source must have before capturing starts: each failure names the statement that mends it.

All that is wrong is told at once, so that nobody mends, starts and fails five times. Only questions are asked here;
nothing is changed (ADD TRANDATA and REGISTER EXTRACT do that, admin.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from extract.source import SourceSettings
from extract.sources.postgres.driver import Session
from extract.sources.postgres.pgoutput import lsn_text, parse_lsn, quoted
from extract.sources.postgres.slots import NoSlotError, confirmed, look, lost
from extract.sources.postgres.tables import logical
from trails.checkpoint import Place
from trails.columns import Projection
from trails.errors import MismatchError, OperatorError
from trails.record import Column, TableDef
from trails.runtime.process.checking import Findings

PLUGIN = "pgoutput"
OLDEST_VERSION = 130000
LOST = "See docs/recovery.md#lost-slot"
NO_PUBLICATION = "See docs/recovery.md#dropped-publication"

Captures = Callable[[str, str], bool]
Project = Callable[[TableDef], Projection | None]
"""What TABLE's options make of a table; raises OperatorError if they can't be obeyed."""
Befores = Callable[[str, str], str]
"""The file:line by which a table's updates must carry their whole old rows; empty if they need not."""
Fault = tuple[str, str]
"""What is wrong, and the statement that mends it."""

_TABLES = """
WITH published AS MATERIALIZED (
    SELECT c.oid FROM pg_publication_tables p JOIN pg_namespace n ON n.nspname = p.schemaname
    JOIN pg_class c ON c.relname = p.tablename AND c.relnamespace = n.oid WHERE p.pubname = $1
), unique_index AS MATERIALIZED (
    SELECT indrelid AS oid, bool_or(indisprimary) AS is_key, bool_or(indisreplident) AS is_identity
    FROM pg_index WHERE indimmediate AND indisvalid AND (indisprimary OR indisreplident) GROUP BY indrelid
)
SELECT n.nspname, c.relname, c.relreplident, c.relpersistence, coalesce(i.is_key, false), coalesce(i.is_identity,
false), c.oid IN (SELECT oid FROM published) OR (c.relispartition AND EXISTS ( SELECT FROM pg_partition_ancestors(c.oid)
a (oid) JOIN published USING (oid))) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN
unique_index i ON i.oid = c.oid WHERE c.relkind = 'r' AND c.relpersistence <> 't' AND n.nspname NOT LIKE 'pg\\_%' AND
n.nspname <> 'information_schema' ORDER BY 1, 2
"""

_NAMES = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname NOT LIKE 'pg\\_%'
AND n.nspname NOT IN ('information_schema', 'trailgate', 'trailgate_queue')
"""

_TOASTED = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND c.relreplident <> 'f' AND c.reltoastrelid <> 0
AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema' ORDER BY 1, 2
"""

_NOT_FULL = """
SELECT n.nspname, c.relname, c.relreplident FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND c.relreplident <> 'f'
AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema' ORDER BY 1, 2
"""

# A generated column is in the log from version 18 on, if it is stored. Of the key, what a change names its row by.
_COLUMNS = """
SELECT n.nspname, c.relname, a.attname, coalesce(k.attnum IS NOT NULL, false),
    a.attstorage <> 'p' AND a.attlen < 0, t.oid, t.typtype, t.typcategory
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    AND (a.attgenerated = '' OR (a.attgenerated = 's' AND current_setting('server_version_num')::int >= 180000))
LEFT JOIN pg_type t ON t.oid = a.atttypid AND t.typtype <> 'd'
LEFT JOIN (SELECT i.indrelid, i.indisprimary, i.indisreplident, unnest(i.indkey[0:i.indnkeyatts - 1]) AS attnum
    FROM pg_index i WHERE i.indimmediate AND i.indisvalid) k ON k.indrelid = c.oid AND k.attnum = a.attnum
    AND CASE c.relreplident WHEN 'i' THEN k.indisreplident WHEN 'n' THEN false ELSE k.indisprimary END
WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND n.nspname NOT LIKE 'pg\\_%'
    AND n.nspname <> 'information_schema' ORDER BY n.nspname, c.relname, a.attnum
"""

TITLE, CSN_LABEL = "PostgreSQL WAL", "LSN"
"""How SHOWCH names the log."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who answers: what must stay the same for the life of a trail."""

    system: str
    database: str
    timeline: int
    segment_size: int
    version: str = ""
    characters: str = ""

    def place(self, lsn: int, time_us: int | None = None) -> Place:
        """Seqno is the WAL segment's number, RBA the offset in it."""
        segment, offset = divmod(lsn, self.segment_size)
        per_log = (1 << 32) // self.segment_size
        name = f"{self.timeline:08X}{segment // per_log:08X}{segment % per_log:08X}"
        return Place(segment, offset, time_us, lsn_text(lsn), name)


def identity(session: Session) -> Identity:
    """Ask the server who it is."""
    # The last checkpoint may be minutes older than a promotion: a primary's timeline is that of the log it writes.
    system, timeline, database, version, characters = session.one(
        "SELECT (SELECT system_identifier FROM pg_control_system())::text, "
        "(CASE WHEN pg_is_in_recovery() THEN (SELECT timeline_id FROM pg_control_checkpoint()) "
        "ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int END)::text, "
        "current_database()::text, version(), current_setting('server_encoding')"
    )
    segment_size = int(session.setting("wal_segment_size") or 0)
    return Identity(
        system or "", database or "", int(timeline or 0), segment_size, version or "", characters or ""
    )  # fmt: skip


def names(session: Session) -> list[tuple[str, str]]:
    """Schema and name of every table that could be captured."""
    return [(schema or "", name or "") for schema, name in session.query(_NAMES)]


def check(session: Session, settings: SourceSettings, found: Findings) -> None:
    """CHECK PARAMS: all that START would refuse, at once."""
    captures, befores = settings.tables.wants, settings.tables.befores
    faults = server(session)
    if settings.registered is not None:
        made = settings.registered.made
        faults += registered(session, made["slot"], made["publication"])
        faults += tables(session, made["publication"], captures)
    else:
        found.notes.append(f"Slot and publication were not checked: REGISTER EXTRACT {settings.group} makes them")
    faults += without_befores(session, captures, befores)
    if settings.project is not None:
        faults += columns(session, captures, settings.project)
    found.mistakes += [f"{what}. {mend}" for what, mend in faults]
    if wide := risky(session, captures, settings.project):
        found.notes.append(
            f"Updates of {', '.join(sorted(wide)[:5])} may come without a value that stands out of line; ADD TRANDATA"
        )


def prerequisites(session: Session, slot: str, publication: str) -> None:
    """Raise OperatorError with everything that keeps this server from being captured."""
    refuse([*server(session), *registered(session, slot, publication)])


def refuse(faults: Sequence[Fault]) -> None:
    """Raise OperatorError with all of them, if there are any."""
    if len(faults) == 1:
        raise OperatorError(faults[0][0], hint=faults[0][1])
    if faults:
        raise OperatorError(
            "the source is not ready:\n" + "\n".join(f"- {what}. {mend}" for what, mend in faults),
            hint="Do all of it, then try again",
        )


def check_origin(session: Session, slot: str, origin: int, shown: str) -> None:
    """Raise MismatchError unless the slot still has, and the server has ever had, everything from `origin` on."""
    let_go = confirmed(session, slot)
    if let_go > origin:
        raise MismatchError(
            f"slot {slot} is confirmed up to {_lsn(let_go)}, but the trail ends at {shown}: the slot was made anew, "
            "or the trail's end was lost, and the changes between are gone",
            hint=f"ALTER EXTRACT with LSN {_lsn(let_go)} leaves them out: docs/recovery.md#lost-slot",
        )
    (now,) = session.one(
        "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END"
    )
    if parse_lsn(now or "0/0") < origin:
        raise MismatchError(
            f"the server's log ends at {now}, but the trail has changes up to {_lsn(origin)}: "
            "it was restored from a backup, or it is a standby that had not received them",
            hint=LOST,
        )


def _lsn(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def columns(session: Session, captures: Captures, project: Project) -> list[Fault]:
    """Captured tables as they are today, whose TABLE options can't be obeyed."""
    faults = []
    for table, _ in _described(session, captures):
        try:
            project(table)
        except OperatorError as error:
            faults.append((error.message, error.hint))
    return faults


def risky(session: Session, captures: Captures, project: Project | None = None) -> list[str]:
    """Captured tables of which an update may come without a value that stands out of line (TOAST) and is needed."""
    found = [f"{schema}.{name}" for schema, name in session.query(_TOASTED) if captures(schema or "", name or "")]
    if project is None:
        return found
    harmless = set()
    for table, wide in _described(session, captures):
        projection = project(table)
        if projection is not None and not projection.kept.intersection(wide):
            harmless.add(table.full_name)
    return [name for name in found if name not in harmless]


def _described(session: Session, captures: Captures) -> list[tuple[TableDef, list[int]]]:
    """Captured tables: names, types and key of their columns, and which of them an update may come without.

    The type of a domain is left open.
    """
    found: dict[tuple[str, str], list[tuple[Column, bool]]] = {}
    for schema, name, column, key, wide, *kind in session.query(_COLUMNS):
        if captures(schema or "", name or ""):
            made = (Column(column or "", logical(*kind) if kind[0] else "", "", key == "t"), wide == "t")
            found.setdefault((schema or "", name or ""), []).append(made)
    return [
        (TableDef(*name, tuple(column for column, _ in given)), [i for i, (_, wide) in enumerate(given) if wide])
        for name, given in found.items()
    ]


def registered(session: Session, slot: str, publication: str) -> list[Fault]:
    """What keeps this slot and this publication from being read."""
    return [*_slot(session, slot), *_publication(session, publication)]


def server(session: Session) -> list[Fault]:
    """What keeps any change of this server from being captured."""
    faults = []
    if session.server_version < OLDEST_VERSION:
        faults.append((f"PostgreSQL {session.server_version // 10000} is too old", "Version 13 or newer is needed"))
    if session.setting("wal_level") != "logical":
        mend = "ALTER SYSTEM SET wal_level = 'logical'; then restart the server"
        faults.append((f"wal_level is {session.setting('wal_level')}, expected logical", mend))
    user, able = session.one(
        "SELECT current_user::text, rolsuper OR rolreplication OR EXISTS (SELECT FROM pg_roles r "
        "WHERE r.rolname IN ('rds_replication') AND pg_has_role(current_user, r.oid, 'member')) "
        "FROM pg_roles WHERE rolname = current_user"
    )
    if able != "t":
        faults.append((f"user {user} may not replicate", f"ALTER ROLE {quoted(user or '')} REPLICATION"))
    return faults


def _slot(session: Session, slot: str) -> list[Fault]:
    two_phase = "two_phase::text" if session.server_version >= 140000 else "'false'"
    rows = session.query(
        f"SELECT plugin, slot_type, database, wal_status, current_database(), {two_phase} FROM pg_replication_slots "
        "WHERE slot_name = $1",
        slot,
    )
    if not rows:
        missing = NoSlotError(slot)
        return [(missing.message, missing.hint)]
    plugin, kind, database, wal_status, here, prepared = rows[0]
    if (kind, plugin) != ("logical", PLUGIN):
        return [
            (
                f"slot {slot} is {kind}, plugin {plugin}; expected logical, {PLUGIN}: another one has its name",
                LOST,
            )
        ]
    if database != here:
        return [(f"slot {slot} belongs to database {database}, not {here}", "Mend the database in SOURCEDB")]
    if wal_status == "lost":
        error = lost(look(session, slot))
        return [(error.message, error.hint)]
    if prepared == "true":
        return [(f"slot {slot} was made with two_phase: another one has its name", LOST)]
    return []


def missed_publication(publication: str) -> OperatorError:
    """What ends an Extract that comes to changes from a time when there was none, whether or not there is one now."""
    return OperatorError(
        f"publication {publication} did not exist when the next changes were made: the server does not send them",
        hint=NO_PUBLICATION,
    )


def _publication(session: Session, publication: str) -> list[Fault]:
    name = quoted(publication)
    rows = session.query(
        "SELECT pubinsert, pubupdate, pubdelete, pubtruncate FROM pg_publication WHERE pubname = $1", publication
    )
    if not rows:
        # The server looks publications up as of each change: one made later does not serve the slot's older changes.
        return [(f"publication {publication} does not exist", NO_PUBLICATION)]
    if "f" in rows[0]:
        mend = f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')"
        return [(f"publication {publication} does not publish inserts, updates, deletes and truncates", mend)]
    return []


def tables(session: Session, publication: str, captures: Captures) -> list[Fault]:
    """Captured tables that the server would keep silent about, or whose updates it would refuse."""
    faults: list[Fault] = []
    for schema, name, replident, persistence, has_key, has_index, published in session.query(_TABLES, publication):
        if not captures(schema or "", name or ""):
            continue
        table = f"{quoted(schema or '')}.{quoted(name or '')}"
        if persistence == "u":
            mend = f"ALTER TABLE {table} SET LOGGED, or exclude it (TABLEEXCLUDE)"
            faults.append((f"table {table} is unlogged: its changes are in no log", mend))
        elif published != "t":
            mend = f"ALTER PUBLICATION {quoted(publication)} ADD TABLE {table}, or exclude it (TABLEEXCLUDE)"
            faults.append((f"table {table} is not in publication {publication}", mend))
        elif replident == "n" or (replident == "d" and has_key != "t") or (replident == "i" and has_index != "t"):
            mend = f"ADD TRANDATA (or ALTER TABLE {table} REPLICA IDENTITY FULL)"
            faults.append((f"table {table} has no replica identity: the server refuses its updates and deletes", mend))
    return faults


def without_befores(session: Session, captures: Captures, befores: Befores) -> list[Fault]:
    """Captured tables whose old rows are asked for, and would not come."""
    return [
        no_befores(schema or "", name or "", identity or "", where)
        for schema, name, identity in session.query(_NOT_FULL)
        if captures(schema or "", name or "") and (where := befores(schema or "", name or ""))
    ]


def no_befores(schema: str, name: str, identity: str, where: str) -> Fault:
    """A table under GETUPDATEBEFORES (at `where`) whose replica identity is not full."""
    shown = {"d": "default", "n": "nothing", "i": "an index"}.get(identity, identity)
    what = (
        f"table {schema}.{name} is under GETUPDATEBEFORES or a filter ({where}), but its replica identity is {shown}, "
        "not full: updates and deletes would come without the whole old row"
    )
    table = f"{quoted(schema)}.{quoted(name)}"
    return what, f"ADD TRANDATA {schema}.{name}, ALLCOLS (or ALTER TABLE {table} REPLICA IDENTITY FULL)"
