"""What ggsci and a REPAIR tell each other: which rows are to be repaired, and what became of each.

Rule: COMPARE says which rows differ; then a person is asked; then REPAIR looks at each of them anew. So whatever has
changed meanwhile (the parameter file, the tables, the rows) is seen by it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from replicat.compare.comparing import TableResult
from replicat.compare.pairing import Wish
from replicat.compare.ranges import Key, shown_value
from replicat.compare.repairfit import RepairFit
from replicat.compare.repairing import Repairing
from replicat.compare.rowrepair import KEPT, Outcome
from replicat.reading.contract import Range
from trails.record import Value

Reply = dict[str, Any]


@dataclass(frozen=True, slots=True)
class WantedRows:
    """Rows of one table that differ, each with the range it was found in. `names`: the key's columns."""

    source: str
    target: str
    names: tuple[str, ...] = ()
    parts: tuple[Range, ...] = ()
    rows: tuple[tuple[int, Key], ...] = ()
    why: str = ""
    """What speaks against a repair of the whole table."""

    @classmethod
    def of(cls, result: TableResult, fit: RepairFit) -> WantedRows:
        """What a COMPARE found."""
        wish = result.wish
        if (why := fit.why_not(wish)) or wish.pair is None:
            return cls(wish.source, wish.target, why=why)
        parts = {part: at for at, part in enumerate(dict.fromkeys(result.parts))}
        rows = tuple((parts[part], one.key) for part, one in zip(result.parts, result.differences, strict=True))
        return cls(wish.source, wish.target, key_names(wish), tuple(parts), rows)

    def by_part(self) -> dict[Range, list[Key]]:
        """The keys of each range."""
        found: dict[Range, list[Key]] = defaultdict(list)
        for at, key in self.rows:
            found[self.parts[at]].append(key)
        return found

    def to_wire(self) -> Reply:
        """For JSON."""
        parts = [[part.orders, part.low, part.high] for part in self.parts]
        rows = [[at, [_sent(value) for value in key]] for at, key in self.rows]
        return {"source": self.source, "target": self.target, "names": self.names, "parts": parts, "rows": rows,
                "why": self.why}  # fmt: skip

    @classmethod
    def from_wire(cls, wire: Reply) -> WantedRows:
        """Inverse of to_wire()."""
        parts = [
            Range(tuple(orders), tuple(low), None if high is None else tuple(high))
            for orders, low, high in wire["parts"]
        ]
        rows = [(int(at), tuple(_read(value) for value in key)) for at, key in wire["rows"]]
        return cls(wire["source"], wire["target"], tuple(wire["names"]), tuple(parts), tuple(rows), wire["why"])


def _sent(value: Value) -> Any:
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def _read(value: Any) -> Value:
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value


def key_names(wish: Wish) -> tuple[str, ...]:
    """Of the source's key."""
    return tuple(wish.pair.source.columns[i].name for i in wish.pair.source.key) if wish.pair else ()


def repaired(
    fit: RepairFit, repairing: Repairing, wishes: Sequence[Wish], asked: Sequence[WantedRows]
) -> Iterator[list[Outcome]]:
    """What became of each row, table by table, in the order in which they are named."""
    found: dict[tuple[str, str], list[Wish]] = defaultdict(list)
    for wish in wishes:
        found[wish.source, wish.target].append(wish)
    for one in asked:
        some = found[one.source, one.target]
        why = fit.why_not(some[0]) if len(some) == 1 else "its MAPs have changed meanwhile, or there are several of it"
        if not why and key_names(some[0]) != one.names:
            why = "its key has changed meanwhile"
        outcomes = {} if why else repairing.table(some[0], one.by_part())
        yield [outcomes.get(key, (KEPT, why)) for _, key in one.rows]


def outcome_lines(one: WantedRows, outcomes: Sequence[Outcome]) -> list[str]:
    """For the report: one line, and one for each row."""
    counts = Counter(what for what, _ in outcomes)
    lines = [f"REPAIR of {one.target}: {', '.join(f'{number} {what}' for what, number in counts.items()) or 'no rows'}"]
    for (_, key), (what, why) in zip(one.rows, outcomes, strict=True):
        shown = ", ".join(f"{name}={shown_value(value)}" for name, value in zip(one.names, key, strict=True))
        lines.append(f"  {what} ({shown}){f': {why}' if why else ''}")
    return lines
