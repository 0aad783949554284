"""The table of commands: every command's words, operand, options, help and examples, and where its code stands.

To add a command, add a row here, write the function it names, and run `python -m ggsci.help > docs/commands.md`.
Nothing is imported until a command runs, so the prompt is there at once.
"""

from __future__ import annotations

from ggsci.grammar import Command, Grammar, Kind, Option

HOME = "The home"
MANAGER = "Manager"
DATABASE = "Databases"
GROUPS = "Groups"
RUN = "Running groups"
LOOK = "Looking"
TRAILS = "Trails"
SHELL = "The shell"

SECTIONS = (HOME, MANAGER, DATABASE, GROUPS, TRAILS, RUN, LOOK, SHELL)

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


def _row(
    section: str, name: str, handler: str, operand: Kind | None, summary: str, examples: str, *options: Option,
    notes: str = "", lists: bool = False, optional: bool = False,
) -> Command:  # fmt: skip
    """One row; `name` and `examples` are written with blanks and ` ; ` for readability."""
    return Command(
        words=tuple(name.split()), handler=handler, summary=summary, examples=tuple(examples.split(" ; ")),
        operand=operand, operand_optional=optional, options=options, notes=notes, section=section, lists=lists,
    )  # fmt: skip


_HOME = (
    _row(HOME, "CREATE SUBDIRS", "files:create_subdirs", None,
         "Make the folders of a home, and its id. Existing ones are left as they are.", "CREATE SUBDIRS"),
    _row(HOME, "EDIT PARAMS", "files:edit_params", Kind.NAME,
         "Open a parameter file in the editor ($VISUAL, $EDITOR or vi), then check it.",
         "EDIT PARAMS ext1 ; EDIT PARAMS MGR",
         notes="The name is a group, MGR, or ./GLOBALS. Mistakes are listed after the editor closes."),
    _row(HOME, "VIEW PARAMS", "files:view_params", Kind.NAME,
         "Print a parameter file; passwords are masked.", "VIEW PARAMS ext1"),
    _row(HOME, "CHECK PARAMS", "files:check_params", Kind.NAME,
         "Check a parameter file whole, and list every mistake with its line.", "CHECK PARAMS ext1",
         notes="For a Replicat also what START would find out: tables and columns of the target, and expressions, "
         "which Spark analyses by the trail's definitions; that takes some seconds. Nothing is applied."),
    _row(HOME, "VIEW REPORT", "files:view_report", Kind.NAME,
         "Print a group's report; a digit behind the name asks for an aged one.",
         "VIEW REPORT ext1 ; VIEW REPORT ext10",
         notes="`VIEW REPORT ext10` is the report of EXT1 before the present one, unless a group EXT10 exists."),
    _row(HOME, "VIEW DISCARD", "files:view_discard", Kind.NAME,
         "Print a Replicat's discard file: the changes that its target refused.", "VIEW DISCARD rep1"),
    _row(HOME, "REPLAY DISCARDS", "replaying:replay_discards", Kind.GROUP,
         "Apply the changes of a Replicat's discard file again, once what the target refused is mended.",
         "REPLAY DISCARDS rep1, DRYRUN ; REPLAY DISCARDS rep1 ; REPLAY DISCARDS rep1, FILE ./dirdsc/REP1.0.dsc",
         Option("FILE", Kind.FILE), Option("DRYRUN"), Option("NOCOMPARE"), lists=True,
         notes="In order, each record at most once ever. A record is kept, and told, if its target row is not as the "
         "change found it (NOCOMPARE: only whether there is one is looked at) or is refused again."),
    _row(HOME, "VIEW GGSEVT", "files:view_ggsevt", None,
         "Print the home's event log, ggserr.log.", "VIEW GGSEVT"),
)  # fmt: skip

_MANAGER = (
    _row(MANAGER, "START MANAGER", "managing:start", None,
         "Start the Manager of this home; it goes on when ggsci exits.", "START MANAGER ; START MGR"),
    _row(MANAGER, "STOP MANAGER", "managing:stop", None,
         "Stop the Manager; the groups go on. Asks first, unless the command ends with `!`.", "STOP MANAGER!"),
    _row(MANAGER, "INFO MANAGER", "managing:info", None,
         "Show whether the Manager runs, and on which port.", "INFO MANAGER ; INFO MGR --json", lists=True),
    _row(MANAGER, "STATUS MANAGER", "managing:info", None, "The same as INFO MANAGER.", "STATUS MANAGER", lists=True),
    _row(MANAGER, "SEND MANAGER", "managing:send", None,
         "Ask the running Manager about its children, the Collectors' ports, or its purge rules.",
         "SEND MANAGER CHILDSTATUS ; SEND MANAGER GETPORTINFO",
         Option("CHILDSTATUS", choice="request", needed=True), Option("GETPORTINFO", choice="request"),
         Option("GETPURGEOLDEXTRACTS", choice="request"), lists=True),
)  # fmt: skip

