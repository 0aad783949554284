"""Rows as lines of text: what goes in comes out, whatever the values hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replicat.model.copytext import line, render, rows_of, text_of
from trails.record import MISSING

values = st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
rows = st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(values, min_size=width, max_size=width), max_size=20))


@given(rows)
def test_any_text_comes_back(table: list[list[str | None]]):
    """Tabs, newlines, backslashes, NULL beside the text that looks like it."""
    data, count, partial = render(table)
    assert (count, partial) == (len(table), [])
    assert rows_of(data) == table
    assert data.decode() == "".join(map(line, table))


def test_text_that_is_no_unicode():
    """It stays what it is; and a table without columns has rows too."""
    table = [["\udcff", None]] * 1000
    data, count, _ = render(table)
    assert (rows_of(data), count) == (table, 1000)
    assert render([(), ()]) == (b"\n\n", 2, [])
    assert rows_of(b"") == []


def test_values_that_look_like_syntax():
    """A backslash and N is no NULL, a backslash and a dot is no end."""
    data, _, _ = render([["\\N", "\\."], [None, ""], ["a\tb", "c\r\nd\\"]])
    assert data == b"\\\\N\t\\\\.\n\\N\t\na\\tb\tc\\r\\nd\\\\\n"


def test_few_rows_to_escape_among_many():
    """They alone are escaped: each letter by itself and beside NULL, in a chunk of rows that need none."""
    odd = ["a\tb", "a\nb", "a\rb", "a\\b", "\\N", "\t\n\r\\"]
    table: list[list[str | None]] = [[str(i), "plain", None if i % 3 else "text"] for i in range(1000)]
    for letter in [*odd, None]:
        for place, beside in enumerate([*odd, None]):
            table[50 * place] = [letter, "plain", beside]
        data, count, _ = render(table)
        assert (rows_of(data), count) == (table, 1000)
        assert data.decode() == "".join(map(line, table))


def test_bytes_are_hex():
    """As PostgreSQL takes bytea; the backslash is escaped for COPY."""
    assert text_of(b"\x00\xff") == "\\x00ff"
    assert render([[b"\x00\xff", "x"]])[0] == b"\\\\x00ff\tx\n"


def test_rows_with_missing_columns_are_set_apart():
    """They come back as they were given; the others are written."""
    data, count, partial = render([["1", "a"], ["2", MISSING], ["3", None]])
    assert (count, partial) == (2, [["2", MISSING]])
    assert [row[1] for row in rows_of(data)] == ["a", None]


def test_picked_columns():
    """Only what is picked is written, and only that must be there."""
    data, count, partial = render([["1", MISSING, "x"]], lambda row: (row[2], row[0]))
    assert (rows_of(data), count, partial) == ([["x", "1"]], 1, [])
    assert render([["1", MISSING]], lambda row: (row[1],))[2] == [["1", MISSING]]
