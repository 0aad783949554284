"""Which tables a REPAIR may write to at all; of any other it says why not.

Rule: nothing is written that the trail is not known to carry: what an Extract leaves out, on purpose perhaps, does not
come to the target by this way. And no row is deleted that may be another one's: of the table's own target, or of a
group of this home that writes there from a table of the same name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

from replicat.batches.startup import definitions_at
from replicat.compare.flight import Flight
from replicat.compare.pairing import Wish
from replicat.load.group import LoadingGroup
from replicat.maps.rules import rules_for
from replicat.params import ReplicatParams
from trails.errors import GateError, OperatorError
from trails.runtime.home import registration as registrations
from trails.runtime.home.home import Home
from trails.runtime.language import params as language

_WHO = ("user", "password", "sslcert", "sslkey")


@dataclass(frozen=True, slots=True)
class RepairFit:
    """What speaks for and against. `carried`: the columns of each source table that the trail has; `loaded`: tables
    that INSTANTIATE has copied; `others`: the groups of the home that write to the same database.
    """

    carried: Mapping[str, frozenset[str]]
    loaded: frozenset[tuple[str, str]]
    others: Mapping[str, ReplicatParams] = field(default_factory=dict)

    @classmethod
    def of(cls, group: LoadingGroup, flight: Flight, others: Mapping[str, ReplicatParams]) -> RepairFit:
        """As of now; the group's target is connected."""
        row = flight.row()
        found = definitions_at(flight.fs, flight.trail, row.position if row.trail_id else None, row.trail_id)
        carried = {one.full_name: frozenset(column.name for column in one.columns) for one in found}
        return cls(carried, frozenset(row.pair for row in group.state().tables), others)

    def why_not(self, wish: Wish) -> str:
        """Why no row of a table can be repaired; empty if nothing speaks against it."""
        pair, plan = wish.pair, wish.plan
        if pair is None or plan is None:
            return wish.why
        if pair.keyless:
            return "it has no key, so nothing tells which of its rows to write"
        if set(plan.layout.key) != {pair.target.columns[i].name for i in pair.source.key}:
            return "its MAP has KEYCOLS, and the rows of the target are found by those"
        if not plan.layout.arbiter:
            return f"the target has no unique index on its key ({', '.join(plan.layout.key)})"
        if plan.conflict is not None:
            return "its MAP resolves conflicts, so a row of the target may rightly differ"
        if others := self._writers((pair.source.schema, pair.source.name), wish.target):
            return f"group {others[0]} writes to the same table: nothing tells whose a row is"
        return self._not_carried(wish)

    def _writers(self, place: tuple[str, str], target: str) -> list[str]:
        found = []
        for name, params in self.others.items():
            with contextlib.suppress(GateError):  # MAPs that can't be told apart: that group takes nothing of it
                rules = rules_for(params.maps, params.excludes, *place).rules
                found += [name for rule in rules if ".".join(rule.target.fill(*place)) == target]
        return found

    def _not_carried(self, wish: Wish) -> str:
        columns = self.carried.get(wish.source)
        if columns is None and (wish.source, wish.target) not in self.loaded:
            return "the trail has no change of it, so nothing tells that it is replicated; a change of any row does"
        assert wish.pair is not None
        lost = [c.name for c in wish.pair.source.columns if columns is not None and c.name not in columns]
        return f"the trail does not have its column {', '.join(lost)}" if lost else ""


def others_of(home: Home, group: LoadingGroup) -> dict[str, ReplicatParams]:
    """The parameters of the home's other groups that write to the same database."""
    here = _database(group.params.target_url)
    return {name: params for name, params in _replicats(home, group.name) if _database(params.target_url) == here}


def _replicats(home: Home, but: str) -> Iterator[tuple[str, ReplicatParams]]:
    for reg in registrations.all(home):
        if reg.kind == "REPLICAT" and reg.name != but:
            path = home.prm(reg.name)
            try:
                yield reg.name, ReplicatParams.from_statements(language.parse_file(path), path).resolved(home)
            except GateError as error:
                raise OperatorError(
                    f"REPAIR must know what Replicat {reg.name} writes: {error.message}",
                    hint="Mend its parameter file, or DELETE REPLICAT",
                ) from None


def _database(url: str) -> tuple[object, ...]:
    """Which one a URL names, whoever logs in there."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return (url,)
    query = sorted(pair for pair in parse_qsl(parts.query) if pair[0] not in _WHO)
    return parts.scheme, parts.hostname, port, parts.path, tuple(query)
