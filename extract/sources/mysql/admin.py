"""What ggsci's commands do in a MySQL or MariaDB source: the verbs of `extract.source.SourceKind.verbs`, by `verbs()`.

Rule: nothing is made in the database but the heartbeat's table. The server writes whole rows of all tables once it is
set so, and deletes its log by its own rules: so the commands check, note a place, and say what there is to mend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict

from extract.source import Reply, Request, Verb
from extract.sources.mysql import check, describing, heartbeat, server
from extract.sources.mysql import gtid as gtids
from extract.sources.mysql.cascading import keys_of
from extract.sources.mysql.ddl.asking import ask_server, base_at_now
from extract.sources.mysql.ddl.journal import Journal
from extract.sources.mysql.link import MysqlError, MysqlSession
from extract.sources.mysql.ordered import ordered
from extract.sources.mysql.places import csn_text, file_number, origin_of, parts
from extract.sources.mysql.state import State
from extract.sources.mysql.tables import ServerTable, captured
from extract.sources.mysql.walk import Walker
from extract.sources.mysql.words import READER, reader_name
from trails.checkpoint import Place
from trails.errors import OperatorError
from trails.fs import RealFs
from trails.position import Position
from trails.runtime.home.registration import Registered
from trails.runtime.language.heartbeattable import HeartbeatTable
from trails.runtime.language.params import Pattern

WHOLE = "Nothing is to be done: the binary log has its rows whole, old and new."


def dblogin(session: MysqlSession, request: Request) -> Reply:  # noqa: ARG001  -- all verbs look alike
    """Who is logged in where."""
    user, database = session.one("SELECT CURRENT_USER(), COALESCE(DATABASE(), '')")
    return {"user": user, "database": database, "server": f"{session.flavour.title} {session.version}"}


def list_tables(session: MysqlSession, request: Request) -> Reply:
    """The tables that can be captured, by name."""
    return {"tables": [table.full_name for table in captured(session, _pattern(request).matches)]}


def describe_tables(session: MysqlSession, request: Request) -> Reply:
    """Those tables as they are."""
    return describing.described(session, _pattern(request).matches)


def register(session: MysqlSession, request: Request) -> Reply:
    """Note who reads the log, and where: its end of now, with the transactions up to there."""
    check.refuse(check.server(session))
    end = _end(session, str(request.get("journal") or ""))
    number = file_number(end.file)
    place = Place(number, end.pos, None, csn_text(0, number, end.pos), end.file)
    (database,) = session.one("SELECT COALESCE(DATABASE(), @@hostname)")
    state = str(State(gtids.parse(session.flavour, end.gtids)))
    return asdict(
        Registered(
            session.flavour.title, str(database), server.TITLE,
            {"flavour": session.flavour.value, "server": server.identity(session)},
            {READER: reader_name(str(request["home_id"]), str(request["group"]))}, place, server.CSN_LABEL, state,
            holds=False,
        )
    )  # fmt: skip


def _end(session: MysqlSession, journal: str) -> server.LogEnd:
    """The log's end. The journal begins with the shapes that all tables have there."""
    ends: list[server.LogEnd] = []

    def look() -> Position:
        found = server.log_end(session)
        if found is None:
            raise OperatorError("the server has no binary log", hint="Set log_bin, and restart it")
        ends.append(found)
        return origin_of(0, file_number(found.file), found.pos)

    if journal:
        asked = ask_server(session, session.flavour, server.identity(session))
        Journal(RealFs(), journal).begin(base_at_now(session, asked, look))
    else:
        look()
    return ends[-1]


def unregister(session: MysqlSession, request: Request) -> Reply:  # noqa: ARG001  -- all verbs look alike
    """Nothing was made there."""
    return {}


def find_place(session: MysqlSession, request: Request) -> Reply:
    """Look for the place of an ADD or ALTER EXTRACT. Not in the log of another server than the registered one."""
    registered = str(request.get("server") or "")
    if registered and registered != server.identity(session):
        return {"place": ""}
    walker = Walker(str(request["url"]), "trailgate ggsci", session.flavour)
    _, number, pos = parts(ordered(session, walker, request["order"], 0))
    return {"place": f"{server.TITLE} file {number}, position {pos}"}


