"""Commands that register groups, alter and delete them."""

from __future__ import annotations

from ggsci.table.grammar import Option, Takes
from ggsci.table.row import GROUPS, row
from trails.runtime.home.methods import METHODS

_START_AT = (
    Option("EXTSEQNO", Takes.NUMBER),
    Option("EXTRBA", Takes.NUMBER),
)
_LOG = (
    Option("LOGNUM", Takes.NUMBER),
    Option("LOGPOS", Takes.NUMBER),
    Option("GTID", Takes.TEXT),
)
_CSN = (
    Option("LSN", Takes.WORD, choice="csn"),
    Option("SCN", Takes.WORD, choice="csn"),
    Option("CSN", Takes.WORD, choice="csn"),
)
_BEGIN = (Option("BEGIN", Takes.TEXT), Option("CSN", Takes.WORD))
_DESC = Option("DESC", Takes.TEXT)
_POSITION_NOTE = (
    "EXTSEQNO and EXTRBA name the border of a block in the trail that the group reads. EXTRBA 0 is the file's "
    "beginning. The place is checked before it is recorded."
)
_PUMP_NOTE = (
    "A pump's BEGIN is NOW, or a time in this machine's time zone. It is looked up in the trail at once. In the "
    "trail's order, the first transaction that was committed then or later is taken: the pump begins with its block. "
    "A block has the time of its last transaction, and the whole block is sent. Commit times in a trail may go back "
    "by up to an hour. "
)
_LOG_NOTE = (
    "Where the source has a binary log (docs/extract.md), an Extract also begins at a time, as a pump does: the "
    "log is looked through at START. LOGNUM and LOGPOS are the number of a file of that log and a position in it. GTID "
    "is a set of transactions, in quotes: what comes behind them is captured. With other sources these are refused. "
    "After DBLOGIN SOURCEDB to the group's server the command looks for the place too, and refuses one that is not "
    "there. "
)
_SAVE = Option("SAVE", Takes.NUMBER)
_CLEANUP_NOTE = "INFO ..., DETAIL shows the runs. The checkpoint stays as it is. A running group is refused."

