"""docs/parameters.md, made from the programs' keyword tables: `python -m ggsci.parameters > docs/parameters.md`."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from extract.params import KEYWORDS as EXTRACT
from ggsci.helptext import WIDTH, markdown, wrapped
from ggsci.manager.params import KEYWORDS as MANAGER
from pump.params import KEYWORDS as PUMP
from replicat.params import KEYWORDS as REPLICAT
from replicat.params import MAP_OPTIONS, MapOption
from trails.runtime.language.acceptedoptions import OPTIONS, REFUSED
from trails.runtime.language.globals import GLOBALS_KEYWORDS
from trails.runtime.language.params import ALWAYS, LANGUAGE, Keyword

PROGRAMS: tuple[tuple[str, str, Mapping[str, Keyword]], ...] = (
    ("Manager", "`dirprm/mgr.prm`", MANAGER),
    ("Extract", "`dirprm/<group>.prm`, first parameter `EXTRACT <group>`", EXTRACT),
    ("Pump", "`dirprm/<group>.prm`, first parameter `EXTRACT <group>`", PUMP),
    ("Replicat", "`dirprm/<group>.prm`, first parameter `REPLICAT <group>`", REPLICAT),
    ("GLOBALS", "`GLOBALS` in the home, for all groups of it", GLOBALS_KEYWORDS),
    ("The language", "every file; obeyed while it is read, before any other parameter", LANGUAGE | ALWAYS),
)

_OPTIONS = """Behind TARGET, in any order, with commas between. [mapping.md](mapping.md) tells how they work together.
Expressions are Spark SQL, or GoldenGate's @functions. A mistake in one is told with the line in which it begins."""

_HEAD = """# Parameters

This page is made from the programs' own tables of keywords (`python -m ggsci.parameters > docs/parameters.md`); a test
holds them together.

- A parameter file has one parameter in each line. Keywords may be written in any case.
- `--` begins a comment, and `&` at a line's end continues the line. TABLE and MAP end with `;` and may go over several
  lines. TABLEEXCLUDE and MAPEXCLUDE may end with `;`; else they go on as long as lines end with a comma.
- 'Single quotes' make a literal, and "double quotes" keep the case of a name. Names without quotes are lower
  case. `*` and `?` are wildcards in names of schemas and tables.
- `?NAME` at the beginning of a word is the value of an environment variable, also within a URL (`://user:?PASS@host`).
- `CHECK PARAMS <group>` in ggsci lists every mistake of a file with its line, and so does `checkprm FILE` in the shell.
  START refuses a file with mistakes. A mistake in the text of a macro is told with two lines: that of the call and that
  of the macro.

Files that were written for GoldenGate can be used. Parameters that have no meaning here are accepted, and told in the
report and by CHECK PARAMS. What would change which data arrives, and is not supported, is refused by its name, with
what to write instead. The last tables of each program list both. The bare name of a database (a DSN, a net service) is
not looked up. Either give SOURCEDB and TARGETDB a URL, or write the user of USERIDALIAS as user@host:port/database in
the credential store.
"""


def reference() -> str:
    """The whole page."""
    lines = [_HEAD]
    for program, file, keywords in PROGRAMS:
        lines += [f"## {program}", "", f"In {file}.", ""]
        for keyword in sorted(keywords.values(), key=lambda keyword: keyword.name):
            lines += _entry(keyword) if not (keyword.ignored or keyword.refused) else []
        lines += _foreign(program, keywords)
        if keywords is REPLICAT:
            lines += ["## Options of MAP", "", _OPTIONS, ""]
            for option in sorted(MAP_OPTIONS.values(), key=lambda option: option.name):
                marks = ["may repeat"] if option.repeats and option.takes else []
                lines += _shown_entry(f"MAP ... {option.name}", option, marks)
    return "\n".join(lines).rstrip() + "\n"


def _entry(keyword: Keyword) -> list[str]:
    marks = [word for word, holds in (("required", keyword.required), ("may repeat", keyword.repeatable)) if holds]
    return _shown_entry(keyword.name, keyword, marks)


def _shown_entry(title: str, one: Keyword | MapOption, marks: Sequence[str]) -> list[str]:
    entry = [f"### {title}", "", f"`{_shown(one)}`" + (f" ({', '.join(marks)})" if marks else "")]
    return [*entry, "", markdown(one.help), "", "```", one.example, "```", ""]


def _foreign(program: str, keywords: Mapping[str, Keyword]) -> list[str]:
    """What files of GoldenGate hold: accepted without a meaning, and refused by name."""
    known = OPTIONS if program != "Manager" else {}
    rows = [(_shown(k), k.ignored) for k in keywords.values() if k.ignored]
    rows += [
        (f"{name} ..., {option}", told.reason)
        for name, options in known.items()
        if name in keywords and not (keywords[name].ignored or keywords[name].refused)
        for option, told in options.items()
    ]
    refused = [(keyword.name, keyword.refused) for keyword in keywords.values() if keyword.refused]
    refused += [
        (f"{name} ..., {option}", reason)
        for name, options in REFUSED.items()
        if name in keywords and not keywords[name].refused
        for option, reason in options.items()
    ]
    lines = _reasons(f"{program}: accepted, without meaning here", rows)
    return lines + _reasons(f"{program}: refused", refused)


def _shown(one: Keyword | MapOption) -> str:
    return f"{one.name} {one.shape}".rstrip()


def _reasons(title: str, rows: list[tuple[str, str]]) -> list[str]:
    if not rows:
        return []
    names: dict[str, list[str]] = {}
    for name, reason in sorted(rows):
        names.setdefault(reason, []).append("`" + name.replace("|", "\\|") + "`")
    cells = [f"| {', '.join(several)} | {reason} |" for reason, several in names.items()]
    return [f"### {title}", "", "| parameters | because |", "| --- | --- |", *cells, ""]


def about(word: str) -> list[str]:
    """For HELP: what a parameter, or an option of MAP, is; nothing if there is none of that name."""
    name = word.strip().upper()
    lines: list[str] = []
    for program, file, keywords in PROGRAMS:
        if name in keywords:
            lines += _page(f"{program}: ", keywords[name], file)
    if name in MAP_OPTIONS:
        lines += _page("MAP ..., ", MAP_OPTIONS[name])
    if name == "MAP":
        shapes = [f"    {_shown(option)}" for option in MAP_OPTIONS.values()]
        lines += ["Options of MAP (HELP option explains one):", *shapes, ""]
    return lines


def _page(program: str, one: Keyword | MapOption, file: str = "") -> list[str]:
    where = [f"  In {file.replace('`', '')}."] if file else []
    title = textwrap.wrap(program + _shown(one), WIDTH, subsequent_indent="    ")
    return [*title, *where, *wrapped(one.help), "  Example:", f"    {one.example}", ""]


if __name__ == "__main__":
    print(reference(), end="")
