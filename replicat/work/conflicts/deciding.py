"""Conflict detection and resolution, decided: one change, the target's row as it is now, and what becomes of it.

Rule: pure. The row is the target's, locked, as canonical text; values are compared by their logical type. A conflict
for which no RESOLVECONFLICT is given, or that a method can't resolve, is refused as any other change is, and meets
REPERROR; under HANDLECOLLISIONS a row that is there, or not, without a rule for it is no conflict.

    change    row in the target                conflict             methods that suit it
    insert    there                            INSERTROWEXISTS      OVERWRITE IGNORE DISCARD, USEMAX and its like
    update    there, other than before         UPDATEROWEXISTS      the same, and USEDELTA
    update    not there                        UPDATEROWMISSING     OVERWRITE (as an insert) IGNORE DISCARD
    delete    there, other than before         DELETEROWEXISTS      OVERWRITE (by key) IGNORE DISCARD
    delete    not there                        DELETEROWMISSING     IGNORE DISCARD
"""

from __future__ import annotations

import decimal
from collections.abc import Iterable
from dataclasses import dataclass, field

from replicat.model.mapparams import (
    DELETE_ROW_EXISTS,
    DELETE_ROW_MISSING,
    DISCARD,
    IGNORE,
    INSERT_ROW_EXISTS,
    OVERWRITE,
    UPDATE_ROW_EXISTS,
    UPDATE_ROW_MISSING,
    USEDELTA,
    USEMAX,
    USEMAXEQ,
    ResolveGroup,
    ResolveRule,
)
from replicat.model.plan import Conflict
from replicat.model.target import NO_ROW, ROW_EXISTS, Layout, UnmappedError
from replicat.work.conflicts.comparing import below, number, same
from trails.record import MISSING, Image, Value

PLAIN = "plain"
PUT = "put"
REMOVE = "remove"
KEEP = "keep"
REFUSE = "refuse"

INSERT = "insert"
UPDATE = "update"
DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a change: PLAIN apply, PUT `row`, REMOVE, KEEP the target's row, or REFUSE because of `why`.

    `conflict`: its type, empty if there is none; `discard`: a method says that the change goes to the discard file too.
    """

    kind: str
    conflict: str = ""
    row: Image | None = None
    discard: bool = False
    why: str = ""
    sqlstate: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One change of a table, mapped. `before`: of an update None if the source did not give it; of a delete the row."""

    layout: Layout
    conflict: Conflict
    op: str
    before: Image | None
    after: Image | None

    def logical(self, column: int) -> str:
        """A column's logical type."""
        return self.layout.logical[column] if self.layout.logical else "text"

    @property
    def where(self) -> str:
        """The table, for messages."""
        return self.layout.full_name


def compared(conflict: Conflict, op: str) -> tuple[int, ...]:
    """Columns beside the key that must be as they were for this operation."""
    return conflict.update if op == UPDATE else conflict.delete if op == DELETE else ()


def lacking(conflict: Conflict, layout: Layout, op: str, before: Image | None) -> str:
    """The first compared column whose value before the change is not known; empty if none."""
    for column in compared(conflict, op):
        if before is None or before[column] is MISSING:
            return layout.columns[column]
    return ""


def no_before(source: str, column: str, op: str) -> UnmappedError:
    """A change came without what COMPARECOLS compares."""
    return UnmappedError(
        source,
        f"COMPARECOLS compares {column}, but its {op} came without its value before the change",
        hint="ADD TRANDATA with ALLCOLS for this table (REPLICA IDENTITY FULL), and GETUPDATEBEFORES for it in its "
        "Extract; or compare fewer columns",
    )


def decide(case: Case, current: Image | None) -> Decision:
    """What becomes of the change; `current` is the target's row under the key that the row had before it."""
    if case.op == INSERT:
        return _insert(case, current)
    if case.op == UPDATE:
        return _update(case, current)
    return _delete(case, current)


def _insert(case: Case, current: Image | None) -> Decision:
    assert case.after is not None
    if current is None:
        return Decision(PLAIN)
    rule = _rule(case, INSERT_ROW_EXISTS)
    if rule is None and case.layout.collisions:
        return Decision(PLAIN)
    if rule is None:
        return _refused(INSERT_ROW_EXISTS, "a row with this key is there already", ROW_EXISTS)
    return _by_columns(case, rule, current)


def _update(case: Case, current: Image | None) -> Decision:
    assert case.after is not None
    if current is None:
        return _update_missing(case)
    changed = [case.layout.columns[c] for c in compared(case.conflict, UPDATE) if _differs(case, c, current)]
    if not changed:
        return Decision(PLAIN)
    rule = _rule(case, UPDATE_ROW_EXISTS)
    if rule is None:
        return _refused(UPDATE_ROW_EXISTS, f"the row is there, but {', '.join(changed)} is not as before the update")
    return _by_columns(case, rule, current)


def _update_missing(case: Case) -> Decision:
    rule = _rule(case, UPDATE_ROW_MISSING)
    if rule is None and case.layout.overlays:
        return Decision(PLAIN)
    if rule is None:
        return _refused(UPDATE_ROW_MISSING, "there is no row with this key to update")
    if rule.default.method != OVERWRITE:
        return _kept(UPDATE_ROW_MISSING, rule.default)
    row = _filled(case.after, case.before)
    if MISSING in row:
        column = case.layout.columns[list(row).index(MISSING)]
        return _refused(UPDATE_ROW_MISSING, f"OVERWRITE would insert the row, but the trail does not have its {column}")
    return Decision(PUT, UPDATE_ROW_MISSING, row)


