"""The open group's events, while nobody knows yet which of them will count: bytes in, and back as they came (xa.py).

Only tables that are captured are kept: a TABLE_MAP says whose rows follow, as it does for rows that count at once.
"""

from __future__ import annotations

from extract.sources.mysql.events import Event, UncapturedError
from extract.sources.mysql.rows import LogTables
from extract.sources.mysql.state import Again
from extract.sources.mysql.xa import Kept, Shelf, Xid


class Keeper:
    """Of one group at a time. `kept`: its events; None while all that comes counts at once."""

    def __init__(self, shelf: Shelf, tables: LogTables) -> None:
        self._shelf = shelf
        self._tables = tables
        self._ids: set[int] = set()
        self.kept: Kept | None = None
        self.is_xa = False

    def begin(self, again: Again, *, xa: bool) -> Kept:
        """From here on events are kept. `again`: where the log must be read again for them."""
        self.kept = kept = self._shelf.begin(again)
        self.is_xa = xa
        self._ids.clear()
        return kept

    def take(self) -> Kept | None:
        """What was kept; it is the caller's now."""
        kept, self.kept = self.kept, None
        return kept

    def drop(self) -> None:
        """It counts for nothing."""
        if (kept := self.take()) is not None:
            kept.close()

    def table_map(self, event: Event, data: bytes) -> None:
        """From here on an id means this table."""
        table_id = self._tables.wants(data, event.at, event.upto)
        if table_id is None:
            self._ids.discard(_table_id(event, data))
        else:
            self._ids.add(table_id)
            self._hold(event, data)

    def rows(self, event: Event, data: bytes) -> None:
        """A row event."""
        if _table_id(event, data) in self._ids:
            self._hold(event, data)

    def _hold(self, event: Event, data: bytes) -> None:
        assert self.kept is not None
        self.kept.add(event.type, data[event.at : event.upto])


def _table_id(event: Event, data: bytes) -> int:
    return int.from_bytes(data[event.at : event.at + 6], "little")


def without_rows(xid: Xid) -> UncapturedError:
    """An XA COMMIT of what was prepared before the log that is read."""
    return UncapturedError(
        f"XA COMMIT of {xid}, whose changes stand before the place where reading began",
        hint="ALTER EXTRACT to a place before its XA PREPARE; or bring its changes across by hand, and ALTER EXTRACT "
        "past this place",
    )