# --- TRANDATA ---------------------------------------------------------------------------------------------------------


def trandata(session: MysqlSession, request: Request) -> Reply:
    """ADD and INFO: whether the log has the rows of these tables, and what is to be mended where it has not."""
    found, values = _matching(session, request), server.settings(session)
    there = [what for what, _ in check.written(session.flavour, values)]
    if request.get("verb") == "add_trandata":
        check.refuse(check.written(session.flavour, values))
    missing = f"The log has not all that is needed: {'; '.join(there)}." if there else ""
    keys = keys_of(session, {(table.schema, table.name) for table in found if not table.hidden})
    unlogged = {(one.schema, one.table): f"Its rows are changed unlogged: {one.what}. {one.mend}" for one in keys}
    told = {table.full_name: unlogged.get((table.schema, table.name)) or _said(table) for table in found}
    return {"tables": [{"table": name, "message": missing or text} for name, text in told.items()]}


def _said(table: ServerTable) -> str:
    return WHOLE if table.key else f"{WHOLE} Without a primary key, a Replicat compares whole rows."


def delete_trandata(session: MysqlSession, request: Request) -> Reply:
    """There is nothing to take away."""
    text = "Nothing was made for it. The binary log has the rows of all tables."
    return {"tables": [{"table": table.full_name, "message": text} for table in _matching(session, request)]}


def _matching(session: MysqlSession, request: Request) -> list[ServerTable]:
    pattern = _pattern(request)
    found = captured(session, pattern.matches)
    if not found:
        raise OperatorError(
            f"no table matches {pattern}",
            hint="Name it like database.table, in quotes if it has capitals; GRANT SELECT shows it to this user",
        )
    return found


def _pattern(request: Request) -> Pattern:
    try:
        return Pattern(request["pattern"])
    except ValueError as error:
        raise OperatorError(f"table {request['pattern']!r}: expected {error}") from None


# --- DDLCAPTURE and heartbeats ----------------------------------------------------------------------------------------


def ddlcapture(session: MysqlSession, request: Request) -> Reply:  # noqa: ARG001  -- all verbs look alike
    """There is nothing to install or to take away."""
    raise OperatorError(
        f"{session.flavour.title} needs no DDL capture: the binary log has each statement at its place",
        hint="Write DDL in the parameter file",
    )


def add_heartbeat(session: MysqlSession, request: Request) -> Reply:
    """Make the heartbeat's seed table."""
    return {"made": heartbeat.add(session, _heartbeat(request))}


def info_heartbeat(session: MysqlSession, request: Request) -> Reply:
    """The seed table and its rows."""
    return heartbeat.info(session, _heartbeat(request))


def delete_heartbeat(session: MysqlSession, request: Request) -> Reply:
    """Drop the seed table."""
    return {"deleted": heartbeat.delete(session, _heartbeat(request))}


def _heartbeat(request: Request) -> HeartbeatTable:
    return HeartbeatTable.parse(str(request["heartbeat"]))


_VERBS: dict[str, Callable[[MysqlSession, Request], Reply]] = {
    "dblogin": dblogin,
    "list_tables": list_tables,
    "describe_tables": describe_tables,
    "register": register,
    "unregister": unregister,
    "find_place": find_place,
    "add_trandata": trandata,
    "info_trandata": trandata,
    "delete_trandata": delete_trandata,
    "add_ddlcapture": ddlcapture,
    "info_ddlcapture": ddlcapture,
    "delete_ddlcapture": ddlcapture,
    "add_heartbeat": add_heartbeat,
    "info_heartbeat": info_heartbeat,
    "delete_heartbeat": delete_heartbeat,
}


def verbs() -> Mapping[str, Verb]:
    """What ggsci may ask of this database: functions by their verbs."""
    return {name: _permitted(do) for name, do in _VERBS.items()}


def _permitted(do: Callable[[MysqlSession, Request], Reply]) -> Verb:
    """A verb that says who may do it where this user may not."""

    def asked(session: MysqlSession, request: Request) -> Reply:
        try:
            return do(session, request)
        except MysqlError as error:
            if server.is_denied(error) and not error.hint:
                error.hint = "Log in as a user with that privilege, or GRANT it: docs/mysql-source.md#what-it-needs"
            raise

    return asked
