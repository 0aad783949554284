"""Rows of the binary log to trail records, by Python code that is written for one table's columns and then compiled.

    row: a bit for each column that is NULL, lowest first; the values of the others, one behind the other
    update: two rows, before and after; of partial JSON the second begins with options and a bit for each JSON column

Strategy: each set of NULLs that is met gets a function of its own, in which nothing is asked any more: values of fixed
sizes that stand side by side are unpacked at once, and text is made by the expressions of forms.py. Beyond
MOST_PATTERNS sets one function serves all, which asks at each column.

Old rows. Each update brings its whole old row, which is mostly wanted by nobody: of it only the key is read, by a
function that passes over all else. Where the key changed, or `befores` is asked for, it is read whole.

Rule: rows must end where their event ends. Bytes that are no row are a BinlogError; a value that is none of its column
is a UncapturedError, which names table and column. Whoever knows the place calls `placed`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

from extract.sources.mysql import tablemap as t
from extract.sources.mysql.events import CUT, BinlogError, UncapturedError, packed
from extract.sources.mysql.flavour import Flavour
from extract.sources.mysql.forms import ValueForm, form_of
from extract.sources.mysql.rows import Append
from extract.sources.mysql.tablemap import TableMap
from extract.sources.mysql.values import binaryjson, jsondiff
from extract.sources.mysql.values.unread import UnreadValueError
from trails.ddl import DdlColumn
from trails.record import DELETE, INSERT, UPDATE

MOST_PATTERNS: Final = 16
_MOST_KEPT: Final = 2000
_PARTIAL_JSON: Final = 1
_LENGTHS: Final = {1: "data[{0}]", 2: "(data[{0}] | data[{0} + 1] << 8)", 3: "(L4(data, {0})[0] & 0xFFFFFF)",
                   4: "L4(data, {0})[0]"}  # fmt: skip
_L4: Final = struct.Struct("<I").unpack_from

Row = Callable[[bytes, int], tuple[Any, int]]
"""Takes the place behind the bits; gives the values, and the place behind the row."""


class RowCode:
    """The decoder of one table's rows. Its three methods append records, and say how many."""

    def __init__(self, table: TableMap, forms: Sequence[ValueForm], key: tuple[int, ...], *, befores: bool) -> None:
        self._table = table
        self._forms = forms
        self._width = (len(forms) + 7) // 8
        self._befores = befores or not key
        everything = range(len(forms))
        self._rows = _Patterns(forms, everything, _listed)
        self._keys = _Patterns(forms, key, _compared)
        self._key_of: Callable[[Sequence[Any]], Any] = itemgetter(*key) if key else tuple
        self._jsons = [i for i, one in enumerate(table.columns) if one.type == t.JSON]
        plain = [_RAW_JSON if i in self._jsons else form for i, form in enumerate(forms)]
        self._raws = _Patterns(plain, everything, _listed)

    def inserts(self, data: bytes, at: int, upto: int, number: int, append: Append) -> int:
        """The rows in `data[at:upto]` as (INSERT, number, after)."""
        return self._single(INSERT, data, at, upto, number, append)

    def deletes(self, data: bytes, at: int, upto: int, number: int, append: Append) -> int:
        """The same as (DELETE, number, before)."""
        return self._single(DELETE, data, at, upto, number, append)

    def updates(self, data: bytes, at: int, upto: int, number: int, append: Append, partial: bool = False) -> int:
        """Pairs of rows as (UPDATE, number, after, before or None). `partial`: of a PARTIAL_UPDATE_ROWS event."""
        if partial:
            return self._partial(data, at, upto, number, append)
        width, rows, keys, key_of, befores = self._width, self._rows, self._keys, self._key_of, self._befores
        count = 0
        try:
            while at < upto:
                start = at
                middle = at + width
                before = None
                if befores:
                    before, at = rows[data[at:middle]](data, middle)
                    after, at = rows[data[at : at + width]](data, at + width)
                else:
                    key, at = keys[data[at:middle]](data, middle)
                    after, at = rows[data[at : at + width]](data, at + width)
                    if key != key_of(after):
                        before = rows[data[start:middle]](data, middle)[0]
                append((UPDATE, number, after, before))
                count += 1
        except (*CUT, UnreadValueError) as error:
            raise self._wrong(error, data, start, upto) from error
        self._ends(at, upto)
        return count

    def _single(self, op: int, data: bytes, at: int, upto: int, number: int, append: Append) -> int:
        width, rows = self._width, self._rows
        count = 0
        try:
            while at < upto:
                image, at = rows[data[at : at + width]](data, at + width)
                append((op, number, image))
                count += 1
        except (*CUT, UnreadValueError) as error:
            raise self._wrong(error, data, at, upto) from error
        self._ends(at, upto)
        return count

    # --- partial JSON -----------------------------------------------------------------------------------------------

    def _partial(self, data: bytes, at: int, upto: int, number: int, append: Append) -> int:
        """JSON columns stay binary until the changes are applied."""
        width, rows, count = self._width, self._raws, 0
        try:
            while at < upto:
                before, at = rows[data[at : at + width]](data, at + width)
                changes, at = self._changes(data, at)
                after, at = rows[data[at : at + width]](data, at + width)
                for place, i in enumerate(self._jsons):
                    after[i] = self._json(before[i], after[i], changes >> place & 1, i)
                for i in self._jsons:
                    before[i] = None if before[i] is None else binaryjson.json_text(before[i])
                same = not self._befores and self._key_of(before) == self._key_of(after)
                append((UPDATE, number, after, None if same else before))
                count += 1
        except (*CUT, UnreadValueError) as error:
            raise self._wrong(error, data, at, upto) from error
        self._ends(at, upto)
        return count

    def _changes(self, data: bytes, at: int) -> tuple[int, int]:
        """(a bit for each JSON column that bears changes instead of a value, the place behind)."""
        options, at = packed(data, at)
        if options not in (0, _PARTIAL_JSON):
            raise BinlogError(f"rows of {self._table.full_name}: expected row options 0 or 1, found {options}")
        if not options:
            return 0, at
        end = at + (len(self._jsons) + 7) // 8
        return int.from_bytes(data[at:end], "little"), end

    def _json(self, before: bytes | None, after: bytes | None, changed: int, column: int) -> str | None:
        name = self._table.columns[column].name
        try:
            if after is None:
                return None
            if not changed:
                return binaryjson.json_text(after)
            if before is None:
                raise UnreadValueError("expected the JSON that was changed, found NULL")
            return jsondiff.changed(before, after)
        except UnreadValueError as error:
            raise self._refused(name, error) from error

    # --- what went wrong --------------------------------------------------------------------------------------------

    def _ends(self, at: int, upto: int) -> None:
        if at != upto:
            raise BinlogError(
                f"rows of {self._table.full_name}: expected the last one to end at byte {upto} of what was read, "
                f"found {at}"
            )

    def _wrong(self, error: Exception, data: bytes, at: int, upto: int) -> BinlogError | UncapturedError:
        """The error with the table, and with the column where a value is refused."""
        if isinstance(error, UnreadValueError):
            return self._refused(self._culprit(data, at, upto), error)
        return BinlogError(f"rows of {self._table.full_name}: expected whole rows, found a cut one ({error})")

    def _refused(self, column: str, error: UnreadValueError) -> UncapturedError:
        return UncapturedError(f"table {self._table.full_name}, column {column}: {error}", hint=error.hint)

    def _culprit(self, data: bytes, at: int, upto: int) -> str:
        """Which column's value is refused: the rows from `at` on are read again, column by column."""
        width = self._width
        for _row in range(2):  # in an update, `at` is before the old row or before the new one
            nulls, place = data[at : at + width], at + width
            for i, one in enumerate(self._table.columns):
                try:
                    _compiled(self._forms, nulls, {i}, _listed)(data, place)
                except (*CUT, UnreadValueError):
                    return one.name
            at = _compiled(self._forms, nulls, set(), _listed)(data, place)[1]
            if at >= upto:
                break
        return "?"


