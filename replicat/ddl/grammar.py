"""How the native types and the defaults of a source are read: a grammar for each kind of database.

Rule: a native type and a default mean something only in the dialect of the trail's source. What no grammar is for has
no type but its logical one, and no default but a constant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from replicat.ddl.formula import Formula, parse_constant
from replicat.ddl.typename import TypeName


@dataclass(frozen=True, slots=True)
class SourceGrammar:
    """`binds`: no value exceeds its type's modifiers. `rows_have_generated`: rows have their generated columns too."""

    type: Callable[[str], TypeName | None] = lambda _text: None
    formula: Callable[[str], Formula | None] = parse_constant
    binds: bool = False
    rows_have_generated: bool = False


CONSTANTS = SourceGrammar()
"""Of a source whose dialect is not known."""
