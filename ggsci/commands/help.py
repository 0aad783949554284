"""HELP and docs/commands.md, made from the table of commands: `python -m ggsci.commands.help > docs/commands.md`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

from ggsci.helptext import WIDTH, markdown, wrapped
from ggsci.table.grammar import SYNONYMS, Command, CommandError, nearest, object_of
from ggsci.table.row import DATABASE, GROUPS, HOME, LAG, LOOK, MANAGER, RUN, SECTIONS, SECURITY, SHELL, TRAILS
from ggsci.table.table import COMMANDS

TOPICS = {
    "HOME": HOME, "MANAGER": MANAGER, "DATABASES": DATABASE, "GROUPS": GROUPS, "TRAILS": TRAILS, "RUNNING": RUN,
    "LOOKING": LOOK, "LAGS": LAG, "SECURITY": SECURITY, "GGSCI": SHELL,
}  # fmt: skip
"""What HELP takes for a section of commands; none of them begins a command."""


def topics() -> list[str]:
    """HELP alone: a screen of topics with the names of their commands."""
    lines = ["", "HELP topic lists a topic's commands, HELP command explains one, HELP ALL lists all of them.", ""]
    for topic, section in TOPICS.items():
        names = ", ".join(name.replace(" ", "\xa0") for name, _ in _gathered(section))
        first, *more = [line.replace("\xa0", " ") for line in textwrap.wrap(names, WIDTH - 14)]
        lines += [f"  {topic:10}  {first}", *(" " * 14 + line for line in more)]
    return [*lines, f"  {'PARAM':10}  the parameters of all programs; HELP PARAM name explains one", ""]


def overview(sections: Sequence[str] = SECTIONS) -> list[str]:
    """All commands, by section, one line each: those of a group's kinds share one."""
    lines = ["", "GGSCI commands (HELP command explains one):"]
    for section in sections:
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
        shared = command.words[1:] in (("EXTRACT",), ("REPLICAT",), ("ER",)) and section in (RUN, LOOK, LAG)
        verbs.setdefault(command.words[0] if shared else command.name, []).append(command)
    for verb, commands in verbs.items():
        if len(commands) > 1:
            yield f"{verb} {{EXTRACT | REPLICAT | ER}}", commands[0].summary.replace("an Extract", "a group")
        else:
            yield commands[0].name, commands[0].summary


def about(words: str) -> list[str]:
    """The commands that begin with these words."""
    first, _, rest = words.partition(" ")
    if first.upper() in ("PARAM", "PARAMS"):
        return _about_parameter(rest.strip())
    if words.upper() == "ALL":
        return overview()
    if words.upper() in TOPICS:
        return overview([TOPICS[words.upper()]])
    wanted = [SYNONYMS.get(word, word) for word in words.upper().split()]
    wanted[1:2] = map(object_of, wanted[1:2])
    found = [command for command in COMMANDS if list(command.words[: len(wanted)]) == wanted]
    if not found:
        from ggsci.parameters import about as about_parameter  # the programs' tables are not needed for a command

        if lines := about_parameter(words):
            return ["", *lines]
        from ggsci.commands.paraminfo import known

        names = [command.name for command in COMMANDS]
        close = nearest(" ".join(wanted), [*names, *{command.words[0] for command in COMMANDS}, *known()])
        raise CommandError(f"HELP: no command {words!r}", hint=f"Did you mean {close}?" if close else "HELP lists all")
    lines = [""]
    for command in found:
        lines += _page(command)
    return lines


def _about_parameter(name: str) -> list[str]:
    from ggsci.commands import paraminfo  # the programs' tables are not needed for a command
    from ggsci.parameters import about as about_parameter

    if not name:
        return paraminfo.overview()
    if lines := about_parameter(name):
        return ["", *lines]
    raise paraminfo.unknown("HELP PARAM", name)


def _page(command: Command) -> list[str]:
    lines = [command.name, *wrapped(command.summary), "  Syntax:", *(f"    {line}" for line in _syntax(command))]
    if command.notes:
        lines += wrapped(command.notes)
    return [*lines, "  Example:", *(f"    {example}" for example in command.examples), ""]


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
        entry += [markdown(command.notes), ""]
    return [*entry, "```", *_syntax(command), "```", "", "Example:", "", "```", *command.examples, "```", ""]


_HEAD = """# Commands of ggsci

This page is made from the table of commands: `python -m ggsci.commands.help > docs/commands.md`. A test compares them.

    ggsci [--home DIR]                     the prompt, with history and completion
    ggsci [--home DIR] INFO ALL            one command
    ggsci [--home DIR] [--json] < FILE     a script on standard input
    ggsci --help, ggsci --version          the ways to call it, and its version

All ways go through one parser. Without `--home` the home is the current folder. The exit code is 0 if every command
succeeded, 1 if one failed, 2 if the command line itself can't be understood.

- Commands, options and group names may be written in any case. Commas between options may be left out, and a `;` may
  stand at the end. EXTRACT, REPLICAT, EXTTRAIL and RMTTRAIL may be cut to three letters or more: `INFO EXT ext1`.
- `*` and `?` are wildcards in group and table names. `ER` means Extracts and Replicats; where the kind is left out,
  as in `INFO ext1`, the group's name tells it. `MGR` is the same as `MANAGER`.
- A trailing `!` confirms what would be asked. If standard input is no terminal nothing is asked: commands that would
  ask then need the `!`.
- In the syntax `[...]` may be left out, and `{a | b}` is one of both.
- `--json`, at any place of a list or INFO command, prints JSON and nothing else on standard output. Times are
  microseconds since 1970 UTC, and lengths of time are microseconds. A value that is not known is null.
- A lag is shown only while it is true: nothing looks healthy that was not seen to work ([lag.md](lag.md)). It is
  UNKNOWN (null) in these cases, and `lag_why` in JSON says in which:
  - before the first checkpoint, and for a group whose last checkpoint is old;
  - if the clocks of source and host disagree, or a heartbeat is overdue;
  - if something before the group stands still, is missing or is not seen.
- In scripts `&` at a line's end continues the line, and `--` begins a comment line.
- Commands are logged in `ggserr.log`, with passwords masked. A command line (`ggsci DBLOGIN ...`) that holds a password
  is refused, because everyone on the host can read it. At the prompt or in a script a password is taken.
"""


if __name__ == "__main__":
    print(reference(), end="")
