"""CHECK PARAMS and CHECKPARAMS of a pump: its trails are registered, and its target host can be reached."""

from __future__ import annotations

from pump.params import PumpParams
from trails.errors import GateError, OperatorError, UntrustedError
from trails.link import tls
from trails.position import TrailName
from trails.reader import tables_told
from trails.runtime.home import registration as registrations
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration
from trails.runtime.language import params as language
from trails.runtime.process.checking import Findings

SECONDS = 5.0


def check_group(home: Home, group: str, path: str = "") -> Findings:
    """Check a group's file, registered or not; `path` names another file than its own."""
    found = Findings()
    path = path or home.prm(group)
    try:
        params = PumpParams.from_statements(language.parse_file(path), path)
    except OperatorError as error:
        found.add(error)
        return found
    reg = next((reg for reg in registrations.all(home) if reg.name == params.group and reg.kind == "EXTRACT"), None)
    return check(params, reg, home, found)


def check(params: PumpParams, reg: Registration | None, home: Home, found: Findings | None = None) -> Findings:
    """Hold what a file says against the local trail and the remote Manager."""
    found = found or Findings()
    if reg is None:
        found.notes.append(f"{params.group} is not added yet: ADD EXTRACT {params.group}, EXTTRAILSOURCE ...")
    else:
        _check_trails(params, reg, home, found)
    _reach(params, home, found)
    return found


def _check_trails(params: PumpParams, reg: Registration, home: Home, found: Findings) -> None:
    source = TrailName.parse(reg.trail, home.root)
    if files := source.seqnos(home.fs.listdir(source.folder) if home.fs.exists(source.folder) else []):
        _check_tables(params, source, files[-1], home, found)
    else:
        found.notes.append(f"Trail {reg.trail} has no file yet: the pump waits until its Extract has written one")
    known = [trail.path for trail in reg.trails if trail.type == "RMTTRAIL"]
    if TrailName.parse(params.trail) not in map(TrailName.parse, known):
        found.mistakes.append(
            f"RMTTRAIL {params.trail} is not registered for {params.group} (known: {', '.join(known) or 'none'}). "
            f"ADD RMTTRAIL {params.trail}, EXTRACT {params.group}"
        )


def _check_tables(params: PumpParams, source: TrailName, newest: int, home: Home, found: Findings) -> None:
    try:
        told = tables_told(home.fs, source, newest)
    except OperatorError as error:
        found.add(error)
        return
    found.notes += [
        f"{clause.rule.where}: TABLE {clause.pattern} names no table that {source.path(newest)} tells of so far"
        for clause in params.tables.clauses
        if told and not any(clause.pattern.matches(table.schema, table.name) for table in told)
    ]


def _reach(params: PumpParams, home: Home, found: Findings) -> None:
    """A connection to the Manager, and its handshake; nothing is asked of it."""
    from pump.link import greet

    where = f"{params.remote.host}:{params.remote.port}"
    try:
        if params.remote.tls:
            tls.check_own(tls.folder_of(home.root), home.id)
        greet(params.remote, home, SECONDS)
    except (OperatorError, UntrustedError) as error:
        found.add(error)
    except GateError as error:
        found.notes.append(f"Warning: {error.message}; the link and its certificates were not checked")
    else:
        found.notes.append(f"The Manager at {where} answers")
