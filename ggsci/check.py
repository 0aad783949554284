"""Checking a parameter file whole before anything starts. The only place of ggsci that imports processes, their params.

A program's keyword table knows what is right; this module only finds out which program a file is for.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any

from trails.errors import GateError, ParamError
from trails.runtime import params
from trails.runtime.globals import GLOBALS_KEYWORDS
from trails.runtime.home import MANAGER, Home
from trails.runtime.params import Statement
from trails.runtime.registration import Registration
from trails.runtime.startup import check_group

Check = Callable[[Sequence[Statement]], Any]

# (kind, source) of a registration -> where its parameters are checked.
_CHECKERS = {
    ("EXTRACT", "TRANLOG"): "extract.params:ExtractParams",
    ("EXTRACT", "TRAIL"): "pump.params:PumpParams",
    ("REPLICAT", "TRAIL"): "replicat.params:ReplicatParams",
}


def path_of(home: Home, name: str) -> str:
    """The parameter file that EDIT, VIEW and CHECK mean: a group, MGR, or ./GLOBALS."""
    if name.upper() in ("./GLOBALS", "GLOBALS"):
        return home.globals
    if "/" in name or name.startswith("."):
        raise ParamError(f"{name}: expected a group, MGR, or ./GLOBALS")
    return home.prm("mgr" if name.upper() in (MANAGER, "MANAGER") else name)


def check_name(home: Home, name: str) -> None:
    """Check the file behind a name. Raises ParamError or ParamErrors with every mistake."""
    path = path_of(home, name)
    statements = params.parse_file(path)
    if path == home.globals:
        params.check(statements, GLOBALS_KEYWORDS, "GLOBALS", file=path)
    elif path == home.prm("mgr"):
        from ggsci.manager_params import ManagerParams

        ManagerParams.from_statements(statements, path)
    else:
        group = next((group for group in home.groups() if group.name == name.upper()), None)
        _checker(group, statements, path)(statements)


def replicat_of(home: Home, name: str) -> str:
    """The group, if this is a Replicat's parameter file, added or not; else an empty text."""
    path = path_of(home, name)
    if path in (home.globals, home.prm("mgr")):
        return ""
    keywords = {statement.keyword for statement in params.parse_file(path)}
    return name.upper() if "REPLICAT" in keywords else ""


def discard_path(home: Home, group: Registration) -> str:
    """A Replicat's discard file, as its parameter file names it now; its own if the file can't be read."""
    from replicat.params import ReplicatParams

    path = home.prm(group.name)
    try:
        return ReplicatParams.from_statements(params.parse_file(path), path).discard_path(home)
    except ParamError:
        return home.discard(group.name)


def check_group_file(home: Home, group: Registration) -> None:
    """Check a group's file, and that it fits the group. Raises ParamError or ParamErrors with every mistake."""
    path = home.prm(group.name)
    statements = params.parse_file(path)
    errors: list[ParamError] = []
    for check in (
        lambda: check_group(statements, group.kind, group.name, path),
        lambda: _checker(group, statements, path)(statements),
        lambda: _check_trails(group, statements),
    ):
        try:
            check()
        except params.ParamErrors as error:
            errors += error.errors
        except ParamError as error:
            errors.append(error)
    if errors:
        unique = dict.fromkeys(str(error) for error in errors)
        raise params.ParamErrors([ParamError(text) for text in unique])


def _check_trails(group: Registration, statements: Sequence[Statement]) -> None:
    """Each trail that the file writes must be registered: its size, and purging, come from there."""
    known = {(trail.type, os.path.normpath(trail.path)) for trail in group.trails}
    errors = [
        statement.wrong(
            f"{statement.text!r} is not registered for {group.name}; "
            f"ADD {statement.keyword} {statement.text}, EXTRACT {group.name}"
        )
        for statement in statements
        if group.kind == "EXTRACT" and statement.keyword in ("EXTTRAIL", "RMTTRAIL") and statement.words
        and (statement.keyword, os.path.normpath(str(statement.words[0]))) not in known
    ]  # fmt: skip
    if errors:
        raise params.ParamErrors(errors)


def _checker(group: Registration | None, statements: Sequence[Statement], path: str) -> Check:
    """The check of the program this file is for: by its registration, or, before ADD, by what the file says."""
    if not statements:
        raise ParamError(f"{path}:1: expected EXTRACT group or REPLICAT group first, found an empty file")
    if group is not None:
        return _load((group.kind, group.source))
    keywords = {statement.keyword for statement in statements}
    if "REPLICAT" in keywords:
        return _load(("REPLICAT", "TRAIL"))
    if "EXTRACT" in keywords:
        return _load(("EXTRACT", "TRAIL" if "RMTHOST" in keywords or "SOURCEDB" not in keywords else "TRANLOG"))
    raise ParamError(f"{path}:1: expected EXTRACT group or REPLICAT group first")


def _load(which: tuple[str, str]) -> Check:
    module, _, name = _CHECKERS[which].partition(":")
    check: Check = getattr(importlib.import_module(module), name).from_statements
    return check


def mistakes(error: GateError) -> list[str]:
    """The single mistakes of an error, one line each."""
    return [str(one) for one in error.errors] if isinstance(error, params.ParamErrors) else [str(error)]
