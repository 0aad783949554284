"""Parsers for Replicat's own parameters, and the small values that some of them become.

Rule: one function a parameter, text in, value out; a ParamError says file, line, what was expected and found.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from replicat.maps.options import TOGGLES
from replicat.targets import kinds
from trails.runtime.language import params
from trails.runtime.language.params import Pattern, Statement

MOST_BATCH_SECONDS = 600
DB_OPTIONS = ("SUPPRESSTRIGGERS", "NOSUPPRESSTRIGGERS", "DEFERREFCONST", "FOLLOWSEQUENCES")
_CSN = re.compile(r"[0-9A-Za-z/:.-]+")


@dataclass(frozen=True, slots=True)
class DbOptions:
    """DBOPTIONS. `suppress_triggers` is None where the file says neither: suppressed where the target permits it."""

    suppress_triggers: bool | None = None
    defer_ref_const: bool = False
    follow_sequences: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """END: the last transaction is that of this CSN, or committed at this time; with neither, at that of the start.

    `whole`: all that is there, whatever its time; for a task.
    """

    csn: str = ""
    time_us: int | None = None
    whole: bool = False


def url(statement: Statement) -> str:
    """TARGETDB: a URL of a kind that there is a target for."""
    url = params.text(statement)
    if fault := kinds.url_fault(url):
        raise statement.wrong(fault)
    return url


def source_url(statement: Statement) -> str:
    """SOURCEDB: a URL of a kind that there is a source for."""
    url = params.text(statement)
    scheme, sign, _ = url.partition("://")
    if not sign or scheme not in kinds.KINDS:
        raise statement.error(f"a URL such as {kinds.URLS.url('db.example:5432/shop')}", f"{scheme[:20]}:...")
    return url


def excludes(statement: Statement) -> tuple[Pattern, ...]:
    """MAPEXCLUDE: a list of tables."""
    if not statement.words:
        raise statement.error("schema.table, ...")
    return tuple(params.table_pattern(statement, word) for word in statement.words)


@dataclass(frozen=True, slots=True)
class Toggle:
    """A switch as it stands in the file."""

    field: str
    on: bool


def toggle(name: str) -> params.Parser:
    """The parser of a switch, or of its NO."""

    def parse(statement: Statement) -> Toggle:
        params.nothing(statement)
        return Toggle(TOGGLES[name.removeprefix("NO")], not name.startswith("NO"))

    return parse


def batch_seconds(statement: Statement) -> float:
    """BATCHSECS n, or nMS."""
    item = params.word(statement).upper()
    if item.endswith("MS"):
        return params.whole(statement, item.removesuffix("MS"), 0, MOST_BATCH_SECONDS * 1000) / 1000
    return float(params.whole(statement, item, 0, MOST_BATCH_SECONDS))


def end(statement: Statement) -> End:
    """END {RUNTIME | CSN x | time}."""
    expected = "RUNTIME, CSN x, or a time such as 2026-02-03 02:30:05"
    words = [str(word) for word in statement.words]
    if any(isinstance(word, params.Group) for word in statement.words) or not words:
        raise statement.error(expected)
    if [word.upper() for word in words] == ["RUNTIME"]:
        return End()
    if words[0].upper() == "CSN":
        if len(words) != 2 or not _CSN.fullmatch(words[1]):
            raise statement.error("CSN x")
        return End(csn=words[1])
    try:
        moment = datetime.fromisoformat(" ".join(words)).astimezone()
    except (ValueError, OverflowError):
        raise statement.error(expected) from None
    return End(time_us=int(moment.timestamp() * 1_000_000))


def holes(statement: Statement) -> bool:
    """HOLES: whether they are passed."""
    item = params.word(statement).upper()
    if item not in ("ABEND", "REPORT"):
        raise statement.error("ABEND or REPORT")
    return item == "REPORT"


def db_option(statement: Statement) -> tuple[str, ...]:
    """DBOPTIONS: the names of options."""
    words = [word for item in statement.words for word in (item if isinstance(item, params.Group) else (item,))]
    if not words and not statement.text:
        raise statement.error(" | ".join(DB_OPTIONS))
    for word in words:
        if not isinstance(word, str) or word.upper() not in DB_OPTIONS:
            near = params.did_you_mean(word, DB_OPTIONS) if isinstance(word, str) else ""
            raise statement.error(f"{', '.join(DB_OPTIONS)}{near}", word)
    return tuple(str(word).upper() for word in words)


def checkpoint_table(statement: Statement) -> tuple[str, str]:
    """One table without wildcards."""
    name = params.pattern(statement).exact
    if name is None:
        raise statement.error("one table without wildcards, such as ggadmin.checkpoint")
    return name


_NOT_OPTIONS = {
    "spark.master": "SPARKMASTER, which says where Spark runs",
    "spark.speculation": "none: a second try of a task that stays would take it for lost",
    "spark.python.worker.idleTimeoutSeconds": "none: a worker that waits for changes is not idle",
    "spark.python.worker.killOnIdleTimeout": "none: a worker that waits for changes is not idle",
}
"""What Replicat counts on, and what to write instead."""


def option(statement: Statement) -> tuple[str, str]:
    """SPARKOPTIONS name=value."""
    name, equals, value = statement.text.partition("=")
    if not equals or not name.strip().startswith("spark."):
        raise statement.error("spark.name=value")
    if name.strip() in _NOT_OPTIONS:
        raise statement.error(_NOT_OPTIONS[name.strip()])
    return name.strip(), value.strip()


def megabytes(low: int, high: int) -> params.Parser:
    """A parser for a size in megabytes, or with G."""

    def parse(statement: Statement) -> int:
        item = params.word(statement).upper()
        factor = 1024 if item.endswith("G") else 1
        return params.whole(statement, item.rstrip("MG"), -(-low // factor), high // factor) * factor

    return parse


def batch_bytes(statement: Statement) -> int:
    """BATCHBYTES: bytes."""
    return int(megabytes(1, 2048)(statement)) << 20
