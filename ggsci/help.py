"""HELP and docs/commands.md, both made from the table of commands: `python -m ggsci.help > docs/commands.md`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from ggsci.commands.row import SECTIONS
from ggsci.grammar import SYNONYMS, Command, CommandError, nearest, object_of
from ggsci.table import COMMANDS

WIDTH = 100


def overview() -> list[str]:
    """All commands, by section, one line each: those of a group's kinds share one."""
    lines = ["", "GGSCI commands (HELP command explains one):"]
    for section in SECTIONS:
        lines += ["", f"  {section}"]
        for names, text in _gathered(section):
            first, *more = textwrap.wrap(_short(text), WIDTH - 44)
            lines += [f"    {names:38}  {first}", *(" " * 44 + line for line in more)]
    return [
        *lines,
        "",
        "Commas between options may be left out. A trailing ! means: don't ask. --json gives lists as JSON.",
        "",
    ]


def _short(text: str) -> str:
    """The first clause of a summary; HELP of the command itself has the rest."""
    return re.split(r"[.;:] ", text, maxsplit=1)[0].rstrip(".")


def _gathered(section: str) -> Iterator[tuple[str, str]]:
    """`START {EXTRACT | REPLICAT | ER}` in place of three lines."""
    rows = [command for command in COMMANDS if command.section == section]
    verbs: dict[str, list[Command]] = {}
    for command in rows:
        shared = command.words[1:] in (("EXTRACT",), ("REPLICAT",), ("ER",)) and section in (_RUN, _LOOK)
        verbs.setdefault(command.words[0] if shared else command.name, []).append(command)
    for verb, commands in verbs.items():
        if len(commands) > 1:
            yield f"{verb} {{EXTRACT | REPLICAT | ER}}", commands[0].summary.replace("an Extract", "a group")
        else:
            yield commands[0].name, commands[0].summary


_RUN, _LOOK = "Running groups", "Looking"


def about(words: str) -> list[str]:
    """The commands that begin with these words."""
    first, _, rest = words.partition(" ")
    if first.upper() in ("PARAM", "PARAMS"):
        return _about_parameter(rest.strip())
    wanted = [SYNONYMS.get(word, word) for word in words.upper().split()]
    wanted[1:2] = map(object_of, wanted[1:2])
    found = [command for command in COMMANDS if list(command.words[: len(wanted)]) == wanted]
    if not found:
        from ggsci.parameters import about as about_parameter  # the programs' tables are not needed for a command

        if lines := about_parameter(words):
            return ["", *lines]
        from ggsci.paraminfo import known

        names = [command.name for command in COMMANDS]
        close = nearest(" ".join(wanted), [*names, *{command.words[0] for command in COMMANDS}, *known()])
        raise CommandError(f"HELP: no command {words!r}", hint=f"Did you mean {close}?" if close else "HELP lists all")
    lines = [""]
    for command in found:
        lines += _page(command)
    return lines


def _about_parameter(name: str) -> list[str]:
    from ggsci import paraminfo  # the programs' tables are not needed for a command
    from ggsci.parameters import about as about_parameter

    if not name:
        return paraminfo.overview()
    if lines := about_parameter(name):
        return ["", *lines]
    raise paraminfo.unknown("HELP PARAM", name)


def _page(command: Command) -> list[str]:
    lines = [command.name, *_wrapped(command.summary), "  Syntax:", *(f"    {line}" for line in _syntax(command))]
    if command.notes:
        lines += _wrapped(command.notes)
    return [*lines, "  Example:", *(f"    {example}" for example in command.examples), ""]


def _wrapped(text: str) -> list[str]:
    return [f"  {line}" for line in textwrap.wrap(text, WIDTH)]


def _syntax(command: Command) -> list[str]:
    marks = f"{' [!]' if '!' in ''.join(command.examples[-1:]) and command.words != ('!',) else ''}"
    marks += " [--json]" if command.lists else ""
    return textwrap.wrap(command.syntax() + marks, WIDTH, subsequent_indent="    ", break_long_words=False)


def reference() -> str:
    """docs/commands.md."""
    lines = [_HEAD]
    for section in SECTIONS:
        lines += [f"## {section}", ""]
        for command in COMMANDS:
            if command.section == section:
                lines += _reference_entry(command)
    return "\n".join(lines).rstrip() + "\n"


def _reference_entry(command: Command) -> list[str]:
    entry = [f"### {command.name}", "", command.summary, ""]
    if command.notes:
        entry += [command.notes, ""]
    return [*entry, "```", *_syntax(command), "```", "", "Example:", "", "```", *command.examples, "```", ""]


_HEAD = """# Commands of ggsci

This page is made from the table of commands (`python -m ggsci.help > docs/commands.md`); a test holds them together.

    ggsci [--home DIR]                     the prompt, with history and completion
    ggsci [--home DIR] INFO ALL            one command
    ggsci [--home DIR] [--json] < FILE     a script on standard input

All ways go through one parser. Without `--home` the home is the current folder. The exit code is 0 if every command
succeeded, 1 if one failed, 2 if the command line itself can't be understood.

- Commands, options and group names may be written in any case. Commas between options may be left out, and a `;` may
  stand at the end. EXTRACT, REPLICAT, EXTTRAIL and RMTTRAIL may be cut to three letters or more: `INFO EXT ext1`.
- `*` and `?` are wildcards in group and table names. `ER` means Extracts and Replicats; where the kind is left out,
  as in `INFO ext1`, the group's name tells it. `MGR` is the same as `MANAGER`.
- A trailing `!` confirms what would be asked. Where standard input is no terminal nothing is asked: commands that
  would ask then need the `!`.
- `[...]` may be left out, `{a | b}` is one of both.
- `--json`, at any place of a list or INFO command, prints JSON and nothing else on standard output. Times are
  microseconds since 1970 UTC, lengths of time microseconds; what is not known is null.
- A lag is shown only while it is true. It is UNKNOWN (null) before the first checkpoint, if the clocks of source and
  host disagree, and for a running group whose last checkpoint is old: a group that hangs never looks healthy.
- In scripts `&` at a line's end continues it and `--` begins a comment line.
- Commands are logged in `ggserr.log`, passwords masked. A command line (`ggsci DBLOGIN ...`) that holds a password is
  refused, because everyone on the host can read it; at the prompt or in a script it is taken.
"""


if __name__ == "__main__":
    print(reference(), end="")
