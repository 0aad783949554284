"""PAUSE TABLE and RESUME TABLE: to a Replicat that runs, and to the target of one that is stopped.

Rule: an order is obeyed between two batches, by whoever holds the group's lock: its process, or the command's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from replicat.load.group import LoadingGroup
from replicat.load.loadtables import LIVE, TableRow
from replicat.load.pausedtable import RESUMING
from replicat.load.pausing import Pausing
from replicat.maps.rules import rules_for
from replicat.model.pausing import KEEP_HOURS, MOST_HOURS, Pair
from replicat.model.target import CheckpointRow
from replicat.params import ReplicatParams
from trails.clock import RealClock
from trails.errors import OperatorError
from trails.runtime.home.home import Home
from trails.runtime.language.params import Pattern

PAUSE, RESUME, SKIP = "PAUSETABLE", "RESUMETABLE", "SKIPTABLE"
VERBS = (PAUSE, RESUME, SKIP)
BY_COMMAND = "by PAUSE TABLE"


def obey(
    verb: str,
    args: Mapping[str, Any],
    params: ReplicatParams,
    pausing: Pausing,
    loaded: Sequence[TableRow],
    row: CheckpointRow,
) -> dict[str, Any]:
    """One order, with nothing open; which tables it is about, and what they are now."""
    pairs = _pairs(str(args.get("table") or ""), params, pausing)
    hours = args.get("hours")
    if hours is not None and not (isinstance(hours, int) and 1 <= hours <= MOST_HOURS):
        raise OperatorError(f"MAXKEEPHOURS {hours!r}: expected hours from 1 to {MOST_HOURS}")
    if verb == PAUSE:
        _check_loads(pairs, loaded)
    pairs = _wanted(verb, pairs, pausing)
    for pair in pairs:
        if verb == PAUSE:
            pausing.pause(row, pair, BY_COMMAND, hours or KEEP_HOURS)
        elif verb == RESUME:
            pausing.resume(row, pair)
        else:
            pausing.skip(row, pair)
    found = [(pair, pausing.of(pair)) for pair in pairs]
    return {
        "tables": [
            {"source": pair[0], "target": pair[1], "state": one.state if one else LIVE, "since": str(row.position)}
            for pair, one in found
        ]
    }


def _pairs(name: str, params: ReplicatParams, pausing: Pausing) -> list[Pair]:
    """The tables that a source table goes to, and those that it went to and that are paused still."""
    try:
        place = Pattern(name).exact
    except ValueError as error:
        raise OperatorError(f"table {name!r}: expected {error}") from None
    if place is None:
        raise OperatorError(f"table {name}: expected one source table without wildcards")
    rules = rules_for(params.maps, params.excludes, *place).rules
    pairs = [(".".join(place), ".".join(rule.target.fill(*place))) for rule in rules]
    pairs += [one.pair for one in pausing.rows if one.source == ".".join(place)]
    if not pairs:
        raise OperatorError(
            f"no MAP of {params.group} takes {name}", hint="Name the source's table, as INFO TABLES and MAP have it"
        )
    return list(dict.fromkeys(pairs))


def _wanted(verb: str, pairs: Sequence[Pair], pausing: Pausing) -> list[Pair]:
    """Those for which there is something to do. Raises OperatorError for none."""
    states = {one.pair: one.state for one in pausing.rows}
    found = [pair for pair in pairs if (pair in states) == (verb != PAUSE) or states.get(pair) == RESUMING]
    if not found:
        what = f"{states.get(pairs[0])} already" if verb == PAUSE else "not paused"
        raise OperatorError(f"{pairs[0][0]} is {what}", hint="INFO TABLES shows which tables are, and why")
    return found


def _check_loads(pairs: Sequence[Pair], loaded: Sequence[TableRow]) -> None:
    for one in loaded:
        if one.pair in pairs and one.state != LIVE:
            raise OperatorError(
                f"{one.source} is being loaded ({one.state}), and can be paused once it is live",
                hint="INFO TABLES shows how far it is; STOP REPLICAT stops all of it",
            )


def obey_stopped(home: Home, name: str, verb: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """An order to a group that does not run, whose lock the caller holds."""
    if verb not in VERBS:
        raise OperatorError(f"unknown order {verb!r}: expected one of {', '.join(VERBS)}")
    group = LoadingGroup.of(home, name)
    target = group.target
    target.connect()
    try:
        row = target.load_row()
        if row is None:
            raise OperatorError(
                f"{group.name} has no row in its checkpoint table yet, so there is no place to pause a table at",
                hint=f"START REPLICAT {group.name} first",
            )
        pausing = Pausing(target, group.paused, home.fs, group.trail, lambda _text: None, RealClock().now_us)
        pausing.look(row)
        return obey(verb, args, group.params, pausing, group.state().tables, row)
    finally:
        target.close()
