"""docs/commands.md is the table of commands: every command, its syntax, and examples that parse."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ggsci.commands.help import about, overview, reference
from ggsci.commands.session import find_handler
from ggsci.helptext import markdown, wrapped
from ggsci.table.table import COMMANDS, GRAMMAR

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"


def test_the_page_is_made_from_the_table():
    """Run `python -m ggsci.commands.help > docs/commands.md` after a change of the table."""
    assert PAGE.read_text() == reference()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_is_documented_and_every_example_parses(command):
    """Heading, syntax and example on the page; HELP explains it; its function exists."""
    section = PAGE.read_text().split(f"\n### {command.name}\n", 1)[1].split("\n###", 1)[0].split("\n## ", 1)[0]
    blocks = re.findall(r"```\n(.*?)```", section, re.DOTALL)
    assert command.name in blocks[0]
    examples = blocks[1].splitlines()
    assert examples
    for example in examples:
        assert GRAMMAR.parse(example).command == command
    assert any(command.examples[0] in line for line in about(command.name))
    assert callable(find_handler(command.handler))


def test_help_lists_every_verb():
    """The overview leaves nothing out."""
    text = "\n".join(overview())
    for command in COMMANDS:
        assert command.name in text or f"{command.words[0]} {{EXTRACT | REPLICAT | ER}}" in text, command.name


def test_a_list_in_a_note_stays_a_list():
    """An item of a list begins a line of HELP and of the page; paragraphs and lists are parted by an empty line."""
    text = "These are:\n- one\n- two, " + "which is long, " * 8 + "\nNo more."
    assert [line[:6] for line in wrapped(text)] == ["  Thes", "  - on", "  - tw", "    wh", "  No m"]
    assert [line[:3] for line in markdown(text).splitlines()] == ["The", "", "- o", "- t", "", "No "]
