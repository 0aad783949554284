"""The table of commands: every command's words, operand, options, help and examples, and where its code stands.

To add a command, add a row in ggsci/table/, write the function that it names in ggsci/commands/, and run
`python -m ggsci.commands.help > docs/commands.md`. Nothing is imported until a command runs: the prompt comes at once.
"""

from __future__ import annotations

from ggsci.table import database, groups, home, lag, loading, manager, running, security, shell, trails
from ggsci.table.grammar import Command, Grammar

_SECTIONS = (home, manager, database, groups, trails, running, loading, lag, security, shell)

COMMANDS: tuple[Command, ...] = tuple(row for section in _SECTIONS for row in section.ROWS)
GRAMMAR = Grammar(COMMANDS)
