"""How a column's value stands in a row, and the Python expression that makes its text: what rowcode.py writes code of.

Rule: a fixed value is unpacked by struct codes, whose results an expression names `{0}` and `{1}`; a value of any
length stands behind its length, and the expression names its bytes `{0}`. Names that an expression uses are in `uses`;
`{n}` makes a name of the column's own. Expressions are ours alone: nothing of the server's gets into them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from extract.sources.mysql import tablemap as t
from extract.sources.mysql.columns import bit_width, hidden_type
from extract.sources.mysql.flavour import Flavour
from extract.sources.mysql.tablemap import MapColumn
from extract.sources.mysql.values import binaryjson, charsets, numbers, special, temporal
from extract.sources.mysql.values.unread import UnreadValueError
from trails.codec import binary
from trails.ddl import DdlColumn
from trails.floats import double_text, real_text


@dataclass(frozen=True, slots=True)
class ValueForm:
    """`size`: bytes of a fixed value, `codes` struct's for them; 0: its length stands before it, in `prefix` bytes."""

    text: str
    size: int = 0
    codes: tuple[str, ...] = ()
    prefix: int = 0
    uses: dict[str, Any] = field(default_factory=dict)


_SMALL_NUMBER: Final = f"(N[{{0}}] if -1 < {{0}} < {numbers.SMALL} else str({{0}}))"
_MEDIUM_NUMBER: Final = f"(N[{{n}}] if -1 < ({{n}} := {{0}} + ({{1}} << 16)) < {numbers.SMALL} else str({{n}}))"
_USES: Final = {"N": numbers.TEXTS}
_CODES: Final = {t.TINY: "b", t.SHORT: "h", t.LONG: "i", t.LONGLONG: "q"}
_SIZES: Final = {t.TINY: 1, t.SHORT: 2, t.LONG: 4, t.LONGLONG: 8}
_CHARSET: Final = re.compile(r" CHARACTER SET (\w+)", re.IGNORECASE)
_OLD: Final = "expected a time of the format that servers have since 5.6 (MariaDB 10.1), found the old one"
_OLD_HINT: Final = "SET GLOBAL mysql56_temporal_format = ON, and ALTER TABLE ... FORCE writes the table anew"


def form_of(one: MapColumn, known: DdlColumn | None, flavour: Flavour) -> ValueForm:
    """The form of a column. Raises UnreadValueError where its values can't be read."""
    maker = _MAKERS.get(one.type)
    if maker is not None:
        return maker(one)
    if one.type in (t.TIMESTAMP, t.DATETIME, t.TIME):
        return _old(one, known)
    if one.type in (t.ENUM, t.SET):
        return _labelled(one, known)
    return _text(one, hidden_type(one, known, flavour))


# --- numbers --------------------------------------------------------------------------------------------------------


def _whole(one: MapColumn) -> ValueForm:
    code = _CODES[one.type]
    code = code.upper() if one.unsigned else code
    size = _SIZES[one.type]
    if size > 2:
        return ValueForm(_SMALL_NUMBER, size, (code,), uses=_USES)
    texts = numbers.unsigned(8 * size) if one.unsigned else numbers.signed(8 * size)
    name = f"{'U' if one.unsigned else 'I'}{8 * size}"
    return ValueForm(f"{name}[{{0}}]", size, (code,), uses={name: texts})


def _medium(one: MapColumn) -> ValueForm:
    return ValueForm(_MEDIUM_NUMBER, 3, ("H", "B" if one.unsigned else "b"), uses=_USES)


def _decimal(one: MapColumn) -> ValueForm:
    precision, scale = one.meta & 255, one.meta >> 8
    size = numbers.decimal_size(precision, scale)
    name = f"decimal_{precision}_{scale}"
    return _fixed(f"{name}({{0}})", size, {name: numbers.decimal(precision, scale)})


