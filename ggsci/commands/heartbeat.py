"""LAG, and the commands on the heartbeat tables.

A figure is shown only while it is true (trails.heartbeat.judged): what is stale, or crossed clocks that were not
compared, is UNKNOWN, with its age.
"""

from __future__ import annotations

from typing import Any

from ggsci import admin
from ggsci.commands.asking import asked_lag
from ggsci.commands.choose import chosen, facts_of
from ggsci.commands.session import Login, OperatorSession
from ggsci.facts import GroupFacts
from ggsci.table.grammar import CommandError, Parsed
from ggsci.views import view
from ggsci.views.heartbeatview import lag_lines, seconds
from trails.errors import GateError
from trails.heartbeat import judged
from trails.runtime.home import registration as registrations
from trails.runtime.language import globals as globals_file
from trails.runtime.language.heartbeattable import MOST_FREQUENCY, HeartbeatTable
from trails.runtime.report.answers import LagAnswer, read_answer

_OPTIONS = (("FREQUENCY", "frequency"), ("RETENTION_TIME", "retention"), ("PURGE_FREQUENCY", "purge"))


# --- LAG --------------------------------------------------------------------------------------------------------------


def lag(session: OperatorSession, command: Parsed) -> Any:
    """What each group says of its lag, and of the last heartbeat of each path."""
    if command.has("HISTORY"):
        return _history(session, command)
    replies = []
    for group in facts_of(session, chosen(session, command)):
        reply = _asked(session, group)
        heartbeats = [judged(entry, session.now_us()) for entry in reply.get("heartbeats") or []]
        session.say_lines(lag_lines(heartbeats))
        replies.append({"program": group.program, "group": group.name, **reply, "heartbeats": heartbeats})
    return replies


def _asked(session: OperatorSession, group: GroupFacts) -> dict[str, Any]:
    """The answer of a running group; of any other what its checkpoint has kept, and an error."""
    try:
        reply = asked_lag(session, group)
    except GateError as error:
        session.fail(str(error))
        return {"ok": False, "error": str(error), "heartbeats": group.saved_heartbeats}
    session.say_lines(view.lag(read_answer(LagAnswer, reply)))
    return {**reply, "pid": group.pid}


def _history(session: OperatorSession, command: Parsed) -> Any:
    login = session.need_login("LAG ..., HISTORY")
    names = {group.name for group in chosen(session, command)}
    days = admin.ask("replicat", "heartbeat_history", url=login.url, heartbeat=_table(session).text)["days"]
    found = [day for day in days if names.intersection(day["path"].split(" ==> "))]
    if not found:
        raise CommandError(f"LAG, HISTORY: no heartbeat of {', '.join(sorted(names))} is in {login.database}")
    session.say("", f"{'DATE':<12}{'MIN':<12}{'AVG':<12}{'MAX':<12}PATH", "")
    for day in found:
        figures = "".join(f"{_shown(day[name]):<12}" for name in ("min_s", "avg_s", "max_s"))
        session.say(f"{day['date']:<12}{figures}{day['path']}")
    session.say("")
    return found


def _shown(figure: float | None) -> str:
    return "UNKNOWN" if figure is None else f"{figure:.2f}s"


# --- HEARTBEATTABLE ---------------------------------------------------------------------------------------------------


def add(session: OperatorSession, command: Parsed) -> None:
    """Make what the database lacks."""
    login, table = session.need_login("ADD HEARTBEATTABLE"), _table(session)
    source = _is_source(login) and not command.has("TARGETONLY")
    reply = admin.ask(
        "replicat", "add_heartbeattable", **_request(login, table), target=not source, **_options(command)
    )
    made = reply["made"]
    if source:
        made += admin.ask("extract", "add_heartbeat", **_source_request(session, login, table))["made"]
    for what in made:
        session.say(f"Successfully created {what}.")
    if not made:
        session.say(f"The heartbeat tables of {table.schema} were there already.")
    session.say(_settings_line(reply["settings"], source=source))


def alter(session: OperatorSession, command: Parsed) -> None:
    """Other settings."""
    given = _options(command)
    if not given:
        raise CommandError("ALTER HEARTBEATTABLE: expected an option", hint=f"Syntax: {command.command.syntax()}")
    login = session.need_login("ALTER HEARTBEATTABLE")
    reply = admin.ask("replicat", "alter_heartbeattable", **_request(login, _table(session)), **given)
    asked = _is_source(login) or "frequency" in given
    session.say("HEARTBEAT table altered.", _settings_line(reply["settings"], source=asked))


