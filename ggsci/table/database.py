"""Commands that log in to a database."""

from __future__ import annotations

from ggsci.table.grammar import Option, Takes
from ggsci.table.row import DATABASE, row
from trails.runtime.home.methods import METHODS

_METHODS = tuple(Option(method, choice="method") for method in METHODS)

ROWS = (
    row(DATABASE, "DBLOGIN", "database:dblogin", None,
         "Log in to a database, for the commands that need one. The login lasts until EXIT.",
         "DBLOGIN USERID gg@dbhost:5432/shop, PASSWORD secret ; DBLOGIN USERIDALIAS capture",
         Option("SOURCEDB", Takes.URL, choice="where"), Option("TARGETDB", Takes.URL, choice="where"),
         Option("USERID", Takes.WORD, choice="who"), Option("PASSWORD", Takes.TEXT, secret=True),
         Option("USERIDALIAS", Takes.WORD, choice="who"), Option("DOMAIN", Takes.WORD),
         notes="A missing password is asked for without an echo, if the database wants one and standard input is a "
         "terminal. Before that, the database's own ways are tried. A password is never logged, nor kept on disk, "
         "nor seen on a command line. HELP PARAM SOURCEDB and HELP PARAM TARGETDB tell how a URL is written. "
         "With USERIDALIAS, user and password are those of the alias in the credential store. If no URL is "
         "given, the alias's user must end with @host:port/database."),
    row(DATABASE, "REGISTER EXTRACT", "database:register", Takes.GROUP,
         "Make what the source keeps changes in (a replication slot and a publication, or a queue), and note it.",
         "REGISTER EXTRACT ext1", Option("DATABASE"), notes="Needs DBLOGIN."),
    row(DATABASE, "UNREGISTER EXTRACT", "database:unregister", Takes.GROUP,
         "Drop what REGISTER EXTRACT made.", "UNREGISTER EXTRACT ext1", Option("DATABASE"),
         notes="Needs DBLOGIN. It is refused while the group runs. A slot keeps the source's log until it is dropped."),
    row(DATABASE, "ADD TRANDATA", "database:trandata", Takes.TABLES,
         "Have the source log what a change of these tables needs (replica identity).",
         "ADD TRANDATA sales.* ; ADD TRANDATA sales.orders, ALLCOLS ; ADD TRANDATA sales.*, TRIGGERLOG",
         Option("ALLCOLS"), *_METHODS, lists=True,
         notes="Needs DBLOGIN. With ALLCOLS the source logs the whole old row of each update and delete (REPLICA "
         "IDENTITY FULL). GETUPDATEBEFORES needs that. DELETE TRANDATA takes it back. With TRIGGERLOG it makes the "
         "triggers for Extracts that were added with TRIGGERLOG (docs/trigger-source.md)."),
    row(DATABASE, "INFO TRANDATA", "database:trandata", Takes.TABLES,
         "Show what the source logs for these tables.", "INFO TRANDATA sales.* ; INFO TRANDATA sales.*, TRIGGERLOG",
         *_METHODS, lists=True, notes="Needs DBLOGIN. TRIGGERLOG shows the triggers."),
    row(DATABASE, "DELETE TRANDATA", "database:trandata", Takes.TABLES,
         "Set these tables' logging back to the database's default.", "DELETE TRANDATA sales.orders ; "
         "DELETE TRANDATA sales.orders, TRIGGERLOG",
         *_METHODS, lists=True, notes="Needs DBLOGIN. TRIGGERLOG drops the triggers."),
    row(DATABASE, "ADD DDLCAPTURE", "database:add_ddlcapture", None,
         "Have the source log schema changes of its tables (event triggers), for Extracts with the parameter DDL.",
         "ADD DDLCAPTURE",
         notes="Needs DBLOGIN SOURCEDB as a superuser. Given again, it mends, enables and renews the triggers. "
         "docs/ddl.md tells more."),
    row(DATABASE, "INFO DDLCAPTURE", "database:info_ddlcapture", None,
         "Show whether schema changes are logged, by which version, and how many tables are known.",
         "INFO DDLCAPTURE", lists=True, notes="Needs DBLOGIN SOURCEDB."),
    row(DATABASE, "DELETE DDLCAPTURE", "database:delete_ddlcapture", None,
         "Drop the event triggers and what they know. Asks first, unless the command ends with `!`.",
         "DELETE DDLCAPTURE!",
         notes="Needs DBLOGIN SOURCEDB. Give it only when every Extract with DDL has read to the log's end. Schema "
         "changes that were logged before are not believed afterwards."),
    row(DATABASE, "ADD CHECKPOINTTABLE", "database:add_checkpointtable", Takes.TABLE,
         "Make the table in which Replicats keep their place, in the target.", "ADD CHECKPOINTTABLE gg.checkpoint",
         optional=True, notes="Needs DBLOGIN. Without a name, the table is CHECKPOINTTABLE of GLOBALS."),
    row(DATABASE, "INFO CHECKPOINTTABLE", "database:info_checkpointtable", Takes.TABLE,
         "Show whether the table exists, and how many groups use it.", "INFO CHECKPOINTTABLE gg.checkpoint",
         lists=True, optional=True, notes="Needs DBLOGIN."),
    row(DATABASE, "CLEANUP CHECKPOINTTABLE", "cleaning:cleanup_checkpointtable", Takes.TABLE,
         "Remove the rows of Replicats that this home had once and has no more. Asks first, unless it ends with `!`.",
         "CLEANUP CHECKPOINTTABLE gg.checkpoint!", lists=True, optional=True,
         notes="Needs DBLOGIN. Rows of other homes' groups are left alone. If a Replicat of such a name is added "
         "again, it begins anew. It does not go on where it stood."),
    row(DATABASE, "LIST TABLES", "database:list_tables", Takes.TABLES,
         "List the tables of the database that DBLOGIN reached, by name.", "LIST TABLES sales.* ; LIST TABLES",
         lists=True, optional=True, notes="Needs DBLOGIN. Only tables that can be captured or applied to are listed."),
    row(DATABASE, "DELETE CHECKPOINTTABLE", "database:delete_checkpointtable", Takes.TABLE,
         "Drop the table. Every Replicat that used it loses its place. Asks first, unless the command ends with `!`.",
         "DELETE CHECKPOINTTABLE gg.checkpoint!", optional=True, notes="Needs DBLOGIN."),
)  # fmt: skip
