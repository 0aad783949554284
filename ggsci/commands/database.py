"""Commands that log in to a database."""

from __future__ import annotations

from ggsci.commands.row import DATABASE, row
from ggsci.grammar import Kind, Option

ROWS = (
    row(DATABASE, "DBLOGIN", "database:dblogin", None,
         "Log in to a database, for the commands that need one. The login lasts until EXIT.",
         "DBLOGIN SOURCEDB postgresql://gg@dbhost:5432/shop ; DBLOGIN USERID gg@dbhost:5432/shop, PASSWORD secret ; "
         "DBLOGIN SOURCEDB postgresql://dbhost:5432/shop, USERIDALIAS capture",
         Option("SOURCEDB", Kind.URL, choice="where"), Option("TARGETDB", Kind.URL, choice="where"),
         Option("USERID", Kind.WORD, choice="who"), Option("PASSWORD", Kind.TEXT, secret=True),
         Option("USERIDALIAS", Kind.WORD, choice="who"), Option("DOMAIN", Kind.WORD),
         notes="A missing password is asked for without an echo when standard input is a terminal; otherwise libpq's "
         "own ways (PGPASSFILE, trust) apply. It is never logged, nor kept on disk, nor seen on a command line. "
         "TARGETDB takes mysql:// and sqlite:/// URLs as well. USERIDALIAS: user and password are those of the alias "
         "in the credential store; without a URL, its user goes on @host:port/database."),
    row(DATABASE, "REGISTER EXTRACT", "database:register", Kind.GROUP,
         "Make the group's replication slot and publication in the source, and note them in its registration.",
         "REGISTER EXTRACT ext1", Option("DATABASE"), notes="Needs DBLOGIN."),
    row(DATABASE, "UNREGISTER EXTRACT", "database:unregister", Kind.GROUP,
         "Drop the group's replication slot and publication.", "UNREGISTER EXTRACT ext1", Option("DATABASE"),
         notes="Needs DBLOGIN. Refused while the group runs. The slot keeps the source's log until it is dropped."),
    row(DATABASE, "ADD TRANDATA", "database:add_trandata", Kind.TABLES,
         "Have the source log what a change of these tables needs (replica identity).",
         "ADD TRANDATA sales.* ; ADD TRANDATA sales.orders, ALLCOLS", Option("ALLCOLS"), lists=True,
         notes="Needs DBLOGIN. ALLCOLS: the whole old row of each update and delete (REPLICA IDENTITY FULL), whatever "
         "the columns are: GETUPDATEBEFORES needs it. DELETE TRANDATA takes it back."),
    row(DATABASE, "INFO TRANDATA", "database:info_trandata", Kind.TABLES,
         "Show what the source logs for these tables.", "INFO TRANDATA sales.*", lists=True, notes="Needs DBLOGIN."),
    row(DATABASE, "DELETE TRANDATA", "database:delete_trandata", Kind.TABLES,
         "Set these tables' logging back to the database's default.", "DELETE TRANDATA sales.orders",
         lists=True, notes="Needs DBLOGIN."),
    row(DATABASE, "ADD DDLCAPTURE", "database:add_ddlcapture", None,
         "Have the source log schema changes of its tables (event triggers), for Extracts with the parameter DDL.",
         "ADD DDLCAPTURE",
         notes="Needs DBLOGIN SOURCEDB as a superuser. Again: mends, enables and renews it. docs/ddl.md tells more."),
    row(DATABASE, "INFO DDLCAPTURE", "database:info_ddlcapture", None,
         "Show whether schema changes are logged, by which version, and how many tables are known.",
         "INFO DDLCAPTURE", lists=True, notes="Needs DBLOGIN SOURCEDB."),
    row(DATABASE, "DELETE DDLCAPTURE", "database:delete_ddlcapture", None,
         "Drop the event triggers and what they know. Asks first, unless the command ends with `!`.",
         "DELETE DDLCAPTURE!",
         notes="Needs DBLOGIN SOURCEDB. Only when every Extract with DDL has read to the log's end: changes logged "
         "before are not believed after."),
    row(DATABASE, "ADD CHECKPOINTTABLE", "database:add_checkpointtable", Kind.TABLE,
         "Make the table in which Replicats keep their place, in the target.", "ADD CHECKPOINTTABLE gg.checkpoint",
         optional=True, notes="Needs DBLOGIN. Without a name: CHECKPOINTTABLE of GLOBALS."),
    row(DATABASE, "INFO CHECKPOINTTABLE", "database:info_checkpointtable", Kind.TABLE,
         "Show whether the table exists, and how many groups use it.", "INFO CHECKPOINTTABLE gg.checkpoint",
         lists=True, optional=True, notes="Needs DBLOGIN."),
    row(DATABASE, "CLEANUP CHECKPOINTTABLE", "cleaning:cleanup_checkpointtable", Kind.TABLE,
         "Remove the rows of Replicats that this home had once and has no more. Asks first, unless it ends with `!`.",
         "CLEANUP CHECKPOINTTABLE gg.checkpoint!", lists=True, optional=True,
         notes="Needs DBLOGIN. Rows of other homes' groups are left alone. A Replicat of such a name, added again, "
         "begins anew in place of going on where it stood."),
    row(DATABASE, "LIST TABLES", "tables:list_tables", Kind.TABLES,
         "List the tables of the database that DBLOGIN reached, by name.", "LIST TABLES sales.* ; LIST TABLES",
         lists=True, optional=True, notes="Needs DBLOGIN. Only tables that can be captured or applied to."),
    row(DATABASE, "DELETE CHECKPOINTTABLE", "database:delete_checkpointtable", Kind.TABLE,
         "Drop the table. Every Replicat that used it loses its place. Asks first, unless the command ends with `!`.",
         "DELETE CHECKPOINTTABLE gg.checkpoint!", optional=True, notes="Needs DBLOGIN."),
)  # fmt: skip
