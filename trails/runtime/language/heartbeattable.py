"""Names and settings of the heartbeat objects in a database, the same in every home of a pipeline (GLOBALS).

GGSCHEMA names the schema, HEARTBEATTABLE the base name: ..._SEED in the source; the table itself and ..._HISTORY in the
target; ..._SETTINGS in both. The views GG_LAG and GG_LAG_HISTORY stand in the same schema.
"""

from __future__ import annotations

from dataclasses import dataclass

from trails.runtime.language.params import Pattern, Values

SCHEMA = "gg"
BASE = "gg_heartbeat"
MOST_FREQUENCY = 7999


@dataclass(frozen=True, slots=True)
class HeartbeatTable:
    """Where heartbeats are kept."""

    schema: str = SCHEMA
    base: str = BASE

    @classmethod
    def of(cls, found: Values) -> HeartbeatTable:
        """As GLOBALS says."""
        exact = Pattern(found.one("HEARTBEATTABLE")).exact if found.has("HEARTBEATTABLE") else None
        return cls(*exact) if exact else cls(found.one("GGSCHEMA", SCHEMA))

    @classmethod
    def parse(cls, text: str) -> HeartbeatTable:
        """Inverse of `text`."""
        schema, _, base = text.partition("\n")
        return cls(schema, base)

    @property
    def text(self) -> str:
        """For a request to another program."""
        return f"{self.schema}\n{self.base}"

    @property
    def seed(self) -> str:
        """The row that an Extract writes."""
        return f"{self.base}_seed"

    @property
    def history(self) -> str:
        """What was received."""
        return f"{self.base}_history"

    @property
    def settings(self) -> str:
        """FREQUENCY, RETENTION_TIME and PURGE_FREQUENCY."""
        return f"{self.base}_settings"

    @property
    def tables(self) -> tuple[str, ...]:
        """All tables there may be."""
        return self.seed, self.base, self.history, self.settings

    def owns(self, schema: str, name: str) -> bool:
        """Whether it is one of these tables, which are no user's data: never captured as such."""
        return schema == self.schema and name in self.tables


@dataclass(frozen=True, slots=True)
class HeartbeatSettings:
    """ADD HEARTBEATTABLE's options: seconds between heartbeats (0: paused), days of history, days between purges."""

    frequency: int = 60
    retention: int = 30
    purge: int = 1
