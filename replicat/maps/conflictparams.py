"""COMPARECOLS and RESOLVECONFLICT of a MAP: from text to values.

Rule: a method that can't settle a kind of conflict is refused here (there is no row to compare with where the row is
missing), so that nothing is left to find out when the conflict is there.
"""

from __future__ import annotations

import re
from typing import Any

from replicat.maps.clauses import Clause, ClauseReader
from replicat.model.mapparams import (
    COMPARING,
    CONFLICTS,
    DELETE_ROW_EXISTS,
    DELETE_ROW_MISSING,
    DISCARD,
    IGNORE,
    INSERT_ROW_EXISTS,
    OVERWRITE,
    UPDATE_ROW_EXISTS,
    UPDATE_ROW_MISSING,
    USEDELTA,
    CompareCols,
    Comparison,
    ResolveGroup,
    ResolveRule,
)
from trails.runtime.language.params import did_you_mean

DEFAULT = "DEFAULT"
METHODS = (OVERWRITE, IGNORE, DISCARD, *COMPARING, USEDELTA)
PERMITTED: dict[str, tuple[str, ...]] = {
    INSERT_ROW_EXISTS: (OVERWRITE, IGNORE, DISCARD, *COMPARING),
    UPDATE_ROW_EXISTS: METHODS,
    UPDATE_ROW_MISSING: (OVERWRITE, IGNORE, DISCARD),
    DELETE_ROW_EXISTS: (OVERWRITE, IGNORE, DISCARD),
    DELETE_ROW_MISSING: (IGNORE, DISCARD),
}
_COMPARE = re.compile(
    r"ON\s+(UPDATE|DELETE)\s+(ALL|KEY|KEYINCLUDING|ALLEXCLUDING)\s*(\((.*)\))?", re.IGNORECASE | re.DOTALL
)
_COMPARE_SHAPE = "ON {UPDATE | DELETE} {ALL | KEY | KEYINCLUDING (column, ...) | ALLEXCLUDING (column, ...)}"


def compare_cols(clause: Clause) -> dict[str, Any]:
    """COMPARECOLS (ON UPDATE ..., ON DELETE ...)."""
    found: dict[str, Comparison] = {}
    for item in clause.items():
        match = _COMPARE.fullmatch(item.text)
        if match is None:
            raise item.expected(_COMPARE_SHAPE)
        operation, kind = match[1].lower(), match[2].upper()
        if operation in found:
            raise item.wrong(f"expected ON {operation.upper()} once in COMPARECOLS, found it again")
        if (kind in ("KEYINCLUDING", "ALLEXCLUDING")) != (match[3] is not None):
            raise item.expected(_COMPARE_SHAPE)
        found[operation] = Comparison(kind, item.part(*match.span(4)).names() if match[3] else ())
    if not found:
        raise clause.expected(_COMPARE_SHAPE)
    return {"compare": CompareCols(clause.where, **found)}


def resolve_conflict(clause: Clause) -> dict[str, Any]:
    """RESOLVECONFLICT (type, (name, method, COLS (...)), ..., (DEFAULT, method))."""
    reader = ClauseReader(clause)
    type_ = _one_of(clause, reader.word(), CONFLICTS)
    groups: list[ResolveGroup] = []
    while not reader.rest_is_empty():
        inner = reader.group()
        if inner is None:
            raise reader.stray().expected("(name, method, COLS (column, ...)) or (DEFAULT, method)")
        groups.append(_group(inner, type_, groups))
    default = next((group for group in groups if group.name == DEFAULT), None)
    if default is None:
        raise clause.wrong(f"RESOLVECONFLICT {type_}: expected (DEFAULT, method) for the other columns, found none")
    named = tuple(group for group in groups if group is not default)
    return {"resolve": (ResolveRule(type_, default, named, clause.where),)}


def _group(clause: Clause, type_: str, before: list[ResolveGroup]) -> ResolveGroup:
    reader = ClauseReader(clause)
    word = reader.word()
    if word is None:
        raise clause.expected("a name or DEFAULT first")
    name = DEFAULT if word.text.upper() == DEFAULT else word.text
    if name in [group.name for group in before]:
        raise word.wrong(f"RESOLVECONFLICT {type_}: expected {name} once, found it again")
    method = _one_of(clause, reader.word(), METHODS)
    if method not in PERMITTED[type_]:
        raise clause.wrong(f"{method} can't resolve {type_}; expected {', '.join(PERMITTED[type_])}")
    column = _column(clause, reader, method)
    cols = _cols(reader, clause)
    if (name == DEFAULT) == bool(cols):
        raise clause.expected("(DEFAULT, method) without COLS" if cols else "(name, method, COLS (column, ...))")
    if method == USEDELTA and name == DEFAULT:
        raise clause.wrong("USEDELTA needs COLS with the columns of numbers to add to; expected it in a named group")
    if not reader.rest_is_empty():
        raise reader.stray().expected("')'")
    taken = {column for group in before for column in group.cols} & set(cols)
    if taken:
        raise clause.wrong(f"RESOLVECONFLICT {type_}: column {', '.join(sorted(taken))} is in two groups")
    return ResolveGroup(name, method, column, cols)


def _column(clause: Clause, reader: ClauseReader, method: str) -> str:
    inner = reader.group()
    if (inner is not None) != (method in COMPARING):
        raise clause.expected(f"{method} (column)" if method in COMPARING else f"{method} without a column")
    return inner.name() if inner is not None else ""


def _cols(reader: ClauseReader, clause: Clause) -> tuple[str, ...]:
    if reader.rest_is_empty():
        return ()
    word = reader.word()
    inner = reader.group() if word is not None and word.text.upper() == "COLS" else None
    if inner is None:
        raise (word or clause).expected("COLS (column, ...)")
    return inner.names()


def _one_of(clause: Clause, word: Clause | None, known: tuple[str, ...]) -> str:
    if word is None or word.text.upper() not in known:
        hint = did_you_mean(word.text, known) if word is not None else ""
        raise (word or clause).wrong(
            f"expected one of {', '.join(known)}, found {repr(word.text) if word else 'nothing'}{hint}"
        )
    return word.text.upper()
