"""A group whose tables are loaded, for those who are not its process: its target, and INFO TABLES."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from replicat.load.loadtables import LoadState, LoadTables, TableRow
from replicat.load.pausedtable import PausedRow, PausedTable
from replicat.params import ReplicatParams, exact_table
from replicat.targets.contract import Target, TargetSettings
from replicat.targets.kinds import open_target
from trails.errors import OperatorError
from trails.position import TrailName
from trails.record import TableDef
from trails.runtime.home import registration as registrations
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration
from trails.runtime.language import params as language

Reply = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LoadingGroup:
    """A Replicat, and its target."""

    params: ReplicatParams
    target: Target
    tables: LoadTables
    name: str
    trail: TrailName
    paused: PausedTable | None = None

    @classmethod
    def of(cls, home: Home, name: str) -> LoadingGroup:
        """By its parameter file. The target is not connected yet."""
        reg = _registered(home, name)
        path = home.prm(reg.name)
        params = ReplicatParams.from_statements(language.parse_file(path), path).resolved(home)
        table = params.checkpoint_table or (exact_table(reg.checkpoint_table) if reg.checkpoint_table else None)
        if table is None:
            raise OperatorError(
                f"no checkpoint table for {reg.name}, beside which the load keeps how far it is",
                hint="ADD CHECKPOINTTABLE schema.table, then name it by CHECKPOINTTABLE in the parameter file",
            )
        settings = TargetSettings(
            params.target_url, table, reg.name, reg.group_key, home.root,
            suppress_triggers=params.db_options.suppress_triggers,
        )  # fmt: skip
        target = open_target(settings)
        who = reg.name, reg.group_key
        tables, paused = LoadTables(target.kind, table, *who), PausedTable(target.kind, table, *who)
        trail = TrailName.parse(reg.trail, home.root)
        return cls(params, target, tables, reg.name, trail, paused)

    def are_there(self) -> bool:
        """Whether the load's own tables exist."""
        return bool(self.target.read(*self.tables.there()))

    def state(self) -> LoadState:
        """What they say."""
        return self.tables.read(self.target.read) if self.are_there() else LoadState()

    def paused_rows(self) -> tuple[PausedRow, ...]:
        """The tables that are paused, or have failed since."""
        if self.paused is None or not self.target.read(*self.paused.there()):
            return ()
        return self.paused.read(self.target.read)


def _registered(home: Home, name: str) -> Registration:
    found = [reg for reg in registrations.all(home) if reg.name == name.upper() and reg.kind == "REPLICAT"]
    if not found:
        raise OperatorError(f"there is no Replicat {name} in this home", hint="INFO ALL lists the groups")
    return found[0]


# --- INFO TABLES ------------------------------------------------------------------------------------------------------


def info_tables(home: Home, name: str) -> Reply:
    """Each table's row, with its chunks counted."""
    group = LoadingGroup.of(home, name)
    group.target.connect()
    try:
        state, paused = group.state(), {one.pair: one for one in group.paused_rows()}
        row = group.target.load_row()
    finally:
        group.target.close()
    told = [_told(state, one) for one in state.tables]
    named = {one.pair for one in state.tables}
    told += [_told(state, TableRow(*one.pair, _NO_SHAPE)) for pair, one in paused.items() if pair not in named]
    told = [one | _told_of_paused(paused.get((one["source"], one["target"]))) for one in told]
    return {"tables": told, "commit_us": row.time_us if row else None}


_NO_SHAPE = TableDef("", "", ())


def _told_of_paused(one: PausedRow | None) -> Reply:
    if one is None:
        return {}
    return {
        "state": one.state, "reason": one.reason, "paused_at": f"{one.at.position}", "paused_csn": one.at.csn,
        "paused_us": one.since_us, "kept_hours": one.hours,
    }  # fmt: skip


def _told(state: LoadState, one: TableRow) -> Reply:
    chunks = state.by_pair.get(one.pair, [])
    done = [chunk for chunk in chunks if chunk.seen]
    rows, size = (sum(c.rows for c in done), sum(c.bytes for c in done)) if chunks else (one.rows, one.bytes)
    return {
        "source": one.source, "target": one.target, "state": one.state, "reason": one.reason,
        "chunks": len(chunks), "chunks_done": len(done), "rows": rows, "bytes": size, "estimate": one.estimate,
        "started_us": one.started_us or None, "ended_us": one.ended_us or None, "waiting": len(one.behind),
    }  # fmt: skip
