"""Tables to which no row and no change of shape goes, whatever the MAPs say.

Rule: a trail comes from a peer, and wildcards take whatever it names. Rows in the tables of the database system itself
are rights (who writes there makes himself its superuser), and rows of the checkpoint table are other groups' places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trails.errors import OperatorError
from trails.record import TableId

BESIDE = ("load", "tables", "chunks")
"""The load's tables have the checkpoint table's name, `_` and one of these."""
PAUSED = "paused"
"""So has the table of paused tables."""


def check_places(places: Iterable[TableId], checkpoints: TableId, is_system: Callable[[str], bool]) -> None:
    """OperatorError for a place that is forbidden. `is_system`: whether a schema is the database system's own."""
    schema_of, base = (name.lower() for name in checkpoints)
    own = {(schema_of, base), *((schema_of, f"{base}_{beside}") for beside in (*BESIDE, PAUSED))}
    for schema, name in places:
        if is_system(schema.lower()):
            what = "a table of the database system itself, which takes no replicated rows"
        elif (schema.lower(), name.lower()) in own:
            what = "the checkpoint table of this Replicat, or beside it, which takes no replicated rows"
        else:
            continue
        raise OperatorError(
            f"target table {schema}.{name} is {what}", hint="MAPEXCLUDE its source table, or MAP it to another"
        )
