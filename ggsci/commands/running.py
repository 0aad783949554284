"""Commands that every kind of group has: START, STOP, STATS, SEND, INFO, ..."""

from __future__ import annotations

from ggsci.commands.row import LOOK, RUN, row
from ggsci.grammar import Command, Kind, Option

_TASKS = (Option("TASKS", choice="which"), Option("ALLPROCESSES", choice="which"))
_INFO = (Option("DETAIL"), Option("SHOWCH", Kind.NUMBER, optional_value=True), *_TASKS)
_EVERY_REQUEST = ("STATUS", "STOP", "FORCESTOP", "GETLAG", "LOGEND", "REPORT")


def _request(name: str, kind: Kind | None = None, *, optional: bool = False) -> Option:
    return Option(name, kind, optional_value=optional, choice="request", needed=True)


_REQUESTS = (*map(_request, _EVERY_REQUEST), _request("GETPARAMINFO", Kind.WORD, optional=True))
_EXTRACT_REQUESTS = (
    _request("ROLLOVER"),
    _request("SHOWTRANS", Kind.WORD, optional=True), Option("TABULAR"), Option("COUNT", Kind.NUMBER),
    Option("DURATION", Kind.NUMBER), *(Option(u, choice="unit") for u in ("SECONDS", "MINUTES", "HOURS", "DAYS")),
    _request("WARNLONGTRANS", Kind.WORD), Option("CHECKINTERVAL", Kind.WORD),
    _request("GETTCPSTATS"), _request("RESETTCPSTATS"),
)  # fmt: skip
_REPLICAT_REQUESTS = (
    *(_request(name, Kind.TABLES, optional=True) for name in ("HANDLECOLLISIONS", "NOHANDLECOLLISIONS")),
    _request("DISCARDROLLOVER"),
)  # fmt: skip
_SENDS = {
    "EXTRACT": (*_REQUESTS, *_EXTRACT_REQUESTS), "REPLICAT": (*_REQUESTS, *_REPLICAT_REQUESTS),
    "ER": (*_REQUESTS, *_EXTRACT_REQUESTS, *_REPLICAT_REQUESTS),
}  # fmt: skip
_EXTRACT_NOTES = (
    " SHOWTRANS shows the source's open transactions that hold back its log: all, one by its id, COUNT n of them, or "
    "those open for DURATION n SECONDS (MINUTES, HOURS, DAYS). WARNLONGTRANS takes durations such as 30m, and holds "
    "until the process ends. For pumps: GETTCPSTATS shows bytes, messages, waits and compression of the link."
)
_REPLICAT_NOTES = (
    " HANDLECOLLISIONS and NOHANDLECOLLISIONS take source tables (all, if none are named), and hold until the "
    "process ends: the parameter file holds again at the next START. DISCARDROLLOVER begins a new discard file."
)
_SEND_NOTES = {"EXTRACT": _EXTRACT_NOTES, "REPLICAT": _REPLICAT_NOTES, "ER": _EXTRACT_NOTES + _REPLICAT_NOTES}
_SEND_EXAMPLES = {
    "EXTRACT": " ; SEND EXTRACT {}, SHOWTRANS TABULAR ; SEND EXTRACT {}, SHOWTRANS DURATION 20 MINUTES ; "
    "SEND EXTRACT pmp1, GETTCPSTATS",
    "REPLICAT": " ; SEND REPLICAT {}, NOHANDLECOLLISIONS sales.*",
    "ER": "",
}
_STATS = (
    Option("TOTAL"), Option("DAILY"), Option("HOURLY"), Option("LATEST"), Option("RESET"),
    Option("REPORTRATE", Kind.WORD), Option("TABLE", Kind.TABLES, choice="tables"),
    Option("TOTALSONLY", Kind.TABLES, choice="tables"),
)  # fmt: skip
_STATS_NOTES = (
    "TOTAL counts since the process started, DAILY and HOURLY since midnight and the full hour (or the start), LATEST "
    "since the last RESET; all four are shown if none is named. REPORTRATE HR, MIN or SEC shows counts by time, "
    "TOTALSONLY all tables of a pattern as one."
)


