"""Values of every logical type, through every target's own tables: exact, or by a counted rule, or refused."""

from __future__ import annotations

import pytest

from replicat.model.target import RefusedError
from tests.contract.targets.bench import Bench

pytestmark = pytest.mark.e2e

VALUES: dict[str, tuple[str, ...]] = {
    "boolean": ("true", "false"),
    "smallint": ("-32768", "32767"),
    "integer": ("-2147483648", "0"),
    "bigint": ("-9223372036854775808", "9223372036854775807", "9007199254740993"),
    "decimal": ("1.10", "-0.5", "0", "12345678901234567890.123456789", "9" * 40, "NaN", "-Infinity"),
    "real": ("1.1", "3.4028235e+38", "1e-45", "-0", "NaN", "Infinity"),
    "double": ("0.1", "1e+16", "5e-324", "1.7976931348623157e+308", "-0", "NaN", "-Infinity"),
    "text": ("x" * 70_000, "a", "A", "á", "a ", "\\N", "tab\tnl\ncr\rbs\\ end", "NULL", "'q' \"d\" `b`", "ünïcödé 𝄞"),
    "short": ("", "\\N", "0012", "1e3", "\\x41"),
    "char": ("ab   ", "     ", "äöü  "),
    "json": ('{"b": 1, "a": 12345678901234567890, "b": [null]}', "  null"),
    "xml": ('<a b="1">x &amp; y</a>',),
    "date": ("2024-02-29", "0001-01-01", "9999-12-31", "0002-11-30 BC", "infinity"),
    "time": ("00:00:00", "23:59:59.123456", "24:00:00"),
    "timetz": ("12:34:56.789+05:30:10",),
    "timestamp": ("2024-02-29 23:59:59.5", "1969-12-31 23:59:59.999999", "-infinity", "0044-03-15 12:00:00 BC"),
    "timestamptz": ("2024-03-31 00:30:00+00", "2038-01-19 03:14:08+00", "infinity", "0044-03-15 12:00:00+00 BC"),
    "interval": ("1 mon -3 days +04:05:06.789", "-178000000 years", "00:00:00"),
    "money": ("-$12,345.67",),
    "uuid": ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",),
    "bits": ("", "1", "10" * 50),
    "array": ("{}", "[0:1]={1,NULL}"),
    "range": ("empty", "[1,5)"),
    "other": ("10.0.0.1/8",),
}  # fmt: skip
EXACT = {"boolean", "smallint", "integer", "bigint", "text", "short", "char", "json", "uuid", "bytes"}
BYTES = (b"", b"\x00\xff\n\r\t\\", b"\\x41", bytes(range(256)))


@pytest.mark.parametrize("how", ["inserts", "upserts", "updates", "put"])
def test_I8_a_value_arrives_as_it_is_or_is_counted_or_refused(bench: Bench, how: str):
    """In the column that the target's own dialect makes for its type; NULL too, and none is changed without a word."""
    changed, codes = [], set()
    for kind, values in [*VALUES.items(), ("bytes", BYTES)]:
        table = f"t_{kind}"
        bench.make(table, f"id:bigint v:{kind}", "id")
        layout = bench.layout(table, "id v")
        if how == "updates":
            bench.do(bench.rows(layout, inserts=[[str(n), None] for n in range(len(values) + 1)]))
        new = bench.begin()
        for number, value in enumerate((*values, None)):
            row = (str(number), value)
            try:
                if how == "put":
                    bench.target.put(layout, row)
                else:
                    bench.target.apply((bench.rows(layout, **{how: [row]}),))
            except RefusedError as error:
                changed.append((kind, value))
                codes.add(error.sqlstate[:2])
                continue
            lost, bench.target.tally.converted = bench.target.tally.converted, {}
            found = bench.target.current(layout, (str(number),))
            if found != row:
                assert lost == {(layout.schema, table): 1}, (kind, value, found)
                changed.append((kind, value))
        bench.commit(new)
    assert codes <= {"22", "0A"}, "of a value, or of a type that this server was built without, and of nothing else"
    assert not [kind for kind, value in changed if value is None]
    assert not {kind for kind, _ in changed} & EXACT, "what every database has a type for arrives as it is"


@pytest.mark.parametrize("kind", ["short", "char", "bytes", "decimal", "timestamptz"])
def test_keys_that_are_nearly_equal_are_rows_of_their_own(bench: Bench, kind: str):
    """Or are refused: never is one taken for the other."""
    values: list[str | bytes] = {
        "short": ["a", "A", "á", "a ", "", " ", "\\N"], "char": ["a    ", "A    ", "     "],
        "bytes": [b"", b"\x00", b"\x00\x00", b"a", b"A"], "decimal": ["1", "1.5", "-1", "0"],
        "timestamptz": ["2024-01-01 00:00:00+00", "2024-01-01 00:00:00.5+00"],
    }[kind]  # fmt: skip
    bench.make("kv", f"id:{kind} a:short", "id")
    layout = bench.layout(columns="id a")
    if bench.place.pads and kind == "short":
        new = bench.begin()
        with pytest.raises(RefusedError):
            bench.target.apply((bench.rows(layout, inserts=[[value, "old"] for value in values]),))
        bench.commit(new)
        values = ["a", "A", "á", "", "\\N"]
    bench.do(bench.rows(layout, inserts=[[value, "old"] for value in values]))
    bench.do(bench.rows(layout, updates=[[values[0], "new"]], deletes=[[values[1]]]))
    new = bench.begin()
    for number, value in enumerate(values):
        expected = None if number == 1 else (value, "old" if number else "new")
        assert bench.target.current(layout, (value,)) == expected
    bench.commit(new)


def test_what_is_converted_in_vain_does_not_count(bench: Bench):
    """Neither what is refused, nor what is undone."""
    bench.make("kv", "id:bigint v:double", "id")
    layout = bench.layout(columns="id v")
    rows = [["1", "-0"], ["2", "1"]]
    new = bench.begin()
    with pytest.raises(RefusedError):
        bench.target.apply((bench.rows(layout, inserts=rows), bench.rows(layout, deletes=[["9"]])))
    token = bench.target.mark()
    bench.target.apply((bench.rows(layout, inserts=rows),))
    bench.target.undo(token)
    bench.target.apply((bench.rows(layout, inserts=rows),))
    lost = bench.target.tally.converted.get((layout.schema, "kv"), 0)
    exact = bench.target.current(layout, ("1",)) == ("1", "-0")
    assert lost == 1 or (lost == 0 and exact), "counted once, and also where the server might have lost it"
    bench.commit(new)


def test_text_that_is_no_unicode_is_refused_or_kept(bench: Bench, kv: object):
    """Its bytes come as surrogate escapes: a target that takes only UTF-8 says so, and goes on."""
    layout = bench.layout()
    new = bench.begin()
    with pytest.raises(RefusedError) as caught:
        bench.target.apply((bench.rows(layout, inserts=[["1", "\udcff", "b"]]),))
    assert caught.value.sqlstate == "22021"
    with pytest.raises(RefusedError):
        bench.target.put(layout, ("1", "\udcff", "b"))
    bench.target.apply((bench.rows(layout, inserts=[["1", "a", "b"]]),))
    bench.commit(new)
    assert bench.look() == [("1", "a", "b")]
