"""What the source keeps for an Extract, for INFO EXTRACT, DETAIL: asked of the Extract itself while it runs, else of
its database by a sub-process, for a bounded time. Not knowing is said, and never fails the command.
"""

from __future__ import annotations

from ggsci import admin
from ggsci.facts import GroupFacts
from ggsci.views.view import span
from trails.errors import GateError
from trails.runtime.home.home import Home
from trails.runtime.language.freespace import human
from trails.runtime.process.control import ask
from trails.runtime.report.answers import KeptAnswer, MetricsAnswer, read_answer

ASK_SECONDS = 1.0
ADMIN_SECONDS = 15.0
_LABEL = 21


def is_registered(group: GroupFacts) -> bool:
    """Whether this is an Extract for which a source keeps its log."""
    return group.registration.registered is not None and not group.registration.trail


def found(home: Home, group: GroupFacts) -> KeptAnswer:
    """What is kept, or why that is not known."""
    try:
        if group.status == "RUNNING":
            answer = ask(home, group.name, "METRICS", timeout=ASK_SECONDS)
            extra = read_answer(MetricsAnswer, answer).extra
            if "log_status" not in extra:
                why = extra.get("log_trouble") or answer.get("error") or "the Extract has not looked lately"
                return KeptAnswer(error=why)
            return read_answer(KeptAnswer, extra)
        return of_stopped(home, group.name)
    except GateError as error:
        return KeptAnswer(error=error.message)


def of_stopped(home: Home, name: str) -> KeptAnswer:
    """The same from the database, with `level`, `text` and `lost`. Raises GateError."""
    return read_answer(KeptAnswer, admin.ask("extract", "kept", seconds=ADMIN_SECONDS, home=home.root, group=name))


def lines(group: GroupFacts, kept: KeptAnswer) -> list[str]:
    """What INFO EXTRACT, DETAIL adds."""
    beats = [f"{'Heartbeats':{_LABEL}}none can be written: {kept.heartbeat_error}"] if kept.heartbeat_error else []
    return [*_kept_lines(group, kept), *beats, ""]


def _kept_lines(group: GroupFacts, kept: KeptAnswer) -> list[str]:
    noted = group.registration.registered
    holder = kept.holder or (noted.holder if noted else "")
    if kept.error is not None:
        return [f"{'Log Kept By':{_LABEL}}{holder}  UNKNOWN ({kept.error})"]
    reason = f" ({kept.log_reason})" if kept.log_reason else ""
    made = [f"{'Log Kept By':{_LABEL}}{holder}  {kept.log_status or 'UNKNOWN'}{reason}"]
    if kept.log_status == "lost" or kept.lost:
        return [*made, f"{'':{_LABEL}}{kept.lost or 'It is lost: re-sync'}"]
    age = span(max(0, group.now_us - (kept.log_checked_us or group.now_us)))
    amount = "UNKNOWN" if kept.log_kept_bytes is None else human(kept.log_kept_bytes)
    made.append(f"{'Log Kept Back':{_LABEL}}{amount} (looked {age} ago)")
    return [*made, f"{'Log Headroom':{_LABEL}}{_room(kept)}"]


def limit_name(kept: KeptAnswer) -> str:
    """What sets the limit in the source, in brackets."""
    return f" ({kept.log_limit_name})" if kept.log_limit_name else ""


def _room(kept: KeptAnswer) -> str:
    if kept.log_headroom_bytes is None:
        return f"no limit of size{limit_name(kept)}; the source's disk, whose free space is not known here"
    name, room = kept.log_limit_name or "of at most", human(max(0, kept.log_headroom_bytes))
    return f"{room} until the source gives it up ({name} {human(kept.log_limit_bytes or 0)})"
