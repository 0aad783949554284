"""What a group has given up: the discard file, and the counts and the one warning of each batch.

Rule (I8): a record is durable before the commit that skips its change, and only what is committed counts. A record
whose commit failed stays; when its change comes again it is not written twice, and may be applied after all.
What is to be given up is decided in judge.py; which transactions are condemned, and which were tried how often,
stands here, as it must outlive the batch that is begun again because of it. A crash forgets it: it is found out anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from replicat.decode import Spot
from replicat.net.part import Mapped
from replicat.params import ReplicatParams
from replicat.refused.discardfile import DiscardFile
from replicat.refused.discardrecord import Reason, record
from replicat.refused.rules import DISCARD, ErrorRule, needs_discard_file
from replicat.target import RefusedError
from trails.errors import OperatorError
from trails.position import Position
from trails.record import Op
from trails.runtime.clock import Clock, RealClock
from trails.runtime.stats import DISCARDS, EXCEPTIONS, IGNORED, Stats

OPS = (Op.INSERT, Op.UPDATE, Op.DELETE, Op.TRUNCATE)
SHOWN_KINDS = 5
_SAID = {DISCARDS: "discarded", IGNORED: "ignored", EXCEPTIONS: "put into exceptions tables"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a transaction is given up whole: the action, the change at fault, and what the target said of it."""

    action: str
    index: int
    table: str
    error: RefusedError


@dataclass(slots=True)
class _Tally:
    """What the open batch has given up."""

    counts: list[tuple[str, str, str, int]] = field(default_factory=list)  # source, target, counter, number
    reasons: list[tuple[str, str, str]] = field(default_factory=list)  # counter, table, label


class Discards:
    """The rules of one group, its discard file, and what the open batch has given up."""

    def __init__(
        self,
        group: str = "",
        rules: Sequence[ErrorRule] = (),
        file: DiscardFile | None = None,
        *,
        clock: Clock | None = None,
        warn: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """`rules`: for what is no single MAP's (a TRUNCATE of several tables). `file`: None if none is written."""
        self.rules = tuple(rules)
        self.clock: Clock = clock or RealClock()
        self.verdicts: dict[str, Verdict] = {}
        self.tries: Counter[str] = Counter()
        self._group = group
        self._file = file
        self._warn = warn
        self._tally = _Tally()
        self._roll = False

    def attach(self, position: Position) -> None:
        """A new connection: nothing is open, and all from `position` on comes again."""
        self._tally = _Tally()
        if self._file is not None:
            self._file.look(position)

    def write(self, spot: Spot, reason: Reason, trail_id: bytes, mapped: Sequence[Mapped]) -> None:
        """A record in the file; durable by sync()."""
        assert self._file is not None, "REPERROR discards, and there is no discard file"
        self._file.add(record(spot, reason, self._group, trail_id, self.clock.now_us(), mapped))

    def count(self, source: str, target: str, counter: str, number: int = 1) -> None:
        """For STATS, once committed."""
        self._tally.counts.append((source, target, counter, number))

    def because(self, counter: str, table: str, label: str) -> None:
        """For the batch's warning."""
        self._tally.reasons.append((counter, table, label))

    def mark(self) -> tuple[int, int]:
        """See ladder.Judge."""
        return len(self._tally.counts), len(self._tally.reasons)

    def undo(self, mark: tuple[int, int]) -> None:
        """See ladder.Judge. Records stay: their changes come again at once."""
        del self._tally.counts[mark[0] :]
        del self._tally.reasons[mark[1] :]

    def roll_soon(self) -> dict[str, Any]:
        """DISCARDROLLOVER: begin a new file at the next flush."""
        if self._file is None:
            raise OperatorError("no REPERROR discards, so there is no discard file")
        self._roll = True
        return {}

    def roll(self) -> None:
        """Begin a new file, if that is asked for. Only where all that was committed is durable in the target.

        A change that comes again, after a crash of the target, is then never one whose record is in an older file.
        """
        if self._roll and self._file is not None and self._file.roll():
            self._roll = False

    def sync(self) -> None:
        """Before the commit."""
        if self._file is not None and any(counter == DISCARDS for counter, *_ in self._tally.reasons):
            self._file.sync()

    def committed(self, stats: Stats, position: Position, csn: str = "") -> None:
        """After the commit, which moved the row to `position`, behind transaction `csn`: count, and say so once.

        `csn` is empty where the batch ends inside a transaction, whose verdict holds for the rest of it.
        """
        tally, self._tally = self._tally, _Tally()
        for done in [known for known in (*self.verdicts, *self.tries) if known <= csn]:
            self.verdicts.pop(done, None)
            self.tries.pop(done, None)
        if self._file is not None:
            self._file.committed(position)
        for source, target, counter, number in tally.counts:
            stats.count(source, target, counter, number)
        if tally.reasons:
            self._warn(f"Changes that the target refused were {self._said(tally.reasons)}")

    def _said(self, reasons: Sequence[tuple[str, str, str]]) -> str:
        parts = []
        for counter, said in _SAID.items():
            kinds = Counter((table, label) for which, table, label in reasons if which == counter)
            if kinds:
                shown = [f"{table} {label}: {number}" for (table, label), number in kinds.most_common(SHOWN_KINDS)]
                more = f", and {len(kinds) - SHOWN_KINDS} more kinds" if len(kinds) > SHOWN_KINDS else ""
                where = f"; see {self._file.path}" if counter == DISCARDS and self._file is not None else ""
                parts.append(f"{said} ({', '.join(shown)}{more}){where}")
        return "; ".join(parts)

    def close(self) -> None:
        """Let the file go."""
        self._tally = _Tally()
        if self._file is not None:
            self._file.close()


def needs_file(params: ReplicatParams) -> bool:
    """Whether anything in the parameter file writes to the discard file."""
    rules = [*params.error_rules, *(rule for each in params.maps for rule in each.error_rules)]
    groups = [group for each in params.maps for rule in each.resolve for group in (rule.default, *rule.groups)]
    ddl = any(rule.action == DISCARD for rule in params.ddl_errors)
    return ddl or needs_discard_file(rules) or any(group.method == DISCARD for group in groups)
