"""What becomes of a source table's rows: plain data that travels to Spark's workers.

Rule: everything here is frozen and picklable; mapping/rules.py makes it, net/builder.py obeys it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from replicat.model.loading import Loading
from replicat.model.mapparams import ResolveRule
from replicat.model.reperror import GIVES_UP, ErrorRule
from replicat.model.target import NO_ROW, Layout
from trails.record import Value


@dataclass(frozen=True, slots=True)
class Operand:
    """One thing an expression reads: `kind` is column, before, fact, token, const, or missing (is the column MISSING).

    `index`: of the image (column, before, token, missing); `name`: of a fact, token or column, a const's text, `before`
    for missing in the before image; `type`: the Spark type that the text is cast to.
    """

    kind: str
    index: int = -1
    name: str = ""
    type: str = "STRING"


@dataclass(frozen=True, slots=True)
class Expression:
    """A Spark SQL expression over operands.

    `sql`: operands stand in it as mapping.programs.mark() writes them; `type`: its result's logical type; `where`:
    file:line; `text`: as written; `left_out`: a condition in the same form under which the column is left out;
    `keyword`: such as COLMAP total; `as_text`: it gives canonical text of that type, not what Spark prints of it.
    """

    sql: str
    where: str
    text: str
    operands: tuple[Operand, ...]
    type: str
    left_out: str = ""
    keyword: str = ""
    as_text: bool = False


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one written column's value comes from: `kind` is column, before, const, fact, token or expr.

    `index`: of the image, or of the mapping's expressions; `value`: of a const; `name`: of a fact or token.
    """

    kind: str
    index: int = -1
    value: Value = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A condition (an expression's index). Without `ops` it says which rows belong to the target; with them, which
    of these operations (INSERT, UPDATE, DELETE) pass.
    """

    expr: int
    ops: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class MapProgram:
    """What a MAP asks beyond columns by name. `slots`: one for each column of the layout.

    `needs_before`: a key column comes from outside the source's key (KEYCOLS), so an update without a before image, or
    a before image without what the key comes from, does not tell which row it is of: the change must be refused.
    `source_key`: the source's key columns, by index of the image.
    """

    slots: tuple[Slot, ...]
    expressions: tuple[Expression, ...] = ()
    filters: tuple[RowFilter, ...] = ()
    insert_all: bool = False
    insert_deletes: bool = False
    insert_updates: bool = False
    update_deletes: bool = False
    update_inserts: bool = False
    needs_before: bool = False
    source_key: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Conflict:
    """COMPARECOLS and RESOLVECONFLICT of a table, names of columns as the layout has them.

    `update`, `delete`: indexes of the layout's columns, beside the key, that must be as the change's before image says.
    """

    update: tuple[int, ...] = ()
    delete: tuple[int, ...] = ()
    rules: tuple[ResolveRule, ...] = ()


UNIQUE, ANY = "unique", "any"
"""By what a change of one row of a table can have another row's refused: unique values beside the key, or nobody knows
which rows are one, as there is no key; or anything.
"""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What becomes of a source table's rows. `pick`: image indexes that the target has (None: all).

    `integer_key`: one key column, of whole numbers. `error`: why it can't be applied; told when the first row of it is
    met, so that all before it still arrives. `skipped`: source columns left out because the target lacks them.
    `error_rules`: REPERROR for this table, the MAP's own before the global ones; `exceptions`: plans of the exceptions
    tables (MAPEXCEPTION, EXCEPTIONSONLY), which append a row for each change. `across`: UNIQUE, ANY, or nothing.
    `zero_dates`: columns of the row that the plan's worker gets, whose zero dates become NULL. `loading`: the chunks of
    a table that is being loaded. `ignored`: operations that the MAP does not take.

    What follows from these: `gives_up`: REPERROR may leave out a change of it (a row that is missing is found in any
    net effect); `lenient`: it is not known of some changes if their row is there; `asks_facts`: it matters of which
    transaction a change is; `usual`: each change is carried by itself to a table with a key, as lines of text; `shape`:
    plans that have the same share one net effect.
    """

    source: str
    target: str
    layout: Layout
    key: tuple[int, ...]
    pick: tuple[int, ...] | None = None
    integer_key: bool = False
    error: str = ""
    columns: tuple[str, ...] = ()  # names of all columns of an image, where `pick` leaves some out
    mapping: MapProgram | None = None  # with one, rows are mapped first; then `key` counts in the mapped row
    skipped: tuple[str, ...] = ()
    error_rules: tuple[ErrorRule, ...] = ()
    exceptions: tuple[TablePlan, ...] = ()
    conflict: Conflict | None = None
    across: str = ""
    zero_dates: tuple[int, ...] = ()
    loading: Loading | None = None
    ignored: frozenset[int] = frozenset()
    gives_up: bool = field(init=False, repr=False, compare=False)
    lenient: bool = field(init=False, repr=False, compare=False)
    asks_facts: bool = field(init=False, repr=False, compare=False)
    usual: bool = field(init=False, repr=False, compare=False)
    shape: tuple[Layout, tuple[int, ...], tuple[int, ...] | None, Conflict | None] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        gives_up = any(rule.action in GIVES_UP and rule.code != NO_ROW for rule in self.error_rules)
        program = self.mapping
        may_lack = program is not None and (program.update_inserts or bool(program.filters))
        object.__setattr__(self, "gives_up", gives_up)
        object.__setattr__(self, "asks_facts", self.mapping is not None or self.loading is not None)
        may_lack = may_lack or (self.loading is not None and self.loading.ticks)
        object.__setattr__(self, "lenient", self.layout.overlays or may_lack)
        odd = self.error or self.zero_dates or self.loading or self.ignored or self.conflict or self.layout.overlays
        object.__setattr__(self, "usual", not odd and bool(self.key))
        object.__setattr__(self, "shape", (self.layout, self.key, self.pick, self.conflict))

    def in_key_order(self, keys: Iterable[Any]) -> list[Any]:
        """Keys as the target's index has them, or nearly: rows that come so cost it half as much."""
        try:
            return sorted(keys, key=int) if self.integer_key else sorted(keys)
        except (TypeError, ValueError):
            return list(keys)


Plans = Mapping[bytes, tuple[TablePlan, ...]]
"""By table id: one plan for each MAP that takes the table; none: no MAP wants it."""
