"""docs/troubleshooting.md has an entry for every message code that the product emits, and for no other.

An entry is a heading `### TG-nnnnn title` under the section of its exit code, with a cause and what to do. A code of
the product is any `TG-nnnnn` in its files, comments included: who names a code there means one that is emitted.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
PRODUCT = ("trails", "extract", "pump", "collector", "replicat", "ggsci")
SECTIONS = ("Exit code 1", "Exit code 2", "Exit code 3", "Warnings", "For information")
CODE = re.compile(r"TG-\d{5}")


def emitted() -> set[str]:
    """Every code that stands in a file of the product."""
    files = [file for name in PRODUCT for file in (ROOT / name).rglob("*") if file.suffix in (".py", ".sql", ".js")]
    return {code for file in files for code in CODE.findall(file.read_text())}


def entries() -> dict[str, tuple[str, str]]:
    """Each code of the page, with its section and its text."""
    found: dict[str, tuple[str, str]] = {}
    for section in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        title, *rest = re.split(r"^### ", section, flags=re.MULTILINE)
        for entry in rest:
            code = CODE.match(entry)
            assert code, f"the heading {entry.splitlines()[0]!r} begins with no code"
            assert code[0] not in found, f"{code[0]} has two entries"
            found[code[0]] = (title.splitlines()[0], entry)
    return found


def test_every_code_that_is_emitted_has_its_entry():
    """Troubleshooting by message code: give each new code an entry on the page, in the section of its exit code."""
    assert sorted(emitted() - set(entries())) == []


def test_no_entry_is_without_a_code():
    """Nobody looks for what is never said; codes named inside of an entry must exist too."""
    assert sorted(set(entries()) - emitted()) == []
    assert sorted(set(CODE.findall(PAGE.read_text())) - emitted()) == []


@pytest.mark.parametrize("code", sorted(entries()))
def test_an_entry_has_a_cause_and_what_to_do_and_stands_under_its_exit_code(code):
    """Cause first, then what to do, each a whole sentence; grouped by who must act."""
    section, text = entries()[code]
    assert section.startswith(SECTIONS), section
    assert re.search(r"^TG-\d{5} \S.*\n\n\*\*Cause:\*\* \S.*", text), "the cause comes first"
    todo = re.search(r"^\*\*What to do:\*\* (\S.*)$", text, re.MULTILINE)
    assert todo, "what to do is missing"
    assert todo[1].rstrip().endswith(".")


def test_the_entries_of_a_section_are_in_order():
    """By number, so that one is found without a search."""
    for section in SECTIONS[3:]:
        codes = [code for code, (title, _) in entries().items() if title.startswith(section)]
        assert codes == sorted(codes)