def info(session: OperatorSession, _command: Parsed) -> Any:
    """What is there, and what came last."""
    login, table = session.need_login("INFO HEARTBEATTABLE"), _table(session)
    found = admin.ask("replicat", "info_heartbeattable", **_request(login, table))
    seed: dict[str, Any] = {"exists": False, "seeds": [], "unpublished": []}
    if _is_source(login):
        seed = admin.ask("extract", "info_heartbeat", **_source_request(session, login, table))
    if found["settings"] is None:
        session.say(f"There are no heartbeat tables in {login.database}; ADD HEARTBEATTABLE makes them.")
    else:
        session.say("", f"HEARTBEAT table {found['table']} in {login.database}")
        session.say(_settings_line(found["settings"], source=_is_source(login)))
        session.say_lines(_info_lines(found, seed))
    return {
        "database": login.database, "table": found["table"], "exists": found["exists"], "settings": found["settings"],
        "lags": found["lags"], "seed": seed["exists"], "seeds": seed["seeds"], "unpublished": seed["unpublished"],
    }  # fmt: skip


def _info_lines(found: dict[str, Any], seed: dict[str, Any]) -> list[str]:
    lines = [f"  Seed of {row['extract']}: {seconds(row['age_us'])} old" for row in seed["seeds"]]
    if seed["exists"] and not seed["seeds"]:
        lines.append("  No Extract has written a heartbeat yet.")
    lines += [f"  Not published by {name}: ADD HEARTBEATTABLE again" for name in seed["unpublished"]]
    for row in found["lags"]:
        lines.append(f"  {row['from']}: {row['path']}, lag {_shown(row['lag_s'])}, received {_shown(row['age_s'])} ago")
    return [*lines, ""]


def delete(session: OperatorSession, command: Parsed) -> None:
    """Drop all of it, after asking."""
    login, table = session.need_login("DELETE HEARTBEATTABLE"), _table(session)
    session.confirm(f"This drops the heartbeat tables of {table.schema} with their history. Are you sure", command)
    gone = []
    if _is_source(login):
        gone += admin.ask("extract", "delete_heartbeat", **_source_request(session, login, table))["deleted"]
    gone += admin.ask("replicat", "delete_heartbeattable", **_request(login, table))["deleted"]
    for what in gone:
        session.say(f"Successfully deleted {what}.")
    if not gone:
        session.say(f"There were no heartbeat tables in {login.database}.")


def _is_source(login: Login) -> bool:
    return login.program == "extract"


def _table(session: OperatorSession) -> HeartbeatTable:
    return HeartbeatTable.of(globals_file.read(session.home))


def _request(login: Login, table: HeartbeatTable) -> dict[str, Any]:
    """Of replicat.admin, which makes the settings in a source too."""
    return {"url": login.url, "heartbeat": table.text, "source": _is_source(login)}


def _source_request(session: OperatorSession, login: Login, table: HeartbeatTable) -> dict[str, Any]:
    """With what was made for this home's registered groups: they are to capture the seed table."""
    made = [reg.registered.made for reg in registrations.all(session.home) if reg.registered is not None]
    return {"url": login.url, "heartbeat": table.text, "made": made}


def _options(command: Parsed) -> dict[str, int]:
    given = {field: number for name, field in _OPTIONS if (number := command.number(name)) is not None}
    if given.get("frequency", 0) > MOST_FREQUENCY:
        raise CommandError(f"{command.command.name}: FREQUENCY: expected 0 to {MOST_FREQUENCY} seconds")
    if any(value > 36_500 for value in given.values()):
        raise CommandError(f"{command.command.name}: expected days up to 36500")
    return given


def _settings_line(settings: dict[str, int], *, source: bool) -> str:
    """How often heartbeats are made is the source's matter: a target has the column, and nobody reads it."""
    every = f"heartbeats each {settings['frequency']} s" if settings["frequency"] else "heartbeats paused"
    days = settings["purge"]
    purge = "never purged" if not days else "purged each day" if days == 1 else f"purged each {days} days"
    text = "; ".join([*([every] if source else []), f"history of {settings['retention']} days, {purge}."])
    return f"  {text[0].upper()}{text[1:]}"