_DATABASE = (
    _row(DATABASE, "DBLOGIN", "database:dblogin", None,
         "Log in to a database, for the commands that need one. The login lasts until EXIT.",
         "DBLOGIN SOURCEDB postgresql://gg@dbhost:5432/shop ; DBLOGIN USERID gg@dbhost:5432/shop, PASSWORD secret",
         Option("SOURCEDB", Kind.URL, choice="where"), Option("TARGETDB", Kind.URL, choice="where"),
         Option("USERID", Kind.WORD), Option("PASSWORD", Kind.TEXT, secret=True),
         notes="A missing password is asked for without an echo when standard input is a terminal; otherwise libpq's "
         "own ways (PGPASSFILE, trust) apply. It is never logged, nor kept on disk, nor seen on a command line. "
         "TARGETDB takes mysql:// and sqlite:/// URLs as well."),
    _row(DATABASE, "REGISTER EXTRACT", "database:register", Kind.GROUP,
         "Make the group's replication slot and publication in the source, and note them in its registration.",
         "REGISTER EXTRACT ext1", Option("DATABASE"), notes="Needs DBLOGIN."),
    _row(DATABASE, "UNREGISTER EXTRACT", "database:unregister", Kind.GROUP,
         "Drop the group's replication slot and publication.", "UNREGISTER EXTRACT ext1", Option("DATABASE"),
         notes="Needs DBLOGIN. Refused while the group runs. The slot keeps the source's log until it is dropped."),
    _row(DATABASE, "ADD TRANDATA", "database:add_trandata", Kind.TABLES,
         "Have the source log what a change of these tables needs (replica identity).",
         "ADD TRANDATA sales.* ; ADD TRANDATA sales.orders, ALLCOLS", Option("ALLCOLS"), lists=True,
         notes="Needs DBLOGIN. ALLCOLS: the whole old row of each update and delete (REPLICA IDENTITY FULL), whatever "
         "the columns are: GETUPDATEBEFORES needs it. DELETE TRANDATA takes it back."),
    _row(DATABASE, "INFO TRANDATA", "database:info_trandata", Kind.TABLES,
         "Show what the source logs for these tables.", "INFO TRANDATA sales.*", lists=True, notes="Needs DBLOGIN."),
    _row(DATABASE, "DELETE TRANDATA", "database:delete_trandata", Kind.TABLES,
         "Set these tables' logging back to the database's default.", "DELETE TRANDATA sales.orders",
         lists=True, notes="Needs DBLOGIN."),
    _row(DATABASE, "ADD DDLCAPTURE", "database:add_ddlcapture", None,
         "Have the source log schema changes of its tables (event triggers), for Extracts with the parameter DDL.",
         "ADD DDLCAPTURE",
         notes="Needs DBLOGIN SOURCEDB as a superuser. Again: mends, enables and renews it. docs/ddl.md tells more."),
    _row(DATABASE, "INFO DDLCAPTURE", "database:info_ddlcapture", None,
         "Show whether schema changes are logged, by which version, and how many tables are known.",
         "INFO DDLCAPTURE", lists=True, notes="Needs DBLOGIN SOURCEDB."),
    _row(DATABASE, "DELETE DDLCAPTURE", "database:delete_ddlcapture", None,
         "Drop the event triggers and what they know. Asks first, unless the command ends with `!`.",
         "DELETE DDLCAPTURE!",
         notes="Needs DBLOGIN SOURCEDB. Only when every Extract with DDL has read to the log's end: changes logged "
         "before are not believed after."),
    _row(DATABASE, "ADD CHECKPOINTTABLE", "database:add_checkpointtable", Kind.TABLE,
         "Make the table in which Replicats keep their place, in the target.", "ADD CHECKPOINTTABLE gg.checkpoint",
         optional=True, notes="Needs DBLOGIN. Without a name: CHECKPOINTTABLE of GLOBALS."),
    _row(DATABASE, "INFO CHECKPOINTTABLE", "database:info_checkpointtable", Kind.TABLE,
         "Show whether the table exists, and how many groups use it.", "INFO CHECKPOINTTABLE gg.checkpoint",
         lists=True, optional=True, notes="Needs DBLOGIN."),
    _row(DATABASE, "DELETE CHECKPOINTTABLE", "database:delete_checkpointtable", Kind.TABLE,
         "Drop the table. Every Replicat that used it loses its place. Asks first, unless the command ends with `!`.",
         "DELETE CHECKPOINTTABLE gg.checkpoint!", optional=True, notes="Needs DBLOGIN."),
)  # fmt: skip

