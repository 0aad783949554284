"""The DDL parameter: which changes of tables' shapes travel. Extract and Replicat read it alike.

    DDL                                                 all of them
    DDL INCLUDE MAPPED                                  those of the tables that TABLE (or MAP) names
    DDL INCLUDE MAPPED, EXCLUDE OPTYPE DROP             ... but no DROP
    DDL INCLUDE ALL, EXCLUDE OBJNAME sales.tmp_*, &
        EXCLUDE INSTR 'no replication'

Rule: a clause is INCLUDE or EXCLUDE with a scope and conditions, all of which must hold. A change passes if some
INCLUDE takes it and no EXCLUDE does, whatever their order. A renamed table counts by both of its names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from trails.ddl import OPS, DdlChange
from trails.runtime.language.params import Keyword, Literal, Pattern, Statement, Word, did_you_mean, table_pattern

TRUNCATE: Final = "TRUNCATE"
SCOPES: Final = ("ALL", "MAPPED", "UNMAPPED", "OTHER")
_CONDITIONS: Final = ("OPTYPE", "OBJNAME", "OBJTYPE", "INSTR")
SHAPE: Final = (
    "[{INCLUDE | EXCLUDE} [ALL | MAPPED | UNMAPPED | OTHER] [, OPTYPE {CREATE | ALTER | RENAME | DROP | TRUNCATE}] "
    "[, OBJNAME schema.table] [, OBJTYPE TABLE] [, INSTR 'text'] ...]"
)
_OTHER_TYPES: Final = (
    "INDEX", "VIEW", "MATERIALIZED VIEW", "TRIGGER", "SEQUENCE", "FUNCTION", "PROCEDURE", "PACKAGE", "PACKAGE BODY",
    "SYNONYM", "TYPE", "USER", "ROLE", "TABLESPACE", "SNAPSHOT", "DATABASE LINK", "CLUSTER", "LIBRARY", "DIRECTORY",
)  # fmt: skip
_OTHER_OPS: Final = ("GRANT", "REVOKE", "ANALYZE", "COMMENT")
"""What GoldenGate carries and Trailgate never does: an EXCLUDE of it is obeyed by itself, an INCLUDE is refused."""


@dataclass(frozen=True, slots=True)
class DdlClause:
    """One INCLUDE or EXCLUDE. `scope` is one of SCOPES; OTHER, what is no table, is never met."""

    include: bool
    scope: str = "ALL"
    optype: str = ""
    objname: Pattern | None = None
    instr: str = ""

    def takes(self, change: DdlChange, mapped: bool) -> bool:
        """Whether scope and conditions all hold; `mapped`: a TABLE or MAP names the table."""
        if self.scope == "OTHER" or (self.scope != "ALL" and mapped != (self.scope == "MAPPED")):
            return False
        if self.optype and self.optype != change.op:
            return False
        if self.objname is not None and not any(self.objname.matches(*name) for name in change.names):
            return False
        return self.instr.lower() in change.sql.lower()


@dataclass(frozen=True, slots=True)
class DdlRules:
    """The whole parameter."""

    clauses: tuple[DdlClause, ...] = (DdlClause(include=True),)

    def passes(self, change: DdlChange, mapped: bool) -> bool:
        """Whether the change travels."""
        taking = [clause.include for clause in self.clauses if clause.takes(change, mapped)]
        return bool(taking) and all(taking)


def ddl_rules(statement: Statement) -> DdlRules:
    """For a program's keyword table. Raises ParamError."""
    words = list(statement.words)
    if not words:
        return DdlRules()
    clauses: list[DdlClause] = []
    while words:
        clauses.append(_clause(statement, words))
    if not any(clause.include for clause in clauses):
        raise statement.wrong("expected an INCLUDE beside EXCLUDE, found none: nothing would pass")
    return DdlRules(tuple(clauses))


def _clause(statement: Statement, words: list[Word]) -> DdlClause:
    """Take one clause off the front of the words."""
    kind = _one_of(statement, words.pop(0), ("INCLUDE", "EXCLUDE"))
    scope = "ALL"
    if words and _is_one_of(words[0], SCOPES):
        scope = str(words.pop(0)).upper()
    found: dict[str, Word] = {}
    while words and not _is_one_of(words[0], ("INCLUDE", "EXCLUDE")):
        name = _one_of(statement, words.pop(0), _CONDITIONS)
        if name in found:
            raise statement.wrong(f"expected {name} once in a clause, found it again")
        if not words:
            raise statement.error(f"a value behind {name}", name)
        found[name] = words.pop(0)
    if not found and scope == "ALL" and kind == "EXCLUDE":
        raise statement.wrong("EXCLUDE ALL leaves nothing to INCLUDE; leave the DDL parameter out instead")
    return _checked(statement, DdlClause(kind == "INCLUDE", scope), found)


def _checked(statement: Statement, clause: DdlClause, found: dict[str, Word]) -> DdlClause:
    if not clause.include and (_is_one_of(found.get("OPTYPE", ""), _OTHER_OPS) or _is_other(found.get("OBJTYPE", ""))):
        return DdlClause(include=False, scope="OTHER")
    optype = _one_of(statement, found["OPTYPE"], (*OPS, TRUNCATE)) if "OPTYPE" in found else ""
    if optype == TRUNCATE and not clause.include:
        raise statement.wrong("a TRUNCATE is a change of rows here and always travels; expected another OPTYPE")
    if "OBJTYPE" in found:
        _one_of(statement, found["OBJTYPE"], ("TABLE",))
    objname = table_pattern(statement, _bare(found["OBJNAME"])) if "OBJNAME" in found else None
    instr = found.get("INSTR", "")
    if not isinstance(instr, str) or ("INSTR" in found and not instr):
        raise statement.error("INSTR 'text'")
    return DdlClause(clause.include, clause.scope, optype, objname, instr)


def _bare(name: Word) -> Word:
    """An OBJNAME without the quotes that older files have around all of it: 'hr.*', "hr.*"."""
    if isinstance(name, str) and re.fullmatch(r'"[^".]+\.[^".]+"', name):
        return name[1:-1]
    return str(name) if isinstance(name, Literal) else name


def _is_other(word: Word) -> bool:
    """Whether an OBJTYPE is something else than a table."""
    return isinstance(word, str) and " ".join(word.strip('"').upper().split()) in _OTHER_TYPES


def _is_one_of(word: Word, known: tuple[str, ...]) -> bool:
    return isinstance(word, str) and word.upper() in known


def _one_of(statement: Statement, word: Word, known: tuple[str, ...]) -> str:
    if not _is_one_of(word, known):
        hint = did_you_mean(word, known) if isinstance(word, str) else ""
        raise statement.error(f"{', '.join(known)}{hint}", word)
    return str(word).upper()


def keyword(what: str, example: str) -> Keyword:
    """The row of a program's keyword table; `what` says what the program does with what passes."""
    return Keyword("DDL", SHAPE, what, example, ddl_rules)
