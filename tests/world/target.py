"""The target database of the world: DdlTarget on a server that may be away, may crash, and may still commit when
nobody listens any more.

A COMMIT that was sent is under way until the server takes it up or drops it; until then it holds the checkpoint row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from replicat.model.target import CheckpointRow
from tests.support.ddl_target import DdlTarget, ShapedStore, Shapes
from tests.support.list_target import copied, shape
from tests.world.source import ODD
from trails.errors import AwayError

if TYPE_CHECKING:
    from tests.world.world import World
    from trails.position import Position

SHAPES = {
    (made.schema, made.name): made
    for made in (
        shape("s", "kv", "id v", "id"),
        shape("s", "notes", "note"),
        shape("s", "odds", "id v", "id"),
        shape("s", "wide", "id a", "id"),
    )
}


@dataclass(frozen=True)
class UnderWay:
    """A COMMIT that the server has got."""

    tables: Any
    shapes: Shapes
    row: CheckpointRow | None


class Server:
    """What outlives connections. Those of another `epoch` than now are broken."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store = ShapedStore(shapes=dict(SHAPES))
        self.flushed_shapes = dict(SHAPES)
        self.epoch = 0
        self.down_until = 0
        self.under_way: UnderWay | None = None
        self.holder: SimTarget | None = None
        """Whose transaction holds the checkpoint row, if it is still open."""
        self.come_before: Position | None = None
        """Up to where rows were last committed apart from the row."""
        self.ahead = 0
        """The last transaction of which anything may be seen that was committed apart from the row."""
        self.row_was_read = False
        """By another client, since the COMMIT that is under way was sent."""

    def settle(self, *, lands: bool) -> None:
        """Take up, or drop, the COMMIT under way."""
        found, self.under_way = self.under_way, None
        if found is None or not lands:
            return
        if self.row_was_read:
            self.world.windows.met("CW-01")
            self.row_was_read = False
        before = self.store.row
        self.store.tables, self.store.shapes, self.store.row = found.tables, found.shapes, found.row
        self.world.rules.committed(before)

    def is_held_from(self, target: SimTarget) -> bool:
        """Whether another connection's open transaction, or a COMMIT under way, holds the row."""
        other = self.holder
        held = other not in (None, target) and other.is_open  # type: ignore[union-attr]
        return held or self.under_way is not None

    def settle_later(self) -> None:
        """Its client is gone: nobody knows what becomes of it."""
        draw, found = self.world.draws["target"], self.under_way
        lands = draw.random() < 0.6

        def settle() -> None:
            if self.under_way is found:
                self.world.tell("target", f"the COMMIT under way {'lands' if lands else 'is dropped'}")
                self.settle(lands=lands)

        self.world.later(draw.random() * 0.8, settle)

    def crash(self, down: float) -> None:
        """It forgets what it had committed and not flushed, and is away for so many seconds.

        Where the row is committed apart, it may be the only thing that is forgotten.
        """
        store, draw = self.store, self.world.draws["target"]
        kept = copied(store.tables), store.shapes
        row = store.row
        store.crash()
        store.shapes = dict(self.flushed_shapes)
        if self.world.plan.sizes.target == "apart" and draw.random() < 0.8:
            store.tables, store.shapes = kept
            self.ahead = max(self.ahead, int(row.csn or 0) if row is not None else 0)
        self.under_way = None
        self.epoch += 1
        self.down_until = self.world.now + int(down * 1e6)

    def break_connections(self) -> None:
        """Of all clients."""
        self.epoch += 1
        if self.under_way is not None:
            self.settle_later()


class SimTarget(DdlTarget):
    """One connection. See replicat.targets.contract.Target.

    Of three kinds: "postgresql", where a change of shape is part of the transaction; "mysql", where it commits by
    itself; "apart", which commits rows before it commits the checkpoint row, so that a batch may come again.
    """

    def __init__(self, world: World) -> None:
        self.world, self.server, self._proc = world, world.server, world.running
        self.is_apart = world.plan.sizes.target == "apart"
        super().__init__(world.server.store, "mysql" if self.is_apart else world.plan.sizes.target)
        if self.is_apart:
            self.kind = replace(self.kind, can=replace(self.kind.can, exactly_once=False))
        self.checks = lambda table, row: "it is odd" if table == "s.odds" and row[1] == ODD else ""
        self._epoch = -1

    def _call(self, name: str) -> None:
        world, server = self.world, self.server
        world.edge("target", name)
        if name == "connect":
            if world.now < server.down_until:
                raise AwayError("the target can't be reached")
            self._epoch = server.epoch
        self._check_connection()
        if name == "load_row":
            server.row_was_read = server.under_way is not None
        if name in ("begin", "flush", "add_row", "ddl") and server.is_held_from(self):
            world.wait(lambda: not server.is_held_from(self), None)
            self._check_connection()
        if name == "begin":
            server.holder = self

    @property
    def is_open(self) -> bool:
        """Whether its transaction is."""
        return self._tables is not None and self.is_connected and not self._proc.dead

    @property
    def is_connected(self) -> bool:
        """Whether the server still has this connection."""
        return self._epoch == self.server.epoch

    def _check_connection(self) -> None:
        if self._epoch != self.server.epoch:
            raise AwayError("the target closed the connection")

    def move_on(self, new: CheckpointRow) -> None:
        super().move_on(new)
        self.world.count("transactions applied as they came")

    def commit(self) -> None:
        self._call("commit")
        world, server = self.world, self.server
        if self.is_apart:
            self._commit_rows()
        server.under_way = mine = UnderWay(self._tables, self.shapes, self._new)
        self._tables = None
        world.edge("target", "COMMIT sent")
        if world.hostile and world.draws["target"].random() < world.plan.sizes.answer_lost:
            world.met("answer lost")
            world.tell("target", "the answer of COMMIT is lost")
            server.settle_later()
            raise AwayError("the connection broke in COMMIT")
        self._check_connection()
        if server.under_way is mine:
            server.settle(lands=True)

    def _commit_rows(self) -> None:
        """They are there from now on, whatever becomes of the row."""
        assert self._tables is not None and self._new is not None
        server = self.server
        row = server.store.row
        if server.come_before is not None and row is not None and row.position < server.come_before:
            self.world.windows.met("CW-21")
        server.store.tables = copied(self._tables)
        server.come_before = self._new.position
        server.ahead = max(server.ahead, int(self._new.csn or 0) + bool(self._new.split))
        self.world.edge("target", "rows committed")
        if self.world.hostile and self.world.draws["target"].random() < self.world.plan.sizes.answer_lost:
            self.world.met("answer lost")
            self.world.tell("target", "the connection breaks between the rows and the checkpoint row")
            self._tables = None
            raise AwayError("the connection broke in COMMIT")
        self._check_connection()

    def ddl(self, statements: tuple[str, ...]) -> None:
        if not self.kind.can.ddl_in_transaction:
            self.server.ahead = len(self.world.log.commits)
        super().ddl(statements)
        self.world.count("statements of DDL")

    def _flushed(self) -> None:
        super()._flushed()
        self.server.flushed_shapes = dict(self.server.store.shapes)
        self.world.rules.shows("flush")
