"""Replicat's parameters: its keyword table, and the one frozen value that a checked file becomes.

Rule: imports neither Spark nor a database driver, so that ggsci can check a file whole before anything starts. MAP
itself is read by mapping/options.py. Switches and REPERROR hold for the MAPs behind them, so their order counts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from replicat import settings
from replicat.ddl import errors as ddlerrors
from replicat.ddl.errors import DdlErrorRule
from replicat.mapping.options import MAP_OPTIONS, SWITCHES, MapOption, check_map, parse_map, settled, target_key
from replicat.mapping.options import SHAPE as MAP_SHAPE
from replicat.mapping.params import MapRule, Toggles
from replicat.refused.rules import (
    DEFAULT,
    DEFAULT2,
    RESET,
    DiscardSetting,
    ErrorRule,
    accumulate,
    discard_setting,
    error_rule,
)
from replicat.settings import SQLITE, SQLITE_SCHEMA, DbOptions, End, Toggle
from trails.errors import ParamError
from trails.runtime import crypting, ddlparams, params
from trails.runtime.credentials import Database, database
from trails.runtime.ddlparams import DdlRules
from trails.runtime.home import Home
from trails.runtime.params import Keyword, Pattern, Statement
from trails.runtime.reportparams import DISCARDROLLOVER, SHARED

__all__ = ["KEYWORDS", "MAP_OPTIONS", "DbOptions", "End", "MapOption", "MapRule", "ReplicatParams", "exact_table"]

DEFAULT_BATCH_ROWS = 100_000
DEFAULT_BATCH_MEGABYTES = 64
DEFAULT_RECONNECT_SECONDS = 3600
DEFAULT_MASTER = "local[2]"
DEFAULT_SPARK_MEGABYTES = 768


@dataclass(frozen=True, slots=True)
class ReplicatParams:
    """A Replicat's parameter file, checked.

    `error_rules`: the global ones in force at the file's end; those of a table are in its MapRule. `batch_seconds`: the
    longest time to gather, None if not given. `group_trans_ops`, `max_trans_ops`: 0 if not given.
    """

    group: str
    target_url: str
    maps: tuple[MapRule, ...]
    excludes: tuple[Pattern, ...] = ()
    checkpoint_table: tuple[str, str] | None = None
    batch_rows: int = DEFAULT_BATCH_ROWS
    batch_bytes: int = DEFAULT_BATCH_MEGABYTES << 20
    commit_wait: bool = False
    allow_triggers: bool = False
    reconnect_seconds: int = DEFAULT_RECONNECT_SECONDS
    spark_master: str = DEFAULT_MASTER
    spark_megabytes: int = DEFAULT_SPARK_MEGABYTES
    spark_options: tuple[tuple[str, str], ...] = ()
    error_rules: tuple[ErrorRule, ...] = ()
    discard_file: DiscardSetting = field(default_factory=DiscardSetting)
    group_trans_ops: int = 0
    max_trans_ops: int = 0
    batch_seconds: float | None = None
    end: End | None = None
    db_options: DbOptions = field(default_factory=DbOptions)
    ddl: DdlRules | None = None
    ddl_errors: tuple[DdlErrorRule, ...] = ()
    check_only: bool = False
    database: Database = field(default_factory=Database)
    decrypt: bool = False

    @classmethod
    def from_statements(cls, statements: Sequence[Statement], file: str = "") -> ReplicatParams:
        """Check the whole file; ParamErrors with every mistake in it."""
        found = params.check(statements, KEYWORDS, "REPLICAT", first="REPLICAT", file=file)
        maps, error_rules = _in_order(statements, found)
        target_url = found.one("TARGETDB").url
        _check_schemas(target_url, maps)
        return cls(
            group=found.one("REPLICAT"),
            target_url=target_url,
            database=found.one("TARGETDB"),
            maps=maps,
            excludes=tuple(pattern for patterns in found.all("MAPEXCLUDE") for pattern in patterns),
            checkpoint_table=found.one("CHECKPOINTTABLE"),
            batch_rows=found.one("BATCHROWS", DEFAULT_BATCH_ROWS),
            batch_bytes=found.one("BATCHBYTES", DEFAULT_BATCH_MEGABYTES << 20),
            batch_seconds=found.one("BATCHSECS"),
            group_trans_ops=found.one("GROUPTRANSOPS", 0),
            max_trans_ops=found.one("MAXTRANSOPS", 0),
            end=found.one("END"),
            commit_wait=found.has("COMMITWAIT"),
            allow_triggers=found.has("ALLOWTARGETTRIGGERS"),
            db_options=_db_options(found),
            reconnect_seconds=found.one("RECONNECTSECS", DEFAULT_RECONNECT_SECONDS),
            spark_master=found.one("SPARKMASTER", DEFAULT_MASTER),
            spark_megabytes=found.one("SPARKMEMORY", DEFAULT_SPARK_MEGABYTES),
            spark_options=tuple(found.all("SPARKOPTIONS")),
            error_rules=error_rules,
            discard_file=found.one("DISCARDFILE", DiscardSetting()),
            ddl=found.one("DDL"),
            ddl_errors=tuple(found.all("DDLERROR")),
            check_only=found.has("CHECKPARAMS"),
            decrypt=found.has("DECRYPTTRAIL"),
        )

    def resolved(self, home: Home) -> ReplicatParams:
        """With the URL to connect with: USERIDALIAS looked up. Raises OperatorError if the alias is not there."""
        return replace(self, target_url=self.database.login(home))

    def discard_path(self, home: Home) -> str:
        """Where the discard file is in this home."""
        named = self.discard_file.path
        return os.path.join(home.root, named) if named else home.discard(self.group)


def exact_table(text: str) -> tuple[str, str]:
    """`schema.table` without wildcards as (schema, table); ValueError says what was expected."""
    name = Pattern(text).exact
    if name is None:
        raise ValueError("one table without wildcards, such as ggadmin.checkpoint")
    return name


def _in_order(
    statements: Sequence[Statement], found: params.Values
) -> tuple[tuple[MapRule, ...], tuple[ErrorRule, ...]]:
    """The MAPs with the switches and error rules that hold where they stand, and the rules at the end of the file."""
    values = {id(statement): value for pairs in found.found.values() for statement, value in pairs}
    maps: list[MapRule] = []
    errors: list[ParamError] = []
    toggles = Toggles()
    rules: tuple[ErrorRule, ...] = ()
    unused: list[Statement] = []  # what no MAP has met yet
    by_target: dict[object, list[MapRule]] = {}
    for statement in statements:
        value = values[id(statement)]
        if statement.keyword == "MAP":
            own = _own_first(value.error_rules, rules)
            maps.append(replace(value, toggles=settled(value, toggles), error_rules=own))
            twins = by_target.setdefault(target_key(value), [])
            errors += check_map(maps[-1], twins)
            twins.append(maps[-1])
            unused = []
        elif statement.keyword == "REPERROR":
            rules = accumulate(rules, value)
            unused += [statement] if value.code != RESET else []
        elif isinstance(value, Toggle):
            toggles = replace(toggles, **{value.field: value.on})
            unused = [other for other in unused if f"NO{other.keyword}" != statement.keyword]
            unused += [statement] if value.on else []
    errors += [item.wrong("no MAP stands behind it, and it holds only for those; move it up") for item in unused]
    if errors:
        raise params.ParamErrors(errors)
    return tuple(maps), rules


def _own_first(own: tuple[ErrorRule, ...], rules: tuple[ErrorRule, ...]) -> tuple[ErrorRule, ...]:
    """A MAP's own rules, and the global ones for other errors: none but DEFAULT2 if it has a DEFAULT of its own."""
    codes = {rule.code for rule in own}
    rest = [rule for rule in rules if rule.code not in codes]
    return (*own, *(rule for rule in rest if DEFAULT not in codes or rule.code == DEFAULT2))


