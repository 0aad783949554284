"""docs/parameters.md, made from the programs' keyword tables: `python -m ggsci.parameters > docs/parameters.md`."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from extract.params import KEYWORDS as EXTRACT
from ggsci.manager.params import KEYWORDS as MANAGER
from pump.params import KEYWORDS as PUMP
from replicat.params import KEYWORDS as REPLICAT
from replicat.params import MAP_OPTIONS, MapOption
from trails.runtime.globals import GLOBALS_KEYWORDS
from trails.runtime.params import ALWAYS, LANGUAGE, Keyword

PROGRAMS: tuple[tuple[str, str, Mapping[str, Keyword]], ...] = (
    ("Manager", "`dirprm/mgr.prm`", MANAGER),
    ("Extract", "`dirprm/<group>.prm`, first parameter `EXTRACT <group>`", EXTRACT),
    ("Pump", "`dirprm/<group>.prm`, first parameter `EXTRACT <group>`", PUMP),
    ("Replicat", "`dirprm/<group>.prm`, first parameter `REPLICAT <group>`", REPLICAT),
    ("GLOBALS", "`GLOBALS` in the home, for all groups of it", GLOBALS_KEYWORDS),
    ("The language", "every file; obeyed while it is read, before any other parameter", LANGUAGE | ALWAYS),
)

WIDTH = 100
_OPTIONS = """Behind TARGET, in any order, with commas between. [mapping.md](mapping.md) tells how they work together.
Expressions are Spark SQL, or GoldenGate's @functions; a mistake in one is told with the line in which it begins."""

_HEAD = """# Parameters

This page is made from the programs' own tables of keywords (`python -m ggsci.parameters > docs/parameters.md`); a test
holds them together.

One parameter a line; keywords in any case. `--` begins a comment, `&` at a line's end continues it. TABLE, MAP and
their EXCLUDE forms end with `;` and may span lines. 'Single quotes' make a literal, "double quotes" keep the case of a
name; unquoted names are lower case, as in PostgreSQL. `*` and `?` are wildcards in names of schemas and tables.
`?NAME` at the beginning of a word is the value of an environment variable, also within a URL (`://user:?PASS@host`).
`CHECK PARAMS <group>` in ggsci lists every mistake of a file with its line, as does `checkprm FILE` in the shell; START
refuses a file with mistakes. A mistake in what a macro made is told with the line of the call and that of the macro.
"""


def reference() -> str:
    """The whole page."""
    lines = [_HEAD]
    for program, file, keywords in PROGRAMS:
        lines += [f"## {program}", "", f"In {file}.", ""]
        for keyword in sorted(keywords.values(), key=lambda keyword: keyword.name):
            lines += _entry(keyword)
        if keywords is REPLICAT:
            lines += ["## Options of MAP", "", _OPTIONS, ""]
            for option in sorted(MAP_OPTIONS.values(), key=lambda option: option.name):
                lines += _option_entry(option)
    return "\n".join(lines).rstrip() + "\n"


def _entry(keyword: Keyword) -> list[str]:
    marks = [word for word, holds in (("required", keyword.required), ("may repeat", keyword.repeatable)) if holds]
    shape = f"{keyword.name} {keyword.shape}".rstrip()
    entry = [f"### {keyword.name}", "", f"`{shape}`" + (f" ({', '.join(marks)})" if marks else ""), "", keyword.help]
    return [*entry, "", "```", keyword.example, "```", ""]


def _option_entry(option: MapOption) -> list[str]:
    shape = f"{option.name} {option.shape}".rstrip()
    marks = " (may repeat)" if option.repeats and option.takes else ""
    return [
        f"### MAP ... {option.name}",
        "",
        f"`{shape}`{marks}",
        "",
        option.help,
        "",
        "```",
        option.example,
        "```",
        "",
    ]


def about(word: str) -> list[str]:
    """For HELP: what a parameter, or an option of MAP, is; nothing if there is none of that name."""
    name = word.strip().upper()
    lines: list[str] = []
    for program, file, keywords in PROGRAMS:
        if name in keywords:
            keyword = keywords[name]
            lines += _page(f"{program}: {name} {keyword.shape}".rstrip(), keyword.help, keyword.example, file)
    if name in MAP_OPTIONS:
        option = MAP_OPTIONS[name]
        lines += _page(f"MAP ..., {name} {option.shape}".rstrip(), option.help, option.example)
    if name == "MAP":
        shapes = [f"    {option.name} {option.shape}".rstrip() for option in MAP_OPTIONS.values()]
        lines += ["Options of MAP (HELP option explains one):", *shapes, ""]
    return lines


def _page(title: str, text: str, example: str, file: str = "") -> list[str]:
    where = [f"  In {file.replace('`', '')}."] if file else []
    wrapped = [f"  {line}" for line in textwrap.wrap(text, WIDTH)]
    return [
        *textwrap.wrap(title, WIDTH, subsequent_indent="    "),
        *where,
        *wrapped,
        "  Example:",
        f"    {example}",
        "",
    ]


if __name__ == "__main__":
    print(reference(), end="")
