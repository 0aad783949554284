"""What a MySQL or MariaDB source must have before capturing starts: each failure names the statement that mends it.

All that is wrong is told at once, so that nobody mends, starts and fails five times. Only questions are asked here, and
nothing is changed: REGISTER EXTRACT makes nothing in this database.

Rule: a fault is what would lose, tear or change a row, or what the server refuses. What may become one later (files
that expire soon, a log that is not synced) is a caution: CHECK PARAMS notes it, and START goes on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from extract.source import SourceSettings
from extract.sources.mysql import server as ask
from extract.sources.mysql.cascading import ALLOW, keys_of
from extract.sources.mysql.flavour import Flavour
from extract.sources.mysql.link import MysqlError, MysqlSession
from extract.sources.mysql.server import LogEnd
from extract.sources.mysql.tables import ServerTable, captured
from extract.sources.mysql.words import READER, allows_cascades, server_id
from trails.errors import OperatorError
from trails.record import Column, TableDef
from trails.runtime.process.checking import Findings

OLDEST: Final = {Flavour.MARIADB: (10, 6), Flavour.MYSQL: (8, 0)}
SOON_SECONDS: Final = 86_400.0
_SHOWN: Final = 5
_OF_REPLICAT: Final = frozenset(("group_name", "group_key", "log_cmplt_csn", "log_cmplt_xids"))
"""Columns of a checkpoint table, and of hardly any other."""

Fault = tuple[str, str]
"""What is wrong, and the statement that mends it."""
Settings = dict[str, str]

_GRANT: Final = re.compile(r"GRANT (.+) ON \*\.\* TO ", re.DOTALL)


def check(session: MysqlSession, settings: SourceSettings, found: Findings) -> None:
    """CHECK PARAMS: all that START would refuse, at once."""
    found.mistakes += [f"{what}. {mend}" for what, mend in faults(session, settings)]
    found.notes += cautions(session, settings)
    if settings.registered is None:
        found.notes.append(f"Where capture begins is not known yet: REGISTER EXTRACT {settings.group} notes it")


def refuse(found: Sequence[Fault]) -> None:
    """Raise OperatorError with all of them, if there are any."""
    if len(found) == 1:
        raise OperatorError(found[0][0], hint=found[0][1])
    if found:
        raise OperatorError(
            "the source is not ready:\n" + "\n".join(f"- {what}. {mend}" for what, mend in found),
            hint="Do all of it, then try again",
        )


def faults(session: MysqlSession, settings: SourceSettings) -> list[Fault]:
    """All that keeps this server, or one of the captured tables, from being captured."""
    made = server(session)
    if any(mend.startswith(_UPGRADE) for _, mend in made):
        return made
    values = ask.settings(session)
    if settings.registered is not None:
        made += _reader(session, settings, values)
    tables = captured(session, settings.tables.wants)
    made += _unlogged(_end(session), tables)
    user = account(session)
    made += [fault for table in tables for fault in _unfit(table, values, user)]
    if not allows_cascades(settings):
        made += _cascades(session, tables)
    if settings.project is not None:
        made += [(error.message, error.hint) for error in settings.project.faults(map(_definition, tables))]
    return made


# --- the server -------------------------------------------------------------------------------------------------------

_UPGRADE: Final = "Capture from "


def server(session: MysqlSession) -> list[Fault]:
    """What keeps any change of this server from being captured."""
    oldest = OLDEST[session.flavour]
    if session.release < oldest:
        what = f"{session.flavour.title} {session.version} is too old"
        return [(what, f"{_UPGRADE}version {'.'.join(map(str, oldest))} or newer")]
    values = ask.settings(session)
    return [
        *written(session.flavour, values),
        *_gtids(session.flavour, values),
        *_updates(session, values),
        *_rights(session),
    ]


def written(flavour: Flavour, values: Settings) -> list[Fault]:
    """What keeps whole rows from being written into the log, or the log from being sent."""
    made = []
    if not ask.is_on(values.get("log_bin")):
        mend = "Write log_bin = binlog under [mysqld] in the server's configuration, and restart it"
        made.append(("log_bin is OFF: the server writes no binary log", mend))
    for name, wanted, why in _WANTED:
        found = values.get(name, "")
        if found.upper() != wanted:
            sessions = "" if name == "binlog_row_metadata" else ". Sessions that are open keep the old value: end them"
            what = f"{name} is {found or 'not known'}, expected {wanted}: {why}"
            made.append((what, _set(flavour, name, wanted) + sessions))
    if values.get("server_id") == "0":
        mend = f"{_set(flavour, 'server_id', '1')}, or another number that no server of its replication has"
        made.append(("server_id is 0: the server sends its log to nobody", mend))
    return made


_WANTED: Final = (
    ("binlog_format", "ROW", "changes would stand in the log as statements"),
    ("binlog_row_image", "FULL", "rows would not come whole"),
    ("binlog_row_metadata", "FULL", "the log would not say which columns a row has"),
)


def _set(flavour: Flavour, name: str, value: str) -> str:
    """The statement, and what makes it last."""
    text = value if value.isdecimal() or value in ("ON", "OFF") else f"'{value}'"
    if flavour is Flavour.MYSQL:
        return f"SET PERSIST {name} = {text}"
    return f"SET GLOBAL {name} = {text}, and write {name} = {value} in the server's configuration"


def _gtids(flavour: Flavour, values: Settings) -> list[Fault]:
    """MariaDB always has them."""
    if flavour is Flavour.MARIADB:
        return []
    made = []
    if values.get("enforce_gtid_consistency", "").upper() != "ON":
        found = values.get("enforce_gtid_consistency", "not known")
        made.append((f"enforce_gtid_consistency is {found}, expected ON", "SET PERSIST enforce_gtid_consistency = ON"))
    mode = values.get("gtid_mode", "").upper()
    if mode != "ON":
        steps = ("OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")
        left = steps[steps.index(mode) + 1 :] if mode in steps else steps
        mend = "; ".join(f"SET PERSIST gtid_mode = {step}" for step in left)
        made.append((f"gtid_mode is {mode or 'not known'}, expected ON: no other server could take over", mend))
    return made


def _updates(session: MysqlSession, values: Settings) -> list[Fault]:
    if _logs_updates(values) or not ask.is_replica(session):
        return []
    what = "the server is a replica, and log_slave_updates is OFF: what it replicates is not in its binary log"
    return [(what, "Write log_slave_updates = ON in its configuration and restart it, or capture from its own source")]


def _logs_updates(values: Settings) -> bool:
    return ask.is_on(values.get("log_replica_updates") or values.get("log_slave_updates"))


def _rights(session: MysqlSession) -> list[Fault]:
    """Privileges over the log. To see a table's columns takes SELECT, which `_unfit` looks for table by table."""
    has = granted(session)
    if has & {"ALL PRIVILEGES", "ALL"}:
        return []
    looks = "BINLOG MONITOR" if session.flavour is Flavour.MARIADB else "REPLICATION CLIENT"
    wanted = {"REPLICATION SLAVE": {"REPLICATION SLAVE"}, looks: {looks, "REPLICATION CLIENT", "SUPER"}}
    missing = [name for name, any_of in wanted.items() if not has & any_of]
    user = account(session)
    return [(f"user {user} has no privilege {name}", f"GRANT {name} ON *.* TO {user}") for name in missing]


