"""ARCHITECTURE.md's path of one row names functions that are there. That they are called in this order: see e2e."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.rowpath import ROOT, path_in_the_page


def test_each_function_on_the_path_stands_in_its_file():
    """A newcomer who opens the file finds it."""
    path = path_in_the_page()
    assert list(path) == ["extract", "link", "plan", "worker", "target"]
    for found in path.values():
        assert found
        for file, name in found:
            assert name in set(_functions(ast.parse(Path(ROOT, file).read_text("utf-8")))), f"{file} {name}"


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield f"{prefix}{node.name}"