@lru_cache(maxsize=_MOST_KEPT)
def compile_rows(
    table: TableMap,
    flavour: Flavour,
    known: tuple[DdlColumn | None, ...] = (),
    key: tuple[int, ...] | None = None,
    *,
    befores: bool = False,
) -> RowCode:
    """The decoder of a table's rows, made once for each shape.

    `known`: what the shape says of each column, in order (columns.known_columns); nothing: no shape is known. `key`: by
    index, where it is not the log's primary key. `befores`: updates must have their whole old rows.
    Raises UncapturedError, which names table and column, where a column can't be read.
    """
    forms = []
    for one, found in zip(table.columns, known or (None,) * len(table.columns), strict=True):
        try:
            forms.append(form_of(one, found, flavour))
        except UnreadValueError as error:
            raise UncapturedError(f"table {table.full_name}, column {one.name}: {error}", hint=error.hint) from error
    return RowCode(table, tuple(forms), table.key if key is None else key, befores=befores)


# --- writing code ---------------------------------------------------------------------------------------------------

Give = Callable[[list[str]], str]


def _listed(values: list[str]) -> str:
    return f"[{', '.join(values)}]"


def _compared(values: list[str]) -> str:
    """What itemgetter gives of the same columns."""
    return values[0] if len(values) == 1 else f"({', '.join(values)})"