ROWS = (
    row(GROUPS, "ADD EXTRACT", "groups:add_extract", Takes.GROUP,
         "Register an Extract on the database's log, or (EXTTRAILSOURCE) a pump on a trail.",
         "ADD EXTRACT ext1, TRANLOG, BEGIN NOW ; ADD EXTRACT ext2, TRIGGERLOG ; "
         "ADD EXTRACT pmp1, EXTTRAILSOURCE ./dirdat/lt ; ADD EXTRACT load1, SOURCEISTABLE",
         *(Option(method, choice="source") for method in METHODS),
         Option("EXTTRAILSOURCE", Takes.TRAIL, choice="source"), Option("SOURCEISTABLE", choice="source"),
         Option("BEGIN", Takes.TEXT), *_START_AT, *_CSN, *_LOG, _DESC,
         notes="TRANLOG is the usual way to capture, and needs no word. TRIGGERLOG reads a queue that triggers fill, "
         "where a source does not give its log (docs/trigger-source.md). SOURCEISTABLE makes a task: it reads tables "
         "once, as of one CSN, into EXTFILE or to another host (RMTFILE, RMTTASK), and ends (docs/initial-load.md). "
         "An Extract begins where it was registered (BEGIN NOW, the default). "
         + _LOG_NOTE + "A pump begins at its trail's first "
         "file. "
         + _PUMP_NOTE + _POSITION_NOTE),
    row(GROUPS, "ALTER EXTRACT", "groups:alter_extract", Takes.GROUP,
         "Give a stopped Extract or pump another place, or a new trail file. Obeyed once, at the next START.",
         "ALTER EXTRACT pmp1, EXTSEQNO 3, EXTRBA 0 ; ALTER EXTRACT pmp1, BEGIN '2026-02-03 02:30:05' ; "
         "ALTER EXTRACT ext1, BEGIN NOW ; ALTER EXTRACT ext1, LOGNUM 7, LOGPOS 1548 ; "
         "ALTER EXTRACT ext1, GTID '0-1-2600' ; ALTER EXTRACT ext1, ETROLLOVER",
         Option("BEGIN", Takes.TEXT), *_START_AT, *_CSN, *_LOG, Option("ETROLLOVER"), _DESC,
         notes="For an Extract on a log, EXTSEQNO and EXTRBA are Sequence # and RBA as SHOWCH shows them. BEGIN NOW is "
         "the log's end at the next START. Most logs are found by place, not by time, and the source may have let go "
         "of an older one. A place further ahead leaves changes out: the command says so and asks, unless it ends with "
         "`!`. The hole is noted in ggserr.log, in the report and in the trail (docs/recovery.md).\n"
         + _LOG_NOTE + "\n" + _PUMP_NOTE + "\n" + _POSITION_NOTE),
    row(GROUPS, "CLEANUP EXTRACT", "cleaning:cleanup", Takes.GROUPS,
         "Forget the runs of stopped Extracts and pumps, but for the last one; SAVE n keeps n more.",
         "CLEANUP EXTRACT ext1 ; CLEANUP EXTRACT *, SAVE 5", _SAVE, notes=_CLEANUP_NOTE),
    row(GROUPS, "DELETE EXTRACT", "groups:delete", Takes.GROUPS,
         "Remove a stopped Extract or pump: its registration and checkpoint file. Trails stay.",
         "DELETE EXTRACT ext1 ; DELETE EXTRACT *!", notes="Wildcards ask first, unless the command ends with `!`."),
    row(GROUPS, "ADD REPLICAT", "groups:add_replicat", Takes.GROUP,
         "Register a Replicat on a trail, or on a file of SOURCEISTABLE.",
         "ADD REPLICAT rep1, EXTTRAIL ./dirdat/rt, CHECKPOINTTABLE gg.checkpoint ; "
         "ADD REPLICAT load2, SPECIALRUN, EXTFILE ./dirdat/in, CHECKPOINTTABLE gg.checkpoint",
         Option("SPECIALRUN"), Option("EXTTRAIL", Takes.TRAIL, choice="source"),
         Option("EXTFILE", Takes.TRAIL, choice="source"), Option("CHECKPOINTTABLE", Takes.TABLE),
         *_START_AT, *_BEGIN, _DESC,
         notes="Without CHECKPOINTTABLE, the table is that of GLOBALS. A Replicat whose row is still in the target "
         "goes on where the row says. With EXTFILE it is a task, as SPECIALRUN says too: it applies that file to its "
         "end, each row exactly once, and ends (docs/initial-load.md). SPECIALRUN without EXTFILE applies what RMTTASK "
         "of an Extract sends to it, and the Manager starts it then. "
         + _POSITION_NOTE),
    row(GROUPS, "ALTER REPLICAT", "groups:alter_replicat", Takes.GROUP,
         "Give a stopped Replicat another place in its trail. Obeyed once, at the next START.",
         "ALTER REPLICAT rep1, EXTSEQNO 0, EXTRBA 0 ; ALTER REPLICAT rep1, BEGIN '2026-02-03 02:30:05' ; "
         "ALTER REPLICAT rep1, CSN 0/16B3748", *_START_AT, *_BEGIN, _DESC,
         notes=_POSITION_NOTE + " BEGIN and CSN name the first transaction to apply. The next START looks for it in "
         "the whole trail:"
         "\n- BEGIN is NOW, or a time in this machine's time zone: the first transaction that was committed then or "
         "later."
         "\n- CSN: the first transaction that has this CSN or a higher one."
         "\nA place further ahead leaves transactions out: the command says so and asks, unless it ends with `!`."),
    row(GROUPS, "CLEANUP REPLICAT", "cleaning:cleanup", Takes.GROUPS,
         "Forget the runs of stopped Replicats, but for the last one; SAVE n keeps n more.",
         "CLEANUP REPLICAT rep1 ; CLEANUP REPLICAT *, SAVE 5", _SAVE, notes=_CLEANUP_NOTE),
    row(GROUPS, "SYNCHRONIZE REPLICAT", "cleaning:synchronize", Takes.GROUPS,
         "Say where a Replicat stands, and why it never needs to be synchronized.", "SYNCHRONIZE REPLICAT rep1",
         lists=True, notes="Coordinated Replicats of GoldenGate have threads that stand at different places after a "
         "crash. A Replicat of Trailgate has one place: its row, committed with the data."),
    row(GROUPS, "DELETE REPLICAT", "groups:delete", Takes.GROUPS,
         "Remove a stopped Replicat, and after DBLOGIN also its row in the checkpoint table.",
         "DELETE REPLICAT rep1",
         notes="Without DBLOGIN the row stays. If a Replicat of that name is added again, it goes on where the row "
         "says."),
    row(GROUPS, "DELETE ER", "groups:delete", Takes.GROUPS, "DELETE for Extracts and Replicats.", "DELETE ER old*!"),
    row(GROUPS, "CLEANUP ER", "cleaning:cleanup", Takes.GROUPS, "CLEANUP for Extracts and Replicats.",
         "CLEANUP ER * ; CLEANUP ER *, SAVE 5", _SAVE),
)  # fmt: skip
