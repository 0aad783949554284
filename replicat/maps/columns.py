"""Which columns of the target a MAP writes, from what, and which of them are the key.

Rule: nothing is guessed. Columns meet by name (as spelled, else in any case), COLMAP names the others; what fits
nowhere is an error with the MAP's line and the column's name, and all errors of one table are told together.

The key of the target's rows, unless KEYCOLS names it: the columns that the source's key goes to, and where they alone
are not unique in the target, those of its unique indexes that add nothing but what is fixed for a source row (a
constant, an expression over the source's key). So two sources with `region = 'EU'` and `region = 'US'` share a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from replicat.maps.expressions.compiling import Compiler
from replicat.model.mapparams import Assignment, MapRule
from replicat.model.plan import Operand, Slot
from replicat.model.target import TargetColumn, TargetTable
from trails.errors import OperatorError
from trails.naming import TOKEN, ColumnName
from trails.record import TableDef

_OF_THE_ROW = ("column", "missing")


class MapErrors(OperatorError):  # noqa: N818  -- it is several
    """Everything that is wrong with one MAP for one table; the message is that of the first."""

    def __init__(self, errors: Sequence[OperatorError]) -> None:
        first, more = errors[0], len(errors) - 1
        also = f"; and {more} more: CHECK PARAMS lists them" if more else ""
        super().__init__(first.message + also, hint=first.hint)
        self.errors = tuple(errors)


@dataclass(frozen=True, slots=True)
class Written:
    """One column of the target that is written."""

    column: TargetColumn
    slot: Slot

    @property
    def name(self) -> str:
        """Its name in the target."""
        return self.column.name


def column_name(text: str) -> ColumnName:
    """A name as the parameter file has it: "quoted" and `quoted` ones stand for exactly what they say."""
    for quote in '"`':
        if len(text) > 2 and text[0] == text[-1] == quote:
            return ColumnName(text[1:-1].replace(quote * 2, quote), quoted=True)
    return ColumnName(text)


@dataclass(slots=True)
class ColumnMapper:
    """One MAP, one source table, one target table. `run` first; errors gather in `errors`."""

    rule: MapRule
    source: TableDef
    target: TargetTable
    compiler: Compiler
    lenient: bool = False  # source columns that the target lacks don't matter
    written: list[Written] = field(default_factory=list)
    skipped: tuple[str, ...] = ()
    key: tuple[int, ...] = ()  # indexes of `written`
    errors: list[OperatorError] = field(default_factory=list)

    def run(self) -> None:
        """Find the columns and the key."""
        mapped = self._mapped()
        assigned = [item for pair in self.rule.colmap if (item := self._assigned(pair)) is not None]
        self._no_column_twice(assigned)
        defaults = self._defaults(mapped, assigned) if self.rule.use_defaults else []
        # In the image's order as far as there is one: then its rows need little or no rearranging.
        places = {column.name: i for i, column in enumerate(self.source.columns)}
        last = len(places)

        def place(item: Written) -> int:
            return item.slot.index if item.slot.kind == "column" else places.get(item.name, last)

        self.written = sorted([*defaults, *assigned], key=place)
        if not self.written and not self.errors and not self._is_bare():
            self.wrong("no column of the target is written", "Name one in COLMAP, or map by name with USEDEFAULTS")
        self.key = () if self.rule.toggles.insert_all else self._key()

    def wrong(self, message: str, hint: str, where: str = "") -> None:
        """One more error."""
        text = f"{where or self.rule.where}: MAP {self.source.full_name}: {message}"
        self.errors.append(OperatorError(text, hint=hint))

    def named(self, text: str, option: str, where: str = "") -> int | None:
        """The index in `written` of a target column that an option names; None after an error."""
        names = [item.name for item in self.written]
        found = column_name(text).find(names)
        if len(found) == 1:
            return found[0]
        if found:
            which = ", ".join(f'"{names[i]}"' for i in found)
            self.wrong(f"{option}: {text} may be {which}", "Name it in double quotes", where)
        elif column_name(text).find([column.name for column in self.target.columns]):
            self.wrong(f"{option}: column {text} of {self.target.full_name} is not mapped", "Map it in COLMAP", where)
        else:
            self.wrong(f"{option}: {self._lacks(text)}", "Mend the MAP, or add the column there", where)
        return None

    def logical(self, slot: Slot) -> str:
        """The logical type of a slot's value."""
        return self.source.columns[slot.index].type if slot.kind == "column" else self.compiler.type_of(slot)

    def native(self, slot: Slot) -> str:
        """The source's own type of a slot's value; empty for what is not a column as it is."""
        return self.source.columns[slot.index].native if slot.kind == "column" else ""

    # --- columns ----------------------------------------------------------------------------------------------------

    def _mapped(self) -> list[int]:
        """The source columns that are mapped by name: all but tokens, as COLS and COLSEXCEPT choose."""
        plain = [i for i, column in enumerate(self.source.columns) if column.type != TOKEN]
        if self.rule.columns:
            wanted = self._named_in_source("COLS", self.rule.columns, plain)
            return [i for i in plain if i in wanted]
        if self.rule.columns_except:
            left_out = self._named_in_source("COLSEXCEPT", self.rule.columns_except, plain)
            return [i for i in plain if i not in left_out]
        return plain

    def _is_bare(self) -> bool:
        """Whether the source table has no columns: its rows are rows of the target's defaults."""
        return self.rule.use_defaults and all(column.type == TOKEN for column in self.source.columns)

    def _named_in_source(self, option: str, wanted: Iterable[str], plain: Sequence[int]) -> set[int]:
        """Under a wildcard, names that a table lacks are passed over."""
        names = [self.source.columns[i].name for i in plain]
        found: set[int] = set()
        for text in wanted:
            at = column_name(text).find(names)
            if len(at) > 1:
                which = ", ".join(f'"{names[i]}"' for i in at)
                self.wrong(f"{option}: {text} may be {which}", "Name it in double quotes")
            elif not at and self.rule.source.exact is not None:
                self.wrong(
                    f"{option}: the source table has no column {text}; its columns are {', '.join(names)}",
                    "Mend the MAP",
                )
            found.update(plain[i] for i in at)
        return found

    def _assigned(self, pair: Assignment) -> Written | None:
        names = [column.name for column in self.target.columns]
        found = column_name(pair.column).find(names)
        if len(found) > 1:
            which = ", ".join(f'"{names[i]}"' for i in found)
            self.wrong(f"COLMAP: {pair.column} may be {which}", "Name it in double quotes", pair.where)
        elif not found:
            self.wrong(f"COLMAP: {self._lacks(pair.column)}", "Mend the MAP, or add the column there", pair.where)
        elif self.target.columns[found[0]].generated:
            self.wrong(
                f"COLMAP: {self.target.full_name} computes column {names[found[0]]} itself",
                "Take it out of COLMAP, or make it a plain column there",
                pair.where,
            )
        try:
            slot = self.compiler.slot(pair.text, pair.where, f"COLMAP {pair.column}")
        except OperatorError as error:
            self.errors.append(error)
            return None
        return Written(self.target.columns[found[0]], slot) if len(found) == 1 else None

    def _no_column_twice(self, assigned: Sequence[Written]) -> None:
        names = [item.name for item in assigned]
        for name in sorted({name for name in names if names.count(name) > 1}):
            self.wrong(f"COLMAP names column {name} twice", "Name it once")

    def _defaults(self, mapped: Sequence[int], assigned: Sequence[Written]) -> list[Written]:
        """Columns by name. A source column that the target lacks must at least be read by some expression."""
        taken = {item.name for item in assigned}
        columns = {column.name: column for column in self.target.columns}
        partners = self._partners(mapped, columns)
        lacking = [self.source.columns[i].name for i in mapped if i not in partners and i not in self._read(assigned)]
        if self.lenient or self.rule.toggles.ignore_missing_columns:
            self.skipped = () if self.lenient else tuple(lacking)
        elif lacking:
            self.wrong(
                f"target table {self.target.full_name} lacks column {', '.join(lacking)}",
                "Add it to the target table, leave it out by COLSEXCEPT, or give IGNOREMISSINGCOLUMNS before the MAP",
            )
        return [
            Written(columns[name], Slot("column", i))
            for i, name in partners.items()
            if name not in taken and not columns[name].generated
        ]

    def _partners(self, mapped: Sequence[int], columns: Iterable[str]) -> dict[int, str]:
        """The target's column of the same name for each source column that has one."""
        found = {i: self.source.columns[i].name for i in mapped if self.source.columns[i].name in columns}
        free = [name for name in columns if name not in found.values()]
        for i in mapped:
            near = ColumnName(self.source.columns[i].name).find(free) if i not in found else []
            if len(near) == 1:
                found[i] = free.pop(near[0])
        return {i: found[i] for i in mapped if i in found}

    def _read(self, assigned: Iterable[Written]) -> set[int]:
        """The source columns that COLMAP's expressions read."""
        return {operand.index for item in assigned for operand in self.operands(item.slot) if operand.index >= 0}

    def operands(self, slot: Slot) -> tuple[Operand, ...]:
        """What a slot reads."""
        if slot.kind == "const":
            return ()
        if slot.kind == "expr":
            return self.compiler.expressions[slot.index].operands
        return (Operand(slot.kind, slot.index, slot.name),)

    def _lacks(self, text: str) -> str:
        names = ", ".join(column.name for column in self.target.columns)
        return f"target table {self.target.full_name} has no column {text}; its columns are {names}"

    # --- the key ----------------------------------------------------------------------------------------------------

    def _key(self) -> tuple[int, ...]:
        if self.rule.key_columns:
            return self._key_columns()
        if not self.source.key or self.errors:
            return ()
        found = [self._home_of(i) for i in self.source.key]
        lost = [self.source.columns[i].name for i, at in zip(self.source.key, found, strict=True) if at is None]
        if lost:
            self._lost_key(lost)
            return ()
        key = tuple(dict.fromkeys(at for at in found if at is not None))
        names = {self.written[at].name for at in key}
        if frozenset(names) in self.target.unique:
            return key
        wider = [unique for unique in self.target.unique if names < unique and self._fixed(unique - names)]
        if not wider:
            return key
        more = min(wider, key=lambda unique: (len(unique), sorted(unique))) - names
        return key + tuple(at for at, item in enumerate(self.written) if item.name in more)

    def _home_of(self, index: int) -> int | None:
        """Where a key column of the source goes.

        To a plain column, that of its own name first; or to one of its own name by an expression over the key alone.
        """
        name = self.source.columns[index].name
        plain = [at for at, item in enumerate(self.written) if item.slot.kind == "column" and item.slot.index == index]
        own = [at for at, item in enumerate(self.written) if item.name == name]
        for at in [at for at in plain if at in own] or plain:
            return at
        return next((at for at in own if self._follows_key(self.written[at].slot)), None)

    def _follows_key(self, slot: Slot) -> bool:
        """Whether a slot's value is fixed for a source row, as its key is."""
        return all(o.kind in _OF_THE_ROW and o.index in self.source.key for o in self.operands(slot))

    def _fixed(self, names: Iterable[str]) -> bool:
        """Whether these columns are written, and never change for a source row."""
        slots = {item.name: item.slot for item in self.written if item.slot.kind != "column"}
        return all(name in slots and self._follows_key(slots[name]) for name in names)

    def _lost_key(self, lost: Sequence[str]) -> None:
        computed = {column.name for column in self.target.columns if column.generated}
        if computed.issuperset(lost):
            self.wrong(f"{self.target.full_name} computes key column {', '.join(lost)}", "Make it a plain column there")
        else:
            self.wrong(
                f"key column {', '.join(lost)} of the source is not mapped to any column of {self.target.full_name}",
                "Map it, or name columns that tell the rows apart by KEYCOLS",
            )

    def _key_columns(self) -> tuple[int, ...]:
        found = [self.named(text, "KEYCOLS") for text in self.rule.key_columns]
        key = tuple(at for at in found if at is not None)
        for at in key:
            odd = [o for o in self.operands(self.written[at].slot) if o.kind not in _OF_THE_ROW]
            if odd:
                self.wrong(
                    f"KEYCOLS: column {self.written[at].name} does not come from the row alone: it reads "
                    f"{', '.join(sorted({o.name or o.kind for o in odd}))}",
                    "A key must be the same for every change of a row",
                )
        if len(set(key)) < len(key):
            self.wrong("KEYCOLS names a column twice", "Name it once")
        return key

    @property
    def needs_before(self) -> bool:
        """Whether a key column comes from outside the source's key: then only a before image tells the old one."""
        return any(not self._follows_key(self.written[at].slot) for at in self.key)
