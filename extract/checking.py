"""CHECK PARAMS and CHECKPARAMS of an Extract: everything that START would find out, with nothing captured."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from extract import kinds
from extract.params import ExtractParams
from trails.errors import AwayError, GateError, OperatorError
from trails.runtime.home import registration as registrations
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration
from trails.runtime.language import params as language
from trails.runtime.process.checking import Findings


def check_group(home: Home, group: str, path: str = "") -> Findings:
    """Check a group's file, registered or not; `path` names another file than its own."""
    found = Findings()
    try:
        params = ExtractParams.from_statements(language.parse_file(path or home.prm(group))).resolved(home)
    except OperatorError as error:
        found.add(error)
        return found
    reg = next((reg for reg in registrations.all(home) if reg.name == params.group and reg.kind == "EXTRACT"), None)
    return check(params, reg, found)


def check(params: ExtractParams, reg: Registration | None, found: Findings | None = None) -> Findings:
    """Hold what a file says against the source database, if it can be reached."""
    found = found or Findings()
    kind = kinds.of(params.url)
    if caution := kind.unverified(params.url):
        found.notes.append(caution)
    try:
        connection = kind.connect(params.url, f"trailgate check {params.group}")
    except AwayError as error:
        found.notes.append(f"Nothing was checked against the source: {error.message}")
        return found
    except GateError as error:
        found.add(error)
        return found
    with closing(connection):
        try:
            method = reg.method if reg else ""
            told = params.settings(reg.registered if reg else None, method=method)
            if not params.file:  # a task captures nothing
                kinds.method(kind, method).check(connection, told, found)
            _look(params, kind.tables(connection), found)
        except AwayError as error:
            found.notes.append(f"The source was not checked whole: {error.message}")
        except GateError as error:
            found.add(error)
    return found


def _look(params: ExtractParams, names: Sequence[tuple[str, str]], found: Findings) -> None:
    captured = [name for name in names if params.tables.wants(*name)]
    found.notes.append(f"{len(captured)} tables of the source are captured today")
    found.notes += unmatched(params, names)


def unmatched(params: ExtractParams, names: Sequence[tuple[str, str]]) -> list[str]:
    """The TABLE clauses that name nothing of what the source has today."""
    return [
        f"{clause.rule.where}: TABLE {clause.pattern} names no table of the source today"
        for clause in params.tables.clauses
        if not any(clause.pattern.matches(*name) for name in names)
    ]
