"""The parameters of an Extract:

Keyword table and the frozen value they become. Imports no driver: ggsci checks files with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from extract.longtrans import SHAPE, LongSetting, long_setting
from trails.errors import OperatorError, ParamError
from trails.position import TrailName
from trails.runtime import crypting, ddlparams
from trails.runtime.credentials import Database, database
from trails.runtime.ddlparams import DdlRules
from trails.runtime.diskguard import Bound, parse_bound
from trails.runtime.home import Home
from trails.runtime.params import (
    Keyword,
    ParamErrors,
    Statement,
    check,
    group,
    nothing,
    number,
    table,
    text,
    word,
)
from trails.runtime.reportparams import ROLLOVER, SHARED
from trails.runtime.tableparams import COLUMN_HELP, EXTRACT_SHAPE, TableRules, extract_clauses, patterns

_SCHEMES = ("postgresql://", "postgres://")
_BEFORES = ("GETUPDATEBEFORES", "LOGALLSUPCOLS")


def _url(statement: Statement) -> str:
    url = text(statement)
    if not url.startswith(_SCHEMES):
        raise statement.error(
            "a URL such as postgresql://user:password@host:5432/database", url.partition(":")[0] + ":..."
        )
    return url


def _trail(statement: Statement) -> str:
    path = word(statement)
    try:
        TrailName.parse(path)
    except OperatorError as error:
        raise statement.error("a path that ends in a two-character prefix, such as ./dirdat/lt") from error
    return path


KEYWORDS = SHARED | table(
    ROLLOVER,
    Keyword(
        "EXTRACT", "group", "Names the group; the first parameter of the file.", "EXTRACT ext1", group, required=True
    ),
    Keyword(
        "SOURCEDB",
        "url [, USERIDALIAS alias [DOMAIN domain]]",
        "The source database. USERIDALIAS: user and password are those of this alias in the credential store.",
        "SOURCEDB postgresql://db.example:5432/shop, USERIDALIAS capture",
        database(_url),
        required=True,
    ),
    Keyword(
        "EXTTRAIL",
        "trail",
        "The local trail to write, as in ADD EXTTRAIL.",
        "EXTTRAIL ./dirdat/lt",
        _trail,
        required=True,
    ),
    crypting.keyword("Encrypt the trail's files from this start on"),
    Keyword(
        "TABLE",
        EXTRACT_SHAPE,
        f"Capture these tables; * and ? are wildcards. {COLUMN_HELP} GETBEFORECOLS: as GETUPDATEBEFORES, "
        "for these tables.",
        "TABLE sales.orders, COLSEXCEPT (secret), TOKENS (csn = @GETENV ('TRANSACTION', 'CSN'));",
        extract_clauses,
        repeatable=True,
        required=True,
    ),
    Keyword(
        "TABLEEXCLUDE",
        "schema.table [, schema.table ...];",
        "Leave these tables out, whatever TABLE says.",
        "TABLEEXCLUDE sales.audit_*, sales.log;",
        patterns,
        repeatable=True,
    ),
    Keyword(
        "GETUPDATEBEFORES",
        "",
        "Updates of the tables of the TABLEs behind it carry the whole old row, as conflict detection, before.column, "
        "filters and KEYCOLS of a Replicat ask for. The tables need ADD TRANDATA with ALLCOLS.",
        "GETUPDATEBEFORES",
        nothing,
        repeatable=True,
    ),
    Keyword("LOGALLSUPCOLS", "", "The same as GETUPDATEBEFORES.", "LOGALLSUPCOLS", nothing, repeatable=True),
    Keyword(
        "IGNOREUPDATEBEFORES",
        "",
        "Updates of the tables of the TABLEs behind it carry the old row only where the key changed, or there is none: "
        "the default.",
        "IGNOREUPDATEBEFORES",
        nothing,
        repeatable=True,
    ),
    ddlparams.keyword(
        "Capture schema changes of tables: all of them, or those that an INCLUDE takes and no EXCLUDE does. MAPPED: of "
        "tables that TABLE captures. Needs ADD DDLCAPTURE. Without this parameter none is captured.",
        "DDL INCLUDE MAPPED, EXCLUDE OPTYPE DROP, EXCLUDE OBJNAME sales.tmp_*",
    ),
    Keyword(
        "FLUSHCSECS",
        "n",
        "Write gathered transactions at the latest after n hundredths of a second, 1 to 500; 10 if not given.",
        "FLUSHCSECS 10",
        number(1, 500),
    ),
    Keyword(
        "BLOCKSIZE",
        "n",
        "Gather up to n KiB of changes in one trail block, 16 to 65536; 1024 if not given.",
        "BLOCKSIZE 1024",
        number(16, 65536),
    ),
    Keyword(
        "RECONNECTSECS",
        "n",
        "Try for n seconds to get a lost connection back, 0 to 86400; 3600 if not given. Then the process ends.",
        "RECONNECTSECS 600",
        number(0, 86400),
    ),
    Keyword(
        "WARNLONGTRANS",
        SHAPE,
        "Warn of transactions that are open in the source for so long, as they make it keep all log since they began; "
        "1h if not given, 0s is never. CHECKINTERVAL: how often to look; 5m if not given. Durations: 30s, 10m, 2h, 1d.",
        "WARNLONGTRANS 30m, CHECKINTERVAL 1m",
        long_setting,
    ),
    Keyword(
        "WALWARN",
        "{n[K | M | G | T] | n%}",
        "Warn once the slot keeps back so much of the source's log, in bytes or as a share of the server's "
        "max_slot_wal_keep_size; 0 is never. If not given 10G, or 50% where that is less.",
        "WALWARN 20G",
        parse_bound,
    ),
    Keyword(
        "WALCRITICAL",
        "{n[K | M | G | T] | n%}",
        "The same, for when somebody must act. If not given 50G, or 80% where that is less.",
        "WALCRITICAL 90%",
        parse_bound,
    ),
)


@dataclass(frozen=True, slots=True)
class ExtractParams:
    """An Extract's parameters, checked."""

    group: str
    url: str
    trail: str
    tables: TableRules = field(default_factory=TableRules)
    flush_seconds: float = 0.1
    block_bytes: int = 1 << 20
    reconnect_seconds: float = 60.0
    ddl: DdlRules | None = None
    long: LongSetting = field(default_factory=LongSetting)
    wal_warn: Bound | None = None
    wal_critical: Bound | None = None
    encrypt: bool = False
    database: Database = field(default_factory=Database)

    @classmethod
    def from_statements(cls, statements: Sequence[Statement]) -> ExtractParams:
        """Check a whole file; raises ParamErrors with every mistake in it."""
        values = check(statements, KEYWORDS, "Extract", first="EXTRACT")
        return cls(
            values.one("EXTRACT"),
            values.one("SOURCEDB").url,
            values.one("EXTTRAIL"),
            TableRules.of(values, befores=_with_befores(statements)),
            values.one("FLUSHCSECS", 10) / 100,
            values.one("BLOCKSIZE", 1024) << 10,
            float(values.one("RECONNECTSECS", 3600)),
            values.one("DDL"),
            values.one("WARNLONGTRANS", LongSetting()),
            values.one("WALWARN"),
            values.one("WALCRITICAL"),
            values.has("ENCRYPTTRAIL"),
            values.one("SOURCEDB"),
        )

    def resolved(self, home: Home) -> ExtractParams:
        """With the URL to connect with: USERIDALIAS looked up. Raises OperatorError if the alias is not there."""
        return replace(self, url=self.database.login(home))

    def captures(self, schema: str, name: str) -> bool:
        """Whether the rules capture this table."""
        return self.tables.wants(schema, name)


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