def granted(session: MysqlSession) -> set[str]:
    """The user's privileges over the whole server, with those of the roles that are in force."""
    (role,) = session.one("SELECT CURRENT_ROLE()")
    rows = session.query("SHOW GRANTS")
    if role and role != "NONE":
        using = f"CURRENT_USER() USING {role}" if session.flavour is Flavour.MYSQL else _quoted(str(role))
        rows += session.query(f"SHOW GRANTS FOR {using}")
    lists = (match[1] for (text, *_) in rows if (match := _GRANT.match(str(text))))
    return {name.strip().upper() for found in lists for name in str(found).split(",")}


def account(session: MysqlSession) -> str:
    """Who is logged in, as GRANT wants it."""
    user, _, host = str(session.one("SELECT CURRENT_USER()")[0]).rpartition("@")
    return f"{_text(user)}@{_text(host)}"


def _text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _end(session: MysqlSession) -> LogEnd | None:
    """None where there is no log, or no right to see it: both are faults already."""
    try:
        return ask.log_end(session)
    except MysqlError as error:
        if ask.is_denied(error) or ask.has_no_log(error):
            return None
        raise


# --- the reader -------------------------------------------------------------------------------------------------------


def _reader(session: MysqlSession, settings: SourceSettings, values: Settings) -> list[Fault]:
    """Two readers of one number throw each other out."""
    number, name = server_id(settings), settings.noted.made[READER]
    if str(number) == values.get("server_id"):
        return [(f"the server itself has the id {number}", "Write another SERVERID, or take it out of the file")]
    try:
        rows = session.query(ask.replicas(session))
    except MysqlError as error:
        if ask.is_denied(error):
            return []  # the server tells it when a second one comes
        raise
    others = [str(host) for found, host, *_ in rows if str(found) == str(number) and host not in ("", name)]
    mend = "Write another SERVERID in the parameter file"
    return [(f"replica {host} of the server has the id {number} too", mend) for host in others]


