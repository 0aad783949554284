"""Commands that talk to a database, through extract.admin and replicat.admin."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import import_module
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from ggsci import admin
from ggsci.commands import leaving
from ggsci.commands.choose import locked, registered
from ggsci.commands.session import Login, OperatorSession
from ggsci.table.grammar import CommandError, Parsed
from ggsci.views import view
from trails.errors import GateError, ParamError
from trails.runtime.home import registration as registrations
from trails.runtime.home.home import Home
from trails.runtime.home.methods import METHODS
from trails.runtime.home.registration import Registered, Registration
from trails.runtime.language import globals as globals_file
from trails.runtime.language import params
from trails.runtime.secrets import logins


def dblogin(session: OperatorSession, command: Parsed) -> None:
    """Check the login by using it once, and keep it for the session."""
    session.login = None
    program = "replicat" if command.has("TARGETDB") else "extract"
    url, reply = _logged_in(session, command, program)
    user, database, server = (str(reply.get(name, "")) for name in ("user", "database", "server"))
    session.login = Login(url, user, database, server, program)
    session.say("Successfully logged into database.")


def _logged_in(session: OperatorSession, command: Parsed, program: str) -> tuple[str, dict[str, Any]]:
    """(URL, answer of the database). A password is asked for only where the database wants one and none was given."""
    urls: logins.Urls = import_module(f"{program}.params").URLS
    url = _url(session, command, urls)
    try:
        return url, admin.ask(program, "dblogin", url=url)
    except GateError as error:
        parts = urlsplit(url)
        given = parts.password or "password=" in parts.query
        if given or not parts.username or not session.may_ask or "password" not in str(error).lower():
            raise _guessed(command, url, urls, error) from None
    url = _url(session, command, urls, session.ask_secret("Password: "))
    try:
        return url, admin.ask(program, "dblogin", url=url)
    except GateError as error:
        raise _guessed(command, url, urls, error) from None


def _guessed(command: Parsed, url: str, urls: logins.Urls, error: GateError) -> GateError:
    """With what was taken for granted, where `user@host:port/database` stands without a kind of database."""
    keyword = "TARGETDB" if command.has("TARGETDB") else "SOURCEDB"
    if command.text(keyword):
        return error
    scheme, host = url.partition("://")[0], urlsplit(url).netloc.rpartition("@")[2]
    place = urls.example(f"DBLOGIN {keyword}", f"{urlsplit(url).path.strip('/')}@{host}")
    error.message = f"{str(error).rstrip('.')}. No URL says what is there, so it was taken for {urls.title(scheme)}"
    error.hint = f"For another database write a URL: {place}"
    return error


def _url(session: OperatorSession, command: Parsed, urls: logins.Urls, typed: str = "") -> str:
    """The URL from SOURCEDB, USERID and PASSWORD in any of their mixtures, and the password that was typed."""
    url = command.text("SOURCEDB") or command.text("TARGETDB")
    user, password = _who(session, command)
    if not url:
        user, _, where = user.partition("@")
        if not (user and (where or command.has("USERID"))):
            raise CommandError(
                "DBLOGIN: expected SOURCEDB url, USERID user, or USERIDALIAS of a user@host:port/database",
                hint=f"Syntax: {command.command.syntax()}",
            )
        url = urls.url(where)
    elif command.has("USERIDALIAS"):
        user = user.partition("@")[0]
    parts = urlsplit(url)
    if urls.file_of(url):
        return urls.rooted(url, session.home.root)  # another program opens it, from whatever folder
    if "://" not in url:
        raise CommandError(f"DBLOGIN: expected a URL such as {urls.url('user@host:port/database')}")
    # Split at the last @, as libpq does not: a password may hold one, and would else be taken for a host.
    old, at, host = parts.netloc.rpartition("@")
    old_user, _, old_password = old.partition(":") if at else ("", "", "")
    user = user or unquote(old_user)
    password = typed or password or unquote(old_password)
    login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    if not parts.netloc and not login:
        return url  # urlunsplit would drop the slashes of a URL without a host
    return urlunsplit(parts._replace(netloc=f"{login}@{host}" if login else host))


def _who(session: OperatorSession, command: Parsed) -> tuple[str, str]:
    """(user, password) as the command names them, or as the credential store has them."""
    if not command.has("USERIDALIAS"):
        return command.text("USERID"), command.text("PASSWORD")
    if command.has("PASSWORD"):
        raise CommandError("DBLOGIN: USERIDALIAS and PASSWORD exclude each other")
    from trails.runtime.masking import hide
    from trails.runtime.secrets import credentials

    found = credentials.find(session.home, command.text("USERIDALIAS"), command.text("DOMAIN") or credentials.DOMAIN)
    hide(found.password)
    return found.user, found.password


# --- LIST TABLES ------------------------------------------------------------------------------------------------------


def list_tables(session: OperatorSession, command: Parsed) -> Any:
    """One line a table."""
    login = session.need_login("LIST TABLES")
    found = table_names(login, command.operand or "*.*")
    session.say("", *found, "", f"Found {len(found)} table{'' if len(found) == 1 else 's'}.", "")
    return found


def table_names(login: Login, pattern: str, *, seconds: float | None = None) -> list[str]:
    """`schema.table` of each table that the pattern matches."""
    reply = admin.ask(login.program, "list_tables", seconds=seconds, url=login.url, pattern=pattern)
    return [str(name) for name in reply["tables"]]


# --- REGISTER EXTRACT -------------------------------------------------------------------------------------------------


def register(session: OperatorSession, command: Parsed) -> None:
    """Have the source keep its log for the group, and note where: Extract refuses any other source."""
    login = session.need_login("REGISTER EXTRACT")
    home = session.home
    with locked(home, command.operand, "REGISTER EXTRACT"):
        group = _log_extract(session, command.operand)
        if group.registered is not None:
            raise CommandError(
                f"EXTRACT {group.name} is registered already: {group.registered.shown}",
                hint=f"UNREGISTER EXTRACT {group.name} first",
            )
        reply = admin.ask(
            "extract", "register", url=login.url, group=group.name, home_id=home.id, method=group.method,
            journal=home.journal(group.name),
        )  # fmt: skip
        noted = Registered.of(reply)
        noted = replace(noted, place=replace(noted.place, time_us=session.now_us()))
        registrations.save(home, replace(group, registered=noted))
    trail, last = leaving.trail_end(home, group)
    session.say(
        f"EXTRACT {group.name} successfully registered with database {noted.database} "
        f"at {noted.csn_label} {noted.place.csn} ({noted.shown})."
    )
    if trail:
        text = (
            f"Trail {trail} ends at {last}: what committed between there and now is lost. "
            f"ALTER EXTRACT {group.name}, BEGIN NOW goes on behind that. See {leaving.PAGE}."
        )
        session.say(f"WARNING: {text}")
        leaving.warn(home, f"REGISTER EXTRACT {group.name}: {text}")


def unregister(session: OperatorSession, command: Parsed) -> None:
    """Drop what was made in the source, then forget it."""
    login = session.need_login("UNREGISTER EXTRACT")
    home = session.home
    with locked(home, command.operand, "UNREGISTER EXTRACT"):
        group = _log_extract(session, command.operand)
        if group.registered is None:
            raise CommandError(f"EXTRACT {group.name} is not registered with a database")
        admin.ask("extract", "unregister", url=login.url, made=group.registered.made, method=group.method)
        registrations.save(home, replace(group, registered=None))
    session.say(f"Successfully unregistered EXTRACT {group.name} from database.")
    if leaving.trail_end(home, group)[0]:
        session.say(f"What commits from now on is not captured, and is lost to its trail. See {leaving.PAGE}.")


def _log_extract(session: OperatorSession, name: str) -> Registration:
    group = registered(session.home, name, "EXTRACT")
    if group.is_task:
        raise CommandError(f"EXTRACT {name} is a task: it reads tables and captures nothing, so it is not registered")
    if group.source != "TRANLOG":
        raise CommandError(f"EXTRACT {name} is a pump: it reads trail {group.trail}, not a database's log")
    return group


# --- TRANDATA ---------------------------------------------------------------------------------------------------------


def trandata(session: OperatorSession, command: Parsed) -> Any:
    """ADD, INFO and DELETE TRANDATA: one line a table."""
    login, verb = session.need_login(command.command.name), command.command.name.lower().replace(" ", "_")
    asked = {"allcols": command.has("ALLCOLS")} if verb == "add_trandata" else {}
    method = next((word for word in METHODS if command.has(word)), "")
    tables = admin.ask("extract", verb, url=login.url, pattern=command.operand, method=method, **asked)["tables"]
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


def add_ddlcapture(session: OperatorSession, command: Parsed) -> None:
    """Install the event triggers in the source, or mend what is there."""
    login = session.need_login(command.command.name)
    reply = admin.ask("extract", "add_ddlcapture", url=login.url)
    done = "renewed" if reply.get("renewed") else "installed"
    session.say(f"Successfully {done} DDL capture, version {reply.get('version')}: {_known(reply)}.")


def info_ddlcapture(session: OperatorSession, command: Parsed) -> Any:
    """Whether they are there, fire, and are of this version."""
    login = session.need_login(command.command.name)
    facts = admin.ask("extract", "info_ddlcapture", url=login.url)
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


def delete_ddlcapture(session: OperatorSession, command: Parsed) -> None:
    """Drop them, after asking."""
    login = session.need_login(command.command.name)
    session.confirm("Extracts with DDL won't start, and don't believe what was logged before. Are you sure", command)
    reply = admin.ask("extract", "delete_ddlcapture", url=login.url)
    session.say("Successfully deleted DDL capture." if reply.get("deleted") else "DDL capture was not installed.")


# --- CHECKPOINTTABLE --------------------------------------------------------------------------------------------------


def checkpoint_table(session: OperatorSession, command: Parsed) -> str:
    """The table that is named, or that of GLOBALS."""
    table = command.operand or str(globals_file.read(session.home).one("CHECKPOINTTABLE", ""))
    if not table:
        raise CommandError(
            f"{command.command.name}: expected a schema.table", hint="Name it, or set CHECKPOINTTABLE in GLOBALS"
        )
    return table


def add_checkpointtable(session: OperatorSession, command: Parsed) -> None:
    """Make it in the target."""
    table, login = checkpoint_table(session, command), session.need_login("ADD CHECKPOINTTABLE")
    admin.ask("replicat", "add_checkpointtable", url=login.url, table=table)
    session.say(f"Successfully created checkpoint table {table}.")


def info_checkpointtable(session: OperatorSession, command: Parsed) -> Any:
    """Whether it exists, and who uses it."""
    table, login = checkpoint_table(session, command), session.need_login("INFO CHECKPOINTTABLE")
    facts = admin.ask("replicat", "info_checkpointtable", url=login.url, table=table)
    if facts.get("exists"):
        count = len(facts.get("rows", []))
        who = "1 group keeps its" if count == 1 else f"{count} groups keep their"
        made = view.stamp(facts["created_us"], missing="at a time that it does not tell")
        session.say(f"Checkpoint table {table} exists, created {made}; {who} place in it.")
    else:
        session.say(f"Checkpoint table {table} does not exist.")
    return {"table": table, **facts}


def delete_checkpointtable(session: OperatorSession, command: Parsed) -> None:
    """Drop it, after asking."""
    table, login = checkpoint_table(session, command), session.need_login("DELETE CHECKPOINTTABLE")
    groups = [reg for reg in registrations.all(session.home) if reg.kind == "REPLICAT"]
    users = [reg.name for reg in groups if table_in_use(session.home, reg) == table]
    whose = f" REPLICAT {', '.join(users)} would lose their place." if users else ""
    session.confirm(f"This drops {table}.{whose} Are you sure", command)
    admin.ask("replicat", "delete_checkpointtable", url=login.url, table=table)
    session.say(f"Successfully deleted checkpoint table {table}.")


def delete_row(session: OperatorSession, group: Registration) -> str:
    """Remove a deleted Replicat's row; what to tell the operator about it."""
    table = table_in_use(session.home, group)
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
        raise CommandError(f"{error.message}: {remains}", hint=error.hint) from None
    if not reply.get("deleted", True):
        return f"There was no row of REPLICAT {group.name} in {table}."
    return f"Removed the row of REPLICAT {group.name} from {table}."


def table_in_use(home: Home, group: Registration) -> str:
    """CHECKPOINTTABLE of the parameter file, which Replicat obeys first, or that of the registration."""
    try:
        statements = params.parse_file(home.prm(group.name))
    except ParamError:
        statements = []
    named = [statement.text for statement in statements if statement.keyword == "CHECKPOINTTABLE"]
    return named[-1] if named else group.checkpoint_table
