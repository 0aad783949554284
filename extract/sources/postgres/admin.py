"""What ggsci's commands do in a PostgreSQL source: the verbs of `extract.source.SourceKind.verbs`, by `verbs()`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from extract.source import Reply, Request, Verb
from extract.sources.postgres import check as pgcheck
from extract.sources.postgres import ddl as pgddl
from extract.sources.postgres import describing, typeparts
from extract.sources.postgres import heartbeat as pgheart
from extract.sources.postgres.driver import Session, SqlError
from extract.sources.postgres.pgoutput import parse_lsn, quoted
from extract.sources.postgres.triggers import admin as triggers
from extract.sources.postgres.triggers import install
from trails.errors import GateError, OperatorError
from trails.runtime.home.methods import METHODS
from trails.runtime.home.registration import Registered
from trails.runtime.language.heartbeattable import HeartbeatTable
from trails.runtime.language.params import Pattern

_TABLES = """
SELECT n.nspname, c.relname, c.relreplident, c.reltoastrelid <> 0,
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate AND i.indisvalid),
       (SELECT i.indexrelid::regclass::text FROM pg_index i WHERE i.indrelid = c.oid AND i.indisreplident)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND n.nspname NOT LIKE 'pg\\_%'
AND n.nspname NOT IN ('information_schema', 'trailgate', 'trailgate_queue')
ORDER BY 1, 2
"""


@dataclass(frozen=True, slots=True)
class Table:
    """A table and how updates and deletes of it name the old row."""

    schema: str
    name: str
    identity: str
    toast: bool
    has_key: bool
    index: str | None

    @property
    def sql(self) -> str:
        """Its name in SQL."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def full_name(self) -> str:
        """Its name for people."""
        return f"{self.schema}.{self.name}"

    @property
    def is_fit(self) -> bool:
        """Whether the server takes updates of it once it is published."""
        return self.identity in "fi" or (self.identity == "d" and self.has_key)

    @property
    def wanted(self) -> str:
        """The replica identity that capturing needs.

        The key is enough only where no value can be stored out of line: an update does not carry such a value when it
        leaves it as it was, and then the old row must have it. A table without any wide column has no TOAST table.
        """
        return "d" if self.has_key and not self.toast else "f"

    def shown(self, identity: str) -> str:
        """A replica identity in words."""
        key = "the primary key" if self.has_key else "none: updates and deletes are refused"
        return {
            "d": f"default ({key})",
            "f": "full (the whole old row)",
            "n": "nothing",
            "i": f"index {self.index}",
        }.get(identity, identity)


def dblogin(session: Session, request: Request) -> Reply:  # noqa: ARG001  -- all verbs look alike
    """Who is logged in where."""
    user, database, version = session.one("SELECT current_user::text, current_database()::text, version()")
    return {"user": user, "database": database, "server": version}


def register(session: Session, request: Request) -> Reply:
    """Make publication and slot, in this order: the server looks a publication up as of each change."""
    name = f"tg_{request['home_id'][:8]}_{request['group']}".lower()
    _ready(session, name)
    patterns = [Pattern(text) for text in request.get("tables") or ()]
    publish = _publication(session, name, patterns)
    session.query(publish)
    try:
        _, lsn = session.one(
            "SELECT slot_name::text, lsn::text FROM pg_create_logical_replication_slot($1, 'pgoutput')", name
        )
    except GateError:
        session.query(f"DROP PUBLICATION {quoted(name)}")
        raise
    who = pgcheck.identity(session)
    identity = {"system": who.system, "database": who.database}
    typeparts.begin(session, str(request.get("journal") or ""), identity)
    return asdict(
        Registered(
            "PostgreSQL", who.database, pgcheck.TITLE, identity,
            {"slot": name, "publication": name}, who.place(parse_lsn(lsn or "0/0")), pgcheck.CSN_LABEL,
        )
    )  # fmt: skip


