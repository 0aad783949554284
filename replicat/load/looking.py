"""The source database, asked right before target tables are emptied or filled: by whom nothing else is changed.

Rule: nothing is emptied whose rows can't be read again. What is asked here is asked again by each chunk; but then the
target's rows are gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from replicat.load.chunk import SourceOf
from replicat.load.group import LoadingGroup
from replicat.load.staging import opened, steady
from trails.errors import GateError, OperatorError
from trails.fs import Fs
from trails.reader import last_header
from trails.record import TableDef


class SourceLook:
    """One connection to the source; none as long as the trail has no file, so that nothing can have come through it."""

    def __init__(self, source: SourceOf | None) -> None:
        self._reader = None if source is None else opened(source)

    @classmethod
    @contextmanager
    def at(cls, fs: Fs, group: LoadingGroup) -> Iterator[SourceLook]:
        """That of a group's parameter file, which must be the one that its trail is of."""
        header = last_header(fs, group.trail)
        made = cls(None if header is None else SourceOf(group.params.source_url, header.source))
        try:
            yield made
        finally:
            if made._reader is not None:
                made._reader.close()

    def newest(self) -> int | None:
        """The last number of a transaction that the source has given; None where snapshots are not told by them."""
        return None if self._reader is None else self._reader.newest()

    def shape(self, schema: str, name: str) -> list[list[str]]:
        """The table's columns as they are now. Raises OperatorError where nobody can tell."""
        if self._reader is None:
            raise OperatorError("the trail has no file yet, so nothing was loaded", hint="START the Extract")
        return self._reader.shape(schema, name)

    def refusal(self, table: TableDef) -> list[OperatorError]:
        """Why the table's rows can't be read; nothing if they can."""
        try:
            if self._reader is not None:
                with steady():
                    self._reader.check(table)
        except GateError as error:
            return [
                OperatorError(
                    f"{table.full_name} can't be read, so its target is not emptied: {error}",
                    hint="Mend that, then try again",
                )
            ]
        return []
