"""Capture of schema changes from PostgreSQL: what ADD DDLCAPTURE installs, and its messages read back.

pgddl.sql has the event triggers. They write a transactional logical message into the log, at the place of the change,
with the table's shape before and after; pgoutput hands it over like a row. Here a message becomes a DdlChange.

Two things need care. Anybody may write a message of that prefix: only one that bears the key of the installation is
believed, any other is told and passed over. And CREATE TABLE AS writes its rows before its end, where the trigger
fires: the trigger leaves the message in a table too, by transaction and table, and the first row fetches it from there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from extract.sources.postgres.driver import Row, Session, SqlError
from extract.sources.postgres.pgoutput import DDL_PREFIX as PREFIX
from extract.sources.postgres.tables import logical
from trails.ddl import CREATE, DDL_ROWS, OPS, DdlChange, DdlColumn, TableShape
from trails.errors import DamageError, OperatorError

VERSION: Final = 3
SCHEMA: Final = "trailgate"
OLDEST_VERSION: Final = 140000
"""Before this server version pgoutput sends no messages."""
TRIGGERS: Final = ("00_trailgate_drop", "00_trailgate_end")
_SHOWN: Final = 200
_GONE: Final = ("42P01", "3F000")  # no such table, no such schema
_WORDS: Final = {"t": "true", "f": "false"}
_MEND: Final = "DBLOGIN SOURCEDB, then ADD DDLCAPTURE"

_STATE: Final = """
SELECT t.evtname, t.evtenabled,
    coalesce(current_setting('event_triggers', true), 'on') = 'on'
FROM pg_event_trigger t WHERE t.evtname IN ('00_trailgate_drop', '00_trailgate_end') ORDER BY 1
"""

# Who owns the schema may put anything there under our tables' names, also what runs as the one who reads it.
_OURS: Final = """
SELECT c.relkind = 'r' AND o.rolsuper AND s.rolsuper
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_roles o ON o.oid = c.relowner JOIN pg_roles s ON s.oid = n.nspowner
WHERE n.nspname = 'trailgate' AND c.relname = 'install'
"""


# --- installing -----------------------------------------------------------------------------------------------------


def statements() -> list[str]:
    """The statements of pgddl.sql, for one transaction."""
    text = Path(__file__).with_name("ddl.sql").read_text(encoding="utf-8")
    return [part.replace("$version$", str(VERSION)) for part in text.split("\n----\n")]


def shape_query() -> str:
    """What the function `shape_of` answers, as a query by a table's oid: nothing need be installed for it."""
    bodies = {
        name: next(part for part in statements() if f"FUNCTION {SCHEMA}.{name}(" in part).split("$f$")[1]
        for name in ("inner_names", "shape_of")
    }
    inner = bodies["inner_names"].replace("p.oid = type", "p.oid = a.atttypid")
    plain = bodies["shape_of"].replace(f"{SCHEMA}.inner_names(a.atttypid)", f"({inner})")
    return f"SELECT ({plain.replace('c.oid = relation', 'c.oid = $1::bigint::oid')})::text"


def install(session: Session) -> bool:
    """Make it, or make it anew where it is old, disabled or half gone. Returns whether it was there before."""
    if session.server_version < OLDEST_VERSION:
        raise OperatorError(
            f"PostgreSQL {session.server_version // 10000} sends no messages to a logical slot's reader",
            hint="DDL capture needs version 14 or newer",
        )
    there = _exists(session)
    session.script(statements())
    return there


def _exists(session: Session) -> bool:
    """Whether there is an installation. Raises OperatorError if the schema of that name is somebody else's."""
    there = bool(session.query("SELECT FROM pg_namespace WHERE nspname = $1", SCHEMA))
    if there and not _is_ours(session):
        raise OperatorError(
            f"schema {SCHEMA} exists and is not of Trailgate", hint="Rename it: DDL capture needs this name"
        )
    return there


def _is_ours(session: Session) -> bool:
    return session.query(_OURS) == [("t",)]


