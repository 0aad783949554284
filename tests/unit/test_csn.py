"""CSNs as people type them."""

from __future__ import annotations

import pytest

from trails.csn import like

LSN, NUMBER = "00000001/0A2B3C40", "0000000000000042"


@pytest.mark.parametrize(
    ("typed", "sample", "wanted"),
    [
        ("1/a2b3c40", LSN, "00000001/0A2B3C40"),
        ("0/0", LSN, "00000000/00000000"),
        (LSN, LSN, LSN),
        ("42", NUMBER, NUMBER),
        (" 7 ", NUMBER, "0000000000000007"),
        ("anything", "", "anything"),
    ],
)
def test_a_csn_gets_the_trails_own_form(typed: str, sample: str, wanted: str):
    """Texts of one form sort as the numbers do; leading zeros and capitals need not be typed."""
    assert like(typed, sample) == wanted


@pytest.mark.parametrize("typed", ["42", "1/2/3", "1/", "/1", "1/123456789", "x/y", "", "1-2"])
def test_another_form_is_refused(typed: str):
    """Its order among the trail's CSNs would mean nothing."""
    with pytest.raises(ValueError, match="such as 00000001/0A2B3C40"):
        like(typed, LSN)


def test_a_number_stays_a_number():
    """A hexadecimal one is not the number that it looks like."""
    with pytest.raises(ValueError, match="such as 0000000000000042"):
        like("4A", NUMBER)
