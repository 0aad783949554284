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
from trails.runtime import registration as registrations
from trails.runtime.globals import GLOBALS_KEYWORDS
from trails.runtime.home import MANAGER, Home
from trails.runtime.params import Statement
from trails.runtime.registration import Registration
from trails.runtime.startup import check_group

Check = Callable[[Sequence[Statement]], Any]

# (kind, source) of a registration -> its program; program -> where its parameters are checked.
PROGRAMS = {("EXTRACT", "TRANLOG"): "extract", ("EXTRACT", "TRAIL"): "pump", ("REPLICAT", "TRAIL"): "replicat"}
_CHECKERS = {
    "extract": "extract.params:ExtractParams",
    "pump": "pump.params:PumpParams",
    "replicat": "replicat.params:ReplicatParams",
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
    check_file(home, path_of(home, name))


def check_file(home: Home, path: str) -> None:
    """Check a file, wherever it lies. Raises ParamError or ParamErrors with every mistake."""
    program = program_of(home, path)
    statements = params.parse_file(path)
    if program == "GLOBALS":
        params.check(statements, GLOBALS_KEYWORDS, "GLOBALS", file=path)
    elif program == "MANAGER":
        from ggsci.manager.params import ManagerParams

        ManagerParams.from_statements(statements, path)
    else:
        load_check(program)(statements)


def program_of(home: Home, path: str) -> str:
    """The program a file is for: GLOBALS, MANAGER, extract, pump or replicat."""
    name = os.path.basename(path)
    if path == home.globals or name == "GLOBALS":
        return "GLOBALS"
    if path == home.prm("mgr") or name.lower() == "mgr.prm":
        return "MANAGER"
    statements = params.parse_file(path)
    words = statements[0].words if statements and statements[0].keyword in ("EXTRACT", "REPLICAT") else ()
    known = {group.name: group for group in registrations.all(home)}
    group = known.get(str(words[0]).upper()) if words else None
    return _program(group, statements, path)


def dry_run(home: Home, path: str) -> tuple[list[str], list[str]]:
    """(mistakes, notes) that only the database, the trail or the other host tell. Empty for GLOBALS and the Manager."""
    program = program_of(home, path)
    if program in ("GLOBALS", "MANAGER"):
        return [], []
    from ggsci.admin import ask

    group = os.path.splitext(os.path.basename(path))[0].upper()
    reply = ask(program, "check_params", home=home.root, group=group, path=path)
    return list(reply["mistakes"]), list(reply["notes"])


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
        lambda: load_check(_program(group, statements, path))(statements),
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


def _program(group: Registration | None, statements: Sequence[Statement], path: str) -> str:
    """The program this file is for: by its registration, or, before ADD, by what the file says."""
    if not statements:
        raise ParamError(f"{path}:1: expected EXTRACT group or REPLICAT group first, found an empty file")
    keywords = {statement.keyword for statement in statements}
    if group is not None:
        return PROGRAMS[group.kind, group.source]
    if "REPLICAT" in keywords:
        return "replicat"
    if "EXTRACT" in keywords:
        writes_here = not keywords.isdisjoint(("SOURCEDB", "EXTTRAIL"))
        return "pump" if "RMTHOST" in keywords or not writes_here else "extract"
    raise ParamError(f"{path}:1: expected EXTRACT group or REPLICAT group first")


def load_check(program: str) -> Check:
    """The check of a program's parameter file."""
    module, _, name = _CHECKERS[program].partition(":")
    check: Check = getattr(importlib.import_module(module), name).from_statements
    return check


def mistakes(error: GateError) -> list[str]:
    """The single mistakes of an error, one line each."""
    return [str(one) for one in error.errors] if isinstance(error, params.ParamErrors) else [str(error)]
