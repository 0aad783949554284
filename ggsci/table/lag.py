"""Commands on lag and heartbeats."""

from __future__ import annotations

from ggsci.table.grammar import Command, Option, Takes
from ggsci.table.row import LAG, row

_SETTINGS = (
    Option("FREQUENCY", Takes.NUMBER), Option("RETENTION_TIME", Takes.NUMBER), Option("PURGE_FREQUENCY", Takes.NUMBER),
)  # fmt: skip
_OPTIONS_NOTE = (
    "\n- FREQUENCY is the number of seconds between heartbeats, 0 to 7999: 60 if not given, and 0 pauses them."
    "\n- RETENTION_TIME is the number of days that history is kept: 30 if not given."
    "\n- PURGE_FREQUENCY is the number of days between two purges of older history: 1 if not given, and 0 is never."
)


def _lag(kind: str, name: str, article: str) -> Command:
    return row(LAG, f"LAG {kind}", "heartbeat:lag", Takes.GROUPS,
        f"Ask {article} how old the last change it handled is; with heartbeats also how old each path is.",
        f"LAG {kind} {name} ; LAG {kind} {name}, HISTORY", Option("HISTORY"), lists=True,
        notes="LAG is how long the last heartbeat took up to this group. AGE is how long ago that was. A figure is "
        "UNKNOWN if the next heartbeat is overdue, or if the figure crosses two clocks that nobody compared. HISTORY "
        "shows the least, mean and greatest lag of each day, from the target's heartbeat history. It needs DBLOGIN "
        "TARGETDB.")  # fmt: skip


ROWS = (
    _lag("EXTRACT", "ext1", "an Extract"),
    _lag("REPLICAT", "rep1", "a Replicat"),
    _lag("ER", "*", "a group of either kind"),
    row(LAG, "ADD HEARTBEATTABLE", "heartbeat:add", None,
         "Make the heartbeat tables in the database of DBLOGIN: the seed row in a source; table, history and views "
         "in a target.", "ADD HEARTBEATTABLE ; ADD HEARTBEATTABLE, FREQUENCY 10, RETENTION_TIME 7", *_SETTINGS,
         Option("TARGETONLY"),
         notes="Needs DBLOGIN, once for the source and once for each target. GLOBALS (GGSCHEMA, HEARTBEATTABLE) names "
         "the tables. Given again, it makes what is missing, also in publications of groups that were registered "
         "since." + _OPTIONS_NOTE + "\n- TARGETONLY makes no seed, also in a database that DBLOGIN SOURCEDB names."),
    row(LAG, "ALTER HEARTBEATTABLE", "heartbeat:alter", None,
         "Change how often heartbeats are made, or how long they are kept.",
         "ALTER HEARTBEATTABLE, FREQUENCY 10 ; ALTER HEARTBEATTABLE, FREQUENCY 0", *_SETTINGS,
         notes="Needs DBLOGIN. FREQUENCY counts in the source, the others count in the target. Running Extracts obey "
         "within a minute." + _OPTIONS_NOTE),
    row(LAG, "INFO HEARTBEATTABLE", "heartbeat:info", None,
         "Show the heartbeat tables of the database, their settings, and the last heartbeats.", "INFO HEARTBEATTABLE",
         lists=True, notes="Needs DBLOGIN."),
    row(LAG, "DELETE HEARTBEATTABLE", "heartbeat:delete", None,
         "Drop the heartbeat tables and views of the database. Asks first, unless the command ends with `!`.",
         "DELETE HEARTBEATTABLE!", notes="Needs DBLOGIN. Groups go on without heartbeats."),
)  # fmt: skip