def _bits(one: MapColumn) -> ValueForm:
    width = bit_width(one)
    if not 0 < width <= 64:
        raise UnreadValueError(f"expected a BIT of 1 to 64 bits, found {width}")
    return _fixed(f"bits_{width}({{0}})", (width + 7) // 8, {f"bits_{width}": numbers.bits(width)})


def _fixed(text: str, size: int, uses: dict[str, Any]) -> ValueForm:
    return ValueForm(text, size, (f"{size}s",), uses=uses)


# --- dates and times ------------------------------------------------------------------------------------------------


def _seconds(name: str, size: int, texts: Any, suffix: str) -> Callable[[MapColumn], ValueForm]:
    def make(one: MapColumn) -> ValueForm:
        digits = temporal.fraction_size(one.meta)
        text = f"{name}[{{0}}]{' + fraction({1})' if digits else ''}{suffix}"
        codes = (f"{size}s", f"{digits}s") if digits else (f"{size}s",)
        return ValueForm(text, size + digits, codes, uses={name: texts, "fraction": temporal.fraction})

    return make


def _time(one: MapColumn) -> ValueForm:
    size = 3 + temporal.fraction_size(one.meta)
    return _fixed(f"TIMES{size}[{{0}}]", size, {f"TIMES{size}": temporal.times(size)})


def _old(one: MapColumn, known: DdlColumn | None) -> ValueForm:
    """The log tells nothing of digits of a second, and with them a value has more bytes."""
    if known is None or "(" in known.native.partition("/*")[0]:
        raise UnreadValueError(_OLD, _OLD_HINT)
    if one.type == t.TIMESTAMP:
        return ValueForm("unix({0}) + '+00'", 4, ("I",), uses={"unix": temporal.unix})
    if one.type == t.DATETIME:
        return ValueForm("old_datetime({0})", 8, ("Q",), uses={"old_datetime": temporal.old_datetime})
    return ValueForm("old_time({0} + ({1} << 16))", 3, ("H", "b"), uses={"old_time": temporal.old_time})


# --- text, bytes and what looks like them ---------------------------------------------------------------------------


def _labelled(one: MapColumn, known: DdlColumn | None) -> ValueForm:
    labels = labels_of(one, known)
    if one.type == t.ENUM:
        if one.meta not in (1, 2):
            raise UnreadValueError(f"expected an ENUM of one or two bytes, found {one.meta}")
        return ValueForm("{n}[{0}]", one.meta, ("B" if one.meta == 1 else "H",), uses={"{n}": ("", *labels)})
    codes = {1: ("B",), 2: ("H",), 3: ("H", "B"), 4: ("I",), 8: ("Q",)}.get(one.meta)
    if codes is None:
        raise UnreadValueError(f"expected a SET of 1, 2, 3, 4 or 8 bytes, found {one.meta}")
    number = "{0} + ({1} << 16)" if len(codes) > 1 else "{0}"
    return ValueForm(f"{{n}}[{number}]", one.meta, codes, uses={"{n}": numbers.Sets(labels)})


def labels_of(one: MapColumn, known: DdlColumn | None) -> tuple[str, ...]:
    """The labels of an ENUM or SET. MySQL tells their character set since 9; before, ASCII or the shape must do."""
    if one.label_collation is not None:
        name = charsets.charset(one.label_collation)
        if name == "binary":
            return tuple(label.decode("latin-1") for label in one.labels)
        decode = charsets.decoder(name)
        return tuple(map(decode, one.labels))
    if all(label.isascii() and b"\0" not in label for label in one.labels):
        return tuple(label.decode() for label in one.labels)
    found = _CHARSET.search(known.native) if known is not None else None
    if found is None:
        raise UnreadValueError(
            "the log does not tell the character set of its labels, and the table's shape is not known",
            hint="Give its labels in ASCII, or leave the table out (TABLEEXCLUDE)",
        )
    return tuple(map(charsets.decoder(found[1].lower()), one.labels))


def _text(one: MapColumn, hidden: str) -> ValueForm:
    prefix = _prefix(one)
    raw, uses = "{0}", dict[str, Any]()
    if one.type in (t.BLOB_COMPRESSED, t.VARCHAR_COMPRESSED):
        raw, uses = "uncompressed({0})", {"uncompressed": special.uncompressed}
    if hidden in _HIDDEN:
        return ValueForm(f"{hidden}({raw})", prefix=prefix, uses={hidden: _HIDDEN[hidden]})
    name = charsets.charset(one.collation)
    if name == "binary":
        # Zeros at the end of BINARY stand not in the log.
        padded = f"{raw}.ljust({one.meta}, b'\\0')" if one.type == t.STRING else raw
        return ValueForm(f"binary({padded})", prefix=prefix, uses={**uses, "binary": binary})
    if name in charsets.WIDE:
        return ValueForm(f"{name}({raw})", prefix=prefix, uses={**uses, name: charsets.decoder(name)})
    if uses:
        raw = "({n} := " + raw + ")"
    value = "{n}" if uses else raw
    # A call costs more than to look: most text is ASCII.
    text = f"({value} if {raw}.isascii() else {name}({value}))"
    return ValueForm(text, prefix=prefix, uses={**uses, name: charsets.decoder(name)})


_HIDDEN: Final = {"uuid": special.uuid, "inet4": special.inet4, "inet6": special.inet6}


def _prefix(one: MapColumn) -> int:
    """How many bytes a value's length has."""
    if one.type in (t.STRING, t.VARCHAR, t.VAR_STRING, t.VARCHAR_COMPRESSED):
        return 1 if one.meta < 256 else 2
    if one.meta not in (1, 2, 3, 4):
        raise UnreadValueError(f"expected a length of 1 to 4 bytes before its values, found {one.meta}")
    return one.meta


def _json(one: MapColumn) -> ValueForm:
    return ValueForm("json({0})", prefix=_prefix(one), uses={"json": binaryjson.json_text})


def _geometry(one: MapColumn) -> ValueForm:
    return ValueForm("geometry({0})", prefix=_prefix(one), uses={"geometry": special.geometry})


def _always(form: ValueForm) -> Callable[[MapColumn], ValueForm]:
    return lambda _one: form


_DATE: Final = _always(ValueForm("DATES[{0} + ({1} << 16)]", 3, ("H", "B"), uses={"DATES": temporal.DATES}))
_MAKERS: Final[dict[int, Callable[[MapColumn], ValueForm]]] = {
    **dict.fromkeys((t.TINY, t.SHORT, t.LONG, t.LONGLONG), _whole),
    t.INT24: _medium,
    t.FLOAT: _always(ValueForm("real({0})", 4, ("f",), uses={"real": real_text})),
    t.DOUBLE: _always(ValueForm("double({0})", 8, ("d",), uses={"double": double_text})),
    t.YEAR: _always(ValueForm("YEARS[{0}]", 1, ("B",), uses={"YEARS": numbers.YEARS})),
    t.DATE: _DATE,
    t.NEWDATE: _DATE,
    t.NEWDECIMAL: _decimal,
    t.BIT: _bits,
    t.TIMESTAMP2: _seconds("MOMENTS", 4, temporal.MOMENTS, " + '+00'"),
    t.DATETIME2: _seconds("DATETIMES", 5, temporal.DATETIMES, ""),
    t.TIME2: _time,
    t.JSON: _json,
    t.GEOMETRY: _geometry,
}
