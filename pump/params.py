"""The pump's parameters: its keyword table, and the one frozen value that a checked file becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trails.errors import OperatorError
from trails.position import TrailName
from trails.runtime.language import accepted, acceptedoptions, crypting, params, remotehost, switches
from trails.runtime.language.params import Keyword, ParamErrors, Pattern, Statement, Values
from trails.runtime.language.remotehost import RemoteHost
from trails.runtime.language.reportparams import ROLLOVER, SHARED
from trails.runtime.language.tableparams import COLUMN_HELP, SHAPE, TableRules, clauses, patterns

DEFAULT_WINDOW_MEGABYTES = 32
DEFAULT_RETRY_DELAY = 10
DEFAULT_RETRY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class PumpParams:
    """A pump's parameter file, checked. Times in seconds."""

    group: str
    remote: RemoteHost
    trail: str
    tables: TableRules = field(default_factory=lambda: TableRules(every=True))
    decode: bool = False
    window_bytes: int = DEFAULT_WINDOW_MEGABYTES << 20
    retry_delay: float = DEFAULT_RETRY_DELAY
    retry_seconds: float = DEFAULT_RETRY_SECONDS
    encrypt: bool = False
    decrypt: bool = False

    @classmethod
    def from_statements(cls, statements: Sequence[Statement], file: str = "") -> PumpParams:
        """Check the whole file; ParamErrors with every mistake in it."""
        found = params.check(statements, KEYWORDS, "a pump", first="EXTRACT", file=file)
        ignored = switches.ignored(statements)
        _check_order(found, ignored)
        return cls(
            group=found.one("EXTRACT"),
            remote=found.one("RMTHOST"),
            trail=found.one("RMTTRAIL"),
            tables=TableRules.of(found, every=True, ignored=ignored),
            decode=found.has("NOPASSTHRU"),
            window_bytes=found.one("WINDOW", DEFAULT_WINDOW_MEGABYTES) << 20,
            retry_delay=found.one("RETRYDELAY", DEFAULT_RETRY_DELAY),
            retry_seconds=found.one("RETRYSECS", DEFAULT_RETRY_SECONDS),
            encrypt=found.has("ENCRYPTTRAIL"),
            decrypt=found.has("DECRYPTTRAIL"),
        )

    @property
    def filters(self) -> bool:
        """Whether blocks must be decoded: NOPASSTHRU, a TABLE with options or under switches, or TABLE and TABLEEXCLUDE
        that do not let every table through.
        """
        tables = self.tables
        every = not tables.clauses or any(_is_all(clause.pattern) for clause in tables.clauses)
        return self.decode or tables.has_columns or bool(tables.excluded) or not every

    def passes(self, schema: str, name: str) -> bool:
        """Whether a table is sent: named by a TABLE (or there is none), and by no TABLEEXCLUDE."""
        return self.tables.wants(schema, name)


def _is_all(pattern: Pattern) -> bool:
    return all(part == "*" and not quoted for part, quoted in pattern.parts)


def _check_order(found: Values, ignored: dict[int, frozenset[int]]) -> None:
    """What no single statement can say. Raises ParamErrors."""
    errors = []
    if found.has("PASSTHRU") and found.has("NOPASSTHRU"):
        errors.append(found.statements("NOPASSTHRU")[0].wrong("expected PASSTHRU or NOPASSTHRU, found both"))
    if found.statements("RMTTRAIL")[0].line < found.statements("RMTHOST")[0].line:
        errors.append(found.statements("RMTTRAIL")[0].wrong("expected after RMTHOST, found before it"))
    errors += remotehost.contradictions(found)
    if found.has("PASSTHRU") and TableRules.of(found, ignored=ignored).has_columns:
        wrong = "options of TABLE, and IGNORE switches, need decoded blocks: expected no PASSTHRU, found it"
        errors.append(found.statements("PASSTHRU")[0].wrong(wrong))
    if errors:
        raise ParamErrors(errors)


def _trail(statement: Statement) -> str:
    text = params.word(statement)
    try:
        TrailName.parse(text)
    except OperatorError as error:
        raise statement.wrong(str(error)) from None
    return text


KEYWORDS = SHARED | params.table(
    *accepted.PUMP,
    ROLLOVER,
    Keyword("EXTRACT", "group", "Names the group; the first parameter.", "EXTRACT PMP1", params.group, required=True),
    remotehost.keyword(required=True),
    Keyword(
        "RMTTRAIL", "trail",
        "The remote trail, as the remote home names it. ADD RMTTRAIL must have added it.",
        "RMTTRAIL ./dirdat/rt", acceptedoptions.stripped(_trail), required=True,
    ),
    crypting.keyword(
        "Have the remote trail's files encrypted there. Blocks travel inside TLS, without this encryption."
    ),
    crypting.only_encrypted(),
    Keyword(
        "PASSTHRU", "",
        "Send blocks as they stand, without decoding them. This is the default unless TABLE, TABLEEXCLUDE or a switch "
        "leaves something out. STATS then counts all tables together.",
        "PASSTHRU", params.nothing,
    ),
    Keyword(
        "NOPASSTHRU", "",
        "Decode every block, even if all tables pass, and count by table.",
        "NOPASSTHRU", params.nothing,
    ),
    Keyword(
        "TABLE", SHAPE,
        f"Send only these tables; * and ? are wildcards. Without TABLE every table is sent. {COLUMN_HELP}",
        "TABLE sales.*, COLSEXCEPT (secret);", acceptedoptions.stripped(clauses), repeatable=True,
    ),
    *switches.keywords("TABLE", "sent"),
    Keyword(
        "TABLEEXCLUDE", "schema.table [, schema.table ...][;]",
        "Don't send these tables, even where TABLE names them.",
        "TABLEEXCLUDE sales.audit;", patterns, repeatable=True,
    ),
    Keyword(
        "WINDOW", "megabytes",
        "The most megabytes that are sent and not yet acknowledged as synced; "
        f"{DEFAULT_WINDOW_MEGABYTES} if not given. A link to a far host needs its rate times its round trip.",
        "WINDOW 32", params.number(1, 1024),
    ),
    Keyword(
        "RETRYDELAY", "seconds",
        f"The longest pause between two tries to get a lost link back; {DEFAULT_RETRY_DELAY} if not given. The first "
        "pause is 0.1 s, and each next one is twice as long.",
        "RETRYDELAY 10", params.number(1, 3600),
    ),
    Keyword(
        "RETRYSECS", "seconds",
        "How long to try to get a lost link back before the pump ends with exit code 3; a day if not given.",
        "RETRYSECS 3600", params.number(0, 1_000_000),
    ),
)  # fmt: skip
