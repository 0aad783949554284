"""CHECK PARAMS and CHECKPARAMS of an Extract: everything that START would find out, with nothing captured."""

from __future__ import annotations

from extract.params import ExtractParams
from extract.sources import pgcheck
from extract.sources.pgdriver import Session
from trails.errors import AwayError, GateError, OperatorError
from trails.runtime import params as language
from trails.runtime import registration as registrations
from trails.runtime.checking import Findings
from trails.runtime.home import Home
from trails.runtime.registration import Registration
from trails.runtime.tableparams import environment

_TABLES = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname NOT IN ('information_schema', 'trailgate')
"""


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
    try:
        session = Session(params.url, f"trailgate check {params.group}")
    except AwayError as error:
        found.notes.append(f"Nothing was checked against the source: {error.message}")
        return found
    except GateError as error:
        found.add(error)
        return found
    try:
        _check(session, params, reg, found)
    except AwayError as error:
        found.notes.append(f"The source was not checked whole: {error.message}")
    except GateError as error:
        found.add(error)
    finally:
        session.close()
    return found


def _check(session: Session, params: ExtractParams, reg: Registration | None, found: Findings) -> None:
    slot = reg.slot if reg is not None else {}
    faults = pgcheck.server(session)
    if slot.get("slot"):
        faults += pgcheck.registered(session, slot["slot"], slot["publication"])
        faults += pgcheck.tables(session, slot["publication"], params.captures)
    else:
        found.notes.append(f"Slot and publication were not checked: REGISTER EXTRACT {params.group} makes them")
    faults += pgcheck.without_befores(session, params.captures, params.tables.befores)
    project = params.tables.projector(environment(params.group, ""))
    if project is not None:
        faults += pgcheck.columns(session, params.captures, project)
    found.mistakes += [f"{what}. {mend}" for what, mend in faults]
    names = [(schema or "", name or "") for schema, name in session.query(_TABLES)]
    captured = [name for name in names if params.captures(*name)]
    found.notes.append(f"{len(captured)} tables of the source are captured today")
    found.notes += [
        f"{clause.rule.where}: TABLE {clause.pattern} names no table of the source today"
        for clause in params.tables.clauses
        if not any(clause.pattern.matches(*name) for name in names)
    ]
    risky = pgcheck.risky(session, params.captures, project)
    if risky:
        found.notes.append(
            f"Updates of {', '.join(sorted(risky)[:5])} may come without a value that stands out of line; ADD TRANDATA"
        )
