"""Rows by the convert kernel and by the plain codec: equal values of equal types, equal counts, equal refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from replicat.model.copytext import render
from replicat.model.target import RefusedError
from replicat.targets.mysql.types import mysql_type
from replicat.targets.sql import codec as codecs
from replicat.targets.sql import kernel
from replicat.targets.sql.codec import Codec, Spec
from replicat.targets.sql.ways import Usual
from replicat.targets.sqlite.types import sqlite_type
from tests.support.hostile import hostile

MYSQL = [
    ("bigint", "bigint(20)"), ("integer", "bit(8)"), ("boolean", "tinyint(1)"), ("boolean", "bit(1)"),
    ("decimal", "decimal(14,2)"), ("decimal", "bigint(20)"), ("double", "double"), ("real", "double"),
    ("char", "char(3)"), ("text", "char(3)"), ("text", "varchar(9)"), ("bytes", "varbinary(9)"), ("date", "date"),
    ("date", "datetime"), ("time", "time(3)"), ("timestamp", "datetime(3)"), ("timestamptz", "datetime"),
    ("timestamp", "timestamp(6)"), ("timestamptz", "timestamp"), ("json", "longtext"),
    ("json", "json"), ("real", "float"), ("uuid", "binary(16)"),
]  # fmt: skip
SQLITE = [
    ("bigint", "bigint"), ("boolean", "boolean"), ("decimal", "numeric(14,2)"), ("real", "real"), ("double", "double"),
    ("double", "blob"), ("text", "varchar(9)"), ("bytes", "blob"), ("bytes", "text"), ("timestamptz", "timestamptz"),
    ("double", "numeric"), ("decimal", "real"), ("text", "integer"),
]  # fmt: skip
KINDS = [("mysql", *pair) for pair in MYSQL] + [("sqlite", *pair) for pair in SQLITE]
TEXTS = (
    "", "0", "-0", "1", "-7", "007", "+1", "-", "1.", ".5", "-.5", "1.50", "-0.5", "-0.00", "12.00", "00.5", "1_0",
    " 1", "123456789012345.67", "1234567890.12345", "9" * 18, "9" * 19, "-" + "9" * 18, "0." + "1" * 14,
    "0." + "1" * 15,
    "1e+16", "1.5e-07", "1e400", "NaN", "nan", "Infinity", "-Infinity", "²", "1²", "\u0661", "a5", "\\5", "true",
    "false", "t", "True", "2024-02-30", "0000-00-00", "0002-11-30 BC", "infinity", "2024-1-01", "2024-01-01 00:00:00",
    "2024-01-01 00:00:00.5", "2024-01-01 00:00:00.1234", "2024-01-01 00:00:00.120000", "2024-01-01 00:00:00.",
    "2024-01-01 00:00:00.000", "2024-01-01 00:00:00+00", "2024-01-01 25:61:99.25+00", "2024-01-01 00:00:00+02",
    "1970-01-01 00:00:00.9", "1970-01-01 00:00:01+00", "0000-00-00 00:00:00", "1969-12-31 23:59:59", "+00",
    "00:00:00", "23:59:59.999", "23:59:60", "12:34:56.7891", "-01:00:00", "838:00:00", "839:00:00", "99:59:59.5",
    "a ", "a  ", " ", "a\t", "a\n b\\", "\\N", "\r", "é𝄞", "\0", "\udcff", "\\x", "\\x00ff", "\\x0", "\\xFF", "\\xzz",
    "zz00",     "\\x00 ff", "it's", "x" * 300,
)  # fmt: skip
VALUES = st.none() | st.sampled_from(TEXTS) | st.text(st.characters(codec="utf-8"), max_size=5)
NUMBERS = st.from_regex(r"-?[0-9]{1,19}(\.[0-9]{1,17})?", fullmatch=True)


def codec_of(kinds: list[tuple[str, str, str]], required: int = -1) -> Codec:
    """Of columns so called by their number; that one's NULL is refused."""
    types = {"mysql": mysql_type, "sqlite": sqlite_type}
    specs = [Spec(f"c{i}", kind, types[base](text), i == required) for i, (base, kind, text) in enumerate(kinds)]
    return Codec("s.t", specs, ["c0"])


def plain(codec: Codec) -> Codec:
    """The same without a kernel."""
    codec._converter = None
    return codec


def outcome(codec: Codec, data: bytes, how: str) -> tuple[Any, int]:
    """What the codec makes of rows, in a form that tells 1 from 1.0 and 0.0 from -0.0; and what was lost."""
    try:
        found = list(getattr(codec, how)(data))
    except RefusedError as error:
        codec.take_lost()
        return (str(error), error.shown, error.sqlstate), 0
    return repr(found), codec.take_lost()


@hostile(400)
@given(st.data())
def test_any_rows_are_converted_alike(data: st.DataObject) -> None:
    base = data.draw(st.sampled_from(["mysql", "sqlite"]))
    kinds = data.draw(st.lists(st.sampled_from([kind for kind in KINDS if kind[0] == base]), min_size=1, max_size=3))
    row = st.lists(data.draw(st.sampled_from([VALUES, NUMBERS])), min_size=len(kinds), max_size=len(kinds))
    rows, _, _ = render(data.draw(st.lists(row, max_size=5)))
    required = data.draw(st.integers(-1, len(kinds) - 1))
    for how in ("lines", "pieces") if base == "mysql" else ("pieces",):
        by_kernel = outcome(codec_of(kinds, required), rows, how)
        assert by_kernel == outcome(plain(codec_of(kinds, required)), rows, how)


