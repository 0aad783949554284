"""Commands that every kind of group has: START, STOP, STATS, SEND, INFO, ...; and INFO ALL."""

from __future__ import annotations

from ggsci.table.grammar import Command, Option, Takes
from ggsci.table.row import LOOK, RUN, row

_TASKS = (Option("TASKS", choice="which"), Option("ALLPROCESSES", choice="which"))
_INFO = (Option("DETAIL"), Option("SHOWCH", Takes.NUMBER, optional_value=True), *_TASKS)
_EVERY_REQUEST = ("STATUS", "STOP", "FORCESTOP", "GETLAG", "LOGEND", "REPORT")


def _request(name: str, kind: Takes | None = None, *, optional: bool = False) -> Option:
    return Option(name, kind, optional_value=optional, choice="request", needed=True)


_REQUESTS = (*map(_request, _EVERY_REQUEST), _request("GETPARAMINFO", Takes.WORD, optional=True))
_EXTRACT_REQUESTS = (
    _request("ROLLOVER"),
    _request("SHOWTRANS", Takes.WORD, optional=True), Option("TABULAR"), Option("COUNT", Takes.NUMBER),
    Option("DURATION", Takes.NUMBER), *(Option(u, choice="unit") for u in ("SECONDS", "MINUTES", "HOURS", "DAYS")),
    _request("WARNLONGTRANS", Takes.WORD), Option("CHECKINTERVAL", Takes.WORD),
    _request("GETTCPSTATS"), _request("RESETTCPSTATS"),
)  # fmt: skip
_REPLICAT_REQUESTS = (
    *(_request(name, Takes.TABLES, optional=True) for name in ("HANDLECOLLISIONS", "NOHANDLECOLLISIONS")),
    _request("DISCARDROLLOVER"),
)  # fmt: skip
_SENDS = {
    "EXTRACT": (*_REQUESTS, *_EXTRACT_REQUESTS), "REPLICAT": (*_REQUESTS, *_REPLICAT_REQUESTS),
    "ER": (*_REQUESTS, *_EXTRACT_REQUESTS, *_REPLICAT_REQUESTS),
}  # fmt: skip
_EXTRACT_NOTES = (
    "\n"
    "- SHOWTRANS shows the open transactions that hold back the source's log: all, one by its id, or COUNT n of them. "
    "With DURATION n SECONDS (MINUTES, HOURS, DAYS) it shows those that have been open for so long.\n"
    "- WARNLONGTRANS takes durations such as 30m. It holds until the process ends.\n"
    "- GETTCPSTATS, for pumps, shows bytes, messages, waits and compression of the link."
)
_REPLICAT_NOTES = (
    "\n- HANDLECOLLISIONS and NOHANDLECOLLISIONS take source tables (all, if none are named). They hold until the "
    "process ends. At the next START the parameter file holds again."
    "\n- DISCARDROLLOVER begins a new discard file."
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
    Option("REPORTRATE", Takes.WORD), Option("TABLE", Takes.TABLES, choice="tables"),
    Option("TOTALSONLY", Takes.TABLES, choice="tables"),
)  # fmt: skip
_STATS_NOTES = (
    "All four counts are shown if none is named:"
    "\n- TOTAL counts since the process started."
    "\n- DAILY counts since midnight, and HOURLY since the full hour, or since the start if that was later."
    "\n- LATEST counts since the last RESET."
    "\nREPORTRATE shows counts per hour (HR), per minute (MIN) or per second (SEC). TOTALSONLY shows all tables of a "
    "pattern as one."
)


