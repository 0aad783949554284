"""STATS and SEND: requests to running groups, by their control sockets.

A group that hangs does not answer: then the error says since when its main loop stands still.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from ggsci.commands.choose import chosen, facts_of
from ggsci.commands.session import OperatorSession
from ggsci.doubt import believed
from ggsci.facts import GroupFacts
from ggsci.table.grammar import CommandError, Parsed
from ggsci.views import sendview, statsview
from ggsci.views.view import doubt_text, lag, span
from trails.errors import AwayError, GateError
from trails.runtime.home.status import status_of
from trails.runtime.language.params import Pattern
from trails.runtime.process.control import ask
from trails.runtime.report.answers import LagAnswer, StatusAnswer, read_answer
from trails.runtime.report.stats import PERIODS

ANSWER_SECONDS = 10.0
LOOK_EACH = 0.05
HANGS_US = 2_000_000
"""An idle main loop comes round each second."""

Show = Callable[[GroupFacts, dict[str, Any]], list[str]]


def turns(end: float) -> Iterator[None]:
    """A turn now, and then again and again until the monotonic time `end`."""
    while time.monotonic() < end:
        yield
        time.sleep(LOOK_EACH)


def checked(reply: dict[str, Any]) -> dict[str, Any]:
    """The reply, or the error it tells."""
    if not reply.get("ok"):
        raise CommandError(str(reply.get("error") or "the request failed"))
    return reply


def ask_each(session: OperatorSession, command: Parsed, verb: str, show: Show, **args: Any) -> Any:
    """Send one request to each group and show the answers; a group that doesn't run is an error, the others go on."""
    replies = []
    for group in facts_of(session, chosen(session, command)):
        try:
            reply = asked_lag(session, group) if verb == "GETLAG" else asked(session, group, verb, **args)
        except GateError as error:
            session.fail(str(error))
            replies.append({"program": group.program, "group": group.name, "ok": False, "error": str(error)})
            continue
        session.say_lines(show(group, reply))
        replies.append({"program": group.program, "group": group.name, **reply, "pid": group.pid})
    return replies


def asked_lag(session: OperatorSession, group: GroupFacts) -> dict[str, Any]:
    """A running group's answer to GETLAG; no lag that what stands before it contradicts."""
    reply = asked(session, group, "GETLAG")
    if group.doubt is not None and believed(reply.get("lag_us"), group.doubt) is None:
        reply = {**reply, "lag_us": None, "lag_why": doubt_text(group)}
    return reply


def asked(session: OperatorSession, group: GroupFacts, verb: str, **args: Any) -> dict[str, Any]:
    """The answer of a running group. Raises the GateError that says why there is none."""
    who = f"{group.program} {group.name}"
    if group.is_down:
        waits = f": {group.waits}" if group.waits else ""
        raise CommandError(f"{who} is not currently running (status {group.status}){waits}")
    session.say("", f"Sending {verb} request to {who} ...")
    try:
        return checked(ask(session.home, group.name, verb, timeout=ANSWER_SECONDS, **args))
    except AwayError as error:
        turned = status_of(session.home, group.registration).turned_us
        age = None if turned is None else session.now_us() - turned
        if age is None or age < HANGS_US:
            raise
        hint = f"KILL {group.name} ends it and loses nothing; the next START goes on where it stood"
        raise AwayError(f"{error.message}: its main loop has stood still for {span(age)}", hint=hint) from None


# --- STATS ------------------------------------------------------------------------------------------------------------


def stats(session: OperatorSession, command: Parsed) -> Any:
    """Counts of changes by table, over the periods asked for."""
    rate = command.text("REPORTRATE").upper()
    if rate and rate not in statsview.RATES:
        raise CommandError(f"STATS: REPORTRATE: expected {', '.join(statsview.RATES)}, found {rate}")
    periods = [name for name in PERIODS if command.has(name)] or list(PERIODS)
    wanted = _wanted(command)

    def show(group: GroupFacts, reply: dict[str, Any]) -> list[str]:
        by_table = not reply.get("note")  # a count of all tables is shown as that, whichever are asked for
        if wanted is not None and by_table:
            statsview.keep_tables(reply, wanted)
        if command.has("TOTALSONLY") and by_table:
            statsview.sum_tables(reply, command.text("TOTALSONLY"))
        cdr = command.has("REPORTCDR")
        return statsview.stats(group.program, reply, session.now_us(), periods=periods, rate=rate, cdr=cdr)

    return ask_each(session, command, "STATS", show, **({"reset": True} if command.has("RESET") else {}))


def _wanted(command: Parsed) -> Callable[[str], bool] | None:
    name = next((name for name in ("TABLE", "TOTALSONLY") if command.has(name)), "")
    if not name:
        return None
    try:
        pattern = Pattern(command.text(name))
    except ValueError as error:
        raise CommandError(f"STATS: {name}: expected {error}") from None

    def wanted(table: str) -> bool:
        schema, _, rest = table.partition(".")
        return pattern.matches(schema, rest) or table == command.text(name)

    return wanted


# --- SEND -------------------------------------------------------------------------------------------------------------

_UNITS = {"SECONDS": 1, "MINUTES": 60, "HOURS": 3600, "DAYS": 86_400}
_OWNERS = {"TABULAR": "SHOWTRANS", "COUNT": "SHOWTRANS", "DURATION": "SHOWTRANS", "CHECKINTERVAL": "WARNLONGTRANS"} | (
    dict.fromkeys(_UNITS, "DURATION")
)


def send(session: OperatorSession, command: Parsed) -> Any:
    """One request of the control socket."""
    verb = next(o.name for o in command.command.options if o.choice == "request" and command.has(o.name))
    for name, owner in _OWNERS.items():
        if command.has(name) and not command.has(owner):
            raise CommandError(f"{command.command.name}: {name} belongs to {owner}")
    return ask_each(
        session, command, verb, lambda group, reply: _shown(command, verb, group, reply), **_args(command, verb)
    )


def _args(command: Parsed, verb: str) -> dict[str, Any]:
    if "COLLISIONS" in verb:
        return {"tables": command.text(verb)}
    if verb == "GETPARAMINFO":
        return {"name": command.text(verb)}
    if verb == "SHOWTRANS":
        unit = next((seconds for name, seconds in _UNITS.items() if command.has(name)), 1)
        seconds = (command.number("DURATION") or 0) * unit
        return {"xid": command.text(verb), "count": command.number("COUNT") or 0, "seconds": seconds}
    if verb == "WARNLONGTRANS":
        given = {"after": command.text(verb), "every": command.text("CHECKINTERVAL")}
        return {name: text for name, text in given.items() if text}
    return {}


def _shown(command: Parsed, verb: str, group: GroupFacts, reply: dict[str, Any]) -> list[str]:
    show: dict[str, Callable[[], list[str]]] = {
        "STATUS": lambda: sendview.status(group.program, group.name, group.pid, read_answer(StatusAnswer, reply)),
        "GETLAG": lambda: lag(read_answer(LagAnswer, reply)),
        "LOGEND": lambda: ["YES" if reply.get("logend") else "NO"],
        "GETPARAMINFO": lambda: sendview.parameters(reply, command.text(verb)),
        "SHOWTRANS": lambda: sendview.transactions(group.name, reply, tabular=command.has("TABULAR")),
        "GETTCPSTATS": lambda: sendview.tcp(reply),
        "WARNLONGTRANS": lambda: [f"WARNLONGTRANS {reply['after']}s, CHECKINTERVAL {reply['every']}s until it ends."],
    }
    return show.get(verb, lambda: ["Request processed."])()
