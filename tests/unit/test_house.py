"""How the code stands: one name for one thing, two trees of errors, a database in its own folder alone,
docstrings that say what a reader needs.
"""

from __future__ import annotations

import ast
import builtins
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.parsed import PACKAGES, ROOT, no_collection, product

pytestmark = pytest.mark.xdist_group("house")  # one process parses the code, and not each of them


DATABASES = re.compile(rb"postgres|mysql|mariadb|sqlite|oracle", re.IGNORECASE)
KINDS = ("postgres", "mysql", "sqlite")
FOLDERS = (
    "extract/sources/",
    *(f"replicat/targets/{name}/" for name in KINDS),
    *(f"replicat/reading/{name}/" for name in KINDS),
)
TABLES = {"extract/kinds.py", "replicat/targets/kinds.py", "replicat/reading/kinds.py"}


@cache
def nodes() -> list[tuple[Path, ast.AST]]:
    """Each part of the packages' code, with its file."""
    with no_collection():
        return [(path, node) for path, tree in product().items() for node in ast.walk(tree)]


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """Each class of the packages, with its place."""
    for path, node in nodes():
        if isinstance(node, ast.ClassDef):
            yield f"{path}:{node.lineno}", node


def trees() -> dict[str, set[str]]:
    """Each class of the packages that can be raised, with all that it inherits from."""
    bases = {node.name: {ast.unparse(base).rpartition(".")[2] for base in node.bases} for _, node in classes()}

    def above(name: str) -> set[str]:
        return {name}.union(*map(above, bases.get(name, ())))

    return {name: above(name) for name in bases if any(map(_is_exception, above(name)))}


def _is_exception(name: str) -> bool:
    found = getattr(builtins, name, None)
    return isinstance(found, type) and issubclass(found, BaseException)


def caught() -> set[str]:
    """Every name that stands in an `except`, by itself or in a tuple."""
    types = [node.type for _, node in nodes() if isinstance(node, ast.ExceptHandler) and node.type]
    return {part.id if isinstance(part, ast.Name) else part.attr for type_ in types for part in ast.walk(type_)
            if isinstance(part, (ast.Name, ast.Attribute))}  # fmt: skip


def methods(node: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """The public ones."""
    yield from (part for part in node.body if isinstance(part, ast.FunctionDef) and not part.name.startswith("_"))


def test_no_class_name_stands_twice():
    """A newcomer who searches for a class finds one."""
    places: dict[str, list[str]] = defaultdict(list)
    for place, node in classes():
        places[node.name].append(place)
    assert len(places) > 400, "the packages were not read"
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_each_public_method_is_described_where_its_contract_is():
    """A method without a docstring obeys a contract: a class elsewhere has a method of its name, with a docstring."""
    described = {part.name for _, node in classes() for part in methods(node) if ast.get_docstring(part)}
    public = [(place, node) for place, node in classes() if not node.name.startswith("_")]
    bare = [f"{place} {node.name}.{part.name}" for place, node in public for part in methods(node)
            if not ast.get_docstring(part) and part.name not in described]  # fmt: skip
    assert bare == []


def test_no_docstring_only_sends_the_reader_on():
    """`See X.` says nothing: a docstring says what the reader needs, or is not there."""
    sends = [f"{place} {node.name}.{part.name}" for place, node in classes() for part in (node, *methods(node))
             if (ast.get_docstring(part) or "").startswith("See ")]  # fmt: skip
    assert sends == []


def test_an_error_is_read_by_people_or_caught_by_code_and_never_both():
    """So whoever tells errors to people (`except GateError`) catches no control flow, and swallows none."""
    found = trees()
    of = {name: {"GateError", "ControlFlowError"} & above for name, above in found.items() if name != "Crash"}
    assert len(of) > 30, "the packages were not read"
    assert {name: roots for name, roots in of.items() if len(roots) != 1} == {}


def test_each_class_of_control_flow_is_caught_by_its_name():
    """One that nobody names would end a process as a bug; the base names none."""
    control = {name for name, above in trees().items() if "ControlFlowError" in above} - {"ControlFlowError"}
    assert len(control) > 8
    assert control - caught() == set()
    assert "ControlFlowError" not in caught()


def test_what_goes_to_standard_error_moves_no_terminal():
    """Names of tables and files hold what anybody gave them: control characters are escaped in every line (tame)."""
    untamed = [
        f"{path}:{node.lineno}"
        for path, node in nodes()
        if isinstance(node, ast.Call)
        and (("stderr" in (text := ast.unparse(node)) and text.startswith("print(")) or text.startswith("os.write(2,"))
        and "tame(" not in text
        and not all(isinstance(one, ast.Constant) for one in node.args)
    ]
    assert not untamed


def test_a_database_is_named_in_its_own_folder_and_in_the_table_of_kinds_alone():
    """A new one is a folder and a line: nothing else in the packages, also no comment, speaks of one."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()]
    named = {str(path.relative_to(ROOT)) for path in files
             if path.suffix != ".pyc" and DATABASES.search(path.read_bytes())}  # fmt: skip
    assert {name for name in named if not name.startswith(FOLDERS)} == TABLES


def test_each_package_has_floors_that_no_module_is_left_out_of():
    """So `make lint` fails for a new module until its floor is given, and for an arrow that goes up."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    floors = {package for contract in contracts if contract.get("exhaustive") for package in contract["containers"]}
    folders = [path.parent for package in PACKAGES for path in (ROOT / package).rglob("__init__.py")]
    several = {
        ".".join(folder.relative_to(ROOT).parts)
        for folder in folders
        if sum(1 for entry in folder.iterdir() if entry.suffix == ".py" or (entry / "__init__.py").exists()) > 2
    }
    assert len(several) > 35
    assert several - floors == set()
