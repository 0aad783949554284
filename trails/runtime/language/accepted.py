"""Parameters and options of GoldenGate that change nothing here, and those that would change data and are refused.

Rule: a parameter file that was written for GoldenGate loads. What has no meaning here is accepted, and said in the
report and by CHECK PARAMS with its reason; it is never a thing whose absence would give the target other data. What
would give it other data, and is not supported, is refused by its name, with what to do instead.
A program's table of keywords begins with these, so one that gets a meaning there loses its row here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from trails.runtime.language.acceptedoptions import LOAD, LOOPS, OPTIONS, ORDER, SQLEXEC, refuse_options, stripped
from trails.runtime.language.params import Keyword, Statement, table

CODE = "TG-02246"
"""The message in a report."""


def _nothing(statement: Statement) -> None:
    """Whatever its arguments are, they say nothing."""


def _refuse(reason: str) -> Callable[[Statement], None]:
    def parse(statement: Statement) -> None:
        raise statement.wrong(f"is not supported: {reason}")

    return parse


def _accept(names: str, reason: str, shape: str = "", *, only: str = "", but: str = "") -> tuple[Keyword, ...]:
    """Keywords without a meaning, for one reason. `only`: a pattern of the arguments for which that is true; `but`: why
    others are refused.
    """

    def parse(statement: Statement) -> None:
        if not re.fullmatch(only, " ".join(statement.text.split()), re.IGNORECASE):
            raise statement.error(f"{shape}, as {but}")

    return tuple(
        Keyword(
            name, shape, f"Accepted, without meaning here: {reason}.", f"{name} {_example(shape)}".rstrip(),
            parse if only else _nothing, repeatable=True, ignored=reason,
        )
        for name in names.split()
    )  # fmt: skip


def _example(shape: str) -> str:
    """The first way to write a shape: `{COMPACT | FULL}` gives COMPACT, `n` a number."""
    first = re.sub(r"\s*\[.*", "", shape).strip("{}").split(" | ")[0]
    return re.sub(r"\bn\b", "10", first)


def _not(names: str, reason: str, example: str = "") -> tuple[Keyword, ...]:
    """Keywords that are refused by name."""
    return tuple(
        Keyword(name, "...", f"Refused: {reason}.", example or name, _refuse(reason), repeatable=True, refused=reason)
        for name in names.split()
    )


def _by_option(name: str, what: str, example: str) -> Keyword:
    """A keyword each of whose options is accepted without a meaning, or refused, for a reason of its own."""

    def parse(statement: Statement) -> None:
        if statement.words or not statement.text:
            known = ", ".join(OPTIONS[name])
            raise statement.error(f"one of {known}", statement.words[0] if statement.words else None)

    return Keyword(
        name, "option [, ...]",
        f"{what}. No option of it does anything here: the tables below say why, and which are refused.",
        f"{name} {example}", stripped(parse), repeatable=True,
    )  # fmt: skip


def _all_but(name: str, reason: str, example: str) -> Keyword:
    """A keyword whose options have no meaning for one reason, but for those that REFUSED names."""
    return Keyword(
        name, "...", f"Accepted, without meaning here: {reason}.", f"{name} {example}", refuse_options,
        repeatable=True, ignored=reason,
    )  # fmt: skip


_SEQUENCES = (
    "sequences are not captured; remove it, and set them at the switch; a Replicat's DBOPTIONS FOLLOWSEQUENCES keeps "
    "those of identity columns"
)

_EVERYWHERE = (
    *_accept("USEANSISQLQUOTES", "'literals' and \"names\" are always so"),
    *_accept("CHARSET", "a parameter file is UTF-8", "UTF-8"),
    *_accept("ENABLE_HEARTBEAT_TABLE", "ADD HEARTBEATTABLE makes heartbeats"),
    *_accept("PTKCAPTUREPROCSTATS PTKMONITORFREQUENCY", "the Manager's page and /metrics show all groups", "..."),
    *_not("DISABLE_HEARTBEAT_TABLE", "DELETE HEARTBEATTABLE ends heartbeats"),
    *_not("NOUSEANSISQLQUOTES", "write literals as 'text' and names as \"name\", and remove it"),
)
"""In parameter files of groups, and in GLOBALS."""

_READERS = (
    *_EVERYWHERE,
    *_accept("DYNAMICRESOLUTION NODYNAMICRESOLUTION", "a table is looked at when its first change is met"),
    *_accept(
        "WILDCARDRESOLVE", "wildcards always mean also tables that are made later",
        "DYNAMIC", only="DYNAMIC", but="tables that are made later can't be left out",
    ),
    *_accept("GETUPDATEAFTERS", "an update always carries the row as it became"),
    *_accept("NUMFILES ALLOCFILES", "memory is taken as it is needed", "n"),
    *_accept("EOFDELAY EOFDELAYCSECS", "who waits for changes is woken by them", "n"),
    *_accept("FUNCTIONSTACKSIZE CACHEMGR TRANSMEMORY LOBMEMORY", "memory is bounded by block and batch sizes", "..."),
    *_accept("TRACE TRACE2", "the report and the log say what happens", "file"),
    *_accept("WARNRATE", "repeated messages are counted, and told as one", "n"),
    *_accept("PURGEOLDEXTRACTS", "the Manager alone purges; its place is mgr.prm", "trail, USECHECKPOINTS"),
    *_accept("SHOWSYNTAX", "CHECK PARAMS and the report show what is done"),
    *_accept("NOTRACETABLE", "there is no trace table"),
    *_accept("TRAILCHARSET", "a trail's text is Unicode", "..."),
    *_accept("CHARSETCONVERSION VARWIDTHNCHAR NOVARWIDTHNCHAR HAVEUDTWITHNCHAR", "text arrives exact"),
    *_accept("Y2KCENTURYADJUSTMENT NOY2KCENTURYADJUSTMENT", "years have four digits"),
    *_accept("ALLOWINVISIBLEINDEXKEYS EXCLUDEHIDDENCOLUMNS MAPINVISIBLECOLUMNS NOMAPINVISIBLECOLUMNS",
             "no column and no key is hidden"),
    *_accept("NAMEMATCHEXACT", "names are matched exactly, unquoted ones as lower case"),
    *_accept("FETCHUSERID FETCHUSERIDALIAS", "nothing is fetched from a table", "..."),
    _by_option("DDLOPTIONS", "How GoldenGate carries schema changes", "REPORT"),
    *_not("NAMEMATCHIGNORECASE NAMEMATCHNOWARNING",
          'write names as the database spells them, in "quotes" unless lower case'),
    *_not("NOCHARSETCONVERSION ASCIITOEBCDIC EBCDICTOASCII", "text is Unicode throughout"),
    *_not("EXCLUDETAG", LOOPS),
    *_not("CUSEREXIT", "no program of yours is called on the way; @functions are, and others can read the trail"),
    *_not("FORMATASCII FORMATSQL FORMATXML", 'a trail has one format; spark.read.format("trail") gives it to others'),
    *_not("BEGIN", "ADD and ALTER say where a group begins"),
    *_not("PROCEDURE PROCEDUREEXCLUDE", "calls of procedures are not captured; the rows that they change are"),
    *_not("IGNOREUPDATEAFTERS", "an update always carries the row as it became; IGNOREUPDATES leaves updates out"),
    *_not("SQLEXEC", SQLEXEC),
    *_not("SOURCECATALOG", "names have two parts here, schema.table"),
    *_not("TRACETABLE", LOOPS),
    *_not("COLMATCH", "name the columns in COLMAP"),
    *_not("DDLSUBST", "a schema change is carried as it is, or left out by DDL EXCLUDE"),
)  # fmt: skip

_WRITERS = (
    *_accept("ASSUMETARGETDEFS", "the trail describes its tables"),
    *_accept("SOURCEDEFS TARGETDEFS", "the trail describes its tables", "file [OVERRIDE]"),
    *_accept("UPDATERECORDFORMAT", "an update is one record with all the images it has", "{COMPACT | FULL}"),
    *_accept("COMPRESSUPDATES NOCOMPRESSUPDATES", "an update carries the whole row"),
    *_accept("COMPRESSDELETES NOCOMPRESSDELETES", "a delete carries what the source's log has of the old row"),
    *_accept("FLUSHSECS", "changes are written and sent at once; FLUSHCSECS bounds an Extract's gathering", "n"),
    *_accept("RECOVERYOPTIONS", "a trail is only ever appended to", "{APPENDMODE | OVERWRITEMODE}"),
    *_accept("TCPSOURCETIMER NOTCPSOURCETIMER", "heartbeats measure the lag of each stage"),
    *_accept("THREADOPTIONS", "one log is read in one thread", "..."),
    *_accept("DISCARDFILE", "nothing is discarded before a Replicat", "file [, option ...]"),
    *_accept("DISCARDROLLOVER", "nothing is discarded before a Replicat", "AT hh:mi"),
    *_accept("NODISCARDFILE", "nothing is discarded before a Replicat"),
    *_accept("GETAPPLOPS GETREPLICATES", "changes of applications and of Replicats are captured alike"),
    *_accept("PASSTHRUMESSAGES NOPASSTHRUMESSAGES", "a trail holds no messages of others"),
    _all_but("TRANLOGOPTIONS", "the log is read through the database's own decoding", "DBLOGREADER"),
    *_not("IGNOREREPLICATES IGNOREAPPLOPS", LOOPS),
    *_not("END", "STOP ends it; END of a Replicat applies changes up to a time"),
    *_not("SCHEMAEXCLUDE CATALOGEXCLUDE", "write TABLEEXCLUDE schema.*; instead"),
)  # fmt: skip

_NO_DATABASE = "a pump needs no database"

EXTRACT: Final = (
    *_READERS, *_WRITERS,
    *_accept("FETCHOPTIONS", "nothing is fetched from a table: whole rows come from the log", "..."),
    *_accept("MAXFETCHSTATEMENTS", "nothing is fetched from a table", "n"),
    *_accept("BR", "the database keeps open transactions, and gives them once they are committed", "..."),
    *_accept("PASSTHRU NOPASSTHRU", "an Extract on a database looks at its tables"),
    _all_but("DBOPTIONS", "the log has all that is asked of the source", "FETCHBATCHSIZE 1000"),
    *_not("SEQUENCE", _SEQUENCES, "SEQUENCE sales.*;"),
    *_not("RMTTRAIL",
          "an Extract on a database writes EXTTRAIL; a pump (ADD EXTRACT p, EXTTRAILSOURCE trail) sends it"),
    _by_option("RMTHOSTOPTIONS", "What GoldenGate would write behind RMTHOST of an Extract that waits to be called",
               "TCPBUFSIZE 100000"),
    *_not("SOURCEISTABLE", "ADD EXTRACT e, SOURCEISTABLE says so; remove it"),
    *_not("SPECIALRUN", LOAD),
    *_not("VAM", "an Extract reads the log of its database by itself; remove it"),
)  # fmt: skip

PUMP: Final = (
    *_READERS, *_WRITERS,
    *_accept("FLUSHCSECS", "blocks are sent at once", "n"),
    *_accept("USERID", _NO_DATABASE, "user, PASSWORD password"),
    *_accept("USERIDALIAS", _NO_DATABASE, "alias [DOMAIN domain]"),
    *_accept("SOURCEDB TARGETDB", _NO_DATABASE, "name [, USERIDALIAS alias]"),
    *_accept("DBOPTIONS FETCHOPTIONS MAXFETCHSTATEMENTS WARNLONGTRANS BR", _NO_DATABASE, "..."),
    *_accept("DDL", "a pump sends every schema change of the tables that it sends", "[INCLUDE {ALL | MAPPED}]",
             only="(INCLUDE (ALL|MAPPED))?", but="a pump leaves out whole tables only (TABLEEXCLUDE)"),
    _by_option("RMTHOSTOPTIONS", "What GoldenGate would write behind RMTHOST of an Extract that waits to be called",
               "TCPBUFSIZE 100000"),
    *_accept(
        "GETUPDATEBEFORES LOGALLSUPCOLS IGNOREUPDATEBEFORES", "a pump sends the old rows that its trail has",
    ),
    *_accept("SEQUENCE", "a trail holds no sequences", "schema.name;"),
    *_not("RMTFILE RMTTASK EXTFILE SPECIALRUN", LOAD),
    *_not("EXTTRAIL", "a pump writes RMTTRAIL, also on its own host: RMTHOST localhost"),
)  # fmt: skip

_SERIAL = f"work is spread by Spark; {ORDER}"

REPLICAT: Final = (
    *_READERS,
    *_accept("ASSUMETARGETDEFS", "the trail describes its tables"),
    *_accept("SOURCEDEFS", "the trail describes its tables", "file [OVERRIDE]"),
    *_accept("BATCHSQL NOBATCHSQL", "changes are always gathered, compacted by key and applied in batches", "..."),
    *_accept("DYNSQL NODYNSQL", "statements are made for each batch"),
    *_accept("MAXSQLSTATEMENTS", "statements are made for each batch", "n"),
    *_accept("TRANSACTIONTIMEOUT", "a target transaction lasts as long as its batch", "n SECONDS"),
    *_accept("APPLYNOOPUPDATES NOAPPLYNOOPUPDATES ALLOWNOOPUPDATES NOALLOWNOOPUPDATES",
             "an update carries the whole row, so that none is without a column to set"),
    *_accept("MAP_PARALLELISM APPLY_PARALLELISM MIN_APPLY_PARALLELISM MAX_APPLY_PARALLELISM LOOK_AHEAD_TRANSACTIONS "
             "CHUNK_SIZE SPLIT_TRANS_RECS PARALLELISM", f"{_SERIAL}; SPARKMASTER says how far", "n"),
    *_accept("COMMIT_SERIALIZATION USEDEDICATEDCOORDINATIONTHREAD", ORDER, "..."),
    *_accept("INSERTAPPEND NOINSERTAPPEND", "how rows are loaded is chosen for each batch"),
    *_accept("IGNOREUPDATEBEFORES", "old rows are taken where a MAP asks for them"),
    *_accept("NODISCARDFILE", "a discard file is made only where REPERROR discards"),
    *_accept("MAXDISCARDRECS", "every discarded change is written", "n"),
    *_accept("CHECKSEQUENCEVALUE NOCHECKSEQUENCEVALUE", "a trail holds no sequences"),
    *_accept("RESTARTCOLLISIONS NORESTARTCOLLISIONS", "each change is applied exactly once, so a restart meets none"),
    *_accept("NOTRIMSPACES", "blanks stay as they are"),
    *_accept("THREADOPTIONS", _SERIAL, "..."),
    *_accept("REPFETCHEDCOLOPTIONS", "nothing is fetched from a table", "..."),
    *_accept("SEQUENCE", "a trail holds no sequences", "schema.name;"),
    *_not("TRIMSPACES TRIMVARSPACES SPACESTONULL", "write @STRRTRIM (column) in COLMAP"),
    *_not("GETUPDATEBEFORES", "name old values as before.column in COLMAP"),
    *_not("SCHEMAEXCLUDE CATALOGEXCLUDE", "write MAPEXCLUDE schema.*; instead"),
    *_not("TABLEEXCLUDE", "write MAPEXCLUDE schema.table; instead", "TABLEEXCLUDE sales.log;"),
    *_not("SQLDUPERR", "write REPERROR (23505, action), or HANDLECOLLISIONS"),
    *_not("FILTERDUPS NOFILTERDUPS", "each change is applied exactly once; HANDLECOLLISIONS overlays a load"),
    *_not("DEFERAPPLYINTERVAL", "changes are applied as they come; STOP and END hold them back"),
    *_not("OVERRIDEDUPS OVERWRITEMODE", "write HANDLECOLLISIONS, or RESOLVECONFLICT"),
    *_not("REPLACEBADCHAR REPLACEBADNUM SOURCECHARSET CHARMAP SOURCETIMEZONE PRESERVETARGETTIMEZONE",
          "values arrive exact, or are refused"),
    *_not("EXTFILE SPECIALRUN", "ADD REPLICAT r, SPECIALRUN, EXTFILE file says so; remove it"),
    *_not("BULKLOAD GENLOADFILES", LOAD),
    *_not("EXTTRAIL", "ADD REPLICAT says which trail is read"),
)  # fmt: skip

MANAGER: Final = (
    *_accept("USERID", "the Manager needs no database", "user, PASSWORD password"),
    *_accept("USERIDALIAS", "the Manager needs no database", "alias [DOMAIN domain]"),
    *_accept("SOURCEDB", "the Manager needs no database", "name"),
    *_accept("PURGEDDLHISTORY PURGEDDLHISTORYALT PURGEMARKERHISTORY", "there are no such tables to purge",
             "MINKEEPDAYS n, MAXKEEPDAYS n"),
    *_accept("PURGEOLDTASKS", "there are no tasks to purge", "ER *, AFTER n DAYS"),
    *_accept("STARTUPVALIDATIONDELAY STARTUPVALIDATIONDELAYCSECS", "START waits until the group says how it is", "n"),
    *_accept("MONITORING_HEARTBEAT_TIMEOUT", "a group that hangs is seen by its process file", "n"),
    *_accept("DOWNCRITICAL", "the line of DOWNREPORT is a WARNING for every group that is down"),
    *_accept("SYSLOG", "messages go to ggserr.log, and with systemd to its journal", "..."),
    *_accept("USETHREADS NOUSETHREADS", "the Manager's way of work can't be chosen"),
    *_accept("TRACE TRACE2", "the report and the log say what happens", "file"),
    *_accept("CHARSET", "a parameter file is UTF-8", "UTF-8"),
)  # fmt: skip

GLOBALS: Final = (
    *_EVERYWHERE,
    *_accept("MGRSERVNAME", "there is no Windows service", "name"),
    *_accept("ENABLEMONITORING", "the Manager's page and /metrics show all groups"),
    *_accept("SYSLOG", "messages go to ggserr.log, and with systemd to its journal", "..."),
    *_accept("TRAIL_SEQLEN_9D TRAIL_SEQLEN_6D", "a trail file's number has nine digits"),
    *_accept("OUTPUTFILEUMASK", "all files of a home are private to its owner", "n"),
    *_accept("ALLOWOUTPUTDIR", "discard files stand in dirdsc or dirrpt, and trails where ADD EXTTRAIL says", "folder"),
    *_accept("NAMECCSID SESSIONCHARSET", "all text is Unicode", "..."),
    *_accept("TRAILBYTEORDER", "a trail has one byte order", "..."),
    *_accept("NODUPMSGSUPPRESSION", "repeated messages are counted, and told as one"),
    *_accept("USEIPV4 USEIPV6", "the host's address says which"),
    *_accept("MAXGROUPS", "there is no bound", "n"),
    *_accept("ALLOWNONVALIDATEDKEYS", "a key is what the database says it is"),
    *_accept("DDLTABLE MARKERTABLE", "ADD DDLCAPTURE makes what it needs in schema trailgate", "schema.table"),
    *_accept("XAGENABLE", "systemd or a cluster's agent starts the Manager"),
    *_accept("VARWIDTHNCHAR", "text arrives exact"),
    *_not("ENABLECATALOGNAMES", "names have two parts here, schema.table"),
    *_not("EXCLUDEWILDCARDOBJECTSONLY", "an EXCLUDE leaves out every table that it names"),
    *_not("CREDENTIALSTORELOCATION WALLETLOCATION", "both stand in the home, in dircrd and dirwlt"),
)  # fmt: skip

BY_KIND: Mapping[str, Mapping[str, Keyword]] = {
    "EXTRACT": table(*EXTRACT), "PUMP": table(*PUMP), "REPLICAT": table(*REPLICAT), "MANAGER": table(*MANAGER),
    "GLOBALS": table(*GLOBALS),
}  # fmt: skip


# --- telling ----------------------------------------------------------------------------------------------------------

_SKIPPED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
_INNER = re.compile(r"\([^()]*\)")


def notes(statements: Sequence[Statement], kind: str) -> list[str]:
    """A line for each parameter and option of a file that has no meaning; `kind` is a key of BY_KIND."""
    return [note for statement in statements for note in _notes(statement, BY_KIND[kind])]


def _notes(statement: Statement, rows: Mapping[str, Keyword]) -> Iterator[str]:
    where = f"{statement.file}:{statement.line}: {statement.keyword}"
    row = rows.get(statement.keyword)
    if row is not None and row.ignored:
        yield f"{where} is accepted, without meaning here: {row.ignored}"
        return
    known = OPTIONS.get(statement.keyword, {})
    for name in dict.fromkeys(_bare_words(statement)):
        if name in known:
            yield f"{where}: {name} is accepted, without meaning here: {known[name].reason}"


def _bare_words(statement: Statement) -> list[str]:
    """The words of its text that stand outside quotes, and, but for DBOPTIONS, outside parentheses."""
    text = _SKIPPED.sub(" ", statement.text)
    while statement.keyword != "DBOPTIONS" and (shorter := _INNER.sub(" ", text)) != text:
        text = shorter
    return re.split(r"[\s,()]+", text.upper())