def _for_each_kind(kind: str, name: str, article: str) -> tuple[Command, ...]:
    """The commands that Extracts and Replicats (and ER, both) share."""
    begins = (
        Option("ATCSN", Kind.WORD, choice="begin"), Option("AFTERCSN", Kind.WORD, choice="begin"),
        Option("SKIPTRANSACTION", choice="begin"),
    ) if kind != "EXTRACT" else ()  # fmt: skip
    begin_example = f" ; START {kind} {name}, AFTERCSN 0/16B3748" if kind == "REPLICAT" else ""
    begin_note = (
        " For one Replicat: ATCSN leaves out the transactions before that CSN, AFTERCSN those up to it, also when they "
        "are still to come; SKIPTRANSACTION leaves out the next one. Noted before the start, and obeyed once, however "
        "often the process dies meanwhile."
    ) if begins else ""  # fmt: skip
    cdr = (Option("REPORTCDR"),) if kind == "REPLICAT" else ()
    cdr_example = f" ; STATS {kind} {name}, REPORTCDR" if cdr else ""
    cdr_note = " REPORTCDR adds what conflict detection and resolution counted." if cdr else ""
    return (
        row(RUN, f"START {kind}", "running:start", Kind.GROUPS,
             f"Check the parameter file of {article}, then have the Manager start it; waits until it runs or fails.",
             f"START {kind} {name} ; START {kind} *" + begin_example, *begins,
             notes="Refused while the parameter file has mistakes: all are listed, with file and line." + begin_note),
        row(RUN, f"STOP {kind}", "running:stop", Kind.GROUPS,
             f"Have {article} finish what it holds, save its checkpoint and stop; waits until it has.",
             f"STOP {kind} {name}"),
        row(RUN, f"KILL {kind}", "running:kill", Kind.GROUPS,
             f"Have the Manager end {article} at once (SIGKILL). It shows ABENDED and isn't restarted before START.",
             f"KILL {kind} {name}"),
        row(RUN, f"STATUS {kind}", "running:status", Kind.GROUPS,
             f"Show the status of {article} in one line.", f"STATUS {kind} {name} ; STATUS {kind} * --json",
             *_TASKS, lists=True),
        row(RUN, f"STATS {kind}", "asking:stats", Kind.GROUPS,
             f"Ask {article} how many changes of each table it has handled.",
             f"STATS {kind} {name} ; STATS {kind} {name}, LATEST, REPORTRATE SEC ; STATS {kind} {name}, TABLE sales.*"
             + cdr_example, *_STATS, *cdr, lists=True, notes=_STATS_NOTES + cdr_note),
        row(RUN, f"SEND {kind}", "asking:send", Kind.GROUPS,
             f"Send one request to {article} and show the answer.",
             f"SEND {kind} {name}, STATUS ; SEND {kind} {name}, REPORT" + _SEND_EXAMPLES[kind].format(name, name),
             *_SENDS[kind], lists=True,
             notes="FORCESTOP ends without finishing what is held; nothing is lost, the next START does it again. "
             "GETPARAMINFO shows the parameter file as the process has read it, or one parameter of it."
             + _SEND_NOTES[kind]),
        row(LOOK, f"INFO {kind}", "looking:info", Kind.GROUPS,
             f"Show where {article} stands. SHOWCH shows its checkpoint, SHOWCH n the last n; DETAIL trails, files.",
             f"INFO {kind} {name} ; INFO {kind} {name}, SHOWCH ; INFO {kind} {name}, DETAIL", *_INFO, lists=True,
             notes="A lag that can't be known is UNKNOWN: no checkpoint yet, or a running group's last is old."),
    )  # fmt: skip


ROWS = (
    *_for_each_kind("EXTRACT", "ext1", "an Extract"),
    *_for_each_kind("REPLICAT", "rep1", "a Replicat"),
    *_for_each_kind("ER", "*", "a group of either kind"),
)
