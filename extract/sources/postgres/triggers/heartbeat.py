"""The heartbeat's seed row where triggers capture it."""

from __future__ import annotations

from extract.sources.postgres.heartbeat import PostgresSeed
from extract.sources.postgres.tables import QUEUE_SCHEMA
from extract.sources.postgres.triggers import install
from trails.errors import OperatorError


class TriggerSeed(PostgresSeed):
    """The seed row in this database; extract.heartbeat.Seed says what each method does."""

    def _check_captured(self, seed: str) -> None:
        rows = self._session.query(
            f"SELECT FROM {install.CAPTURED} WHERE relid = to_regclass($1) "
            f"AND triggers = {QUEUE_SCHEMA}.triggers_of(relid)",
            seed,
        )  # fmt: skip
        if not rows:
            raise OperatorError(
                f"table {seed} has no triggers, so no heartbeat would come",
                hint="DBLOGIN, then ADD HEARTBEATTABLE again",
            )
