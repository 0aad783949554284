"""Options of parameters: those that change nothing here, and those that would change data and are refused.

Rule: as in accepted.py, whose tables begin with what stands here. A program's parser of such a parameter is wrapped in
`stripped`, so that it sees neither kind.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from trails.errors import ParamError
from trails.runtime.language.params import Group, Literal, ParamErrors, Statement, Word

T = TypeVar("T")

LOOPS: Final = (
    "changes are captured whoever made them, so two ways between the same tables would be a loop (docs/topologies.md); "
    "remove it where no Replicat writes into this source"
)
SQLEXEC: Final = (
    "no statement is run on the way; session settings go into the URL (?options=-c%20name=value), lookups into a view "
    "or trigger of the target"
)
LOAD: Final = "INSTANTIATE REPLICAT loads tables; EXTFILE of a task writes them to a file (docs/initial-load.md)"
ORDER: Final = "changes of one key, and whole transactions, keep the source's order in one Replicat"


@dataclass(frozen=True, slots=True)
class AcceptedOption:
    """An option without meaning. `words`: how many follow it; `group`: whether one in parentheses does."""

    reason: str
    words: int = 0
    group: bool = False


def _options(names: str, reason: str, words: int = 0, *, group: bool = False) -> dict[str, AcceptedOption]:
    return {name: AcceptedOption(reason, words, group) for name in names.split()}


_FORMAT = _options("FORMAT", "a trail has one format", 2) | _options(
    "OBJECTDEFS NO_OBJECTDEFS", "a trail always describes its tables"
)
_LINK = {
    **_options("COMPRESS", "blocks are compressed as they are written"),
    **_options("COMPRESSTHRESHOLD", "blocks are compressed as they are written", 1),
    **_options("TCPBUFSIZE TCPFLUSHBYTES", "WINDOW bounds what is on the way", 1),
    **_options("STREAMING NOSTREAMING", "blocks are sent without waiting for each answer"),
    **_options("ENCRYPT KEYNAME", "the link is TLS", 1),
    **_options("IPV4 IPV6", "the host's address says which"),
}
_BY_ITSELF = "ADD DDLCAPTURE gives a new table what ADD TRANDATA would"
_NAMED = "a schema change names its schema and table"
OPTIONS: Mapping[str, Mapping[str, AcceptedOption]] = {
    "EXTTRAIL": _FORMAT,
    "EXTFILE": _FORMAT
    | _options("MEGABYTES", "a load is one file", 1)
    | _options("PURGE", "the file is always replaced whole"),
    "RMTFILE": _FORMAT
    | _options("MEGABYTES", "a load is one file", 1)
    | _options("PURGE", "the file is always replaced whole"),
    "RMTTRAIL": _FORMAT,
    "RMTHOST": _LINK,
    "RMTHOSTOPTIONS": _LINK,
    "DDLOPTIONS": {
        **_options("REPORT NOREPORT", "schema changes that are carried are told in the report"),
        **_options("ADDTRANDATA ABEND RETRYOP", _BY_ITSELF),
        **_options("RETRYDELAY MAXRETRIES", _BY_ITSELF, 1),
        **_options("REMOVECOMMENTS", "a table's shape is carried, not the statement's text", 1),
        **_options("GETAPPLOPS GETREPLICATES", "changes of applications and of Replicats are captured alike"),
        **_options("UPDATEMETADATA", "each Extract learns a table's shape from its own log"),
        **_options("CROSSRENAME NOCROSSRENAME", "a renamed table counts by both of its names"),
        **_options("MAPDERIVED NOMAPDERIVED", "what is made from a table, as an index, is not carried"),
        **_options("REPLICATEPASSWORD NOREPLICATEPASSWORD", "users are not carried"),
        **_options("USEOWNERFORSESSION NOUSEOWNERFORSESSION", _NAMED),
        **_options("MAPSESSIONSCHEMA", _NAMED, 3),
    },
    "DBOPTIONS": {
        **_options("LIMITROWS NOLIMITROWS", "a row is found by its key"),
        **_options("FETCHBATCHSIZE LOBWRITESIZE LOBBUFSIZE XMLBUFSIZE TDSPACKETSIZE", "sizes follow the batch", 1),
        **_options("INTEGRATEDPARAMS", "Replicat applies by itself", group=True),
        **_options("DISABLECOMMITNOWAIT ENABLECOMMITNOWAIT", "COMMITWAIT says whether a commit waits for the disk"),
        **_options("DISABLELOBCACHING ENABLELOBCACHING NODISABLELOBCACHING SKIPTEMPLOB", "values are sent whole"),
        **_options("SHOWINFOMESSAGES SHOWWARNINGS", "the report has them"),
        **_options("USEODBC NOUSEODBC USEREPLICATIONUSER TRUSTNOTNULL BINDCHARFORBITASCHAR", "the driver is another"),
        **_options("ALLOWUNUSEDCOLUMN NOALLOWUNUSEDCOLUMN NOSETTAG", "there is no such thing here"),
        **_options("CATALOGCONNECT NOCATALOGCONNECT", "the driver is another"),
    },
    "STATOPTIONS": _options(
        "REPORTFETCH NOREPORTFETCH REPORTDETAIL NOREPORTDETAIL", "nothing is fetched, and all details are shown"
    ),
    "TABLE": {
        **_options("FETCHCOLS FETCHCOLSEXCEPT FETCHMODCOLS FETCHMODCOLSEXCEPT", "rows come whole", group=True),
        **_options("FETCHBEFOREFILTER", "nothing is fetched from a table"),
        **_options("NOTRIMSPACES", "blanks stay as they are"),
        **_options("DEF TARGETDEF", "the trail describes its tables", 1),
    },
    "MAP": {
        **_options("INSERTAPPEND NOINSERTAPPEND", "how rows are loaded is chosen for each batch"),
        **_options("NOTRIMSPACES", "blanks stay as they are"),
        **_options("THREAD THREADRANGE", ORDER, group=True),
        **_options("COORDINATED", ORDER),
        **_options("DEF TARGETDEF", "the trail describes its tables", 1),
    },
}


def _refused(names: str, reason: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), reason)


_RUNS = "no statement is run on the way; look values up in a view or trigger of the target"
_EVENTS = "no record is an event; STOP, END and SEND act where you say"
_URL = "host and port stand in the URL of SOURCEDB or TARGETDB"
_WHOLE = "values arrive whole, or are refused"
REFUSED: Mapping[str, Mapping[str, str]] = {
    "TRANLOGOPTIONS": {
        **_refused("EXCLUDE* FILTERTABLE", LOOPS),
        **_refused("IGNORE* SKIP*", "what it leaves out is captured; remove it"),
    },
    "DDLOPTIONS": _refused("IGNOREAPPLOPS IGNOREREPLICATES", LOOPS),
    "RMTHOST": {
        **_refused("PORT", "Collectors are started by a Manager; write MGRPORT, its port"),
        **_refused("SOCKSPROXY", "the pump connects by itself; have its host forward the port"),
        **_refused("PARAMS CPU PRI", "a Collector has no parameters; remove it"),
    },
    "DBOPTIONS": {
        **_refused(
            "SETTAG", "no change bears a tag, and none is left out by one (docs/topologies.md); remove it where data "
            "goes one way only",
        ),
        **_refused("HOST CONNECTIONPORT", _URL),
        **_refused("DECRYPTPASSWORD", "write USERIDALIAS; the credential store is encrypted"),
        **_refused("ALLOWLOBDATATRUNCATE EMPTYLOBSTRING", _WHOLE),
        **_refused("ENABLE_INSTANTIATION_FILTERING SOURCE_DB_NAME", "START REPLICAT r, AFTERCSN c starts after a load"),
    },
    "TABLE": {
        **_refused("COLMAP TARGET", "write it in the MAP of a Replicat"),
        **_refused("KEYCOLS", "write it in the MAP of a Replicat, and GETUPDATEBEFORES here"),
        **_refused("SQLEXEC", _RUNS),
        **_refused("EVENTACTIONS", _EVENTS),
        **_refused("TRIMSPACES TRIMVARSPACES", "write @STRRTRIM (column) in COLMAP of a Replicat"),
        **_refused("SQLPREDICATE", LOAD),
        **_refused("PARTITION PARTITIONEXCLUDE", "a table is captured whole"),
        **_refused("EXITPARAM", "there are no user exits"),
    },
    "MAP": {
        **_refused("SQLEXEC", _RUNS),
        **_refused("EVENTACTIONS", _EVENTS),
        **_refused("TRIMSPACES TRIMVARSPACES", "write @STRRTRIM (column) in COLMAP"),
        **_refused("TOKENS", "it belongs to TABLE, in the Extract or pump"),
        **_refused("SQLPREDICATE PARTITION PARTITIONEXCLUDE", "write WHERE (condition)"),
        **_refused("EXITPARAM", "there are no user exits"),
    },
}  # fmt: skip
"""Options that are refused by name, and what to do instead; * as in file names."""


def refusal(keyword: str, option: str) -> str:
    """Why an option is refused; nothing if it is not one of those."""
    rows = REFUSED.get(keyword, {})
    return next((reason for name, reason in rows.items() if fnmatch.fnmatchcase(option.upper(), name)), "")


def refuse_options(statement: Statement) -> None:
    """Raise ParamErrors for the options that REFUSED names."""
    if not statement.text:
        raise statement.error("an option")
    words = _flat(statement.words) if statement.keyword == "DBOPTIONS" else statement.words
    errors: list[ParamError] = [
        statement.wrong(f"option {word} is not supported: {why}")
        for word in words
        if isinstance(word, str) and not isinstance(word, Literal) and (why := refusal(statement.keyword, word))
    ]
    if errors:
        raise ParamErrors(errors)


def _flat(words: Sequence[Word]) -> Iterator[Word]:
    for word in words:
        yield from _flat(word) if isinstance(word, Group) else (word,)


def stripped(parse: Callable[[Statement], T]) -> Callable[[Statement], T]:
    """A parser that sees no option without meaning, and none that is refused: for parameters read by their words."""

    def without(statement: Statement) -> T:
        if statement.text:
            refuse_options(statement)
        known = OPTIONS[statement.keyword]
        # What stands in parentheses behind an option of TABLE names columns and constants.
        kept = _kept(statement.words, known, inside=statement.keyword != "TABLE")
        return parse(statement if kept == statement.words else replace(statement, words=kept))

    return without


def _kept(words: Sequence[Word], known: Mapping[str, AcceptedOption], *, inside: bool) -> tuple[Word, ...]:
    """The words without such options and what follows them; `inside`: also those within parentheses."""
    kept: list[Word] = []
    left = list(words)
    while left:
        word = left.pop(0)
        option = known.get(word.upper()) if isinstance(word, str) else None
        if option is None:
            kept.append(Group(_kept(word, known, inside=True)) if inside and isinstance(word, Group) else word)
            continue
        del left[: option.words]
        if option.group and left and isinstance(left[0], Group):
            del left[0]
    return tuple(kept)
