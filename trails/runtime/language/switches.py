"""GETINSERTS, IGNOREINSERTS and their kin: which operations of the tables behind them are taken.

Rule: IGNORE... holds for each TABLE (of a Replicat: each MAP) behind it until its GET..., and a file begins with all
GETs in force. They speak of what the source did, whatever a filter makes of it. One behind which no table stands is
refused, as it does nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trails.errors import ParamError
from trails.record import DELETE, INSERT, TRUNCATE, UPDATE
from trails.runtime.language.params import Keyword, ParamErrors, Statement, nothing

_OPERATIONS: Final = {"INSERTS": INSERT, "UPDATES": UPDATE, "DELETES": DELETE, "TRUNCATES": TRUNCATE}
IGNORES: Final = {f"IGNORE{name}": op for name, op in _OPERATIONS.items()}
GETS: Final = {f"GET{name}": op for name, op in _OPERATIONS.items()}


def keywords(each: str, what: str) -> tuple[Keyword, ...]:
    """The rows of a program's table; `each`: TABLE or MAP, `what`: is done with a change that is taken."""
    return tuple(
        row
        for name in _OPERATIONS
        for row in (
            Keyword(
                f"IGNORE{name}", "",
                f"For the tables of each {each} behind it, {name.lower()} are not {what}, until GET{name}.",
                f"IGNORE{name}", nothing, repeatable=True,
            ),
            Keyword(
                f"GET{name}", "",
                f"For the tables of each {each} behind it, {name.lower()} are {what}. This is the default.",
                f"GET{name}", nothing, repeatable=True,
            ),
        )
    )  # fmt: skip


def ignored(statements: Sequence[Statement], each: str = "TABLE") -> dict[int, frozenset[int]]:
    """By id of a TABLE's (or MAP's) statement, the operations that are left out there, if any.

    Raises ParamErrors for an IGNORE that no such statement stands behind.
    """
    found: dict[int, frozenset[int]] = {}
    in_force: dict[int, Statement] = {}
    unused: list[Statement] = []
    for statement in statements:
        word = statement.keyword
        if word in IGNORES:
            in_force[IGNORES[word]] = statement
            unused.append(statement)
        elif word in GETS:
            in_force.pop(GETS[word], None)
            unused = [other for other in unused if IGNORES[other.keyword] != GETS[word]]
        elif word == each:
            unused = []
            if in_force:
                found[id(statement)] = frozenset(in_force)
    if unused:
        errors: list[ParamError] = [
            item.wrong(f"no {each} stands behind it, and it holds only for those; move it up") for item in unused
        ]
        raise ParamErrors(errors)
    return found
