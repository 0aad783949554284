"""Commands on the home: its folders, parameter files and reports."""

from __future__ import annotations

from ggsci.table.grammar import Option, Takes
from ggsci.table.row import HOME, row

_TAIL = Option("TAIL", Takes.NUMBER)
_AGED_TAIL = (Option("AGED", Takes.NUMBER), _TAIL)
_PAGED = "TAIL n prints only the last n lines. At the prompt a long file is shown in $PAGER, less or more."

ROWS = (
    row(HOME, "CREATE SUBDIRS", "files:create_subdirs", None,
         "Make the folders of a home, and its id. Existing ones are left as they are.", "CREATE SUBDIRS"),
    row(HOME, "EDIT PARAMS", "files:edit_params", Takes.NAME,
         "Open a parameter file in the editor ($VISUAL, $EDITOR or vi), then check it.",
         "EDIT PARAMS ext1 ; EDIT PARAMS MGR",
         notes="The name is a group, MGR, or ./GLOBALS. Mistakes are listed after the editor closes."),
    row(HOME, "VIEW PARAMS", "files:view_params", Takes.NAME,
         "Print a parameter file; passwords are masked.", "VIEW PARAMS ext1"),
    row(HOME, "CHECK PARAMS", "files:check_params", Takes.NAME,
         "Check a parameter file whole, and list every mistake with its line.", "CHECK PARAMS ext1 ; CHECK PARAMS *",
         notes="A wildcard means the Manager and the groups that it matches. It also looks for what START would find "
         "out, which may take some seconds:\n"
         "- for an Extract at its source,\n"
         "- for a pump at its trails and the remote Manager,\n"
         "- for a Replicat at the target's tables and columns, and at expressions, which Spark analyses by the "
         "trail's definitions.\n"
         "Nothing is started or changed."),
    row(HOME, "VIEW REPORT", "files:view_report", Takes.NAME,
         "Print a group's report, an aged one (AGED 0 is the youngest, AGED 9 the oldest), or one by its file's name.",
         "VIEW REPORT ext1 ; VIEW REPORT ext1, AGED 0 ; VIEW REPORT ext1, TAIL 40 ; VIEW REPORT ./dirrpt/EXT1.0.rpt",
         *_AGED_TAIL, notes="`VIEW REPORT ext10` is the same as AGED 0, unless a group EXT10 exists. " + _PAGED),
    row(HOME, "VIEW DISCARD", "files:view_discard", Takes.NAME,
         "Print a Replicat's discard file: the changes that its target refused. AGED n prints an older one, as of "
         "reports.",
         "VIEW DISCARD rep1 ; VIEW DISCARD rep1, AGED 0", *_AGED_TAIL, notes=_PAGED),
    row(HOME, "REPLAY DISCARDS", "replaying:replay_discards", Takes.GROUP,
         "Apply the changes of a Replicat's discard file again, once what the target refused is mended.",
         "REPLAY DISCARDS rep1, DRYRUN ; REPLAY DISCARDS rep1 ; REPLAY DISCARDS rep1, FILE ./dirdsc/REP1.0.dsc",
         Option("FILE", Takes.FILE), Option("DRYRUN"), Option("NOCOMPARE"), lists=True,
         notes="The records are applied in their order, each at most once ever. A record is kept, and told, if it is "
         "refused again, or if its target row is not as the change found it. NOCOMPARE looks only at whether "
         "there is a row. DRYRUN does all of it, and then rolls it back. A transaction that was "
         "discarded whole is applied whole or not at all. Where the file has only a part of it, its CSN is told, and "
         "how many of its records are there."),
    row(HOME, "VIEW GGSEVT", "files:view_ggsevt", None,
         "Print the home's event log, ggserr.log, or one that was rolled (AGED 0 is the youngest).",
         "VIEW GGSEVT ; VIEW GGSEVT TAIL 20 ; VIEW GGSEVT AGED 0", *_AGED_TAIL, notes=_PAGED),
)  # fmt: skip