def uninstall(session: Session) -> bool:
    """Drop triggers and schema. Returns whether anything was there. A schema of somebody else's is left alone."""
    _exists(session)
    there = state(session)
    drops = [f'DROP EVENT TRIGGER IF EXISTS "{name}"' for name in TRIGGERS]
    session.script([*drops, f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE"])
    return there.installed


@dataclass(frozen=True, slots=True)
class CaptureState:
    """What is there. `enabled`: every trigger fires for ordinary sessions."""

    installed: bool = False
    enabled: bool = False
    version: int = 0
    tables: int = 0
    key: str = ""


def state(session: Session) -> CaptureState:
    """Look at the catalogue and the schema. Raises OperatorError where this user may not read it."""
    triggers = session.query(_STATE)
    enabled = len(triggers) == len(TRIGGERS) and all(on in ("O", "A") and all_on == "t" for _, on, all_on in triggers)
    if not _is_ours(session):
        return CaptureState(enabled=enabled)
    try:
        rows = session.query(
            f"SELECT i.version, i.key, (SELECT count(*) FROM {SCHEMA}.shape), (SELECT count(*) FROM {SCHEMA}.born) "
            f"FROM {SCHEMA}.install i"
        )
    except SqlError as error:
        if error.state != "42501":
            raise
        (user,) = session.one("SELECT quote_ident(current_user)")
        raise OperatorError(
            f"user {user} may not read schema {SCHEMA}, by which DDL is captured",
            hint=f"GRANT USAGE ON SCHEMA {SCHEMA} TO {user}; GRANT SELECT ON ALL TABLES IN SCHEMA {SCHEMA} TO {user}",
        ) from None
    version, key, tables, _ = rows[0] if rows else ("0", "", "0", "0")
    return CaptureState(bool(triggers), enabled, int(version or 0), int(tables or 0), key or "")


def ready(session: Session) -> str:
    """The installation's key. Raises OperatorError unless everything that DDL capture needs is there."""
    if session.server_version < OLDEST_VERSION:
        raise OperatorError(
            f"DDL: PostgreSQL {session.server_version // 10000} is too old", hint="Version 14 or newer is needed"
        )
    found = state(session)
    if not found.installed:
        raise OperatorError("DDL is asked for, but this database has no event trigger for it", hint=_MEND)
    if not found.enabled:
        raise OperatorError(
            "DDL is asked for, but the event trigger is disabled, or half gone: changes were not seen meanwhile",
            hint=f"{_MEND}, which enables it again and learns all tables anew",
        )
    if found.version != VERSION:
        raise OperatorError(
            f"DDL: the event trigger is of version {found.version}, expected {VERSION}", hint=f"{_MEND} again"
        )
    return found.key


# --- reading --------------------------------------------------------------------------------------------------------


class DdlReader:
    """Messages to changes. `ask` runs a query, `wanted` says which pass, `say` takes one line for the operator."""

    def __init__(
        self, key: str, ask: Callable[..., list[Row]], wanted: Callable[[DdlChange], bool], say: Callable[[str], None]
    ) -> None:
        self._key = key
        self._ask = ask
        self._wanted = wanted
        self._say = say
        self._forged = ""  # where the last one was that is not to be believed

    def change(self, content: bytes, born: set[int], where: str) -> DdlChange | None:
        """What a message of PREFIX says; None if it is not to be believed, not wanted, or told already (`born`).

        Raises OperatorError for a believable message that nobody here understands.
        """
        message = self._believed(content, where)
        if message is None:
            return None
        if message.get("version") != VERSION:
            raise OperatorError(
                f"{where}: a message {PREFIX} of version {message.get('version')!r}; this program knows {VERSION}",
                hint="Run the release that installed the event trigger, or a newer one",
            )
        if "failed" in message:
            self._say(
                f"{where}: the event trigger could not capture a schema change: {message['failed']}; "
                f"the statement was: {str(message.get('sql'))[:_SHOWN]}"
            )
            return None
        oid, change = parse(message, where)
        if change.op == CREATE and oid in born:
            return None
        if message.get("rows") and change.op == CREATE:
            change = replace(change, flags=change.flags | DDL_ROWS)
        return change if self._wanted(change) else None

    def _believed(self, content: bytes, where: str) -> dict[str, Any] | None:
        """The message, if it bears the key. What does not may be anything: nobody parses it.

        Once a transaction the key is asked for anew, and a line told: who forges a message may forge a million.
        """
        if not self._bears_key(content) and where != self._forged:
            self._renew()
        message = None
        if self._bears_key(content):
            try:
                message = json.loads(content.decode("utf-8", "surrogateescape"))
            except (ValueError, RecursionError):
                message = None
        if isinstance(message, dict) and message.get("key") == self._key:
            return message
        if where != self._forged:
            self._say(f"{where}: a message {PREFIX} that is not of this database's event trigger was passed over")
        self._forged = where
        return None

    def _bears_key(self, content: bytes) -> bool:
        # As jsonb is written.
        return bool(self._key) and b'"key": "%b"' % self._key.encode() in content

    def _renew(self) -> None:
        """Ask for the key: the installation may have been made anew since the start."""
        try:
            rows = self._ask(f"SELECT key FROM {SCHEMA}.install") if self._ask(_OURS) == [("t",)] else []
        except SqlError as error:
            if error.state not in _GONE:
                raise  # what may be a change of shape must not be taken for a forged one
            rows = []
        if rows and rows[0][0]:
            self._key = rows[0][0]

    def born(self, oid: int, xid: int, where: str) -> tuple[bool, DdlChange | None]:
        """Whether transaction `xid` made this table by CREATE TABLE AS, and the change if it is wanted.

        Asked at the table's first row. The table's message, which comes behind the rows, is to be passed over then.
        """
        rows = self._ask(
            f"SELECT message FROM {SCHEMA}.born WHERE xid = $1::bigint AND oid = $2::bigint::oid", xid, oid
        )
        if not rows:
            return False, None
        change = parse(json.loads(rows[0][0] or ""), where)[1]
        return True, change if self._wanted(change) else None


def parse(message: dict[str, Any], where: str) -> tuple[int, DdlChange]:
    """(the table's oid, the change). Raises OperatorError on anything that the trigger never writes."""
    try:
        op, oid, flags = message["op"], message["oid"], message["flags"]
        if op not in OPS or type(oid) is not int or type(flags) is not int:
            raise ValueError(f"op {op!r}, oid {oid!r}, flags {flags!r}")
        kinds: dict[int, tuple[Any, ...]] = {}
        new = _shape(message["new"], kinds)
        old = _shape(message["old"], kinds)
        # Read back as the trail's readers will: what they would refuse must not get there.
        return oid, DdlChange.from_wire(DdlChange(op, old, new, message["sql"] or "", flags).to_wire(), where)
    except (KeyError, TypeError, ValueError, AttributeError, DamageError) as error:
        raise OperatorError(
            f"{where}: a message {PREFIX} can't be read: {error}", hint="DBLOGIN SOURCEDB, then ADD DDLCAPTURE again"
        ) from None


def table_shape(given: Mapping[str, Any]) -> TableShape:
    """What the function `shape_of` gave, as the trail has it."""
    return _shaped(given, {})


def _shape(given: dict[str, Any] | None, kinds: dict[int, tuple[Any, ...]]) -> TableShape | None:
    return None if given is None else _shaped(given, kinds)


def _shaped(given: Mapping[str, Any], kinds: dict[int, tuple[Any, ...]]) -> TableShape:
    columns = tuple(_column(column, kinds) for column in given["columns"])
    return TableShape(given["schema"], given["name"], columns, tuple(given["key"]))


def _column(given: dict[str, Any], kinds: dict[int, tuple[Any, ...]]) -> DdlColumn:
    """One column. A type that was only renamed since the old shape was stored is no retype: it has today's name."""
    typed = (given["typid"], given["typmod"])
    native = given["native"]
    before = kinds.setdefault(given["number"], (*typed, native))
    if before[:2] == typed:
        native = before[2]
    kind = logical(str(given["base"]), given["kind"], given["category"])
    missing = given["missing"]
    return DdlColumn(
        given["number"],
        given["name"],
        kind,
        native,
        given["not_null"],
        given["default"],
        _WORDS.get(missing, missing) if kind == "boolean" else missing,
        given["identity"],
        given["generated"] != "",
        inner=tuple((number, name) for number, name in given.get("inner") or ()),
    )