def _ready(session: Session, name: str) -> None:
    if session.setting("wal_level") != "logical":
        raise OperatorError(
            f"wal_level is {session.setting('wal_level')}, expected logical",
            hint="ALTER SYSTEM SET wal_level = 'logical'; then restart the server",
        )
    if session.query("SELECT FROM pg_replication_slots WHERE slot_name = $1", name):
        raise OperatorError(
            f"replication slot {name} exists already",
            hint=f"If no group uses it: SELECT pg_drop_replication_slot('{name}'), and DROP PUBLICATION {quoted(name)}",
        )
    if session.query("SELECT FROM pg_publication WHERE pubname = $1", name):
        raise OperatorError(
            f"publication {name} exists already", hint=f"If no group uses it: DROP PUBLICATION {quoted(name)}"
        )


def _publication(session: Session, name: str, patterns: list[Pattern]) -> str:
    """The CREATE PUBLICATION statement: all tables, or those that the patterns name."""
    tables = [t for t in _tables(session) if not patterns or any(p.matches(t.schema, t.name) for p in patterns)]
    unfit = [t.full_name for t in tables if not t.is_fit]
    if unfit:
        shown = ", ".join(unfit[:10]) + (f" and {len(unfit) - 10} more" if len(unfit) > 10 else "")
        raise OperatorError(
            f"once published, the server would refuse updates and deletes of tables without replica identity: {shown}",
            hint="ADD TRANDATA them first",
        )
    # From version 18 on the server refuses updates with identity full unless generated columns are published too.
    generated = session.server_version >= describing.PUBLISHES_GENERATED
    options = " WITH (publish_generated_columns = stored)" if generated else ""
    (superuser,) = session.one("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
    if superuser == "t" and not patterns:
        return f"CREATE PUBLICATION {quoted(name)} FOR ALL TABLES{options}"
    if not tables:
        raise OperatorError(
            "there is no table to publish", hint="Make the tables, or log in as a superuser to publish all"
        )
    return f"CREATE PUBLICATION {quoted(name)} FOR TABLE {', '.join(t.sql for t in tables)}{options}"


def unregister(session: Session, request: Request) -> Reply:
    """Drop slot and publication, whichever is there."""
    slot, publication = request["made"]["slot"], request["made"]["publication"]
    if session.query("SELECT FROM pg_replication_slots WHERE slot_name = $1", slot):
        session.query("SELECT pg_drop_replication_slot($1)", slot)
    session.query(f"DROP PUBLICATION IF EXISTS {quoted(publication)}")
    return {}


def add_trandata(session: Session, request: Request) -> Reply:
    """Set the replica identity that each table needs; full, if its whole old rows are asked for (ALLCOLS)."""
    return _each(session, request, _add_full if request.get("allcols") else _add)


def _add(session: Session, table: Table) -> str:
    if table.identity == "f" or (table.identity == table.wanted == "d"):
        return f"Replica identity is already {table.shown(table.identity)}."
    if table.identity == "i" and not table.toast:
        return f"Replica identity is already {table.shown('i')}."
    return _set(session, table, table.wanted)


def _add_full(session: Session, table: Table) -> str:
    if table.identity == "f":
        return f"Replica identity is already {table.shown('f')}."
    return _set(session, table, "f")


def _set(session: Session, table: Table, identity: str) -> str:
    session.query(f"ALTER TABLE {table.sql} REPLICA IDENTITY {'DEFAULT' if identity == 'd' else 'FULL'}")
    return f"Replica identity set to {table.shown(identity)}."


def info_trandata(session: Session, request: Request) -> Reply:
    """Say which replica identity each table has."""
    return _each(session, request, _info)


def _info(_: Session, table: Table) -> str:
    fit = table.is_fit and (table.identity == "f" or not table.toast)
    return f"Replica identity is {table.shown(table.identity)}{'' if fit else '; ADD TRANDATA is needed'}."


def delete_trandata(session: Session, request: Request) -> Reply:
    """Give the tables PostgreSQL's default back."""
    return _each(session, request, _delete)


def _delete(session: Session, table: Table) -> str:
    return _set(session, table, "d")


def _each(session: Session, request: Request, do: Callable[[Session, Table], str]) -> Reply:
    try:
        pattern = Pattern(request["pattern"])
    except ValueError as error:
        raise OperatorError(f"table {request['pattern']!r}: expected {error}") from None
    found = [t for t in _tables(session) if pattern.matches(t.schema, t.name)]
    if not found:
        raise OperatorError(
            f"no table matches {pattern}", hint="Name it like schema.table, in quotes if it has capitals"
        )
    return {"tables": [{"table": t.full_name, "message": do(session, t)} for t in found]}


def _tables(session: Session) -> list[Table]:
    return [
        Table(schema or "", name or "", identity or "d", toast == "t", key == "t", index)
        for schema, name, identity, toast, key, index in session.query(_TABLES)
    ]


def list_tables(session: Session, request: Request) -> Reply:
    """The tables that can be captured, by name."""
    try:
        pattern = Pattern(request["pattern"])
    except ValueError as error:
        raise OperatorError(f"table {request['pattern']!r}: expected {error}") from None
    return {"tables": [t.full_name for t in _tables(session) if pattern.matches(t.schema, t.name)]}


def add_ddlcapture(session: Session, request: Request) -> Reply:  # noqa: ARG001  -- all verbs look alike
    """Install the event trigger; where it is there already, make it as new."""
    renewed = pgddl.install(session)
    return {"renewed": renewed, **_ddlcapture(session)}


def info_ddlcapture(session: Session, request: Request) -> Reply:  # noqa: ARG001  -- all verbs look alike
    """What is installed."""
    return _ddlcapture(session)


def _ddlcapture(session: Session) -> Reply:
    found = pgddl.state(session)
    return {
        "installed": found.installed,
        "enabled": found.enabled,
        "version": found.version,
        "expected_version": pgddl.VERSION,
        "tables": found.tables,
    }


def delete_ddlcapture(session: Session, request: Request) -> Reply:  # noqa: ARG001  -- all verbs look alike
    """Drop the event trigger and all that belongs to it."""
    return {"deleted": pgddl.uninstall(session)}


def add_heartbeat(session: Session, request: Request) -> Reply:
    """Make the heartbeat's seed table, and have the groups' publications publish it."""
    table = _heartbeat(request)
    made = pgheart.add(session, table, _publications(request))
    if install.installed(session, admin=True) is not None and triggers.add_seed(session, table.schema, table.seed):
        made.append(f"triggers on table {table.schema}.{table.seed}")
    return {"made": made}


def info_heartbeat(session: Session, request: Request) -> Reply:
    """The seed table, its rows, and the publications that lack it."""
    return pgheart.info(session, _heartbeat(request), _publications(request))


def delete_heartbeat(session: Session, request: Request) -> Reply:
    """Drop the seed table."""
    return {"deleted": pgheart.delete(session, _heartbeat(request))}


def _heartbeat(request: Request) -> HeartbeatTable:
    return HeartbeatTable.parse(str(request["heartbeat"]))


def _publications(request: Request) -> list[str]:
    return [str(made["publication"]) for made in request["made"] if "publication" in made]


_VERBS: dict[str, Callable[[Session, Request], Reply]] = {
    "dblogin": dblogin,
    "list_tables": list_tables,
    "describe_tables": describing.describe_tables,
    "register": register,
    "unregister": unregister,
    "add_trandata": add_trandata,
    "info_trandata": info_trandata,
    "delete_trandata": delete_trandata,
    "add_ddlcapture": add_ddlcapture,
    "info_ddlcapture": info_ddlcapture,
    "delete_ddlcapture": delete_ddlcapture,
    "add_heartbeat": add_heartbeat,
    "info_heartbeat": info_heartbeat,
    "delete_heartbeat": delete_heartbeat,
}


def verbs() -> Mapping[str, Verb]:
    """What ggsci may ask of this database: functions by their verbs."""
    return {name: _permitted(_by_method(name, do)) for name, do in _VERBS.items()}


def _by_method(name: str, usual: Callable[[Session, Request], Reply]) -> Callable[[Session, Request], Reply]:
    """A verb as the method has it that the request names, or that the trail is of whose headers it gives."""

    def asked(session: Session, request: Request) -> Reply:
        triggered = request.get("method") == METHODS[1] or "queue" in request.get("trail", ())
        return (triggers.VERBS.get(name, usual) if triggered else usual)(session, request)

    return asked


def _permitted(do: Callable[[Session, Request], Reply]) -> Verb:
    """A verb that says who may do it where this user may not."""

    def asked(session: Session, request: Request) -> Reply:
        try:
            return do(session, request)
        except SqlError as error:
            if error.state == "42501" and not error.hint:
                error.hint = "Log in as the table's owner or a superuser"
            raise

    return asked
