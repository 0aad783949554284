"""Commands that register groups, alter and delete them."""

from __future__ import annotations

from ggsci.commands.row import GROUPS, row
from ggsci.grammar import Kind, Option

_START_AT = (
    Option("EXTSEQNO", Kind.NUMBER),
    Option("EXTRBA", Kind.NUMBER),
)
_CSN = (
    Option("LSN", Kind.WORD, choice="csn"),
    Option("SCN", Kind.WORD, choice="csn"),
    Option("CSN", Kind.WORD, choice="csn"),
)
_BEGIN = (Option("BEGIN", Kind.TEXT), Option("CSN", Kind.WORD))
_DESC = Option("DESC", Kind.TEXT)
_POSITION_NOTE = (
    "EXTSEQNO and EXTRBA name a block border of the trail the group reads; EXTRBA 0 is the file's beginning. "
    "The position is checked before it is recorded."
)
_PUMP_NOTE = (
    "A pump's BEGIN (NOW, or a time of this machine's time zone) is looked up in its trail at once: the block of the "
    "first transaction committed then or later, in the trail's order; commit times may go back by an hour in it. A "
    "block has the time of the last transaction in it, and what else it holds goes along. "
)
_SAVE = Option("SAVE", Kind.NUMBER)
_CLEANUP_NOTE = "INFO ..., DETAIL shows the runs. The checkpoint stays as it is. A running group is refused."

ROWS = (
    row(GROUPS, "ADD EXTRACT", "groups:add_extract", Kind.GROUP,
         "Register an Extract on the database's log, or (EXTTRAILSOURCE) a pump on a trail.",
         "ADD EXTRACT ext1, TRANLOG, BEGIN NOW ; ADD EXTRACT pmp1, EXTTRAILSOURCE ./dirdat/lt",
         Option("TRANLOG", choice="source", needed=True), Option("EXTTRAILSOURCE", Kind.TRAIL, choice="source"),
         Option("BEGIN", Kind.TEXT), *_START_AT, *_CSN, _DESC,
         notes="An Extract begins where its slot was made (BEGIN NOW, the default), a pump at its trail's first file. "
         + _PUMP_NOTE + _POSITION_NOTE),
    row(GROUPS, "ALTER EXTRACT", "groups:alter_extract", Kind.GROUP,
         "Give a stopped Extract or pump another place, or a new trail file. Obeyed once, at the next START.",
         "ALTER EXTRACT pmp1, EXTSEQNO 3, EXTRBA 0 ; ALTER EXTRACT pmp1, BEGIN '2026-02-03 02:30:05' ; "
         "ALTER EXTRACT ext1, BEGIN NOW ; ALTER EXTRACT ext1, ETROLLOVER",
         Option("BEGIN", Kind.TEXT), *_START_AT, *_CSN, Option("ETROLLOVER"), _DESC,
         notes="An Extract on a log: EXTSEQNO and EXTRBA are Sequence # and RBA as SHOWCH shows them, BEGIN NOW is the "
         "log's end at the next START; PostgreSQL can't begin at a time, nor before what its slot has let go of. "
         + _PUMP_NOTE + _POSITION_NOTE),
    row(GROUPS, "CLEANUP EXTRACT", "cleaning:cleanup", Kind.GROUPS,
         "Forget the runs of stopped Extracts and pumps, but for the last one; SAVE n keeps n more.",
         "CLEANUP EXTRACT ext1 ; CLEANUP EXTRACT *, SAVE 5", _SAVE, notes=_CLEANUP_NOTE),
    row(GROUPS, "DELETE EXTRACT", "groups:delete", Kind.GROUPS,
         "Remove a stopped Extract or pump: its registration and checkpoint file. Trails stay.",
         "DELETE EXTRACT ext1 ; DELETE EXTRACT *!", notes="Wildcards ask first, unless the command ends with `!`."),
    row(GROUPS, "ADD REPLICAT", "groups:add_replicat", Kind.GROUP,
         "Register a Replicat on a trail.",
         "ADD REPLICAT rep1, EXTTRAIL ./dirdat/rt, CHECKPOINTTABLE gg.checkpoint",
         Option("EXTTRAIL", Kind.TRAIL, needed=True), Option("CHECKPOINTTABLE", Kind.TABLE), *_START_AT, *_BEGIN, _DESC,
         notes="Without CHECKPOINTTABLE, that of GLOBALS. A Replicat whose row is still in the target goes on there. "
         + _POSITION_NOTE),
    row(GROUPS, "ALTER REPLICAT", "groups:alter_replicat", Kind.GROUP,
         "Give a stopped Replicat another place in its trail. Obeyed once, at the next START.",
         "ALTER REPLICAT rep1, EXTSEQNO 0, EXTRBA 0 ; ALTER REPLICAT rep1, BEGIN '2026-02-03 02:30:05' ; "
         "ALTER REPLICAT rep1, CSN 0/16B3748", *_START_AT, *_BEGIN, _DESC,
         notes=_POSITION_NOTE + " BEGIN (NOW, or a time of this machine's time zone) and CSN name the first "
         "transaction to apply: one committed then or later, or of that CSN or a higher one, wherever it stands."),
    row(GROUPS, "CLEANUP REPLICAT", "cleaning:cleanup", Kind.GROUPS,
         "Forget the runs of stopped Replicats, but for the last one; SAVE n keeps n more.",
         "CLEANUP REPLICAT rep1 ; CLEANUP REPLICAT *, SAVE 5", _SAVE, notes=_CLEANUP_NOTE),
    row(GROUPS, "SYNCHRONIZE REPLICAT", "cleaning:synchronize", Kind.GROUPS,
         "Say where a Replicat stands, and why it never needs to be synchronized.", "SYNCHRONIZE REPLICAT rep1",
         lists=True, notes="Coordinated Replicats of GoldenGate have threads that stand at different places after a "
         "crash. A Replicat of Trailgate has one place: its row, committed with the data."),
    row(GROUPS, "DELETE REPLICAT", "groups:delete", Kind.GROUPS,
         "Remove a stopped Replicat; after DBLOGIN also its row in the checkpoint table.",
         "DELETE REPLICAT rep1",
         notes="Without DBLOGIN the row stays, and a Replicat of that name added again goes on where it stood."),
    row(GROUPS, "DELETE ER", "groups:delete", Kind.GROUPS, "DELETE for Extracts and Replicats.", "DELETE ER old*!"),
    row(GROUPS, "CLEANUP ER", "cleaning:cleanup", Kind.GROUPS, "CLEANUP for Extracts and Replicats.",
         "CLEANUP ER * ; CLEANUP ER *, SAVE 5", _SAVE),
)  # fmt: skip
