"""The parameters of an Extract:

Keyword table and the frozen value they become. Imports no driver: ggsci checks files with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from extract import kinds
from extract.longtrans import SHAPE, LongSetting, long_setting
from extract.source import BLOCK_KIB, RECONNECT_SECONDS, SourceSettings
from trails import wholefile
from trails.errors import OperatorError, ParamError
from trails.position import TrailName
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registered
from trails.runtime.language import accepted, acceptedoptions, crypting, ddlparams, remotehost, switches
from trails.runtime.language.ddlparams import DdlRules
from trails.runtime.language.heartbeattable import HeartbeatTable
from trails.runtime.language.params import (
    Keyword,
    ParamErrors,
    Statement,
    Values,
    check,
    group,
    nothing,
    number,
    table,
    text,
    word,
)
from trails.runtime.language.remotehost import RemoteHost
from trails.runtime.language.reportparams import ROLLOVER, SHARED
from trails.runtime.language.tableparams import (
    COLUMN_HELP,
    EXTRACT_SHAPE,
    TableRules,
    environment,
    extract_clauses,
    patterns,
)
from trails.runtime.secrets.logins import ALIAS, INSTEAD, USER, Database, database, one_login
from trails.runtime.secrets.logins import SHAPE as LOGIN_SHAPE

FLUSH_CSECS = 10
URLS = kinds.URLS
_BEFORES = ("GETUPDATEBEFORES", "LOGALLSUPCOLS")


def check_order(url: str, order: dict[str, Any], who: str) -> dict[str, Any]:
    """The order of an ADD or ALTER as the source takes it.

    Raises OperatorError where the log of a URL's database is not found by what it names.
    """
    return kinds.placed(kinds.of(url), order, who)


def check_start(url: str, method: str, group: str) -> None:
    """Whether START can name a CSN. Raises OperatorError where the source numbers transactions as it reads them."""
    kind = kinds.of(url)
    if not kinds.method(kind, method).keeps_csns:
        raise OperatorError(
            f"START EXTRACT {group} by a CSN: {kind.name} by {method or next(iter(kind.methods))} gets its CSNs as it "
            "is read, so none is known before",
            hint=f"ALTER EXTRACT {group}, CSN n goes on behind a place of its queue",
        )


def same_kind(url: str, other: str) -> bool:
    """Whether two URLs are of one kind of database."""
    return kinds.of(url) is kinds.of(other)


def _url(statement: Statement) -> str:
    url = text(statement)
    if "://" not in url or url.partition("://")[0] not in kinds.KINDS:
        raise statement.error(f"a URL such as {kinds.examples()}", url.partition(":")[0] + ":...")
    return url


def _trail(statement: Statement) -> str:
    path = word(statement)
    try:
        TrailName.parse(path)
    except OperatorError as error:
        raise statement.error("a path that ends in a two-character prefix, such as ./dirdat/lt") from error
    return path


FILES = ("EXTFILE", "RMTFILE", "RMTTASK")
"""Of an Extract that reads tables, each in place of EXTTRAIL."""
_TASK = "REPLICAT, GROUP group"


def _task(statement: Statement) -> str:
    words = [str(one) for one in statement.words]
    if len(words) != 3 or [one.upper() for one in words[:2]] != ["REPLICAT", "GROUP"]:
        raise statement.error(_TASK)
    return group(replace(statement, words=statement.words[2:]))


KEYWORDS = SHARED | table(
    *accepted.EXTRACT,
    ROLLOVER,
    ALIAS,
    USER,
    Keyword(
        "EXTRACT", "group", "Names the group; the first parameter of the file.", "EXTRACT ext1", group, required=True
    ),
    Keyword(
        "SOURCEDB", f"url {LOGIN_SHAPE}",
        f"The source database, as {kinds.examples()}. USERIDALIAS: user and password are those of this alias in the "
        "credential store. USERID: they stand here.",
        f"SOURCEDB {URLS.url('db.example:5432/shop')}, USERIDALIAS capture", database(_url, URLS), required=True,
        instead=INSTEAD,
    ),
    Keyword(
        "EXTTRAIL", "trail",
        "The local trail to write, as in ADD EXTTRAIL.",
        "EXTTRAIL ./dirdat/lt", acceptedoptions.stripped(_trail), required=True, instead=FILES,
    ),
    Keyword(
        "EXTFILE", "file",
        "For ADD EXTRACT ..., SOURCEISTABLE, instead of EXTTRAIL: the file that gets the rows, by two characters as a "
        "trail. Its name is followed by nine zeros. It is replaced whole by each run.",
        "EXTFILE ./dirdat/in", acceptedoptions.stripped(_trail),
    ),
    remotehost.keyword(required=False),
    Keyword(
        "RMTFILE", "file",
        "For ADD EXTRACT ..., SOURCEISTABLE, instead of EXTFILE: the file is sent to the home at RMTHOST, and gets its "
        "name there once it is whole. Name it as that home does.",
        "RMTFILE ./dirdat/in", acceptedoptions.stripped(_trail),
    ),
    Keyword(
        "RMTTASK", _TASK,
        "For ADD EXTRACT ..., SOURCEISTABLE, instead of EXTFILE: the rows go to this Replicat of the home at RMTHOST, "
        "and its Manager starts it (ADD REPLICAT ..., SPECIALRUN). No file has to be named there, or carried.",
        "RMTTASK REPLICAT, GROUP load2", _task,
    ),
    crypting.keyword("Encrypt the trail's files from this start on."),
    Keyword(
        "TABLE", EXTRACT_SHAPE,
        f"Capture these tables; * and ? are wildcards. {COLUMN_HELP}"
        "\n- GETBEFORECOLS does for these tables what GETUPDATEBEFORES does."
        "\n- WHERE, and FILTER without ON, also do what GETUPDATEBEFORES does, as they ask how a row was."
        f"\n- ANY names columns that hold values of several types. Only {kinds.untyped()} has such columns.",
        "TABLE sales.orders, COLSEXCEPT (secret), TOKENS (csn = @GETENV ('TRANSACTION', 'CSN'));",
        acceptedoptions.stripped(extract_clauses), repeatable=True, required=True,
    ),
    *switches.keywords("TABLE", "captured"),
    Keyword(
        "TABLEEXCLUDE", "schema.table [, schema.table ...][;]",
        "Leave these tables out, whatever TABLE says.",
        "TABLEEXCLUDE sales.audit_*, sales.log;", patterns, repeatable=True,
    ),
    Keyword(
        "GETUPDATEBEFORES", "",
        "For the tables of each TABLE behind it, updates carry the whole old row. Conflict detection, before.column, "
        "filters and KEYCOLS of a Replicat need that. The tables need ADD TRANDATA with ALLCOLS.",
        "GETUPDATEBEFORES", nothing, repeatable=True,
    ),
    Keyword("LOGALLSUPCOLS", "", "The same as GETUPDATEBEFORES.", "LOGALLSUPCOLS", nothing, repeatable=True),
    Keyword(
        "IGNOREUPDATEBEFORES", "",
        "For the tables of each TABLE behind it, updates carry the old row only if the key changed, or if the table "
        "has no key. This is the default.",
        "IGNOREUPDATEBEFORES", nothing, repeatable=True,
    ),
    ddlparams.keyword(
        "Capture schema changes of tables: all of them, or those that an INCLUDE takes and no EXCLUDE does. MAPPED "
        "means changes of tables that TABLE captures. This needs ADD DDLCAPTURE. Without DDL no schema change is "
        "captured.",
        "DDL INCLUDE MAPPED, EXCLUDE OPTYPE DROP, EXCLUDE OBJNAME sales.tmp_*",
    ),
    Keyword(
        "FLUSHCSECS", "n",
        "Write gathered transactions at the latest after n hundredths of a second, 1 to 500; "
        f"{FLUSH_CSECS} if not given. Where small ones come one by one they gather for two hundredths at most.",
        "FLUSHCSECS 10", number(1, 500),
    ),
    Keyword(
        "BLOCKSIZE", "n",
        f"Gather up to n KiB of changes in one trail block, 16 to 65536; {BLOCK_KIB} if not given.",
        "BLOCKSIZE 1024", number(16, 65536),
    ),
    Keyword(
        "RECONNECTSECS", "n",
        f"Try for n seconds to get a lost connection back, 0 to 86400; {RECONNECT_SECONDS} if not given. Then the "
        "process ends.",
        "RECONNECTSECS 600", number(0, 86400),
    ),
    Keyword(
        "WARNLONGTRANS", SHAPE,
        "Warn of transactions that have been open in the source for so long: 1h if not given, and 0s is never. The "
        "source keeps all its log since such a transaction began. CHECKINTERVAL says how often to look: 5m if not "
        "given. Durations are 30s, 10m, 2h, 1d.",
        "WARNLONGTRANS 30m, CHECKINTERVAL 1m", long_setting,
    ),
    *kinds.keywords().values(),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ExtractParams:
    """An Extract's parameters, checked. `own`: what the file says with those of its kind of source alone."""

    group: str
    url: str
    trail: str
    tables: TableRules = field(default_factory=TableRules)
    flush_seconds: float = FLUSH_CSECS / 100
    block_bytes: int = BLOCK_KIB << 10
    reconnect_seconds: float = RECONNECT_SECONDS
    ddl: DdlRules | None = None
    long: LongSetting = field(default_factory=LongSetting)
    encrypt: bool = False
    database: Database = field(default_factory=Database)
    own: Mapping[str, Any] = field(default_factory=dict)
    file: str = ""
    remote: RemoteHost | None = None
    task: str = ""
    """The Replicat that RMTTASK names."""

    @classmethod
    def from_statements(cls, statements: Sequence[Statement]) -> ExtractParams:
        """Check a whole file; raises ParamErrors with every mistake in it."""
        values = check(
            statements, KEYWORDS, "Extract", first="EXTRACT", also=lambda found: one_login(found, "SOURCEDB", URLS)
        )
        source = one_login(values, "SOURCEDB", URLS)
        _check_remote(values)
        return cls(
            values.one("EXTRACT"),
            source.url,
            values.one("EXTTRAIL", ""),
            TableRules.of(values, befores=_with_befores(statements), ignored=switches.ignored(statements)),
            values.one("FLUSHCSECS", FLUSH_CSECS) / 100,
            values.one("BLOCKSIZE", BLOCK_KIB) << 10,
            float(values.one("RECONNECTSECS", RECONNECT_SECONDS)),
            values.one("DDL"),
            values.one("WARNLONGTRANS", LongSetting()),
            values.has("ENCRYPTTRAIL"),
            source,
            _own(values, source.url),
            values.one("EXTFILE", "") or values.one("RMTFILE", "") or _file_of(values.one("RMTTASK", "")),
            values.one("RMTHOST", None),
            values.one("RMTTASK", ""),
        )

    def resolved(self, home: Home) -> ExtractParams:
        """With the URL to connect with: USERIDALIAS looked up. Raises OperatorError if the alias is not there."""
        return replace(self, url=self.database.login(home))

    def settings(
        self, registered: Registered | None, heartbeat: HeartbeatTable | None = None, host: str = "", method: str = ""
    ) -> SourceSettings:
        """What the source is told; `host` is for the tokens of TABLE's options, `method` is the registration's.

        Raises OperatorError where this kind of source has no such method, or the method has no such parameter.
        """
        kind = kinds.of(self.url)
        for name in self.own:
            if name not in kinds.method(kind, method).keywords:
                how = method or next(iter(kind.methods))
                raise OperatorError(f"{name} means nothing where {kind.name} is captured by {how}", hint="Remove it")
        return SourceSettings(
            self.group,
            self.url,
            registered,
            self.tables,
            self.tables.projector(environment(self.group, host)),
            self.ddl,
            self.reconnect_seconds,
            heartbeat or HeartbeatTable(),
            self.own,
            method,
        )


