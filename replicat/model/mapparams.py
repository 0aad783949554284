"""What a MAP says, checked: frozen plain values that other modules read and that travel to Spark's workers.

Rule: names of columns and expressions stand here as the file has them. Which column a name means is known only with
the tables at hand: mapping/rules.py resolves them. The text is read by mapping/options.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from replicat.model.reperror import ErrorRule
from trails.runtime.language.params import Pattern

OPERATIONS = ("INSERT", "UPDATE", "DELETE")

INSERT_ROW_EXISTS = "INSERTROWEXISTS"
UPDATE_ROW_EXISTS = "UPDATEROWEXISTS"
UPDATE_ROW_MISSING = "UPDATEROWMISSING"
DELETE_ROW_EXISTS = "DELETEROWEXISTS"
DELETE_ROW_MISSING = "DELETEROWMISSING"
CONFLICTS = (INSERT_ROW_EXISTS, UPDATE_ROW_EXISTS, UPDATE_ROW_MISSING, DELETE_ROW_EXISTS, DELETE_ROW_MISSING)

OVERWRITE = "OVERWRITE"
IGNORE = "IGNORE"
DISCARD = "DISCARD"
USEMAX = "USEMAX"
USEMAXEQ = "USEMAXEQ"
USEMIN = "USEMIN"
USEMINEQ = "USEMINEQ"
USEDELTA = "USEDELTA"
COMPARING = (USEMAX, USEMAXEQ, USEMIN, USEMINEQ)
"""Methods that name a column whose values decide."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """`column = text` in a COLMAP; `where` is file:line of it."""

    column: str
    text: str
    where: str


@dataclass(frozen=True, slots=True)
class Condition:
    """A FILTER or WHERE. `ops`: the operations that ON names, empty if none does."""

    text: str
    where: str
    ops: frozenset[str] = frozenset()
    keyword: str = "FILTER"


@dataclass(frozen=True, slots=True)
class Toggles:
    """Switches that hold for all MAPs behind them, as they stood at a MAP, its own options considered."""

    insert_all: bool = False
    insert_deletes: bool = False
    insert_updates: bool = False
    update_deletes: bool = False
    update_inserts: bool = False
    insert_missing: bool = False
    collisions: bool = False
    allow_dup_target: bool = False
    ignore_missing_columns: bool = False


@dataclass(frozen=True, slots=True)
class ExceptionRule:
    """MAPEXCEPTION: where changes go that REPERROR gives to an exceptions table."""

    target: Pattern
    where: str
    use_defaults: bool = True
    colmap: tuple[Assignment, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """Which columns COMPARECOLS compares: `kind` is ALL, KEY, KEYINCLUDING or ALLEXCLUDING `columns`."""

    kind: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompareCols:
    """COMPARECOLS: what is compared at an update, and at a delete. None: the key alone."""

    where: str
    update: Comparison | None = None
    delete: Comparison | None = None


@dataclass(frozen=True, slots=True)
class ResolveGroup:
    """`(name, method, COLS (...))`; `column` is the one that USEMAX and its like compare."""

    name: str
    method: str
    column: str = ""
    cols: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResolveRule:
    """One RESOLVECONFLICT. `default`: for all columns that no group names; its `cols` is empty."""

    type: str
    default: ResolveGroup
    groups: tuple[ResolveGroup, ...] = ()
    where: str = ""


@dataclass(frozen=True, slots=True)
class MapRule:
    """One MAP: source tables that match go to `target`; `where` is file:line for messages.

    `error_rules`: its own REPERRORs, then the global ones in force there; no code twice, so the first that fits counts.
    `zero_dates`: those that no calendar has become NULL (ZERODATE NULL). `ignored`: operations that it does not take.
    `overrides`: switches among its own options, already in `toggles` once the file is read.
    """

    source: Pattern
    target: Pattern
    where: str
    use_defaults: bool = True
    colmap: tuple[Assignment, ...] = ()
    conditions: tuple[Condition, ...] = ()
    key_columns: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    columns_except: tuple[str, ...] = ()
    toggles: Toggles = field(default_factory=Toggles)
    overrides: tuple[tuple[str, bool], ...] = ()
    error_rules: tuple[ErrorRule, ...] = ()
    exception: ExceptionRule | None = None
    exceptions_only: bool = False
    compare: CompareCols | None = None
    resolve: tuple[ResolveRule, ...] = ()
    weight: int = 0
    zero_dates: bool = False
    ignored: frozenset[int] = frozenset()