_GROUPS = (
    _row(GROUPS, "ADD EXTRACT", "groups:add_extract", Kind.GROUP,
         "Register an Extract on the database's log, or (EXTTRAILSOURCE) a pump on a trail.",
         "ADD EXTRACT ext1, TRANLOG, BEGIN NOW ; ADD EXTRACT pmp1, EXTTRAILSOURCE ./dirdat/lt",
         Option("TRANLOG", choice="source", needed=True), Option("EXTTRAILSOURCE", Kind.TRAIL, choice="source"),
         Option("BEGIN", Kind.WORD), *_START_AT, *_CSN, _DESC,
         notes="An Extract begins where its slot was made (BEGIN NOW, the default). " + _POSITION_NOTE),
    _row(GROUPS, "ALTER EXTRACT", "groups:alter_extract", Kind.GROUP,
         "Give a stopped Extract or pump another place, or a new trail file. Obeyed once, at the next START.",
         "ALTER EXTRACT pmp1, EXTSEQNO 3, EXTRBA 0 ; ALTER EXTRACT ext1, ETROLLOVER",
         *_START_AT, *_CSN, Option("ETROLLOVER"), _DESC, notes=_POSITION_NOTE),
    _row(GROUPS, "DELETE EXTRACT", "groups:delete", Kind.GROUPS,
         "Remove a stopped Extract or pump: its registration and checkpoint file. Trails stay.",
         "DELETE EXTRACT ext1 ; DELETE EXTRACT *!", notes="Wildcards ask first, unless the command ends with `!`."),
    _row(GROUPS, "ADD REPLICAT", "groups:add_replicat", Kind.GROUP,
         "Register a Replicat on a trail.",
         "ADD REPLICAT rep1, EXTTRAIL ./dirdat/rt, CHECKPOINTTABLE gg.checkpoint",
         Option("EXTTRAIL", Kind.TRAIL, needed=True), Option("CHECKPOINTTABLE", Kind.TABLE), *_START_AT, *_BEGIN, _DESC,
         notes="Without CHECKPOINTTABLE, that of GLOBALS. A Replicat whose row is still in the target goes on there. "
         + _POSITION_NOTE),
    _row(GROUPS, "ALTER REPLICAT", "groups:alter_replicat", Kind.GROUP,
         "Give a stopped Replicat another place in its trail. Obeyed once, at the next START.",
         "ALTER REPLICAT rep1, EXTSEQNO 0, EXTRBA 0 ; ALTER REPLICAT rep1, BEGIN '2026-02-03 02:30:05' ; "
         "ALTER REPLICAT rep1, CSN 0/16B3748", *_START_AT, *_BEGIN, _DESC,
         notes=_POSITION_NOTE + " BEGIN (NOW, or a time of this machine's time zone) and CSN name the first "
         "transaction to apply: one committed then or later, or of that CSN or a higher one, wherever it stands."),
    _row(GROUPS, "DELETE REPLICAT", "groups:delete", Kind.GROUPS,
         "Remove a stopped Replicat; after DBLOGIN also its row in the checkpoint table.",
         "DELETE REPLICAT rep1",
         notes="Without DBLOGIN the row stays, and a Replicat of that name added again goes on where it stood."),
    _row(GROUPS, "DELETE ER", "groups:delete", Kind.GROUPS, "DELETE for Extracts and Replicats.", "DELETE ER old*!"),
)  # fmt: skip