def _check_schemas(url: str, maps: Sequence[MapRule]) -> None:
    """SQLite knows one schema; a target elsewhere is a mistake that needs no database to be found."""
    if not url.startswith(SQLITE):
        return
    targets = [(rule.target, rule.where) for rule in maps]
    targets += [(rule.exception.target, rule.exception.where) for rule in maps if rule.exception is not None]
    errors = [
        ParamError(f"{where}: MAP: expected schema {SQLITE_SCHEMA} in a SQLite target, found {target}")
        for target, where in targets
        if target.parts[0][0] != SQLITE_SCHEMA
    ]
    if errors:
        raise params.ParamErrors(errors)


def _db_options(found: params.Values) -> DbOptions:
    named: dict[str, Statement] = {}
    for statement, names in found.found.get("DBOPTIONS", ()):
        named |= dict.fromkeys(names, statement)
    both = [named[name] for name in ("SUPPRESSTRIGGERS", "NOSUPPRESSTRIGGERS") if name in named]
    if len(both) > 1:
        raise params.ParamErrors([both[1].wrong("expected SUPPRESSTRIGGERS or NOSUPPRESSTRIGGERS, found both")])
    return DbOptions(
        "SUPPRESSTRIGGERS" in named if both else None, "DEFERREFCONST" in named, "FOLLOWSEQUENCES" in named
    )