@pytest.mark.parametrize(("base", "logical", "column"), KINDS)
def test_each_text_is_converted_alike(base: str, logical: str, column: str) -> None:
    """One row each, so that none is converted by the plain code because of another."""
    kind = [(base, logical, column)]
    for text in TEXTS:
        data, _, _ = render([[text]])
        for how in ("lines", "pieces") if base == "mysql" else ("pieces",):
            assert outcome(codec_of(kind), data, how) == outcome(plain(codec_of(kind)), data, how), text


USUAL = {
    Usual.KEPT: "a\tb\\ é", Usual.WHOLE: "-17", Usual.NUMBER: "1.50", Usual.FLOAT: "1.5e-07", Usual.DECIMAL: "-1.50",
    Usual.TRUTH: "true", Usual.MOMENT: "2024-01-01 00:00:00", Usual.UTC: "2024-01-01 00:00:00+00",
    Usual.DATE: "2024-02-29", Usual.TIME: "23:59:59.5", Usual.STRIPPED: "a  ", Usual.UNPADDED: "a",
    Usual.INT: "-17", Usual.DOUBLE: "1.5e-07", Usual.BIT: "true", Usual.BYTES: "\\x00ff",
}  # fmt: skip


def test_what_is_usual_is_done_by_the_kernel() -> None:
    """Each way has a column here, and takes what its column usually has."""
    ways = set()
    for base, logical, column in KINDS:
        codec = codec_of([(base, logical, column)])
        way = codecs._way(codec.rules[0])
        assert (way is None) == bool(codec._rest)
        if way is None:
            continue
        ways.add(way.usual)
        data, _, _ = render([[USUAL[way.usual]], [None]])
        assert codec._converter.rows(data) is not None, (base, logical, column)
        assert base == "sqlite" or codec._converter.lines(data) is not None, (base, logical, column)
    assert ways == set(Usual)


def test_a_column_without_a_way_is_converted_beside_the_others() -> None:
    """The kernel does those, and what is refused is told as the plain code tells it."""
    kinds = [("mysql", "timestamptz", "datetime"), ("mysql", "json", "json"), ("mysql", "boolean", "tinyint(1)")]
    rows = [["2024-01-01 00:00:00+00", '{"a":1}', "true"], ["2024-01-02 00:00:00+00", None, "false"]]
    codec, (data, _, _) = codec_of(kinds), render(rows)
    assert codec._usual(data) == [("2024-01-01 00:00:00", '{"a": 1}', "1"), ("2024-01-02 00:00:00", None, "0")]
    assert codec.take_lost() == 1
    data, _, _ = render([*rows, ["2024-01-03 00:00:00+00", "{", "true"]])
    assert codec._usual(data) is None
    with pytest.raises(RefusedError, match=r"column c1 \(json\) of row \(2024-01-03 00:00:00\+00\): json value"):
        codec.rows(data)


def test_many_pieces_are_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them is not usual, and done by the plain code."""
    monkeypatch.setattr(codecs, "PIECE_BYTES", 50)
    kinds = [("mysql", "bigint", "bigint(20)"), ("mysql", "text", "varchar(9)"), ("mysql", "boolean", "tinyint(1)")]
    rows = [[str(i), "a\tb" * i, "true"] for i in range(40)]
    data, _, _ = render([*rows[:20], ["x", "\u00b2", "false"], *rows[20:]])
    assert b"".join(codec_of(kinds).lines(data)) == b"".join(plain(codec_of(kinds)).lines(data))
    assert len(list(codec_of(kinds).lines(data))) > 10
    data, _, _ = render([*rows, ["41", "", "maybe"]])
    made, pieces = [], codec_of(kinds).pieces(data)
    with pytest.raises(RefusedError, match="neither true nor false"):
        made.extend(pieces)
    assert sum(map(len, made)) >= 38  # those before the piece with the bad one


@hostile()
@given(st.binary(max_size=60), st.integers(1, 3), st.data())
def test_mangled_bytes_are_no_rows(data: bytes, width: int, drawn: st.DataObject) -> None:
    """Whatever they are, the kernel takes them as the plain code does, or not at all."""
    ways = drawn.draw(st.lists(st.sampled_from(KINDS), min_size=width, max_size=width))
    assume(len({base for base, *_ in ways}) == 1)
    converter = codec_of(ways)._converter
    for made in (converter.lines(data), converter.rows(data)):
        assert made is None or len(made) <= len(data)


def test_columns_of_a_converter_are_held_against_its_width() -> None:
    """The arrays of the kernel have so many places."""
    for ways in ([], [codecs.KEPT] * (kernel.WIDEST + 1)):
        with pytest.raises(ValueError, match="columns"):
            kernel.Converter(ways, [False] * len(ways))
    with pytest.raises(ValueError, match="columns"):
        kernel.Converter([codecs.KEPT], [])
    assert codec_of([("mysql", "text", "longtext")] * (kernel.WIDEST + 1))._converter is None