_TRAILS = tuple(
    row
    for kind, where, path in (("EXTTRAIL", "this host", "./dirdat/lt"), ("RMTTRAIL", "the target host", "./dirdat/rt"))
    for row in (
        _row(TRAILS, f"ADD {kind}", "trailfiles:add", Kind.TRAIL,
             f"Register a trail on {where} that an Extract or pump writes.",
             f"ADD {kind} {path}, EXTRACT ext1, MEGABYTES 100",
             Option("EXTRACT", Kind.GROUP, needed=True), Option("MEGABYTES", Kind.NUMBER),
             notes="The path is the one in the parameter file; its last part is two characters. "
             "MEGABYTES is the size at which a new file begins: 1 to 2000, 100 if not given."),
        _row(TRAILS, f"DELETE {kind}", "trailfiles:delete", Kind.TRAIL,
             "Remove a trail's registration. Its files stay.", f"DELETE {kind} {path}",
             Option("EXTRACT", Kind.GROUP)),
        _row(TRAILS, f"INFO {kind}", "trailfiles:info", Kind.TRAILS,
             "Show registered trails, and where their writers stand.", f"INFO {kind} * ; INFO {kind} {path}",
             optional=True, lists=True),
    )
)  # fmt: skip

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
        _row(RUN, f"START {kind}", "running:start", Kind.GROUPS,
             f"Check the parameter file of {article}, then have the Manager start it; waits until it runs or fails.",
             f"START {kind} {name} ; START {kind} *" + begin_example, *begins,
             notes="Refused while the parameter file has mistakes: all are listed, with file and line." + begin_note),
        _row(RUN, f"STOP {kind}", "running:stop", Kind.GROUPS,
             f"Have {article} finish what it holds, save its checkpoint and stop; waits until it has.",
             f"STOP {kind} {name}"),
        _row(RUN, f"KILL {kind}", "running:kill", Kind.GROUPS,
             f"Have the Manager end {article} at once (SIGKILL). It shows ABENDED and isn't restarted before START.",
             f"KILL {kind} {name}"),
        _row(RUN, f"STATUS {kind}", "running:status", Kind.GROUPS,
             f"Show the status of {article} in one line.", f"STATUS {kind} {name} ; STATUS {kind} * --json",
             lists=True),
        _row(RUN, f"STATS {kind}", "running:stats", Kind.GROUPS,
             f"Ask {article} how many changes of each table it has handled.",
             f"STATS {kind} {name} ; STATS {kind} {name}, TABLE sales.*" + cdr_example,
             Option("TOTAL"), Option("TABLE", Kind.TABLES), *cdr, lists=True, notes=cdr_note),
        _row(RUN, f"LAG {kind}", "running:lag", Kind.GROUPS,
             f"Ask {article} how old the last change it handled is.", f"LAG {kind} {name}", lists=True),
        _row(RUN, f"SEND {kind}", "running:send", Kind.GROUPS,
             f"Send one request to {article} and show the answer.",
             f"SEND {kind} {name}, STATUS ; SEND {kind} {name}, REPORT" + send_example, *requests, lists=True,
             notes="FORCESTOP ends without finishing what is held; nothing is lost, the next START does it again."
             + send_note),
        _row(LOOK, f"INFO {kind}", "looking:info", Kind.GROUPS,
             f"Show where {article} stands. SHOWCH shows its checkpoint, SHOWCH n the last n; DETAIL trails, files.",
             f"INFO {kind} {name} ; INFO {kind} {name}, SHOWCH ; INFO {kind} {name}, DETAIL", *_INFO, lists=True,
             notes="A lag that can't be known is UNKNOWN: no checkpoint yet, or a running group's last is old."),
    )  # fmt: skip


_RUN = (
    *_for_each_kind("EXTRACT", "ext1", "an Extract"),
    *_for_each_kind("REPLICAT", "rep1", "a Replicat"),
    *_for_each_kind("ER", "*", "a group of either kind"),
)

_LOOK = (
    _row(LOOK, "INFO ALL", "looking:info_all", None,
         "Show the Manager and every group: status, lag at the last checkpoint, and how old that is.",
         "INFO ALL ; INFO ALL --json", lists=True),
)  # fmt: skip

_SHELL = (
    _row(SHELL, "HELP", "shellcmds:help_", Kind.REST, "List the commands, or explain those that begin with the words.",
         "HELP ; HELP ADD EXTRACT ; HELP MAP", optional=True,
         notes="Explains parameters too, and the options of MAP, by their names."),
    _row(SHELL, "OBEY", "shellcmds:obey", Kind.FILE, "Run the commands of a file, each with an echo.",
         "OBEY ./dirprm/setup.oby", notes="`&` at a line's end continues it; `--` begins a comment. "
         "Files may OBEY others, 16 deep."),
    _row(SHELL, "HISTORY", "shellcmds:history", Kind.NUMBER, "List the last commands.", "HISTORY ; HISTORY 5",
         optional=True, lists=True),
    _row(SHELL, "!", "shellcmds:again", Kind.REST,
         "Run a command of the history again: the last, number n, the n-th last (-n), or the last that begins so.",
         "! ; ! 3 ; ! -2 ; ! info", optional=True),
    _row(SHELL, "SHELL", "shellcmds:shell", Kind.REST, "Run a command of the operating system in the home.",
         "SHELL ls -l dirdat"),
    _row(SHELL, "SHOW", "shellcmds:show", None, "Show the home's paths.", "SHOW", lists=True),
    _row(SHELL, "VERSIONS", "shellcmds:versions", None, "Show the versions of Trailgate, Python and the system.",
         "VERSIONS", lists=True),
    _row(SHELL, "EXIT", "shellcmds:exit_", None, "Leave ggsci; the processes go on.", "EXIT ; QUIT"),
)  # fmt: skip

COMMANDS: tuple[Command, ...] = (*_HOME, *_MANAGER, *_DATABASE, *_GROUPS, *_TRAILS, *_RUN, *_LOOK, *_SHELL)
GRAMMAR = Grammar(COMMANDS)
