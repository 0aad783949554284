"""Commands that talk to a database, through extract.admin and replicat.admin."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from ggsci import admin
from ggsci.choose import locked, registered
from ggsci.grammar import CommandError, Parsed
from ggsci.session import Login, Session
from trails.errors import GateError, ParamError
from trails.runtime import globals as globals_file
from trails.runtime import params
from trails.runtime import registration as registrations
from trails.runtime.registration import Registration

_SQLITE = "sqlite:///"


def dblogin(session: Session, command: Parsed) -> None:
    """Check the login by using it once, and keep it for the session."""
    url = _url(session, command)
    session.login = None
    program = "replicat" if command.has("TARGETDB") else "extract"
    reply = admin.ask(program, "dblogin", url=url)
    user, database, server = (str(reply.get(name, "")) for name in ("user", "database", "server"))
    session.login = Login(url, user, database, server, program)
    session.say("Successfully logged into database.")


def _url(session: Session, command: Parsed) -> str:
    """The URL from SOURCEDB, USERID and PASSWORD in any of their mixtures."""
    url = command.text("SOURCEDB") or command.text("TARGETDB")
    user, password = _who(session, command)
    if not url:
        user, _, where = user.partition("@")
        if not (user and (where or command.has("USERID"))):
            raise CommandError(
                "DBLOGIN: expected SOURCEDB url, USERID user, or USERIDALIAS of a user@host:port/database",
                hint=f"Syntax: {command.command.syntax()}",
            )
        url = f"postgresql://{where}"
    elif command.has("USERIDALIAS"):
        user = user.partition("@")[0]
    parts = urlsplit(url)
    if command.has("TARGETDB") and url.startswith(_SQLITE):
        # Another program opens it, from whatever folder: a path in the home becomes an absolute one.
        return _SQLITE + os.path.join(session.home.root, url.removeprefix(_SQLITE))
    kinds = ("postgresql", "postgres", "mysql") if command.has("TARGETDB") else ("postgresql", "postgres")
    if parts.scheme not in kinds:
        also = ", mysql://user@host/database or sqlite:///file" if command.has("TARGETDB") else ""
        raise CommandError(f"DBLOGIN: expected a URL such as postgresql://user@host:5432/database{also}")
    # Split at the last @, as libpq does not: a password may hold one, and would else be taken for a host.
    old, at, host = parts.netloc.rpartition("@")
    old_user, _, old_password = old.partition(":") if at else ("", "", "")
    user = user or unquote(old_user)
    password = password or unquote(old_password)
    if not password and user and "password=" not in parts.query and session.may_ask:
        password = session.ask_secret("Password: ")
    login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    if parts.scheme == "mysql" and not parts.netloc and not login:
        return url  # urlunsplit would drop the slashes of a URL without a host
    return urlunsplit(parts._replace(netloc=f"{login}@{host}" if login else host))


def _who(session: Session, command: Parsed) -> tuple[str, str]:
    """(user, password) as the command names them, or as the credential store has them."""
    if not command.has("USERIDALIAS"):
        return command.text("USERID"), command.text("PASSWORD")
    if command.has("PASSWORD"):
        raise CommandError("DBLOGIN: USERIDALIAS and PASSWORD exclude each other")
    from trails.runtime import credentials
    from trails.runtime.masking import hide

    found = credentials.find(session.home, command.text("USERIDALIAS"), command.text("DOMAIN") or credentials.DOMAIN)
    hide(found.password)
    return found.user, found.password


# --- the slot ---------------------------------------------------------------------------------------------------------


def register(session: Session, command: Parsed) -> None:
    """Make slot and publication, and note their facts in the registration: Extract refuses any other slot."""
    login = session.need_login("REGISTER EXTRACT")
    home = session.home
    with locked(home, command.operand, "REGISTER EXTRACT"):
        group = _log_extract(session, command.operand)
        if group.slot:
            raise CommandError(
                f"EXTRACT {group.name} is registered already: slot {group.slot.get('slot')}",
                hint=f"UNREGISTER EXTRACT {group.name} first",
            )
        reply = admin.ask("extract", "register", url=login.url, group=group.name, home_id=home.id)
        facts = {key: value for key, value in reply.items() if key != "ok"}
        registrations.save(home, replace(group, slot=facts))
    session.say(
        f"EXTRACT {group.name} successfully registered with database {facts.get('dbname')} "
        f"at LSN {facts.get('lsn')} (slot {facts.get('slot')}, publication {facts.get('publication')})."
    )


def unregister(session: Session, command: Parsed) -> None:
    """Drop slot and publication, then forget them."""
    login = session.need_login("UNREGISTER EXTRACT")
    home = session.home
    with locked(home, command.operand, "UNREGISTER EXTRACT"):
        group = _log_extract(session, command.operand)
        if not group.slot:
            raise CommandError(f"EXTRACT {group.name} is not registered with a database")
        admin.ask(
            "extract", "unregister",
            url=login.url, slot=group.slot.get("slot"), publication=group.slot.get("publication"),
        )  # fmt: skip
        registrations.save(home, replace(group, slot={}))
    session.say(f"Successfully unregistered EXTRACT {group.name} from database.")


def _log_extract(session: Session, name: str) -> Registration:
    group = registered(session.home, name, "EXTRACT")
    if group.source != "TRANLOG":
        raise CommandError(f"EXTRACT {name} is a pump: it reads trail {group.trail}, not a database's log")
    return group


# --- TRANDATA ---------------------------------------------------------------------------------------------------------


def add_trandata(session: Session, command: Parsed) -> Any:
    """One line a table."""
    return _trandata(session, command, "add_trandata", allcols=command.has("ALLCOLS"))


def info_trandata(session: Session, command: Parsed) -> Any:
    """One line a table."""
    return _trandata(session, command, "info_trandata")


def delete_trandata(session: Session, command: Parsed) -> Any:
    """One line a table."""
    return _trandata(session, command, "delete_trandata")


def _trandata(session: Session, command: Parsed, verb: str, **asked: bool) -> Any:
    login = session.need_login(command.command.name)
    tables = admin.ask("extract", verb, url=login.url, pattern=command.operand, **asked)["tables"]
    if not tables:
        raise CommandError(
            f"no table matches {command.operand}", hint="Write it schema.table, with * and ? as wildcards"
        )
    session.say_lines(_table_line(table) for table in tables)
    return tables


def _table_line(table: dict[str, Any]) -> str:
    """The message names the table in most cases; where it does not, it is put before."""
    name, message = str(table["table"]), str(table["message"])
    return message if re.search(re.escape(name), message) else f"{name}: {message}"


# --- DDLCAPTURE -------------------------------------------------------------------------------------------------------


def add_ddlcapture(session: Session, command: Parsed) -> None:
    """Install the event triggers in the source, or mend what is there."""
    login = session.need_login(command.command.name)
    reply = admin.ask("extract", "add_ddlcapture", url=login.url)
    done = "renewed" if reply.get("renewed") else "installed"
    session.say(f"Successfully {done} DDL capture, version {reply.get('version')}: {_known(reply)}.")


def info_ddlcapture(session: Session, command: Parsed) -> Any:
    """Whether they are there, fire, and are of this version."""
    login = session.need_login(command.command.name)
    reply = admin.ask("extract", "info_ddlcapture", url=login.url)
    facts = {key: value for key, value in reply.items() if key != "ok"}
    if not facts.get("installed"):
        session.say("DDL capture is not installed; ADD DDLCAPTURE installs it.")
        return facts
    state = "enabled" if facts.get("enabled") else "DISABLED (changes are not seen; ADD DDLCAPTURE enables it)"
    current = facts.get("version") == facts.get("expected_version")
    renew = "" if current else f" (expected {facts.get('expected_version')}; ADD DDLCAPTURE renews it)"
    session.say(f"DDL capture is installed, version {facts.get('version')}{renew}, and {state}: {_known(facts)}.")
    return facts


def _known(facts: dict[str, Any]) -> str:
    tables = facts.get("tables")
    return "1 table is known" if tables == 1 else f"{tables} tables are known"


def delete_ddlcapture(session: Session, command: Parsed) -> None:
    """Drop them, after asking."""
    login = session.need_login(command.command.name)
    session.confirm("Extracts with DDL won't start, and don't believe what was logged before. Are you sure", command)
    reply = admin.ask("extract", "delete_ddlcapture", url=login.url)
    session.say("Successfully deleted DDL capture." if reply.get("deleted") else "DDL capture was not installed.")


# --- CHECKPOINTTABLE --------------------------------------------------------------------------------------------------


def checkpoint_table(session: Session, command: Parsed) -> str:
    """The table that is named, or that of GLOBALS."""
    table = command.operand or str(globals_file.read(session.home).one("CHECKPOINTTABLE", ""))
    if not table:
        raise CommandError(
            f"{command.command.name}: expected a schema.table", hint="Name it, or set CHECKPOINTTABLE in GLOBALS"
        )
    return table


def add_checkpointtable(session: Session, command: Parsed) -> None:
    """Make it in the target."""
    table, login = checkpoint_table(session, command), session.need_login("ADD CHECKPOINTTABLE")
    admin.ask("replicat", "add_checkpointtable", url=login.url, table=table)
    session.say(f"Successfully created checkpoint table {table}.")


def info_checkpointtable(session: Session, command: Parsed) -> Any:
    """Whether it exists, and who uses it."""
    table, login = checkpoint_table(session, command), session.need_login("INFO CHECKPOINTTABLE")
    reply = admin.ask("replicat", "info_checkpointtable", url=login.url, table=table)
    facts = {key: value for key, value in reply.items() if key != "ok"}
    if facts.get("exists"):
        count = len(facts.get("rows", []))
        who = "1 group keeps its" if count == 1 else f"{count} groups keep their"
        session.say(f"Checkpoint table {table} exists; {who} place in it.")
    else:
        session.say(f"Checkpoint table {table} does not exist.")
    return {"table": table, **facts}


def delete_checkpointtable(session: Session, command: Parsed) -> None:
    """Drop it, after asking."""
    table, login = checkpoint_table(session, command), session.need_login("DELETE CHECKPOINTTABLE")
    users = [reg.name for reg in registrations.all(session.home) if reg.checkpoint_table == table]
    whose = f" REPLICAT {', '.join(users)} would lose their place." if users else ""
    session.confirm(f"This drops {table}.{whose} Are you sure", command)
    admin.ask("replicat", "delete_checkpointtable", url=login.url, table=table)
    session.say(f"Successfully deleted checkpoint table {table}.")


def delete_row(session: Session, group: Registration) -> str:
    """Remove a deleted Replicat's row; what to tell the operator about it."""
    table = _table_in_use(session, group)
    if not table:
        return ""
    remains = (
        f"the row of REPLICAT {group.name} in {table} remains. "
        f"A REPLICAT {group.name} added again goes on where this one stood."
    )
    if session.login is None:
        return f"No database login: {remains}"
    try:
        reply = admin.ask(
            "replicat", "delete_row",
            url=session.login.url, table=table, group=group.name, group_key=group.group_key,
        )  # fmt: skip
    except GateError as error:
        raise CommandError(f"{str(error).rstrip('.')}: {remains}") from None
    if not reply.get("deleted", True):
        return f"There was no row of REPLICAT {group.name} in {table}."
    return f"Removed the row of REPLICAT {group.name} from {table}."


def _table_in_use(session: Session, group: Registration) -> str:
    """CHECKPOINTTABLE of the parameter file, which Replicat obeys first, or that of the registration."""
    try:
        statements = params.parse_file(session.home.prm(group.name))
    except ParamError:
        statements = []
    named = [statement.text for statement in statements if statement.keyword == "CHECKPOINTTABLE"]
    return named[-1] if named else group.checkpoint_table
