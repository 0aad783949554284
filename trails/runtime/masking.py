"""Hides passwords in everything that people get to see: reports, logs, messages, echoed parameter files.

Rule: rather hide too much. A password is what stands between `:` and `@` in a URL, after `password=`, after a setting
of Spark's that is named like a secret, in a parameter file after the word PASSWORD, and, anywhere at all, whatever
this process was told to `hide`: each password that it connects with, so that no driver's message can give it away.
"""

from __future__ import annotations

import re

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^\s:@/]*:)(?:[^\s/?#]*@|\S*@)")
_NAMES = r"\w*(?:password|passwd|pwd)|spark\.[\w.-]*(?:password|secret|token|access\.?key)[\w.-]*"
_SETTING = re.compile(rf"(?i)\b((?:{_NAMES})\s*=\s*)('(?:[^']|'')*'|\"[^\"]*\"|[^\s,;&]+)")
_WORD = re.compile(r"(?i)\b(PASSWORD(?:\s+|\s*&\s*\n\s*))('(?:[^']|'')*'|\"[^\"]*\"|[^\s,;&)=][^\s,;]*)")
_HIDDEN = "********"
# A shorter password is a word that may stand anywhere; the rules by place still hide it where it is one.
SHORTEST = 6
_secrets: set[str] = set()


def hide(secret: str) -> None:
    """Never say `secret` from now on: `mask` replaces it wherever it stands."""
    if len(secret) >= SHORTEST:
        _secrets.add(secret)


def mask(text: str) -> str:
    """`text` with the passwords of URLs and of `password=...` settings hidden, and all that `hide` was told."""
    text = _SETTING.sub(rf"\1{_HIDDEN}", _URL.sub(rf"\1{_HIDDEN}@", text))
    for secret in sorted(_secrets, key=len, reverse=True):  # one may begin as another does
        text = text.replace(secret, _HIDDEN)
    return text


def mask_parameters(text: str) -> str:
    """As `mask`, and what follows the word PASSWORD; for parameter files, where that word is syntax."""
    return _WORD.sub(rf"\1{_HIDDEN}", mask(text))
