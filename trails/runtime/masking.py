"""Hides passwords in everything that people get to see: reports, logs, messages, echoed parameter files.

Rule: rather hide too much. A password is what stands between `:` and `@` in a URL, after `password=`, after a setting
of Spark's that is named like a secret, in a parameter file after the word PASSWORD, and, anywhere at all, whatever
this process was told to `hide`: each password that it connects with, so that no driver's message can give it away.
Texts hold keys and values of any length, so the time that hiding takes must grow as they do: each pattern begins only
where a word begins, runs on without a way back, and a URL's password is found by its signs.
"""

from __future__ import annotations

import re

_WITH_URL = re.compile(r"\S+")
_USER = re.compile(r"://[^\s:@/]*+:")
_HOST_ENDS = re.compile(r"[/?#]")
_NAME = re.compile(r"(?<![\w.-])([\w.-]++)\s*+=\s*+")
_VALUE = re.compile(r"'(?:[^']|'')*+'|\"[^\"]*+\"|[^\s,;&]++")
_SECRET = re.compile(r"(?i)(?:password|passwd|pwd)\Z|\bspark\..*(?:password|secret|token|access\.?key)")
_WORD = re.compile(
    r"(?i)\b((?:ASM|DEFAULTUSER)?PASSWORD(?:\s++|\s*+&[^\S\n]*+\n\s*+))('(?:[^']|'')*+'|\"[^\"]*+\"|[^\s,;&)=][^\s,;]*+)"
)
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
    if "://" in text:
        text = _WITH_URL.sub(_mask_urls, text)
    if "=" in text:
        text = _mask_settings(text)
    for secret in sorted(_secrets, key=len, reverse=True):  # one may begin as another does
        text = text.replace(secret, _HIDDEN)
    return text


def _mask_urls(found: re.Match[str]) -> str:
    """A word that may hold URLs: what stands behind `://user:` goes, up to the last `@` of the host, or of the word."""
    word = found[0]
    if "://" not in word or "@" not in word:
        return word
    made, at = [], 0
    last = word.rfind("@")
    while (user := _USER.search(word, at)) is not None and user.end() <= last:
        ends = _HOST_ENDS.search(word, user.end())
        sign = word.rfind("@", user.end(), ends.start() if ends else len(word))
        made += [word[at : user.end()], _HIDDEN]
        at = last if sign < 0 else sign
    return "".join([*made, word[at:]])


def _mask_settings(text: str) -> str:
    made, done, at = [], 0, 0
    while (name := _NAME.search(text, at)) is not None:
        at = name.end()
        if _SECRET.search(name[1][-200:]) and (value := _VALUE.match(text, at)) is not None:
            made += [text[done:at], _HIDDEN]
            done = at = value.end()
    return "".join([*made, text[done:]])


def mask_parameters(text: str) -> str:
    """As `mask`, and what follows the word PASSWORD; for parameter files, where that word is syntax."""
    return _WORD.sub(rf"\1{_HIDDEN}", mask(text))
