"""CSNs as people type them, brought to the trail's own form: there texts sort as the source's commits did.

Rule: a source writes all its CSNs in one form of fixed width. What is typed may lack leading zeros and be in small
letters (`0/16b3748`); anything else that is not of that form is refused, as its order would mean nothing.
"""

from __future__ import annotations

import re

_PARTS = re.compile(r"([^0-9A-Za-z]+)")


def like(text: str, sample: str) -> str:
    """`text` in the form of `sample`, a CSN of the trail. Raises ValueError, which says what was expected."""
    if not sample:
        return text
    given, wanted = _PARTS.split(text.strip()), _PARTS.split(sample)
    if given[1::2] == wanted[1::2] and all(given[::2]):
        upper = sample == sample.upper()
        made = [_wide(part.upper() if upper else part, len(form)) for part, form in zip(given, wanted, strict=True)]
        if len("".join(made)) == len(sample) and all(map(_same_digits, made, wanted)):
            return "".join(made)
    raise ValueError(f"a CSN such as {sample}, found {text!r}")


def _wide(part: str, width: int) -> str:
    return part.zfill(width) if part.isalnum() else part


def _same_digits(part: str, form: str) -> bool:
    """Whole numbers stay whole numbers, hexadecimal ones hexadecimal."""
    digits = "0123456789" if len(form) > 8 and form.isdecimal() else "0123456789ABCDEF"
    return not form.isalnum() or not set(form.upper()) <= set(digits) or set(part.upper()) <= set(digits)
