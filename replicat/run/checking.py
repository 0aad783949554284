"""CHECK PARAMS and CHECKPARAMS: everything that START would find out about a parameter file, with nothing applied.

Rule: it looks, and changes nothing: no checkpoint row is made or moved (trails.runtime.process.checking has the rest of
it).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from replicat.batches import startup
from replicat.batches.engine import SparkEngine, SparkSettings
from replicat.batches.planning import Planning, asks_spark
from replicat.batches.scratch import Scratch
from replicat.maps.expressions.compiling import Sql
from replicat.maps.rules import check_expressions
from replicat.model.target import CheckpointRow
from replicat.params import ReplicatParams, exact_table
from replicat.targets.contract import Target, TargetSettings
from replicat.targets.kinds import admin_for, open_target
from trails.errors import AnewError, AwayError, OperatorError
from trails.fs import Fs, RealFs
from trails.position import Position, TrailName
from trails.record import TableDef
from trails.runtime.home import registration as registrations
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration
from trails.runtime.language import params as language
from trails.runtime.process.checking import Findings


def check_group(home: Home, group: str, path: str = "", sql: Sql | None = None) -> Findings:
    """Check a group's file, registered or not; `path` names another file than its own.

    `sql` is a Spark that runs already; without it one is started if expressions ask for it.
    """
    found = Findings()
    path = path or home.prm(group)
    try:
        params = ReplicatParams.from_statements(language.parse_file(path), path).resolved(home)
    except OperatorError as error:
        found.add(error)
        return found
    known = next((reg for reg in registrations.all(home) if reg.name == group.upper() and reg.kind == "REPLICAT"), None)
    return check(params, known, home, RealFs(), found, sql)


def check(
    params: ReplicatParams,
    reg: Registration | None,
    home: Home,
    fs: Fs,
    found: Findings | None = None,
    sql: Sql | None = None,
) -> Findings:
    """Check what a file says against the trail's definitions, Spark and the target, as far as each is there."""
    found = found or Findings()
    for url in filter(None, (params.target_url, params.source_url)):
        if caution := admin_for(url).unverified(url):
            found.notes.append(caution)
    target, row = _reached(params, reg, home, found)
    try:
        definitions = _definitions(params, reg, row, home, fs, found)
        changed = _changed(reg, home, fs)
        definitions = [each for each in definitions if (each.schema, each.name) not in changed]
        lacks = _Lacks(changed, row is not None and bool(row.csn), _source(reg, home, fs), _waiting(reg, row, home, fs))
        if sql is not None or not asks_spark(params.maps):
            _check(params, definitions, target, sql, found, lacks)
            return found
        engine = _spark(params, home)
        try:
            _check(params, definitions, target, engine.sql, found, lacks)
        finally:
            engine.close()
    except (AwayError, AnewError) as error:  # a target or a Spark that goes away says nothing of the file
        found.notes.append(f"Not all was checked: {error}")
    except OperatorError as error:
        found.add(error)
    finally:
        if target is not None:
            target.close()
    return found


@dataclass(frozen=True, slots=True)
class _Lacks:
    """What of the target may be missing at START without being a fault (see Planning.faults and judged).

    `source`: the kind of database that the trail's changes are of. `waiting`: the definitions that rows have that are
    still to come.
    """

    changed: set[tuple[str, str]]
    began: bool
    source: str
    waiting: Callable[[], set[bytes]]


def _waiting(reg: Registration | None, row: CheckpointRow | None, home: Home, fs: Fs) -> Callable[[], set[bytes]]:
    if reg is None or row is None:
        return set
    trail = TrailName.parse(reg.trail, home.root)
    return lambda: startup.shapes_waiting(fs, trail, row.position, row.trail_id)


def _source(reg: Registration | None, home: Home, fs: Fs) -> str:
    return startup.source_kind(fs, TrailName.parse(reg.trail, home.root)) if reg and reg.trail else ""


def _changed(reg: Registration | None, home: Home, fs: Fs) -> set[tuple[str, str]]:
    """Tables whose shape changes somewhere in the trail: a definition may be an older one than what comes."""
    if reg is None or not reg.trail:
        return set()
    return startup.changed_tables(fs, TrailName.parse(reg.trail, home.root))


def _check(
    params: ReplicatParams,
    definitions: list[TableDef],
    target: Target | None,
    sql: Sql | None,
    found: Findings,
    lacks: _Lacks,
) -> None:
    if target is not None:
        planning = Planning(params, target, lambda: sql, source=lambda: lacks.source)
        errors, doubtful = planning.judged(definitions, lacks.changed, lacks.waiting, began=lacks.began)
        found.notes += doubtful
    else:
        errors = check_expressions(params.maps, params.excludes, definitions, sql, params.group)
    for error in errors:
        found.add(error)


def _reached(
    params: ReplicatParams, reg: Registration | None, home: Home, found: Findings
) -> tuple[Target | None, CheckpointRow | None]:
    """The target, connected, and the group's row in it; None for what is not there."""
    table = params.checkpoint_table
    if table is None and reg is not None and reg.checkpoint_table:
        table = exact_table(reg.checkpoint_table)
    if table is None:
        found.notes.append(
            "The target's tables were not checked: no checkpoint table is named, here or by ADD REPLICAT"
        )
        return None, None
    key = reg.group_key if reg is not None else 0
    target: Target | None = None
    try:
        target = open_target(TargetSettings(params.target_url, table, params.group, key, home.root))
        target.connect()
        found.notes.extend(target.cautions())
        return target, target.load_row()
    except AwayError as error:
        found.notes.append(f"The target's tables were not checked: {error}")
    except OperatorError as error:
        found.add(error)
    if target is not None:
        target.close()
    return None, None


def _definitions(
    params: ReplicatParams, reg: Registration | None, row: CheckpointRow | None, home: Home, fs: Fs, found: Findings
) -> list[TableDef]:
    """What the trail tells of the source's tables where the group stands, and a little further on."""
    if reg is None or not reg.trail:
        found.notes.append("The source's columns were not checked: the group is not added, so it has no trail yet")
        return []
    trail = TrailName.parse(reg.trail, home.root)
    begin = None if row is None or row.position == Position(0, 0) else row.position
    trail_id = row.trail_id if row is not None else b""
    definitions = startup.definitions_at(fs, trail, begin, trail_id)
    if params.ddl is None:  # else a table may be made by then
        definitions += startup.definitions_behind(fs, trail, begin, trail_id, definitions)
    found.notes += startup.unmatched(params.maps, fs, trail, begin, trail_id, definitions)
    if not definitions:
        found.notes.append(f"The source's columns were not checked: trail {reg.trail} tells of no table yet")
    return definitions


def _spark(params: ReplicatParams, home: Home) -> SparkEngine:
    scratch = Scratch(home.root, home.folder("dirtmp"), f"{params.group}-{os.getpid()}")
    settings = SparkSettings(
        name=f"trailgate check {params.group}",
        scratch=scratch.folder,
        lock=scratch.lock,
        log=os.path.join(home.folder("dirrpt"), f"{params.group}.spark.log"),
        megabytes=params.spark_megabytes,
        warm=False,
    )
    return SparkEngine(settings, scratch.release)