def _file_of(task: str) -> str:
    return wholefile.of_task(task) if task else ""


def _check_remote(values: Values) -> None:
    """One place to write to, and RMTHOST beside one of another host. Raises ParamErrors."""
    host = values.statements("RMTHOST")
    there = [*values.statements("RMTFILE"), *values.statements("RMTTASK")]
    places = [*values.statements("EXTTRAIL"), *values.statements("EXTFILE"), *there]
    errors = [
        one.wrong("expected RMTFILE or RMTTASK of a task beside it, found neither; a trail is sent by a pump")
        for one in host
        if not there
    ]
    if there and not host:
        errors.append(there[0].wrong("expected RMTHOST, which says where that is, found none"))
    errors += [one.wrong(f"expected it, or {places[0].keyword}; found both") for one in places[1:]]
    if host:
        errors += remotehost.contradictions(values)
    if errors:
        raise ParamErrors(errors)


def _own(values: Values, url: str) -> dict[str, Any]:
    """The parameters that this kind of source has. Raises ParamErrors for those that only other kinds have.

    Without a URL the kind is known once the alias is looked up, and none is refused before.
    """
    given = {name: values.one(name) for name in kinds.keywords() if values.has(name)}
    kind = kinds.of(url) if url else None
    errors: list[ParamError] = [
        statement.wrong(f"it means nothing where the source is {kind.name}; remove it")
        for name in given
        if kind is not None and name not in kind.keywords
        for statement in values.statements(name)
    ]
    errors += [
        statement.wrong(f"ANY means nothing where the source is {kind.name}: each column has one type; remove it")
        for statement, some in values.found.get("TABLE", ())
        if kind is not None and not kind.untyped and any(clause.rule.anys for clause in some)
    ]
    if errors:
        raise ParamErrors(errors)
    return given


def _with_befores(statements: Sequence[Statement]) -> list[Statement]:
    """The TABLEs that stand under GETUPDATEBEFORES. Raises ParamErrors if no TABLE stands behind one."""
    found: list[Statement] = []
    last: Statement | None = None  # what is in force
    unused: list[Statement] = []
    for statement in statements:
        if statement.keyword in _BEFORES:
            last = statement
            unused.append(statement)
        elif statement.keyword == "IGNOREUPDATEBEFORES":
            last = None
        elif statement.keyword == "TABLE":
            unused = []
            if last is not None:
                found.append(statement)
    if unused:
        errors: list[ParamError] = [
            item.wrong("no TABLE stands behind it, and it holds only for those; move it up") for item in unused
        ]
        raise ParamErrors(errors)
    return found