KEYWORDS = SHARED | params.table(
    DISCARDROLLOVER,
    crypting.only_encrypted(),
    Keyword("REPLICAT", "group", "Names the group; the first parameter.", "REPLICAT REP1", params.group, required=True),
    Keyword(
        "TARGETDB",
        "{postgresql:// | mysql:// | sqlite:///}... [, USERIDALIAS alias [DOMAIN domain]]",
        "The target database: postgresql://user@host:port/database, mysql://user@host:port/database, "
        "mysql:///database?unix_socket=/path, or sqlite:///file (in the home; sqlite:////file from the root). "
        "USERIDALIAS: user and password are those of this alias in the credential store.",
        "TARGETDB postgresql://there:5432/shop, USERIDALIAS deliver",
        database(settings.url),
        required=True,
    ),
    Keyword(
        "MAP",
        MAP_SHAPE,
        "Apply changes of the source tables to the target table, columns by name. * and ? match in the source; one * "
        "in each part of the target stands for the source's own name. An exact name beats wildcards, a narrower "
        "wildcard a wider one; several MAPs of the same source all apply. Its options are listed below.",
        "MAP sales.*, TARGET public.*;",
        parse_map,
        repeatable=True,
        required=True,
    ),
    Keyword(
        "MAPEXCLUDE",
        "source.table [, source.table ...];",
        "Source tables that no MAP takes.",
        "MAPEXCLUDE sales.tmp_*, sales.log;",
        settings.excludes,
        repeatable=True,
    ),
    Keyword(
        "CHECKPOINTTABLE",
        "schema.table",
        "The checkpoint table in the target; overrules the one of ADD REPLICAT and GLOBALS.",
        "CHECKPOINTTABLE ggadmin.checkpoint",
        settings.checkpoint_table,
    ),
    Keyword(
        "BATCHROWS",
        "n",
        "Most changes in one Spark job; whole transactions are gathered up to it, a larger one is applied in several "
        "jobs inside one target transaction. 100000 if not given.",
        "BATCHROWS 100000",
        params.number(1, 10_000_000),
    ),
    Keyword(
        "BATCHBYTES",
        "n[M | G]",
        "The same bound in megabytes of trail data before compression; 64M if not given.",
        "BATCHBYTES 64M",
        settings.batch_bytes,
    ),
    Keyword(
        "BATCHSECS",
        "n[MS]",
        "The longest time that changes are gathered before a batch is closed, in seconds (at most 600) or "
        "milliseconds: larger batches, and so much more delay. If not given, a batch is closed at once; only while "
        "much comes it gathers for 250MS.",
        "BATCHSECS 2",
        settings.batch_seconds,
    ),
    Keyword(
        "GROUPTRANSOPS",
        "n",
        "Close a batch as soon as its transactions have so many changes together; a source transaction is never split, "
        "and at the trail's end a smaller batch is closed too. 1: each source transaction is a target transaction of "
        "its own, at the price of a Spark job each. If not given, BATCHROWS and BATCHBYTES alone bound it.",
        "GROUPTRANSOPS 1000",
        params.number(1, 10_000_000),
    ),
    Keyword(
        "MAXTRANSOPS",
        "n",
        "Split source transactions of more changes into several target transactions, at the borders of the trail's "
        "blocks: until the last one is committed others see a part of it, and the report says so. Never split if not "
        "given.",
        "MAXTRANSOPS 1000000",
        params.number(1, 1_000_000_000),
    ),
    Keyword(
        "END",
        "{RUNTIME | CSN x | YYYY-MM-DD [HH:MM[:SS]]}",
        "Apply every transaction up to that CSN, or committed up to that time (of this machine's time zone), that one "
        "included and none behind it; then stop as by STOP, and say so. RUNTIME is the moment of the START, or the "
        "trail's end, whichever is met first.",
        "END CSN 0000000001A2B3C0",
        settings.end,
    ),
    Keyword(
        "DBOPTIONS",
        "option [, option ...]",
        "SUPPRESSTRIGGERS: triggers and cascades of target tables must not fire, or START refuses; NOSUPPRESSTRIGGERS: "
        "they fire. Neither: they don't where the target user may prevent it. DEFERREFCONST: foreign keys are checked "
        "at the end of each target transaction. FOLLOWSEQUENCES: sequences of identity columns follow the values.",
        "DBOPTIONS DEFERREFCONST, FOLLOWSEQUENCES",
        settings.db_option,
        repeatable=True,
    ),
    ddlparams.keyword(
        "Which changes of tables' shapes are applied to the target; INCLUDE MAPPED if not given. Those of tables that "
        "no MAP names never are.",
        "DDL INCLUDE MAPPED",
    ),
    Keyword(
        "DDLERROR",
        ddlerrors.SHAPE,
        "What becomes of a change of shape that the target refuses, or that can't be carried there (that meets "
        "DEFAULT): ABEND with the source's statement, leave it out with a line in the report, or write it to the "
        "discard file. RETRYOP tries the batch again first, n times (1 to 10000), each after s seconds, 10 if not "
        "given. ABEND if not given.",
        "DDLERROR 55P03 ABEND RETRYOP MAXRETRIES 5 RETRYDELAY 10",
        ddlerrors.ddl_error,
        repeatable=True,
    ),
    *(
        Keyword(name, "", text, name, settings.toggle(name), repeatable=True)
        for switch, meaning in SWITCHES.items()
        for name, text in ((switch, meaning), (f"NO{switch}", f"The MAPs behind it are without {switch} again."))
    ),
    Keyword(
        "COMMITWAIT",
        "",
        "Each target commit waits for the target's disk. Without it data and checkpoint row may be lost together in a "
        "crash of the target, and are then applied again from the trail, which is kept until they are safe.",
        "COMMITWAIT",
        params.nothing,
    ),
    Keyword(
        "ALLOWTARGETTRIGGERS",
        "",
        "Go on although triggers and cascades of target tables fire, where the target user may not set "
        "session_replication_role.",
        "ALLOWTARGETTRIGGERS",
        params.nothing,
    ),
    Keyword(
        "REPERROR",
        "{RESET | (DEFAULT | DEFAULT2 | SQLSTATE | error number or name, action)}",
        "What becomes of a change that the target refuses even by itself; it holds for the MAPs behind it. ABEND: "
        "end with nothing from its transaction on committed. DISCARD: write it to the discard file and go on. "
        "IGNORE: leave it out. EXCEPTION: to the MAP's exceptions table. RETRYOP [MAXRETRIES n] [DELAYSECS n | "
        "DELAYCSECS n]: try it again. TRANSABORT, with the same options: its whole transaction again. TRANSDISCARD, "
        "TRANSEXCEPTION: its whole transaction to the file or table. The rule for exactly this error counts, else "
        "DEFAULT, else ABEND; DEFAULT2 where EXCEPTION has no table. 02000 (or 1403) stands for a row that is not "
        "there.",
        "REPERROR (23514, DISCARD)",
        error_rule,
        repeatable=True,
    ),
    Keyword(
        "DISCARDFILE",
        "file [, APPEND | PURGE] [, MEGABYTES n]",
        "Where REPERROR's DISCARD writes: a file *.dsc in ./dirdsc or ./dirrpt; ./dirdsc/<GROUP>.dsc, APPEND, "
        "MEGABYTES 50 if not given. PURGE: START begins a new file; the ten before are kept as <GROUP>.0.dsc (the "
        "youngest) to <GROUP>.9.dsc. A file that would grow beyond MEGABYTES (1 to 2047) ends the process.",
        "DISCARDFILE ./dirdsc/REP1.dsc, APPEND, MEGABYTES 50",
        discard_setting,
    ),
    Keyword(
        "RECONNECTSECS",
        "n",
        "How long to try again when the target is away, before the process ends with exit code 3; 3600 if not given.",
        "RECONNECTSECS 600",
        params.number(0, 86_400),
    ),
    Keyword("SPARKMASTER", "url", "Where Spark runs; local[2] if not given.", "SPARKMASTER local[2]", params.text),
    Keyword(
        "SPARKMEMORY",
        "n[M | G]",
        "Heap of the Spark driver (in local mode: of Spark); 768M if not given.",
        "SPARKMEMORY 768M",
        settings.megabytes(256, 1 << 20),
    ),
    Keyword(
        "SPARKOPTIONS",
        "spark.name=value",
        "One more setting for Spark.",
        "SPARKOPTIONS spark.executor.cores=2",
        settings.option,
        repeatable=True,
    ),
)
