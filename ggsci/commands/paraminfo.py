"""INFO PARAM and HELP PARAM: parameters as the programs' own tables explain them."""

from __future__ import annotations

import fnmatch
import textwrap
from collections.abc import Iterator
from typing import Any

from ggsci.commands.session import OperatorSession
from ggsci.helptext import WIDTH
from ggsci.parameters import PROGRAMS, about
from ggsci.table.grammar import CommandError, Parsed, nearest
from replicat.params import MAP_OPTIONS


def info(session: OperatorSession, command: Parsed) -> Any:
    """Every parameter that the name or pattern means."""
    names = [name for name in known() if fnmatch.fnmatchcase(name, command.operand.upper())]
    if not names:
        raise unknown("INFO PARAM", command.operand)
    for name in names:
        session.say("", *about(name)[:-1])
    session.say("")
    return [row for name in names for row in _rows(name)]


def _rows(name: str) -> Iterator[dict[str, Any]]:
    for program, file, keywords in PROGRAMS:
        if name in keywords:
            keyword = keywords[name]
            yield {
                "parameter": name, "program": program, "file": file.replace("`", ""), "value": keyword.shape,
                "help": keyword.help, "example": keyword.example, "required": keyword.required,
                "repeatable": keyword.repeatable,
            }  # fmt: skip
    if name in MAP_OPTIONS:
        option = MAP_OPTIONS[name]
        yield {
            "parameter": name, "program": "Replicat", "file": "MAP ...", "value": option.shape, "help": option.help,
            "example": option.example, "required": False, "repeatable": option.repeats,
        }  # fmt: skip


def known() -> list[str]:
    """Every parameter of every program, and every option of MAP."""
    return sorted({name for _, _, keywords in PROGRAMS for name in keywords} | set(MAP_OPTIONS))


def offered() -> list[str]:
    """Those that may stand in a file, for completion and near misses."""
    taken = {name for _, _, keywords in PROGRAMS for name, keyword in keywords.items() if not keyword.refused}
    return sorted(taken | set(MAP_OPTIONS))


def unknown(what: str, word: str) -> CommandError:
    """The error for a name that no program has."""
    close = nearest(word, known())
    return CommandError(
        f"{what}: no parameter {word}", hint=f"Did you mean {close}?" if close else "HELP PARAM lists them"
    )


def overview() -> list[str]:
    """The names of all parameters, by program."""
    lines = ["", "Parameters (HELP PARAM name, or INFO PARAM name, explains one):"]
    tables = [
        (program, [name for name, keyword in keywords.items() if not (keyword.ignored or keyword.refused)])
        for program, _, keywords in PROGRAMS
    ]
    for program, names in [*tables, ("Options of MAP", MAP_OPTIONS)]:
        wrapped = textwrap.wrap(", ".join(sorted(names)), WIDTH - 4)
        lines += ["", f"  {program}", *(f"    {line}" for line in wrapped)]
    more = "Files of GoldenGate also hold what has no meaning here: INFO PARAM name tells why."
    return [*lines, "", more, ""]