# --- tables -----------------------------------------------------------------------------------------------------------


def _unlogged(end: LogEnd | None, tables: Sequence[ServerTable]) -> list[Fault]:
    """Captured databases that the server leaves out of its log."""
    if end is None:
        return []
    made = []
    for schema in sorted({table.schema for table in tables}):
        if end.only and schema not in end.only:
            mend = f"Write binlog_do_db = {schema} beside the others, or take all of them out, and restart the server"
            made.append((f"binlog_do_db leaves database {schema} out of the binary log", mend))
        elif schema in end.never:
            mend = f"Take binlog_ignore_db = {schema} out of the server's configuration, and restart it"
            made.append((f"binlog_ignore_db leaves database {schema} out of the binary log", mend))
    return made


def _unfit(table: ServerTable, values: Settings, user: str) -> list[Fault]:
    if table.hidden:
        grant = f"GRANT SELECT ON {_quoted(table.schema)}.* TO {user}"
        return [(f"user {user} can't see the columns of table {table.full_name}", grant)]
    if table.old_times:
        is_new = ask.is_on(values.get("mysql56_temporal_format", "ON"))
        first = "" if is_new else "SET GLOBAL mysql56_temporal_format = ON; "
        names = ", ".join(table.old_times)
        what = f"table {table.full_name} keeps {names} in an old form, and its log does not say with how many digits"
        return [(what, f"{first}ALTER TABLE {_quoted(table.schema)}.{_quoted(table.name)} FORCE")]
    return []


def cascades(session: MysqlSession, settings: SourceSettings) -> list[Fault]:
    """Foreign keys that change captured rows without a word in the log; none that the operator takes care of."""
    return [] if allows_cascades(settings) else _cascades(session, captured(session, settings.tables.wants))


def _cascades(session: MysqlSession, tables: Sequence[ServerTable]) -> list[Fault]:
    seen = {(table.schema, table.name) for table in tables if not table.hidden}
    return [(found.what, f"{found.mend}. {ALLOW}") for found in keys_of(session, seen)]


def _definition(table: ServerTable) -> TableDef:
    """As far as the options of TABLE ask: names and key."""
    return TableDef(table.schema, table.name, tuple(Column(name, "", "", name in table.key) for name in table.columns))


# --- what may become a fault ------------------------------------------------------------------------------------------


def cautions(session: MysqlSession, settings: SourceSettings) -> list[str]:
    """What CHECK PARAMS notes, and START says in the report."""
    values = ask.settings(session)
    tables = captured(session, settings.tables.wants)
    made = [*_server_cautions(session, values), *_table_cautions(tables)]
    if allows_cascades(settings):
        made += [f"ALLOWCASCADES lets it pass: {what}" for what, _ in _cascades(session, tables)]
    return made


def _server_cautions(session: MysqlSession, values: Settings) -> list[str]:
    made = []
    seconds, name = ask.expires(values)
    if 0 < seconds < SOON_SECONDS:
        mend = _set(session.flavour, "binlog_expire_logs_seconds", "604800")
        made.append(
            f"The server deletes a file of its binary log after {seconds:g} s ({name}): an Extract that stands still "
            f"for longer can't go on. {mend}"
        )
    if values.get("sync_binlog", "1") == "0":
        made.append(
            "sync_binlog is 0: after a loss of power the server may have lost what the trail and the target have. "
            f"{_set(session.flavour, 'sync_binlog', '1')}"
        )
    if not _logs_updates(values) and ask.is_replica(session) is None:
        made.append(
            "Whether the server is a replica can't be seen; if it is, it needs log_slave_updates. "
            f"GRANT SLAVE MONITOR ON *.* TO {account(session)} shows it"
        )
    return made


def _table_cautions(tables: Sequence[ServerTable]) -> list[str]:
    made = []
    keyless = [table.full_name for table in tables if not table.key and not table.hidden]
    if keyless:
        made.append(f"Without a primary key, so a Replicat compares whole rows: {_some(keyless)}")
    loose = [table.full_name for table in tables if not table.transactional]
    if loose:
        made.append(f"Of an engine without transactions, so what a ROLLBACK leaves there is captured: {_some(loose)}")
    made += [
        f"{table.full_name} is the checkpoint table of a Replicat, and each of its commits would be captured. "
        f"TABLEEXCLUDE {table.full_name} leaves it out"
        for table in tables
        if set(table.columns) >= _OF_REPLICAT
    ]
    return made


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
