"""Commands on the home: its folders, parameter files and reports."""

from __future__ import annotations

from ggsci.commands.row import HOME, row
from ggsci.grammar import Kind, Option

_TAIL = Option("TAIL", Kind.NUMBER)
_AGED_TAIL = (Option("AGED", Kind.NUMBER), _TAIL)
_PAGED = "TAIL n: only the last n lines. At the prompt a long file is shown in $PAGER, less or more."

ROWS = (
    row(HOME, "CREATE SUBDIRS", "files:create_subdirs", None,
         "Make the folders of a home, and its id. Existing ones are left as they are.", "CREATE SUBDIRS"),
    row(HOME, "EDIT PARAMS", "files:edit_params", Kind.NAME,
         "Open a parameter file in the editor ($VISUAL, $EDITOR or vi), then check it.",
         "EDIT PARAMS ext1 ; EDIT PARAMS MGR",
         notes="The name is a group, MGR, or ./GLOBALS. Mistakes are listed after the editor closes."),
    row(HOME, "VIEW PARAMS", "files:view_params", Kind.NAME,
         "Print a parameter file; passwords are masked.", "VIEW PARAMS ext1"),
    row(HOME, "CHECK PARAMS", "files:check_params", Kind.NAME,
         "Check a parameter file whole, and list every mistake with its line.", "CHECK PARAMS ext1",
         notes="Also what START would find out, which may take some seconds: an Extract's source, a pump's trails and "
         "remote Manager, and for a Replicat tables and columns of the target, and expressions, which Spark analyses "
         "by the trail's definitions. Nothing is started or changed."),
    row(HOME, "VIEW REPORT", "files:view_report", Kind.NAME,
         "Print a group's report, an aged one (AGED 0 is the youngest, AGED 9 the oldest), or one by its file's name.",
         "VIEW REPORT ext1 ; VIEW REPORT ext1, AGED 0 ; VIEW REPORT ext1, TAIL 40 ; VIEW REPORT ./dirrpt/EXT1.0.rpt",
         *_AGED_TAIL, notes="`VIEW REPORT ext10` is the same as AGED 0, unless a group EXT10 exists. " + _PAGED),
    row(HOME, "VIEW DISCARD", "files:view_discard", Kind.NAME,
         "Print a Replicat's discard file: the changes that its target refused; or an aged one, as of reports.",
         "VIEW DISCARD rep1 ; VIEW DISCARD rep1, AGED 0", *_AGED_TAIL, notes=_PAGED),
    row(HOME, "REPLAY DISCARDS", "replaying:replay_discards", Kind.GROUP,
         "Apply the changes of a Replicat's discard file again, once what the target refused is mended.",
         "REPLAY DISCARDS rep1, DRYRUN ; REPLAY DISCARDS rep1 ; REPLAY DISCARDS rep1, FILE ./dirdsc/REP1.0.dsc",
         Option("FILE", Kind.FILE), Option("DRYRUN"), Option("NOCOMPARE"), lists=True,
         notes="In order, each record at most once ever. A record is kept, and told, if its target row is not as the "
         "change found it (NOCOMPARE: only whether there is one is looked at) or is refused again."),
    row(HOME, "VIEW GGSEVT", "files:view_ggsevt", None,
         "Print the home's event log, ggserr.log, or one that was rolled (AGED 0 is the youngest).",
         "VIEW GGSEVT ; VIEW GGSEVT TAIL 20 ; VIEW GGSEVT AGED 0", *_AGED_TAIL, notes=_PAGED),
)  # fmt: skip
