"""Statements of a binary log, told to shapes as a log tells them; a server that answers what is asked of tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from extract.sources.mysql.ddl.asking import SourceServer
from extract.sources.mysql.ddl.natives import Charsets
from extract.sources.mysql.ddl.query import QueryText
from extract.sources.mysql.ddl.shapes import Cascades, ShapeRules, Shapes
from extract.sources.mysql.flavour import Flavour
from trails.position import Position
from trails.testing import FaultFs

STRICT = 0x200000
CHARSETS = Charsets({"utf8mb4": "utf8mb4_general_ci", "latin1": "latin1_swedish_ci", "utf8mb3": "utf8mb3_general_ci"})
MARIA = SourceServer(Flavour.MARIADB, 101106, "one", False, CHARSETS)
MYSQL = SourceServer(Flavour.MYSQL, 80012, "one", False, CHARSETS)
PATH = "/home/dirpcs/EXT1.journal"
T = (
    "CREATE TABLE `t` (`id` int(11) NOT NULL, `a` varchar(20) DEFAULT 'x', `b` bigint(20), PRIMARY KEY (`id`)) "
    "DEFAULT CHARSET=latin1"
)
LATIN = " CHARACTER SET latin1 COLLATE latin1_swedish_ci"


class Asked:
    """A server that answers with these tables."""

    def __init__(self, *creates: str, databases: Sequence[str] = ("shop", "old")) -> None:
        self.creates = creates
        self.databases = databases
        self.times = 0

    def query(self, sql: str) -> Sequence[Sequence[Any]]:
        """As ddl.asking asks."""
        names = [text.split("`")[1] for text in self.creates]
        if sql.startswith("SHOW CREATE"):
            self.times += 1
            return [("", next(text for text in self.creates if f"`shop`.`{text.split('`')[1]}`" in sql))]
        if "schemata" in sql:
            return [(name, "utf8mb4_general_ci") for name in self.databases]
        return [("shop", name, "BASE TABLE") for name in names] if "information_schema.tables" in sql else []


class Log:
    """Statements told one after the other, ten bytes apart."""

    def __init__(
        self,
        *creates: str,
        server: SourceServer = MARIA,
        captured: Sequence[str] = (),
        ddl: bool = True,
        fs: FaultFs | None = None,
        watch: Cascades | None = None,
    ) -> None:
        self.fs = fs or FaultFs()
        self.at = 100
        self.asked = Asked(*creates)

        def captures(schema: str, name: str) -> bool:
            return schema == "shop" and (not captured or name in captured)

        passes = (lambda change: any(captures(*name) for name in change.names)) if ddl else None
        self.shapes = Shapes(self.fs, PATH, server, ShapeRules(captures, passes, watch))
        self.resume(Position(1, 100))

    def resume(self, origin: Position, *, continues: bool = False, end: Position | None = None) -> None:
        """Go on from there; the server's log ends there too, or at `end`."""
        self.at = origin.rba
        self.shapes.resume(origin, self.asked, lambda: end or origin, continues=continues)

    def run(self, sql: str | bytes, **more: Any) -> list[Any]:
        """What the trail is told."""
        self.at += 10
        text = sql if isinstance(sql, bytes) else sql.encode()
        fields = {
            "schema": "shop",
            "sql_mode": STRICT,
            "charset": 45,
            "zone": "+00:00",
            "time_us": 1_700_000_000_000_000,
        }
        return list(
            self.shapes.run(QueryText(f"binlog.000001, {self.at}", Position(1, self.at), sql=text, **(fields | more)))
        )

    def columns(self, name: str = "t") -> str:
        """`number name native` of each column, with ! behind one that is NOT NULL."""
        shape = self.shapes.current("shop", name)
        assert shape is not None
        return ", ".join(f"{c.number} {c.name} {c.native}{'!' if c.not_null else ''}" for c in shape.columns)

    def key(self, name: str = "t") -> tuple[str, ...]:
        """The key's columns."""
        shape = self.shapes.current("shop", name)
        assert shape is not None
        return shape.key
