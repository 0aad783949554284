"""Commands of a table's life: INSTANTIATE, ADD, RELOAD, PAUSE and RESUME TABLE, INFO TABLES, COMPARE."""

from __future__ import annotations

from ggsci.table.grammar import Option, Takes
from ggsci.table.row import LOOK, RUN, row

ROWS = (
    row(RUN, "INSTANTIATE REPLICAT", "loading:instantiate", Takes.GROUP,
         "Have a Replicat load the tables that its MAPs take: their rows of now, and then what changes.",
         "INSTANTIATE REPLICAT rep1 ; INSTANTIATE REPLICAT rep1, CREATE ; "
         "INSTANTIATE REPLICAT rep1, TABLE sales.*, TRUNCATE !",
         Option("TABLE", Takes.TABLES), Option("CREATE"), Option("TRUNCATE"), lists=True,
         notes="The parameter file's SOURCEDB says where the rows are. TABLE names source tables; without it all are "
         "meant. CREATE makes target tables that are missing. A target table with rows is refused, unless TRUNCATE "
         "empties it. TRUNCATE asks first, unless the command ends with `!`, and needs a stopped Replicat."
         "\nNothing is copied by the command. START REPLICAT does that, or the Replicat that runs. Tables that are "
         "loaded already are left alone. docs/initial-load.md tells more."),
    row(RUN, "ADD TABLE", "loading:add_table", Takes.TABLES,
         "Have a Replicat load a table that its MAPs take and that it has not loaded yet, while all others go on.",
         "ADD TABLE sales.orders, REPLICAT rep1, CREATE ; ADD TABLE sales.orders, REPLICAT rep1, TRUNCATE !",
         Option("REPLICAT", Takes.GROUP, needed=True), Option("CREATE"), Option("TRUNCATE"), lists=True,
         notes="It is INSTANTIATE REPLICAT with that TABLE. The table must be captured by then."),
    row(RUN, "RELOAD TABLE", "loading:reload_table", Takes.TABLES,
         "Empty a target table, and have it loaded anew, while the Replicat runs and all other tables go on.",
         "RELOAD TABLE sales.orders, REPLICAT rep1 ; RELOAD TABLE sales.*, REPLICAT rep1 !",
         Option("REPLICAT", Takes.GROUP, needed=True), lists=True,
         notes="The table is one that INSTANTIATE or ADD TABLE has loaded, and it is live or has failed. It asks "
         "first, unless the command ends with `!`. Emptied is only what can be read again at the source, and what no "
         "other table or group fills. What is being loaded by then is left alone, so the command may be given again. "
         "docs/initial-load.md tells more."),
    row(RUN, "PAUSE TABLE", "tablelife:pause", Takes.TABLE,
         "Have a Replicat leave one table behind, while all others go on.",
         "PAUSE TABLE sales.orders, REPLICAT rep1 ; PAUSE TABLE sales.orders, REPLICAT rep1, MAXKEEPDAYS 2",
         Option("REPLICAT", Takes.GROUP, needed=True), Option("MAXKEEPHOURS", Takes.NUMBER, choice="limit"),
         Option("MAXKEEPDAYS", Takes.NUMBER, choice="limit"), lists=True,
         notes="The table is one of the source, without wildcards. Its changes stay in the trail, whose files the "
         "Manager keeps for it: for 7 days, unless MAXKEEPHOURS or MAXKEEPDAYS says how long. After that the table "
         "has failed, and must be loaded anew. It holds through STOP, START and any crash, and a stopped Replicat "
         "takes it too. docs/tables.md tells more."),
    row(RUN, "RESUME TABLE", "tablelife:resume", Takes.TABLE,
         "Have a paused table catch up: each change that it missed is applied, exactly once.",
         "RESUME TABLE sales.orders, REPLICAT rep1 ; RESUME TABLE sales.orders, REPLICAT rep1, SKIP !",
         Option("REPLICAT", Takes.GROUP, needed=True), Option("SKIP"), lists=True,
         notes="Replicat takes turns between this table and all others. An error pauses the table again, where it has "
         "come to. SKIP gives up what the table missed, and goes on at the group's place: for a table that you have "
         "loaded by hand. It asks first, unless the command ends with `!`. docs/tables.md tells more."),
    row(LOOK, "INFO TABLES", "loading:info_tables", Takes.GROUP,
         "Show the tables that a Replicat loads or has loaded, or leaves behind: state, chunks, rows, rate, time left.",
         "INFO TABLES rep1 ; INFO TABLES rep1 --json", lists=True,
         notes="The states of a load are waiting, copying, catching up, live and failed; else a table is paused or "
         "resuming. It asks the target, whether or not the Replicat runs; rates and times left are known while it "
         "runs. docs/initial-load.md and docs/tables.md tell more."),
    row(RUN, "COMPARE REPLICAT", "comparing:compare", Takes.GROUP,
         "Compare the rows of a Replicat's tables in source and target while changes flow, and name those that differ.",
         "COMPARE REPLICAT rep1 ; COMPARE REPLICAT rep1, TABLE sales.* ; COMPARE REPLICAT rep1, SAMPLE 10 ; "
         "COMPARE REPLICAT rep1, TABLE sales.orders, VALUES ; COMPARE REPLICAT rep1, RATE 20000 ; "
         "COMPARE REPLICAT rep1, TABLE sales.orders, REPAIR",
         Option("TABLE", Takes.TABLES), Option("SAMPLE", Takes.NUMBER), Option("RATE", Takes.NUMBER),
         Option("VALUES"), Option("REPAIR"), lists=True,
         notes="The parameter file's SOURCEDB says where the source is. TABLE names source tables; without it all are "
         "meant. SAMPLE n reads about n percent of each table. RATE n reads n rows a second of the source at most, on "
         "average. A row that differs is told only once it is sure that no change of it is on its way. Rows are told "
         "by their keys; VALUES tells what they have."
         "\nREPAIR then makes those rows of the target what the source has, while changes are applied. It asks first, "
         "unless the command ends with `!`. Without it nothing is changed, and never at the source."
         "\nThe command fails where rows differ and were not repaired, or where it can't be known. The report is "
         "dirrpt/COMPARE-REP1.rpt. docs/compare.md tells more."),
)  # fmt: skip
