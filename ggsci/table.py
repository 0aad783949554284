"""The table of commands: every command's words, operand, options, help and examples, and where its code stands.

To add a command, add a row in ggsci/commands/, write the function it names, and run
`python -m ggsci.help > docs/commands.md`. Nothing is imported until a command runs, so the prompt is there at once.
"""

from __future__ import annotations

from ggsci.commands import database, groups, home, lag, looking, manager, running, security, shell, trails, web
from ggsci.grammar import Command, Grammar

_SECTIONS = (home, manager, web, database, groups, trails, running, looking, lag, security, shell)

COMMANDS: tuple[Command, ...] = tuple(row for section in _SECTIONS for row in section.ROWS)
GRAMMAR = Grammar(COMMANDS)
