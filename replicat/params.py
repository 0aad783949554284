"""Replicat's parameters: its keyword table, and the one frozen value that a checked file becomes.

Rule: imports neither Spark nor a database driver, so that ggsci can check a file whole before anything starts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from replicat.refusals import DiscardSetting, ErrorRule, discard_setting, error_rule
from trails.runtime import params
from trails.runtime.home import Home
from trails.runtime.params import COMMON, Keyword, Pattern, Statement

DEFAULT_BATCH_ROWS = 100_000
DEFAULT_BATCH_MEGABYTES = 64
DEFAULT_RECONNECT_SECONDS = 3600
DEFAULT_MASTER = "local[2]"
DEFAULT_SPARK_MEGABYTES = 768


@dataclass(frozen=True, slots=True)
class MapRule:
    """One MAP: source tables that match go to `target`; `where` is file:line for messages."""

    source: Pattern
    target: Pattern
    where: str


@dataclass(frozen=True, slots=True)
class ReplicatParams:
    """A Replicat's parameter file, checked."""

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

    @classmethod
    def from_statements(cls, statements: Sequence[Statement], file: str = "") -> ReplicatParams:
        """Check the whole file; ParamErrors with every mistake in it."""
        found = params.check(statements, KEYWORDS, "REPLICAT", first="REPLICAT", file=file)
        return cls(
            group=found.one("REPLICAT"),
            target_url=found.one("TARGETDB"),
            maps=tuple(found.all("MAP")),
            excludes=tuple(found.all("MAPEXCLUDE")),
            checkpoint_table=found.one("CHECKPOINTTABLE"),
            batch_rows=found.one("BATCHROWS", DEFAULT_BATCH_ROWS),
            batch_bytes=found.one("BATCHBYTES", DEFAULT_BATCH_MEGABYTES << 20),
            commit_wait=found.has("COMMITWAIT"),
            allow_triggers=found.has("ALLOWTARGETTRIGGERS"),
            reconnect_seconds=found.one("RECONNECTSECS", DEFAULT_RECONNECT_SECONDS),
            spark_master=found.one("SPARKMASTER", DEFAULT_MASTER),
            spark_megabytes=found.one("SPARKMEMORY", DEFAULT_SPARK_MEGABYTES),
            spark_options=tuple(found.all("SPARKOPTIONS")),
            error_rules=tuple(found.all("REPERROR")),
            discard_file=found.one("DISCARDFILE", DiscardSetting()),
        )

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


def _checkpoint_table(statement: Statement) -> tuple[str, str]:
    name = params.pattern(statement).exact
    if name is None:
        raise statement.error("one table without wildcards, such as ggadmin.checkpoint")
    return name


def _url(statement: Statement) -> str:
    url = params.text(statement)
    if not url.startswith(("postgresql://", "postgres://")):
        kind = url.partition("://")[0]
        raise statement.wrong(f"expected a URL postgresql://user@host:port/database, found one of kind {kind[:20]!r}")
    return url


def _map(statement: Statement) -> MapRule:
    words = statement.words
    if len(words) != 3 or str(words[1]).upper() != "TARGET":
        raise statement.error("source.table, TARGET target.table;")
    source = params.table_pattern(statement, words[0])
    target = params.table_pattern(statement, words[2])
    if not target.is_target:
        raise statement.error("a target whose only wildcards are lone *, such as public.*", str(target))
    return MapRule(source, target, f"{statement.file}:{statement.line}")


def _option(statement: Statement) -> tuple[str, str]:
    name, equals, value = statement.text.partition("=")
    if not equals or not name.strip().startswith("spark."):
        raise statement.error("spark.name=value")
    return name.strip(), value.strip()


def _megabytes(low: int, high: int) -> params.Parser:
    def parse(statement: Statement) -> int:
        item = params.word(statement).upper()
        factor = 1024 if item.endswith("G") else 1
        return params.whole(statement, item.rstrip("MG"), -(-low // factor), high // factor) * factor

    return parse


def _batch_bytes(statement: Statement) -> int:
    return int(_megabytes(1, 2048)(statement)) << 20


KEYWORDS = COMMON | params.table(
    Keyword("REPLICAT", "group", "Names the group; the first parameter.", "REPLICAT REP1", params.group, required=True),
    Keyword(
        "TARGETDB",
        "postgresql://user@host:port/database",
        "The target database.",
        "TARGETDB postgresql://gg@there:5432/shop",
        _url,
        required=True,
    ),
    Keyword(
        "MAP",
        "source.table, TARGET target.table;",
        "Apply changes of the source tables to the target table, columns by name. * and ? match in the source; "
        "a lone * in the target stands for the source's own name. The first MAP that matches counts.",
        "MAP sales.*, TARGET public.*;",
        _map,
        repeatable=True,
        required=True,
    ),
    Keyword(
        "MAPEXCLUDE",
        "source.table;",
        "Source tables that no MAP takes.",
        "MAPEXCLUDE sales.tmp_*;",
        params.pattern,
        repeatable=True,
    ),
    Keyword(
        "CHECKPOINTTABLE",
        "schema.table",
        "The checkpoint table in the target; overrules the one of ADD REPLICAT and GLOBALS.",
        "CHECKPOINTTABLE ggadmin.checkpoint",
        _checkpoint_table,
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
        _batch_bytes,
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
        "(DEFAULT | SQLSTATE, ABEND | DISCARD)",
        "What becomes of a change that the target refuses even by itself: ABEND the group with nothing committed, or "
        "write the change to the discard file and apply everything else. The first REPERROR with exactly this SQLSTATE "
        "counts, else the first with DEFAULT, else ABEND. 02000 stands for a row that is not there.",
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
        _megabytes(256, 1 << 20),
    ),
    Keyword(
        "SPARKOPTIONS",
        "spark.name=value",
        "One more setting for Spark.",
        "SPARKOPTIONS spark.executor.cores=2",
        _option,
        repeatable=True,
    ),
)
