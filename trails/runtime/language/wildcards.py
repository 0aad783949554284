"""Which of two wildcard names is the narrower one: decided for all names at once, not for those that happen to exist.

A glob is a tuple of tokens: characters, ANY_ONE (`?`) and ANY_RUN (`*`). Pure. Used through `Pattern.covers` and
`params.narrowest`.
"""

from __future__ import annotations

from typing import Final

ANY_ONE: Final = object()
ANY_RUN: Final = object()
_OTHER: Final = object()  # stands for every character that neither glob names

Glob = tuple[object, ...]
_WILD: Final = {"*": ANY_RUN, "?": ANY_ONE}


def glob(name: str, quoted: bool) -> Glob:
    """A name as written; in quotes `*` and `?` are characters like all others."""
    return tuple(name) if quoted else tuple(_WILD.get(c, c) for c in name)


def covers(wide: Glob, narrow: Glob) -> bool:
    """Whether `wide` matches every name that `narrow` matches (so each glob covers itself).

    Both are walked together, a character a step: `narrow` at one place, `wide` at all places where it can be. Where
    `narrow` takes any character, one that neither names is the hardest for `wide`, so no other is tried; and of two
    ways to the same place of `narrow` only the one that leaves `wide` fewer places is followed.
    """
    seen: dict[int, list[frozenset[int]]] = {}
    waiting = [(at, _rest(wide, {0})) for at in _settled(narrow, 0)]
    while waiting:
        at, places = waiting.pop()
        if any(known <= places for known in seen.setdefault(at, [])):
            continue
        seen[at].append(places)
        if at == len(narrow):
            if len(wide) not in places:
                return False
            continue
        token = narrow[at]
        char = _OTHER if token in (ANY_ONE, ANY_RUN) else token
        reached = _rest(wide, {n for place in places for n in _after(wide, place, char)})
        waiting += [(n, reached) for n in _settled(narrow, at if token is ANY_RUN else at + 1)]
    return True


def _settled(tokens: Glob, at: int) -> list[int]:
    """The places that stand for `at`: behind a `*` one is at it and past it at once."""
    places = [at]
    while at < len(tokens) and tokens[at] is ANY_RUN:
        at += 1
        places.append(at)
    return places


def _after(tokens: Glob, at: int, char: object) -> list[int]:
    """The places after one more character."""
    if at == len(tokens):
        return []
    if tokens[at] is ANY_RUN:
        return [at]
    return [at + 1] if tokens[at] is ANY_ONE or tokens[at] == char else []


def _rest(tokens: Glob, places: set[int]) -> frozenset[int]:
    """Places with those that `*` adds, without those that the last `*` among them makes needless."""
    every = {n for place in places for n in _settled(tokens, place)}
    last = max((place for place in every if place < len(tokens) and tokens[place] is ANY_RUN), default=0)
    return frozenset(place for place in every if place >= last)
