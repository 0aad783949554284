"""IDs in the names of tests: each is one of tests/rows.txt, and all are written in one way."""

from __future__ import annotations

from tests.support import proved


def test_every_id_in_a_name_is_a_row():
    """A wrong or unknown one would say that something is proved which is not."""
    known = proved.rows()
    assert [(path, name, wrong) for path, name in proved.names() if (wrong := proved.strays(name, known))] == []


def test_how_ids_are_found():
    known = {"CW-16": "", "GG-03": ""}
    assert proved.ids("test_CW_16_GG_03_and_more") == ["CW-16", "GG-03"]
    assert proved.strays("test_CW_16_GG_03_and_more", known) == []
    assert proved.strays("test_CW_17", known) == ["CW-17"]
    for other_way in ("test_cw16_a", "test_cw_16_a", "test_GG03_a"):
        assert proved.ids(other_way) == []
        assert len(proved.strays(other_way, known)) == 1
    assert proved.strays("test_at_10_o_clock", known) == []


def test_the_table_has_every_row():
    lines = list(proved.table())
    starts = [line[:5] for line in lines[:-1] if not line.startswith(" ")]
    assert starts == list(proved.rows())
    assert len(starts) > 100
    (line,) = (line for line in lines if line.startswith("CW-11"))
    assert line.endswith("of_equal_length")
