"""Hides passwords in everything that people get to see: reports, logs, messages, echoed parameter files.

Rule: rather hide too much. A password is what stands between `:` and `@` in a URL, after `password=`, and in a
parameter file after the word PASSWORD.
"""

from __future__ import annotations

import re

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^\s:@/]*:)(?:[^\s/?#]*@|\S*@)")
_SETTING = re.compile(r"(?i)\b(\w*(?:password|passwd|pwd)\s*=\s*)('(?:[^']|'')*'|\"[^\"]*\"|[^\s,;&)'\"]+)")
_WORD = re.compile(r"(?i)\b(PASSWORD(?:\s+|\s*&\s*\n\s*))('(?:[^']|'')*'|\"[^\"]*\"|[^\s,;&)=]+)")
_HIDDEN = "********"


def mask(text: str) -> str:
    """`text` with the passwords of URLs and of `password=...` settings hidden."""
    return _SETTING.sub(rf"\1{_HIDDEN}", _URL.sub(rf"\1{_HIDDEN}@", text))


def mask_parameters(text: str) -> str:
    """As `mask`, and what follows the word PASSWORD; for parameter files, where that word is syntax."""
    return _WORD.sub(rf"\1{_HIDDEN}", mask(text))
