"""Replicat's parameters: its keyword table, and the one frozen value that a checked file becomes.

Rule: imports neither Spark nor a database driver, so that ggsci can check a file whole before anything starts. MAP
itself is read by mapping/options.py. Switches and REPERROR hold for the MAPs behind them, so their order counts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from replicat import settings
from replicat.maps import ddlerror as ddlerrors
from replicat.maps import tableerror as tableerrors
from replicat.maps.ddlerror import DdlErrorRule
from replicat.maps.options import MAP_OPTIONS, SWITCHES, MapOption, check_map, parse_map, settled, target_key
from replicat.maps.options import SHAPE as MAP_SHAPE
from replicat.maps.tableerror import TableErrorRule
from replicat.model.mapparams import MapRule, Toggles
from replicat.model.reperror import (
    DEFAULT,
    DEFAULT2,
    DEFAULT_MEGABYTES,
    MOST_RETRIES,
    RESET,
    DiscardSetting,
    ErrorRule,
    accumulate,
    discard_setting,
    error_rule,
)
from replicat.settings import DbOptions, End, Toggle
from replicat.targets import kinds
from replicat.targets.kinds import kind_of
from trails.errors import ParamError
from trails.runtime.home.home import Home
from trails.runtime.language import accepted, acceptedoptions, crypting, ddlparams, params, switches
from trails.runtime.language.ddlparams import DdlRules
from trails.runtime.language.params import Keyword, Pattern, Statement
from trails.runtime.language.reportparams import DISCARDROLLOVER, SHARED
from trails.runtime.secrets.logins import ALIAS, INSTEAD, USER, Database, database, one_login, own_login
from trails.runtime.secrets.logins import SHAPE as LOGIN_SHAPE

__all__ = ["KEYWORDS", "MAP_OPTIONS", "DbOptions", "End", "MapOption", "MapRule", "ReplicatParams", "exact_table"]

URLS = kinds.URLS
DEFAULT_BATCH_ROWS = 100_000
DEFAULT_BATCH_MEGABYTES = 64
DEFAULT_RECONNECT_SECONDS = 3600
DEFAULT_MASTER = "local[2]"
DEFAULT_SPARK_MEGABYTES = 768
DEFAULT_LOAD_TASKS = 2
DEFAULT_LOAD_CHUNK = 250_000


@dataclass(frozen=True, slots=True)
class ReplicatParams:
    """A Replicat's parameter file, checked.

    `error_rules`: the global ones in force at the file's end; those of a table are in its MapRule. `batch_seconds`: the
    longest time to gather, None if not given. `group_trans_ops`, `max_trans_ops`: 0 if not given. `source`: the source
    database, from which tables are loaded; `load_chunk`: in rows; `load_rate`: rows a second, 0 for no limit.
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
    pass_holes: bool = False
    source: Database = field(default_factory=Database)
    source_url: str = ""
    load_tasks: int = DEFAULT_LOAD_TASKS
    load_chunk: int = DEFAULT_LOAD_CHUNK
    load_rate: int = 0
    table_errors: tuple[TableErrorRule, ...] = ()

    @classmethod
    def from_statements(cls, statements: Sequence[Statement], file: str = "") -> ReplicatParams:
        """Check the whole file; ParamErrors with every mistake in it."""
        found = params.check(
            statements, KEYWORDS, "REPLICAT", first="REPLICAT", file=file,
            also=lambda values: (one_login(values, "TARGETDB", URLS), own_login(values, "SOURCEDB", URLS)),
        )  # fmt: skip
        maps, error_rules = _in_order(statements, found)
        login, source = one_login(found, "TARGETDB", URLS), own_login(found, "SOURCEDB", URLS)
        target_url = login.url
        _check_schemas(target_url, maps)
        return cls(
            group=found.one("REPLICAT"),
            target_url=target_url,
            database=login,
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
            pass_holes=found.one("HOLES", False),
            source=source,
            source_url=source.url,
            load_tasks=found.one("LOADTASKS", DEFAULT_LOAD_TASKS),
            load_chunk=found.one("LOADCHUNK", DEFAULT_LOAD_CHUNK),
            load_rate=found.one("LOADRATE", 0),
            table_errors=tuple(found.all("TABLEERROR")),
        )

    def resolved(self, home: Home) -> ReplicatParams:
        """With the URLs to connect with: USERIDALIAS looked up. Raises OperatorError if the alias is not there."""
        source = self.source.login(home) if self.source != Database() else ""
        return replace(self, target_url=self.database.login(home), source_url=source)

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
    ignored = switches.ignored(statements, "MAP")
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
            left_out = ignored.get(id(statement), frozenset())
            maps.append(replace(value, toggles=settled(value, toggles), error_rules=own, ignored=left_out))
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
    """Where there is one schema only, a target elsewhere is a mistake that needs no database to be found."""
    if not url:  # it stands in the credential store
        return
    kind = kind_of(url)
    schema = kind.words.schema
    targets = [(rule.target, rule.where) for rule in maps]
    targets += [(rule.exception.target, rule.exception.where) for rule in maps if rule.exception is not None]
    errors = [
        ParamError(f"{where}: MAP: expected schema {schema} in a {kind.title} target, found {target}")
        for target, where in targets
        if schema and target.parts[0][0] != schema
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
    *accepted.REPLICAT,
    DISCARDROLLOVER,
    ALIAS,
    USER,
    crypting.only_encrypted(),
    Keyword("REPLICAT", "group", "Names the group; the first parameter.", "REPLICAT REP1", params.group, required=True),
    Keyword(
        "TARGETDB", f"url {LOGIN_SHAPE}",
        f"The target database: {kinds.shapes()}. The path of a file begins in the home, and with four slashes at the "
        "root. USERIDALIAS: user and password are those of this alias in the credential store. USERID: they stand "
        "here.",
        f"TARGETDB {URLS.url('there:5432/shop')}, USERIDALIAS deliver", database(settings.url, URLS), required=True,
        instead=INSTEAD,
    ),
    Keyword(
        "SOURCEDB", f"url {LOGIN_SHAPE}",
        "The source database, for the initial load (docs/initial-load.md) and COMPARE: INSTANTIATE asks it how its "
        "tables look, and Replicat reads their rows there. A USERIDALIAS or USERID on a line of its own is TARGETDB's.",
        f"SOURCEDB {URLS.url('db.example:5432/shop')}, USERIDALIAS capture", database(settings.source_url, URLS),
    ),
    Keyword(
        "LOADTASKS", "n",
        f"How many chunks of tables are copied at once in an initial load, 1 to 32; {DEFAULT_LOAD_TASKS} if not given. "
        "Each has a connection to the source and one to the target.",
        "LOADTASKS 4", params.number(1, 32),
    ),
    Keyword(
        "LOADCHUNK", "n",
        f"About how many rows a chunk of an initial load has; {DEFAULT_LOAD_CHUNK} if not given. Changes wait while "
        "chunks are copied, so smaller chunks mean less lag during the load, and larger ones a faster load.",
        "LOADCHUNK 100000", params.number(1, 100_000_000),
    ),
    Keyword(
        "LOADRATE", "n",
        "How many rows a second an initial load copies at most, on average; without it there is no limit. A chunk "
        "is copied at full speed, and the next ones wait, so smaller chunks (LOADCHUNK) mean a more even load of the "
        "source.",
        "LOADRATE 20000", params.number(1, 100_000_000),
    ),
    Keyword(
        "MAP", MAP_SHAPE,
        "Apply changes of the source tables to the target table, column by column of the same name. * and ? are "
        "wildcards in the source. One * in each part of the target stands for the source's own name. An exact name "
        "counts before wildcards, and a narrower wildcard before a wider one. Several MAPs of the same source all "
        "apply. The options are listed below.",
        "MAP sales.*, TARGET public.*;", parse_map, repeatable=True, required=True,
    ),
    *switches.keywords("MAP", "applied"),
    Keyword(
        "MAPEXCLUDE", "source.table [, source.table ...][;]",
        "Source tables that no MAP takes.",
        "MAPEXCLUDE sales.tmp_*, sales.log;", settings.excludes, repeatable=True,
    ),
    Keyword(
        "CHECKPOINTTABLE", "schema.table",
        "The checkpoint table in the target. It counts before that of ADD REPLICAT, and that of GLOBALS.",
        "CHECKPOINTTABLE ggadmin.checkpoint", settings.checkpoint_table,
    ),
    Keyword(
        "BATCHROWS", "n",
        f"The most changes in one Spark job; {DEFAULT_BATCH_ROWS} if not given. Whole transactions are gathered up to "
        "this number. A larger transaction is applied by several jobs inside one target transaction.",
        "BATCHROWS 100000", params.number(1, 10_000_000),
    ),
    Keyword(
        "BATCHBYTES", "n[M | G]",
        f"The most trail data in one Spark job, before compression; {DEFAULT_BATCH_MEGABYTES}M if not given. It bounds "
        "a job as BATCHROWS does.",
        "BATCHBYTES 64M", settings.batch_bytes,
    ),
    Keyword(
        "BATCHSECS", "n[MS]",
        "The longest time that changes are gathered before a batch is closed, in seconds (at most 600) or "
        "milliseconds. More time makes larger batches, and as much more delay. If not given, a batch is closed at "
        "once. Where one follows the other, it gathers until the one before has cost a fifth of a processor, 250MS "
        "at most.",
        "BATCHSECS 2", settings.batch_seconds,
    ),
    Keyword(
        "GROUPTRANSOPS", "n",
        "Close a batch as soon as its transactions have so many changes together. A source transaction is never "
        "split, and at the trail's end a smaller batch is closed too. With 1 each source transaction is a target "
        "transaction of its own. If not given, only BATCHROWS and BATCHBYTES bound a "
        "batch.",
        "GROUPTRANSOPS 1000", params.number(1, 10_000_000),
    ),
    Keyword(
        "MAXTRANSOPS", "n",
        "Split source transactions of more changes into several target transactions, at the borders of the trail's "
        "blocks. Until the last part is committed others see only a part of the transaction, and the report says so. "
        "If not given, no transaction is split.",
        "MAXTRANSOPS 1000000", params.number(1, 1_000_000_000),
    ),
    Keyword(
        "END", "{RUNTIME | CSN x | YYYY-MM-DD [HH:MM[:SS]]}",
        "Apply every transaction up to that CSN, or up to that commit time in this machine's time zone, the last one "
        "included. Then stop as by STOP, and say so. RUNTIME is the moment of the START, or the trail's end, "
        "whichever is met first.",
        "END CSN 0000000001A2B3C0", settings.end,
    ),
    Keyword(
        "DBOPTIONS", "option [, option ...]",
        "What the target's database does when changes are applied:\n"
        "- SUPPRESSTRIGGERS: triggers and cascades of target tables must not fire, or START refuses.\n"
        "- NOSUPPRESSTRIGGERS: they fire. If neither is given, they don't fire if the target user may prevent it.\n"
        "- DEFERREFCONST: foreign keys are checked at the end of each target transaction.\n"
        "- FOLLOWSEQUENCES: sequences of identity columns follow the values.",
        "DBOPTIONS DEFERREFCONST, FOLLOWSEQUENCES", acceptedoptions.stripped(settings.db_option), repeatable=True,
    ),
    ddlparams.keyword(
        "Which changes of tables' shapes are applied to the target. If not given none is: each is told in the report "
        "and left out. Changes of tables that no MAP names are never applied.",
        "DDL INCLUDE MAPPED",
    ),
    Keyword(
        "DDLERROR", ddlerrors.SHAPE,
        "What becomes of a change of shape that the target refuses. A change that can't be carried to the target at "
        "all meets DEFAULT. If no rule fits it is ABEND.\n"
        "- ABEND ends the process.\n"
        "- IGNORE leaves the change out, with a line in the report.\n"
        "- DISCARD writes it to the discard file.\n"
        f"- RETRYOP first tries the batch again, n times (1 to {MOST_RETRIES}), each after s seconds "
        f"({ddlerrors.DEFAULT_DELAY} if not given).",
        "DDLERROR 55P03 ABEND RETRYOP MAXRETRIES 5 RETRYDELAY 10", ddlerrors.ddl_error, repeatable=True,
    ),
    Keyword(
        "TABLEERROR", tableerrors.SHAPE,
        "What an error of one table does, where REPERROR with all its tries would end the process. That is a change "
        "that the target refuses, or of which no target row can be made, also as its table is missing there. The "
        "first TABLEERROR whose pattern takes the source table counts. Without one it is ABEND.\n"
        "- ABEND ends the process.\n"
        "- PAUSE leaves this table behind, as PAUSE TABLE does, and all others go on. Its changes stay in the trail, "
        "whose files are kept for it: for 7 days, unless MAXKEEPHOURS or MAXKEEPDAYS says how long. Transactions that "
        "change this table and others are torn in the target meanwhile (docs/tables.md).",
        "TABLEERROR (sales.*, PAUSE, MAXKEEPDAYS 2)", tableerrors.table_error, repeatable=True,
    ),
    *(
        Keyword(name, "", text, name, settings.toggle(name), repeatable=True)
        for switch, meaning in SWITCHES.items()
        for name, text in ((switch, meaning), (f"NO{switch}", f"The MAPs behind it are without {switch} again."))
    ),
    Keyword(
        "COMMITWAIT", "",
        "Each commit in the target waits for the target's disk. Without COMMITWAIT a crash of the target may lose the "
        "last data together with their checkpoint row. They are then applied again from the trail, which is kept "
        "until they are safe.",
        "COMMITWAIT", params.nothing,
    ),
    Keyword(
        "ALLOWTARGETTRIGGERS", "",
        "Go on although triggers, rules and cascades of target tables fire. What keeps them from firing is this:"
        + "".join(f"\n- {title}: {kind.without_triggers}." for title, kind in kinds.TITLES.items()),
        "ALLOWTARGETTRIGGERS", params.nothing,
    ),
    Keyword(
        "REPERROR", "{RESET | (DEFAULT | DEFAULT2 | SQLSTATE | error number or name, action)}",
        "What becomes of a change that the target refuses even by itself. A rule holds for the MAPs behind it. The "
        "action is one of these:\n"
        "- ABEND: the process ends, and nothing from the change's transaction on is committed.\n"
        "- DISCARD: the change is written to the discard file.\n"
        "- IGNORE: the change is left out.\n"
        "- EXCEPTION: the change goes to the MAP's exceptions table.\n"
        "- RETRYOP [MAXRETRIES n] [DELAYSECS n | DELAYCSECS n]: the change is tried again.\n"
        "- TRANSABORT, with the same options: the whole transaction is tried again.\n"
        "- TRANSDISCARD, TRANSEXCEPTION: the whole transaction goes to the discard file, or to the exceptions table.\n"
        "The rule for exactly this error counts, else DEFAULT, else ABEND. DEFAULT2 counts where EXCEPTION has no "
        "table. The error 02000 (or 1403) stands for a row that is missing. The numbers -1, -1400, -2291 and the like, "
        "which files of GoldenGate have, stand for the SQLSTATEs of the same errors.",
        "REPERROR (23514, DISCARD)", error_rule, repeatable=True,
    ),
    Keyword(
        "DISCARDFILE", "file [, APPEND | PURGE] [, MEGABYTES n]",
        "The file to which REPERROR's DISCARD writes: a file *.dsc in ./dirdsc or ./dirrpt. If not given it is "
        f"./dirdsc/<GROUP>.dsc, APPEND, MEGABYTES {DEFAULT_MEGABYTES}. With PURGE, START begins a new file. The ten "
        "files before it are kept as <GROUP>.0.dsc (the youngest) to <GROUP>.9.dsc. The process ends if the file would "
        "grow beyond MEGABYTES (1 to 2047).",
        "DISCARDFILE ./dirdsc/REP1.dsc, APPEND, MEGABYTES 50", discard_setting,
    ),
    Keyword(
        "RECONNECTSECS", "n",
        "For how many seconds to try again when the target is away; "
        f"{DEFAULT_RECONNECT_SECONDS} if not given. Then the process ends with exit code 3.",
        "RECONNECTSECS 600", params.number(0, 86_400),
    ),
    Keyword(
        "HOLES", "{ABEND | REPORT}",
        "What Replicat does where the trail says that changes are missing (docs/recovery.md). ABEND, the default, "
        "applies everything before and then ends the process: START with PASTHOLE goes on. REPORT warns and goes on.",
        "HOLES REPORT", settings.holes,
    ),
    Keyword(
        "SPARKMASTER", "url",
        f"Where Spark runs; {DEFAULT_MASTER} if not given. With local[n], n tasks stay and decode batches. Spark has "
        "as many threads again for other jobs. Workers elsewhere have such tasks where Spark seals what it sends "
        "(docs/replicat.md).",
        "SPARKMASTER local[2]", params.text,
    ),
    Keyword(
        "SPARKMEMORY", "n[M | G]",
        f"Heap of the Spark driver, and in local mode of all of Spark; {DEFAULT_SPARK_MEGABYTES}M if not given.",
        "SPARKMEMORY 768M", settings.megabytes(256, 1 << 20),
    ),
    Keyword(
        "SPARKOPTIONS", "spark.name=value",
        "One more setting for Spark.",
        "SPARKOPTIONS spark.executor.cores=2", settings.option, repeatable=True,
    ),
)  # fmt: skip
