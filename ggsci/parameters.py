"""docs/parameters.md, made from the programs' keyword tables: `python -m ggsci.parameters > docs/parameters.md`."""

from __future__ import annotations

from collections.abc import Mapping

from extract.params import KEYWORDS as EXTRACT
from ggsci.check import GLOBALS_KEYWORDS
from ggsci.manager_params import KEYWORDS as MANAGER
from pump.params import KEYWORDS as PUMP
from replicat.params import KEYWORDS as REPLICAT
from trails.runtime.params import Keyword

PROGRAMS: tuple[tuple[str, str, Mapping[str, Keyword]], ...] = (
    ("Manager", "`dirprm/mgr.prm`", MANAGER),
    ("Extract", "`dirprm/<group>.prm`, first parameter `EXTRACT <group>`", EXTRACT),
    ("Pump", "`dirprm/<group>.prm`, first parameter `EXTRACT <group>`", PUMP),
    ("Replicat", "`dirprm/<group>.prm`, first parameter `REPLICAT <group>`", REPLICAT),
    ("GLOBALS", "`GLOBALS` in the home, for all groups of it", GLOBALS_KEYWORDS),
)

_HEAD = """# Parameters

This page is made from the programs' own tables of keywords (`python -m ggsci.parameters > docs/parameters.md`); a test
holds them together.

One parameter a line; keywords in any case. `--` begins a comment, `&` at a line's end continues it. TABLE, MAP and
their EXCLUDE forms end with `;` and may span lines. 'Single quotes' make a literal, "double quotes" keep the case of a
name; unquoted names are lower case, as in PostgreSQL. `*` and `?` are wildcards in names of schemas and tables.
`CHECK PARAMS <group>` in ggsci lists every mistake of a file with its line; START refuses a file with mistakes.
"""


def reference() -> str:
    """The whole page."""
    lines = [_HEAD]
    for program, file, keywords in PROGRAMS:
        lines += [f"## {program}", "", f"In {file}.", ""]
        for keyword in sorted(keywords.values(), key=lambda keyword: keyword.name):
            lines += _entry(keyword)
    return "\n".join(lines).rstrip() + "\n"


def _entry(keyword: Keyword) -> list[str]:
    marks = [word for word, holds in (("required", keyword.required), ("may repeat", keyword.repeatable)) if holds]
    shape = f"{keyword.name} {keyword.shape}".rstrip()
    entry = [f"### {keyword.name}", "", f"`{shape}`" + (f" ({', '.join(marks)})" if marks else ""), "", keyword.help]
    return [*entry, "", "```", keyword.example, "```", ""]


if __name__ == "__main__":
    print(reference(), end="")
