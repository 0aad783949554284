"""Checking a parameter file whole before anything starts. The only place of ggsci that imports processes, their params.

A program's keyword table knows what is right; this module only finds out which program a file is for.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any

from trails.errors import GateError, ParamError
from trails.runtime.home import registration as registrations
from trails.runtime.home.home import MANAGER, Home
from trails.runtime.home.registration import Registration
from trails.runtime.language import accepted, params
from trails.runtime.language import globals as globals_file
from trails.runtime.language.globals import GLOBALS_KEYWORDS
from trails.runtime.language.params import Statement
from trails.runtime.process.startup import check_group

Check = Callable[[Sequence[Statement]], Any]

# Where the parameters of each program are checked.
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
    """Check a file, wherever it lies. Raises ParamError or ParamErrors with every mistake.

    GLOBALS is checked with every other file, as nothing starts where it has mistakes.
    """
    program = program_of(home, path)
    statements = params.parse_file(path)
    if program == "GLOBALS":
        params.check(statements, GLOBALS_KEYWORDS, "GLOBALS", file=path)
    else:
        _check_all(lambda: _check_program(program, statements, path), lambda: globals_file.read(home))


def _check_program(program: str, statements: Sequence[Statement], path: str) -> None:
    if program == "MANAGER":
        from ggsci.manager.params import ManagerParams

        ManagerParams.from_statements(statements, path)
    else:
        load_check(program)(statements)


def without_meaning(home: Home, path: str) -> list[str]:
    """A line for each parameter and option of the file that is accepted and does nothing here."""
    kind = program_of(home, path).upper()
    return accepted.notes(params.parse_file(path), kind)


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
    _check_all(
        lambda: check_group(statements, group.kind, group.name, path),
        lambda: load_check(_program(group, statements, path))(statements),
        lambda: _check_trails(group, statements),
        lambda: _check_file(group, statements),
    )


def _check_all(*checks: Callable[[], Any]) -> None:
    """Raise ParamErrors with every mistake that any of these finds, each once."""
    errors: list[ParamError] = []
    for check in checks:
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


_FILES = ("EXTFILE", "RMTFILE", "RMTTASK")


def _check_file(group: Registration, statements: Sequence[Statement]) -> None:
    """A task that reads tables writes a file, and who captures changes a trail."""
    wrong, instead = (("EXTTRAIL",), "EXTFILE, RMTFILE or RMTTASK") if group.is_task else (_FILES, "EXTTRAIL")
    errors = [
        statement.wrong(f"{group.name} was added with {group.source}, which writes {instead}")
        for statement in statements
        if group.package == "extract" and statement.keyword in wrong
    ]
    if errors:
        raise params.ParamErrors(errors)


def _program(group: Registration | None, statements: Sequence[Statement], path: str) -> str:
    """The program this file is for: by its registration, or, before ADD, by what the file says."""
    if not statements:
        raise ParamError(f"{path}:1: expected EXTRACT group or REPLICAT group first, found an empty file")
    keywords = {statement.keyword for statement in statements}
    if group is not None:
        return group.package
    if "REPLICAT" in keywords:
        return "replicat"
    if "EXTRACT" in keywords:
        if not keywords.isdisjoint((*_FILES, "EXTTRAIL", "TRANLOGOPTIONS", "SOURCEISTABLE")):
            return "extract"  # also where it would send by itself, as GoldenGate's may
        return "pump" if "RMTHOST" in keywords or "SOURCEDB" not in keywords else "extract"
    raise ParamError(f"{path}:1: expected EXTRACT group or REPLICAT group first")


def load_check(program: str) -> Check:
    """The check of a program's parameter file."""
    module, _, name = _CHECKERS[program].partition(":")
    check: Check = getattr(importlib.import_module(module), name).from_statements
    return check


def mistakes(error: GateError) -> list[str]:
    """The single mistakes of an error, one line each."""
    return [str(one) for one in error.errors] if isinstance(error, params.ParamErrors) else [str(error)]