def _for_each_kind(kind: str, name: str, article: str) -> tuple[Command, ...]:
    """The commands that Extracts and Replicats (and ER, both) share."""
    csns = (Option("ATCSN", Takes.WORD, choice="begin"), Option("AFTERCSN", Takes.WORD, choice="begin"))
    begins = (
        *csns, Option("SKIPTRANSACTION", choice="begin"), Option("FILTERDUPTRANSACTIONS", choice="begin"),
        Option("PASTHOLE", choice="begin"),
    ) if kind != "EXTRACT" else csns  # fmt: skip
    begin_example = f" ; START {kind} {name}, AFTERCSN 0/16B3748" if kind != "ER" else ""
    of_extract = (
        "\nATCSN and AFTERCSN are for one Extract on a log. They are noted before the start, and hold until the trail "
        "has a transaction behind that CSN, however often the process dies meanwhile. A CSN that the trail has already "
        "is refused. What they leave out is a hole in the trail, at which Replicats stop (docs/recovery.md)."
        "\n- ATCSN captures the transaction of that CSN and all later ones."
        "\n- AFTERCSN captures those behind it."
    )
    begin_note = of_extract if kind == "EXTRACT" else (
        "\nThese options are for one Replicat. They are noted before the start, and obeyed once, however often the "
        "process dies meanwhile:"
        "\n- ATCSN leaves out the transactions before that CSN, also those that are still to come."
        "\n- AFTERCSN leaves out the transactions up to that CSN, also those that are still to come."
        "\n- SKIPTRANSACTION leaves out the next transaction."
        "\n- FILTERDUPTRANSACTIONS, after an ALTER to an earlier place, leaves out the transactions that the Replicat "
        "has applied already. It refuses a trail that does not hold the last of them."
        "\n- PASTHOLE goes on behind the hole in the trail at which the Replicat has stopped (docs/recovery.md)."
    )  # fmt: skip
    cdr = (Option("REPORTCDR"),) if kind == "REPLICAT" else ()
    cdr_example = f" ; STATS {kind} {name}, REPORTCDR" if cdr else ""
    cdr_note = " REPORTCDR adds what conflict detection and resolution counted." if cdr else ""
    return (
        row(RUN, f"START {kind}", "running:start", Takes.GROUPS,
             f"Check the parameter file of {article}, then have the Manager start it; waits until it runs or fails.",
             f"START {kind} {name} ; START {kind} *" + begin_example, *begins,
             notes="It is refused while the parameter file has mistakes: all are listed, with file and line. It says "
             "that the group is running once the group has done the first turn of its work. If the group still waits "
             "after 5 seconds, for a database or a Manager, START says that it is still starting, and what it waits "
             "for. INFO and SEND, STATUS say the same later. Warnings of the start are shown." + begin_note),
        row(RUN, f"STOP {kind}", "running:stop", Takes.GROUPS,
             f"Have {article} finish what it holds, save its checkpoint and stop; waits until it has.",
             f"STOP {kind} {name}"),
        row(RUN, f"KILL {kind}", "running:kill", Takes.GROUPS,
             f"Have the Manager end {article} at once (SIGKILL). It shows ABENDED and isn't restarted before START.",
             f"KILL {kind} {name}"),
        row(RUN, f"STATUS {kind}", "running:status", Takes.GROUPS,
             f"Show the status of {article} in one line.", f"STATUS {kind} {name} ; STATUS {kind} * --json",
             *_TASKS, lists=True),
        row(RUN, f"STATS {kind}", "asking:stats", Takes.GROUPS,
             f"Ask {article} how many changes of each table it has handled.",
             f"STATS {kind} {name} ; STATS {kind} {name}, LATEST, REPORTRATE SEC ; STATS {kind} {name}, TABLE sales.*"
             + cdr_example, *_STATS, *cdr, lists=True, notes=_STATS_NOTES + cdr_note),
        row(RUN, f"SEND {kind}", "asking:send", Takes.GROUPS,
             f"Send one request to {article} and show the answer.",
             f"SEND {kind} {name}, STATUS ; SEND {kind} {name}, REPORT" + _SEND_EXAMPLES[kind].format(name, name),
             *_SENDS[kind], lists=True,
             notes="- FORCESTOP ends the process without finishing what it holds. Nothing is lost: the next START does "
             "that work again."
             "\n- GETPARAMINFO shows the parameter file as the process has read it, or one parameter of it."
             + _SEND_NOTES[kind]),
        row(RUN, f"WAIT {kind}", "waiting:wait", Takes.GROUPS,
             f"Wait until {article} has handled all that stood in its input when its turn came.",
             f"WAIT {kind} {name} ; WAIT {kind} *, SECONDS 300", Option("SECONDS", Takes.NUMBER), lists=True,
             notes="It waits 60 seconds if SECONDS is not given. After that it fails, and it also fails if a group is "
             "down, unless the Manager is about to start it again. When it ends well, an Extract has captured "
             "what was committed in the source before, a pump has sent what its trail had, and a Replicat has "
             "applied it. Several groups are waited for one after the other, those that feed others first. So "
             "after WAIT EXTRACT * in the source's home, and then WAIT REPLICAT * in the target's home, all "
             "changes that were committed before are applied. A Replicat with an initial load is waited for until its "
             "tables are copied; where the load of one has failed, WAIT fails. A commit that does not wait for the "
             "disk counts once the server has written it."),
        row(LOOK, f"INFO {kind}", "looking:info", Takes.GROUPS,
             f"Show where {article} stands. SHOWCH shows its checkpoint, SHOWCH n the last n; DETAIL trails, files.",
             f"INFO {kind} {name} ; INFO {kind} {name}, SHOWCH ; INFO {kind} {name}, DETAIL", *_INFO, lists=True,
             notes="A lag that can't be known is shown as UNKNOWN. This is so before the first checkpoint, if a "
             "running group's last checkpoint is old, or if something before the group is not seen to work."),
    )  # fmt: skip


ROWS = (
    *_for_each_kind("EXTRACT", "ext1", "an Extract"),
    *_for_each_kind("REPLICAT", "rep1", "a Replicat"),
    *_for_each_kind("ER", "*", "a group of either kind"),
    row(LOOK, "INFO ALL", "looking:info_all", None,
         "Show the Manager and every group: status, lag at the last checkpoint, and how old that is.",
         "INFO ALL ; INFO ALL, DETAIL ; INFO ALL --json",
         Option("TASKS", choice="which"), Option("ALLPROCESSES", choice="which"), Option("DETAIL"), lists=True,
         notes="DETAIL asks every running process, and shows each pipeline from source to target, also through homes "
         "that mgr.prm names (WEBHOME name, DIR path). For each stage it shows:"
         "\n- its lag, and its backlog in bytes and in seconds of the source's time,"
         "\n- its rates of the last ten seconds, and how busy it is,"
         "\n- whether it holds the others back, and why."
         "\nTASKS shows only tasks, which are groups that run once for an initial load (SOURCEISTABLE, SPECIALRUN). "
         "ALLPROCESSES shows all."),
)  # fmt: skip
