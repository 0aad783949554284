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

from replicat.apply.discardfile import DiscardFile
from replicat.apply.discardrecord import Reason, Whole, ending, record
from replicat.model.reperror import DISCARD, ErrorRule, needs_discard_file
from replicat.model.target import RefusedError
from replicat.params import ReplicatParams
from replicat.work.decode import Spot
from replicat.work.net.part import MappedChange
from trails.clock import Clock, RealClock
from trails.errors import OperatorError
from trails.position import Position
from trails.record import Op
from trails.runtime.report.stats import DISCARDS, EXCEPTIONS, IGNORED, Stats

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
class GivenUp:
    """What the open batch has given up."""

    counts: list[tuple[str, str, str, int]] = field(default_factory=list)  # source, target, counter, number
    reasons: list[tuple[str, str, str]] = field(default_factory=list)  # counter, table, label
    whole: Whole | None = None  # the transaction whose end is not written yet


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
        self.given_up = GivenUp()
        self._roll = False

    def attach(self, position: Position) -> None:
        """A new connection: nothing is open, and all from `position` on comes again."""
        self.given_up = GivenUp()
        if self._file is not None:
            self._file.look(position)

    def write(self, spot: Spot, reason: Reason, trail_id: bytes, mapped: Sequence[MappedChange]) -> None:
        """A record in the file; durable by sync()."""
        assert self._file is not None, "REPERROR discards, and there is no discard file"
        lines = record(spot, reason, self._group, trail_id, self.clock.now_us(), mapped)
        if self.given_up.whole is not None and self.given_up.whole.csn != spot.csn:
            self._end_whole(self._file)
        self._file.add(lines)
        if reason.whole:
            self.given_up.whole = self.given_up.whole or Whole.begun(spot, trail_id)
            self.given_up.whole.take(spot, lines)

    def _end_whole(self, file: DiscardFile) -> None:
        """All of a transaction that is discarded whole is in the file: say so there, that a part is known as one."""
        whole, self.given_up.whole = self.given_up.whole, None
        if whole is not None:
            file.add(ending(whole, self._group, self.clock.now_us()))

    def count(self, source: str, target: str, counter: str, number: int = 1) -> None:
        """For STATS, once committed."""
        self.given_up.counts.append((source, target, counter, number))

    def because(self, counter: str, table: str, label: str) -> None:
        """For the batch's warning."""
        self.given_up.reasons.append((counter, table, label))

    def mark(self) -> tuple[int, int]:
        return len(self.given_up.counts), len(self.given_up.reasons)

    def undo(self, mark: tuple[int, int]) -> None:
        """Records stay: their changes come again at once."""
        del self.given_up.counts[mark[0] :]
        del self.given_up.reasons[mark[1] :]

    def roll_soon(self) -> dict[str, Any]:
        """DISCARDROLLOVER: begin a new file at the next flush."""
        if self._file is None:
            raise OperatorError(
                "no REPERROR discards, so there is no discard file",
                hint="Its parameter file has to say REPERROR ..., DISCARD first",
            )
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
        if self._file is not None and any(counter == DISCARDS for counter, *_ in self.given_up.reasons):
            self._end_whole(self._file)
            self._file.sync()

    def committed(self, stats: Stats, position: Position, csn: str = "") -> None:
        """After the commit, which moved the row to `position`, behind transaction `csn`: count, and say so once.

        `csn` is empty where the batch ends inside a transaction, whose verdict holds for the rest of it.
        """
        given, self.given_up = self.given_up, GivenUp()
        for done in [known for known in (*self.verdicts, *self.tries) if known <= csn]:
            self.verdicts.pop(done, None)
            self.tries.pop(done, None)
        if self._file is not None:
            self._file.committed(position)
        for source, target, counter, number in given.counts:
            stats.count(source, target, counter, number)
        if given.reasons:
            self._warn(f"Changes that the target refused were {self._said(given.reasons)}")

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
        self.given_up = GivenUp()
        if self._file is not None:
            self._file.close()


def needs_file(params: ReplicatParams) -> bool:
    """Whether anything in the parameter file writes to the discard file."""
    rules = [*params.error_rules, *(rule for each in params.maps for rule in each.error_rules)]
    groups = [group for each in params.maps for rule in each.resolve for group in (rule.default, *rule.groups)]
    ddl = any(rule.action == DISCARD for rule in params.ddl_errors)
    return ddl or needs_discard_file(rules) or any(group.method == DISCARD for group in groups)