def _delete(case: Case, current: Image | None) -> Decision:
    if current is None:
        rule = _rule(case, DELETE_ROW_MISSING)
        if rule is None and (case.layout.collisions or case.layout.cascaded):
            return Decision(PLAIN)
        if rule is None:
            return _refused(DELETE_ROW_MISSING, "there is no row with this key to delete")
        return _kept(DELETE_ROW_MISSING, rule.default)
    changed = [case.layout.columns[c] for c in compared(case.conflict, DELETE) if _differs(case, c, current)]
    if not changed:
        return Decision(PLAIN)
    rule = _rule(case, DELETE_ROW_EXISTS)
    if rule is None:
        return _refused(DELETE_ROW_EXISTS, f"the row is there, but {', '.join(changed)} is not as before the delete")
    if rule.default.method == OVERWRITE:
        return Decision(REMOVE, DELETE_ROW_EXISTS)
    return _kept(DELETE_ROW_EXISTS, rule.default)


# --- columns --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Merged:
    """What each group of columns takes from the change; MISSING stays as the target has it."""

    row: list[Value]
    taken: bool = False
    discard: bool = False
    why: list[str] = field(default_factory=list)


def _by_columns(case: Case, rule: ResolveRule, current: Image) -> Decision:
    """Each named group decides over its columns, the default over all others."""
    merged = _Merged([MISSING] * len(current))
    named: set[str] = set()
    for group in rule.groups:
        _resolve(case, group, [i for i, c in enumerate(case.layout.columns) if c in group.cols], current, merged)
        named.update(group.cols)
    rest = [i for i, c in enumerate(case.layout.columns) if c not in named]
    _resolve(case, rule.default, rest, current, merged)
    if merged.why:
        return _refused(rule.type, "; ".join(merged.why))
    if not merged.taken:
        return Decision(KEEP, rule.type, discard=merged.discard)
    # The key is never a matter of merging: a row that wins a column is written where the change puts it.
    for column in _key(case):
        merged.row[column] = case.after[column] if case.after is not None else current[column]
    return Decision(PUT, rule.type, tuple(merged.row), merged.discard)


def _resolve(case: Case, group: ResolveGroup, columns: Iterable[int], current: Image, merged: _Merged) -> None:
    assert case.after is not None
    if group.method == USEDELTA:
        _add_deltas(case, columns, current, merged)
        return
    merged.discard = merged.discard or group.method == DISCARD
    if group.method in (IGNORE, DISCARD):
        return
    if group.method == OVERWRITE or _wins(case, group, current, merged):
        for column in columns:
            if case.after[column] is not MISSING:
                merged.row[column] = case.after[column]
        merged.taken = True


def _wins(case: Case, group: ResolveGroup, current: Image, merged: _Merged) -> bool:
    """USEMAX and its like: the change wins if its value is above (below, at least, at most) the target's."""
    column = case.layout.columns.index(group.column)
    assert case.after is not None
    ours, theirs, logical = case.after[column], current[column], case.logical(column)
    if ours is MISSING:
        ours = case.before[column] if case.before is not None else MISSING
    if ours is MISSING:
        merged.why.append(f"{group.method} compares {group.column}, which the trail does not have for this change")
        return False
    if ours is None or theirs is None:  # a value beats NULL, whichever way is compared
        equal = ours is theirs
        return (ours is not None and not equal) or (equal and group.method.endswith("EQ"))
    if same(logical, ours, theirs):
        return group.method.endswith("EQ")
    return below(logical, theirs, ours) == (group.method in (USEMAX, USEMAXEQ))


def _add_deltas(case: Case, columns: Iterable[int], current: Image, merged: _Merged) -> None:
    """The target's value moves by as much as the source's did."""
    assert case.after is not None
    for column in columns:
        if column in _key(case) or case.after[column] is MISSING:
            continue
        name, logical = case.layout.columns[column], case.logical(column)
        values = [number(logical, image[column]) for image in (current, case.after, case.before or case.after)]
        if case.before is None or case.before[column] is MISSING:
            merged.why.append(f"USEDELTA needs the value of {name} before the change: GETUPDATEBEFORES in the Extract")
        elif any(value is None for value in values):
            merged.why.append(f"USEDELTA needs numbers, which {name} does not have before, after and in the target")
        else:
            merged.row[column] = _moved(*[value for value in values if value is not None])
            merged.taken = True


def _moved(current: decimal.Decimal, after: decimal.Decimal, before: decimal.Decimal) -> str:
    digits = sum(len(value.as_tuple().digits) + abs(value.adjusted()) for value in (current, after, before))
    with decimal.localcontext() as context:
        context.prec = digits + 5
        return f"{current + (after - before):f}"


# --- small pieces ---------------------------------------------------------------------------------------------------


def _rule(case: Case, kind: str) -> ResolveRule | None:
    return next((rule for rule in case.conflict.rules if rule.type == kind), None)


def _key(case: Case) -> list[int]:
    return [case.layout.columns.index(name) for name in case.layout.key]


def _differs(case: Case, column: int, current: Image) -> bool:
    assert case.before is not None
    return not same(case.logical(column), case.before[column], current[column])


def _refused(kind: str, why: str, sqlstate: str = NO_ROW) -> Decision:
    return Decision(REFUSE, kind, why=why, sqlstate=sqlstate)


def _kept(kind: str, group: ResolveGroup) -> Decision:
    return Decision(KEEP, kind, discard=group.method == DISCARD)


def _filled(after: Image | None, before: Image | None) -> Image:
    assert after is not None
    return [before[i] if value is MISSING and before is not None else value for i, value in enumerate(after)]
