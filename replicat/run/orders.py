"""What a running Replicat can be asked for, beyond what every group can.

Rule: an order is obeyed between two steps. What was decoded under plans that it changes is thrown away, and done again
from the checkpoint row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from replicat.apply.discard import Discards
from replicat.batches.planning import Planning
from replicat.load import tableorders
from trails.errors import OperatorError
from trails.runtime.language.params import Pattern
from trails.runtime.process.group import Request

Args = dict[str, Any]


class ReplicatOrders:
    """The requests of one process."""

    def __init__(
        self,
        planning: Planning,
        discards: Discards,
        note: Callable[[str], None],
        drop: Callable[[], None],
        look: Callable[[], None],
        of_table: Callable[[str, Args], Args],
    ) -> None:
        """`drop`: forgets all but what the target knows. `look`: is told that tables were named to be loaded.

        `of_table`: obeys PAUSE TABLE and RESUME TABLE.
        """
        self._planning = planning
        self._discards = discards
        self._note = note
        self._drop = drop
        self._look = look
        self._of_table = of_table

    def requests(self) -> Mapping[str, Request]:
        """By verb."""
        return {
            "HANDLECOLLISIONS": lambda args: self._handle_collisions(args, on=True),
            "NOHANDLECOLLISIONS": lambda args: self._handle_collisions(args, on=False),
            "DISCARDROLLOVER": lambda _: self._discards.roll_soon(),
            "LOAD": lambda _: self._look_at_load(),
            **{verb: self._table_order(verb) for verb in tableorders.VERBS},
        }

    def _look_at_load(self) -> Args:
        """Tables are to be loaded that were not: what was decoded without knowing that is thrown away."""
        self._look()
        self._drop()
        return {}

    def _handle_collisions(self, args: Args, *, on: bool) -> Args:
        """Until the process ends. What was decoded under the old plans is thrown away, and done again from the row."""
        tables = str(args.get("tables") or "*.*")
        try:
            pattern = Pattern(tables)
        except ValueError as error:
            raise OperatorError(f"source tables {tables!r}: expected {error}") from None
        self._planning.handle_collisions(pattern, on)
        self._note(f"{'HANDLECOLLISIONS' if on else 'NOHANDLECOLLISIONS'} for {tables} by SEND, until the process ends")
        self._drop()
        return {}

    def _table_order(self, verb: str) -> Request:
        return lambda args: self._of_table(verb, args)
