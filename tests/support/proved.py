"""Which test proves which feature: by the IDs in the tests' names, and by nothing else.

    python -m tests.support.proved        prints every row of tests/rows.txt with the tests named after it

A name says an ID as `test_CW_16_...`; several may stand in one name. Files are parsed and not run, so the table is
whole wherever it is printed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROWS = TESTS / "rows.txt"
_ID = re.compile(r"(?<=_)([A-Z]{2})_(\d\d)(?=_|$)")
_LOOSE = re.compile(r"(?<=_)([A-Za-z]{2})_?(\d\d)(?=_|$)")


def rows() -> dict[str, str]:
    """Each ID with what it stands for, in the file's order."""
    lines = [line for line in ROWS.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split(" ", 1) for line in lines)  # type: ignore[misc]


def names() -> Iterator[tuple[str, str]]:
    """(file, name) of every test."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield str(path.relative_to(TESTS)), node.name


def ids(name: str) -> list[str]:
    """The IDs in a test's name."""
    return [f"{letters}-{digits}" for letters, digits in _ID.findall(name)]


def strays(name: str, known: dict[str, str]) -> list[str]:
    """What looks like an ID in a test's name and is none: unknown, or written in another way."""
    right = ids(name)
    loose = [f"{letters.upper()}-{digits}" for letters, digits in _LOOSE.findall(name)]
    prefixes = {row[:2] for row in known}
    return [one for one in right if one not in known] + [
        one for one in loose if one not in right and one[:2] in prefixes
    ]


def table() -> Iterator[str]:
    """A line for each row and test; a row that no test proves stands alone."""
    proved: dict[str, list[str]] = {}
    for path, name in names():
        for one in ids(name):
            proved.setdefault(one, []).append(f"{path}::{name}")
    known = rows()
    for one, words in known.items():
        first, *more = proved.get(one) or [""]
        yield f"{one} {words:<80} {first}".rstrip()
        yield from (f"{'':86} {test}" for test in more)
    done = sum(one in proved for one in known)
    yield f"{done} of {len(known)} rows have a test of their name"


if __name__ == "__main__":
    print("\n".join(table()))
