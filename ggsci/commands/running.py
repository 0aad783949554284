"""Commands that every kind of group has: START, STOP, STATS, SEND, INFO, ..."""

from __future__ import annotations

from ggsci.commands.row import LOOK, RUN, row
from ggsci.grammar import Command, Kind, Option

_INFO = (Option("DETAIL"), Option("SHOWCH", Kind.NUMBER, optional_value=True))
_REQUESTS = tuple(
    Option(name, choice="request", needed=True)
    for name in ("STATUS", "STOP", "FORCESTOP", "GETLAG", "LOGEND", "REPORT", "ROLLOVER", "GETPARAMINFO")
)
_COLLIDE = tuple(
    Option(name, Kind.TABLES, optional_value=True, choice="request", needed=True)
    for name in ("HANDLECOLLISIONS", "NOHANDLECOLLISIONS")
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
    cdr_note = "REPORTCDR adds what conflict detection and resolution counted." if cdr else ""
    requests = _REQUESTS if kind != "REPLICAT" else (*(o for o in _REQUESTS if o.name != "ROLLOVER"), *_COLLIDE)
    send_example = f" ; SEND {kind} {name}, NOHANDLECOLLISIONS sales.*" if kind == "REPLICAT" else ""
    send_note = (
        " HANDLECOLLISIONS and NOHANDLECOLLISIONS take source tables (all, if none are named), and hold until the "
        "process ends: the parameter file holds again at the next START."
    ) if kind == "REPLICAT" else ""  # fmt: skip
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
             lists=True),
        row(RUN, f"STATS {kind}", "running:stats", Kind.GROUPS,
             f"Ask {article} how many changes of each table it has handled.",
             f"STATS {kind} {name} ; STATS {kind} {name}, TABLE sales.*" + cdr_example,
             Option("TOTAL"), Option("TABLE", Kind.TABLES), *cdr, lists=True, notes=cdr_note),
        row(RUN, f"LAG {kind}", "running:lag", Kind.GROUPS,
             f"Ask {article} how old the last change it handled is.", f"LAG {kind} {name}", lists=True),
        row(RUN, f"SEND {kind}", "running:send", Kind.GROUPS,
             f"Send one request to {article} and show the answer.",
             f"SEND {kind} {name}, STATUS ; SEND {kind} {name}, REPORT" + send_example, *requests, lists=True,
             notes="FORCESTOP ends without finishing what is held; nothing is lost, the next START does it again."
             + send_note),
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
