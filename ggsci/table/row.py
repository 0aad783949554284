"""One row of the table of commands, written for readability; the sections that HELP and docs/commands.md have."""

from __future__ import annotations

from ggsci.table.grammar import Command, Option, Takes

HOME = "The home"
MANAGER = "Manager"
DATABASE = "Databases"
GROUPS = "Groups"
RUN = "Running groups"
LOOK = "Looking"
TRAILS = "Trails"
SECURITY = "Security"
LAG = "Lag"
SHELL = "The shell"

SECTIONS = (HOME, MANAGER, DATABASE, GROUPS, TRAILS, RUN, LOOK, LAG, SECURITY, SHELL)


def row(
    section: str, name: str, handler: str, operand: Takes | None, summary: str, examples: str, *options: Option,
    notes: str = "", lists: bool = False, optional: bool = False,
) -> Command:  # fmt: skip
    """One row; `name` and `examples` are written with blanks and ` ; ` for readability."""
    return Command(
        words=tuple(name.split()), handler=handler, summary=summary, examples=tuple(examples.split(" ; ")),
        operand=operand, operand_optional=optional, options=options, notes=notes, section=section, lists=lists,
    )  # fmt: skip
