"""Commands on lag and heartbeats."""

from __future__ import annotations

from ggsci.commands.row import LAG, row
from ggsci.grammar import Command, Kind, Option

_SETTINGS = (
    Option("FREQUENCY", Kind.NUMBER), Option("RETENTION_TIME", Kind.NUMBER), Option("PURGE_FREQUENCY", Kind.NUMBER),
)  # fmt: skip
_OPTIONS_NOTE = (
    "FREQUENCY: seconds between heartbeats, 0 to 7999, 0 pauses them; 60 if not given. RETENTION_TIME: days of "
    "history, 30. PURGE_FREQUENCY: days between purges of older ones, 1; 0 is never. "
)


def _lag(kind: str, name: str, article: str) -> Command:
    return row(LAG, f"LAG {kind}", "heartbeat:lag", Kind.GROUPS,
        f"Ask {article} how old the last change it handled is; with heartbeats also how old each path is.",
        f"LAG {kind} {name} ; LAG {kind} {name}, HISTORY", Option("HISTORY"), lists=True,
        notes="LAG is how long the last heartbeat took up to this group, AGE how long ago that was. A figure whose "
        "successors are overdue, or that crosses clocks which nobody compared, is UNKNOWN. HISTORY: the least, mean "
        "and greatest lag of each day, from the target's heartbeat history; needs DBLOGIN TARGETDB.")  # fmt: skip


ROWS = (
    _lag("EXTRACT", "ext1", "an Extract"),
    _lag("REPLICAT", "rep1", "a Replicat"),
    _lag("ER", "*", "a group of either kind"),
    row(LAG, "ADD HEARTBEATTABLE", "heartbeat:add", None,
         "Make the heartbeat tables in the database of DBLOGIN: the seed row in a source, table, history and views in "
         "a target.", "ADD HEARTBEATTABLE ; ADD HEARTBEATTABLE, FREQUENCY 10, RETENTION_TIME 7", *_SETTINGS,
         Option("TARGETONLY"),
         notes="Needs DBLOGIN, once for the source and once for each target. " + _OPTIONS_NOTE + "TARGETONLY: no seed, "
         "also in a database that DBLOGIN SOURCEDB names. GLOBALS (GGSCHEMA, HEARTBEATTABLE) names the tables. Again: "
         "makes what is missing, also in publications of groups registered since."),
    row(LAG, "ALTER HEARTBEATTABLE", "heartbeat:alter", None,
         "Change how often heartbeats are made, or how long they are kept.",
         "ALTER HEARTBEATTABLE, FREQUENCY 10 ; ALTER HEARTBEATTABLE, FREQUENCY 0", *_SETTINGS,
         notes="Needs DBLOGIN: FREQUENCY counts in the source, the others in the target. " + _OPTIONS_NOTE
         + "Running Extracts obey within a minute."),
    row(LAG, "INFO HEARTBEATTABLE", "heartbeat:info", None,
         "Show the heartbeat tables of the database, their settings, and the last heartbeats.", "INFO HEARTBEATTABLE",
         lists=True, notes="Needs DBLOGIN."),
    row(LAG, "DELETE HEARTBEATTABLE", "heartbeat:delete", None,
         "Drop the heartbeat tables and views of the database. Asks first, unless the command ends with `!`.",
         "DELETE HEARTBEATTABLE!", notes="Needs DBLOGIN. Groups go on without heartbeats."),
)  # fmt: skip