class _Patterns(dict[bytes, Row]):
    """The functions of a table by the bits of a row, written when a set of NULLs is first met."""

    def __init__(self, forms: Sequence[ValueForm], wanted: Sequence[int], give: Give) -> None:
        super().__init__()
        self._forms = forms
        self._wanted = wanted
        self._give = give
        self._any: Row | None = None

    def __missing__(self, nulls: bytes) -> Row:
        if len(nulls) < (len(self._forms) + 7) // 8:
            raise IndexError("the bits of a row are cut")
        if len(self) < MOST_PATTERNS:
            made = self[nulls] = _compiled(self._forms, nulls, self._wanted, self._give)
            return made
        if self._any is None:
            self._any = _compiled(self._forms, None, self._wanted, self._give)
        return self._any


def _compiled(forms: Sequence[ValueForm], nulls: bytes | None, wanted: Any, give: Give) -> Row:
    writer = _RowWriter(forms, nulls, wanted)
    code = writer.function(give)
    exec(compile(code, "<rows>", "exec"), writer.names)
    made: Row = writer.names["row"]
    return made


class _RowWriter:
    """Writes the function of one set of NULLs; `nulls` None: of all, which looks at the bits in front of the row."""

    def __init__(self, forms: Sequence[ValueForm], nulls: bytes | None, wanted: Any) -> None:
        self.names: dict[str, Any] = {"L4": _L4}
        self._forms = forms
        self._bits = None if nulls is None else int.from_bytes(nulls, "little")
        self._wanted = wanted
        self._lines: list[str] = []
        self._values: dict[int, str] = {}
        self._ahead = 0  # bytes between `at` and the next value
        self._codes = ""
        self._fields: list[str] = []

    def function(self, give: Give) -> str:
        """Its text."""
        width = (len(self._forms) + 7) // 8
        if self._bits is None:
            self._lines.append(f"nulls = int.from_bytes(data[at - {width}:at], 'little')")
        for i, form in enumerate(self._forms):
            if self._bits is None:
                self._asked(i, form)
            elif self._bits >> i & 1:
                self._values[i] = "None"
            else:
                self._value(i, form)
        self._flush()
        values = give([self._values[i] for i in self._wanted])
        body = "\n    ".join([*self._lines, f"return {values}, at + {self._ahead}"])
        return f"def row(data, at):\n    {body}\n"

    def _asked(self, i: int, form: ValueForm) -> None:
        """A value that may be NULL: it is read by itself."""
        self._lines.append(f"if nulls & {1 << i}: v{i} = None")
        lines, self._lines = self._lines, []
        self._value(i, form)
        self._flush()
        if i in self._wanted:
            self._lines.append(f"v{i} = {self._values[i]}")
            self._values[i] = f"v{i}"
        self._advance()
        inner = "\n        ".join(self._lines or ["pass"])
        self._lines = [*lines, f"else:\n        {inner}"]

    def _value(self, i: int, form: ValueForm) -> None:
        if form.size:
            self._fixed(i, form)
        else:
            self._flush()
            self._sized(i, form)

    def _fixed(self, i: int, form: ValueForm) -> None:
        if i not in self._wanted:
            self._codes += f"{form.size}x"
            return
        fields = [f"f{i}_{k}" for k in range(len(form.codes))]
        self._codes += "".join(form.codes)
        self._fields += fields
        self._expression(i, form, fields)

    def _sized(self, i: int, form: ValueForm) -> None:
        begin = form.prefix + self._ahead
        length = _LENGTHS[form.prefix].format(f"at + {self._ahead}")
        if i not in self._wanted:
            self._lines.append(f"at += {begin} + {length}")
        else:
            self._lines.append(f"end = at + {begin} + {length}")
            self._lines.append(f"r{i} = data[at + {begin}:end]; at = end")
            self._expression(i, form, [f"r{i}"])
        self._ahead = 0

    def _expression(self, i: int, form: ValueForm, fields: list[str]) -> None:
        own = f"n{i}"
        self.names.update({own if name == "{n}" else name: use for name, use in form.uses.items()})
        self._values[i] = form.text.format(*fields, n=own)

    def _flush(self) -> None:
        """Unpack the fixed values that are gathered."""
        if not self._codes:
            return
        layout = struct.Struct("<" + self._codes)
        if self._fields:
            name = f"S{len(self.names)}"
            self.names[name] = layout.unpack_from
            self._lines.append(f"{', '.join(self._fields)}, = {name}(data, at + {self._ahead})")
        self._ahead += layout.size
        self._codes, self._fields = "", []

    def _advance(self) -> None:
        if self._ahead:
            self._lines.append(f"at += {self._ahead}")
            self._ahead = 0


_RAW_JSON: Final = ValueForm("{0}", prefix=4)
