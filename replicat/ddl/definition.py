"""A column as a trail defines it, checked: what the dialects of ddl/dialect.py print from.

Rule: a trail is data, whoever wrote it. What it says of a column becomes a type and a formula by grammars, and names
and values that can stand in a statement; the dialects see nothing else of it. What no grammar knows is a
CannotError, with the column's name and without the text.
"""

from __future__ import annotations

from dataclasses import dataclass

from replicat.ddl.formula import Formula
from replicat.ddl.grammar import SourceGrammar
from replicat.ddl.typename import TypeName
from trails.controlflow import ControlFlowError
from trails.ddl import DdlColumn


class CannotError(ControlFlowError):
    """A change of shape cannot be carried to the target; the message says what of it, and why."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One column. `logical` is the trail's type; `type` and `formula` are None where no grammar knows the text.

    `has_default` tells a formula that is not known from none. `bounds`: the type's modifiers, where they are numbers
    that every value keeps to.
    """

    number: int
    name: str
    logical: str
    type: TypeName | None
    not_null: bool = False
    formula: Formula | None = None
    has_default: bool = False
    missing: str | None = None
    identity: str = ""
    generated: bool = False
    inner: tuple[tuple[int, str], ...] = ()
    bounds: tuple[int, ...] = ()

    @property
    def known_type(self) -> TypeName:
        """The type, for a statement."""
        if self.type is None:
            raise CannotError(f"column {self.name} is of a type that the trail does not name as one")
        return self.type

    @property
    def known_formula(self) -> Formula:
        """The formula, for a statement: of the column's own type, if that is none of the database's own."""
        found = self.formula
        what = "expression that generates it" if self.generated else "default"
        if found is None or (self.generated and found.is_sequence):
            raise CannotError(
                f"the {what} of column {self.name} is not carried: it is more than constants and built-in functions"
            )
        own = None if self.known_type.is_built_in else (self.known_type.schema, self.known_type.name)
        of = (found.type.schema, found.type.name) if found.type else None
        if own != of and not found.is_null:
            raise CannotError(
                f"the {what} of column {self.name} is not carried: its type is not the column's, and a cast may be "
                "anybody's function"
            )
        return found


def defined(column: DdlColumn, grammar: SourceGrammar) -> Definition:
    """What a trail says of a column, in the dialect of its source."""
    has_default = bool(column.default)
    kind = grammar.type(column.native)
    return Definition(
        column.number,
        checked_name(column.name),
        column.type,
        kind,
        column.not_null,
        grammar.formula(column.default or "") if has_default else None,
        has_default,
        column.missing,
        column.identity,
        column.generated,
        column.inner,
        kind.numbers if kind and grammar.binds and not kind.arrays else (),
    )


def checked_name(name: str) -> str:
    """A name that can be quoted."""
    return checked_text(name, "a name")


def checked_text(text: str, what: str) -> str:
    """Text that can stand in a statement, between quotes."""
    if "\0" in text or not (text or what != "a name"):
        raise CannotError(f"{what} that is empty, or has a zero in it")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise CannotError(f"{what} that is no Unicode text") from None
    return text
