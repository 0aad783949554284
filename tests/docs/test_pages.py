"""The pages for people: every link leads somewhere, every page is listed, every command and parameter file is right.

A block that begins with ```ggsci holds commands, one a line, as they are typed at the prompt; one with ```prm a whole
parameter file of a group; ```prm mgr and ```prm GLOBALS those files. They are parsed by what obeys them. Between these
words may stand the side that a block is for, such as source.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ggsci.check import load_check, program_of
from ggsci.manager.params import ManagerParams
from ggsci.table.table import GRAMMAR
from tests.support.homes import make_home
from trails.runtime.language.globals import GLOBALS_KEYWORDS
from trails.runtime.language.params import check, parse_text

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "trails" / "FORMAT.md"])
_FENCE = re.compile(r"^ *```(\w*)(?: (?!mgr|GLOBALS)\w+)? *(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
MOST_WORDS = 35
_END = re.compile(r"(?<=[.!?;])\)? ")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def blocks(kind: str) -> list[object]:
    """(name, text) of every fenced block of a kind, of all pages, as parameters of a test."""
    return [
        pytest.param(page, name, text, id=f"{page.stem}-{number}")
        for page in PAGES
        for number, (found, name, text) in enumerate(_FENCE.findall(page.read_text()), 1)
        if found == kind
    ]


def anchors(page: Path) -> set[str]:
    """What a link to a heading of the page may say, as GitHub makes it."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_leads_to_a_file_and_a_heading(page: Path):
    """Of the links inside of the project."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for link in _LINK.findall(text):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        goal = (page.parent / name).resolve() if name else page
        assert goal.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(goal), f"{page.name}: {link}: no such heading"


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "CHANGELOG"], ids=lambda page: page.stem)
def test_no_sentence_is_longer_than_a_person_reads(page: Path):
    """A part between two semicolons counts as a sentence, and what stands in `code` as one word."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`\n]*`", "CODE", text))
    pieces = [piece for line in text.splitlines() for cell in line.split("|") for piece in _END.split(cell)]
    long = [piece for piece in pieces if len(re.findall(r"[\w'-]+", piece)) > MOST_WORDS]
    assert not long, "\n".join(long)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_table_has_its_head(page: Path):
    """Lines of a table that an empty line cuts off are shown as bars, not as a table."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for rows in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert re.match(r".*\n\|[ :|-]+\|\n", rows), f"{page.name}: {rows.splitlines()[0]}"


def test_every_heading_that_a_message_names_is_there():
    """The product's messages lead to pages, such as docs/recovery.md#lost-slot."""
    folders = ("trails", "extract", "pump", "collector", "replicat", "ggsci")
    code = "".join(file.read_text() for name in folders for file in sorted((ROOT / name).rglob("*.py")))
    named = set(re.findall(r"docs/([\w-]+\.md)#([\w-]+)", code))
    assert len(named) > 5
    for page, anchor in sorted(named):
        assert anchor in anchors(ROOT / "docs" / page), f"docs/{page}#{anchor}: no such heading"


def test_the_readme_lists_every_page():
    """Its last table names each page of docs once."""
    table = (ROOT / "README.md").read_text().split("\n## More\n", 1)[1]
    linked = re.findall(r"\]\(docs/([\w-]+\.md)\)", table)
    assert sorted(linked) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize(("page", "name", "text"), blocks("ggsci"))
def test_every_command_of_a_page_parses(page: Path, name: str, text: str):
    """By the grammar of ggsci; `--` begins a comment, `&` goes on in the next line."""
    for line in text.replace("&\n", " ").splitlines():
        command = line.partition("--")[0].strip() if "--json" not in line else line
        command = re.sub(r"\$(FIRST|LAST|NEXT|CONFIRMED)\b", "0", command)  # stands for a number of the reader's
        if command:
            assert GRAMMAR.parse(command), f"{page.name}: {line}"


@pytest.mark.parametrize(("page", "name", "text"), blocks("prm"))
def test_every_parameter_file_of_a_page_is_accepted(page: Path, name: str, text: str, tmp_path: Path):
    """By the program that it is for."""
    statements = parse_text(text, page.name)
    if name == "mgr":
        ManagerParams.from_statements(statements, page.name)
    elif name == "GLOBALS":
        check(statements, GLOBALS_KEYWORDS, "GLOBALS", file=page.name)
    else:
        file = tmp_path / "group.prm"
        file.write_text(text)
        load_check(program_of(make_home(tmp_path / "home"), str(file)))(statements)
