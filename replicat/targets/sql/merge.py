"""One table's net effect, step by step, in a database: what is read, deleted, written, and how it is counted.

Rule: everything that a step takes for granted is counted against what the target did. Less or more is refused, or,
where the layout overlays (HANDLECOLLISIONS, INSERTMISSINGUPDATES), put right and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from replicat.model.copytext import rows_of, text_of
from replicat.model.target import NO_ROW, NOT_TAKEN, ROW_EXISTS, Blob, Compare, Fill, Patch, RefusedError, Rows
from replicat.targets.sql.database import SqlDatabase
from replicat.targets.sql.staged_sql import THERE
from trails.record import MISSING, Image, Value

_WHAT = ("insert", "update", "delete")


class Merge:
    """Applies one Rows. `counts`: collisions of inserts, updates, deletes that were put right.

    `only_new`: there are new rows and nothing else, and none of them may be there: nothing is to be read or deleted.
    """

    def __init__(self, database: SqlDatabase, rows: Rows, *, rewrite: bool, single: bool) -> None:
        self._db = database
        self._rows = rows
        self.layout = rows.layout
        self.only_new = rows == Rows(rows.layout, inserts=rows.inserts) and not rows.layout.overlays
        self._sql = database.sql_of(rows.layout)
        # Where cascades fire, a delete would take other tables' rows with it, and no insert brings those back.
        self._rewrite = (rewrite and not rows.layout.cascades) or rows.layout.rewrite
        self._single = single
        self._updates = ""  # the relation of whole updates, kept from delete() to write()
        self._filled = 0  # rows in `f`, and of those the ones whose key is there
        self._filled_there = 0
        self._loose = False  # whether some of them need not have been anywhere
        self._late = Blob()  # rows of fills that found nothing
        self.counts = [0, 0, 0]

    def read(self) -> None:
        """Everything that must be read before anything of this table, or of another, is changed."""
        rows = self._rows
        for number, (found, what) in enumerate(zip(rows.collisions, _WHAT, strict=True)):
            if found:
                self._collided(number, found, f"{found} changes {what} a row as it cannot be after the changes before")
        for compare in rows.compares:
            self._compare(compare)
        if self.layout.soft_key and (self.layout.overlays or rows.upserts.rows) and not self._single:
            self._check_doubled()
        fills = [*rows.fills, *(self._as_fills(rows.patches) if self._rewrite else ())]
        if fills:
            self._read_fills(fills)

    def delete(self) -> None:
        """Keys that are gone, and in a rewrite all rows that are going to be written again."""
        rows = self._rows
        if rows.deletes.rows:
            found = self._delete_keys(rows.deletes)
            if found != rows.deletes.rows and not (self.layout.cascaded and found < rows.deletes.rows):
                self._not_all(2, found, rows.deletes, self.layout.key, stay=0)
        if rows.removes.rows:
            self._delete_keys(rows.removes)
        if rows.void.rows:
            self._void(rows.void)
        if not self._rewrite:
            return
        if rows.updates.rows:
            self._updates = self._db.stage(self._sql, "r", self.layout.columns, rows.updates)
            self._found_updates(self._delete_again(self._updates), rows.updates, stay=0)
        if self._filled:
            self._filled_over(self._db.join(self._sql, self._sql.delete(f"{self._sql.stage('f')} AS s")))

    def write(self) -> None:
        """Rows as they are now."""
        rows = self._rows
        if self._filled:
            self._write_fills()
        if rows.updates.rows:
            self._write_updates(rows.updates)
        if not self._rewrite:
            for patch in rows.patches:
                self._patch(patch)
        for blob in (rows.upserts, self._late):
            if blob.rows:
                self._overlay(blob)
        if rows.inserts.rows:
            self._insert(rows.inserts)

    # Refusing and counting

    def _collided(self, which: int, number: int, what: str, sqlstate: str = "") -> None:
        """Count, or refuse."""
        layout = self.layout
        if not (layout.collisions or (layout.insert_missing and which == 1)):
            raise RefusedError(layout.full_name, what, sqlstate or (ROW_EXISTS if which == 0 else NO_ROW))
        self.counts[which] += number

    def _missing(self, which: int, found: int, wanted: int, key: str = "") -> None:
        """`key`: of the one row that is wanted."""
        verb = _WHAT[which]
        if found > wanted:
            raise RefusedError(
                self.layout.full_name, f"{wanted} keys to {verb} are {found} rows: the key is not unique", "21000"
            )
        one = f"the row to {verb}{f', key ({key}),' if key else ''} is"
        many = f"{wanted - found} of {wanted} rows to {verb} are" if wanted > 1 else one
        self._collided(which, wanted - found, f"{many} not there", NO_ROW)

    def _not_all(self, which: int, found: int, blob: Blob, columns: Sequence[str], *, stay: int) -> None:
        """Not as many rows were changed as are staged: some are not there, or the target passed over them by itself.

        `stay`: how many of those that were changed are still there.
        """
        keys = self._keys_of(blob, columns)
        if found < blob.rows and self._there(keys) > stay:
            raise self._passed_over(which, found, blob.rows)
        self._missing(which, found, blob.rows, _shown(self._lines(keys)[0]) if blob.rows == 1 else "")

    def _there(self, keys: Blob) -> int:
        relation = self._db.stage(self._sql, "k", self.layout.key, keys)
        return self._db.count(self._sql, self._sql.count(relation))

    def _keys_of(self, blob: Blob, columns: Sequence[str]) -> Blob:
        keys = self._picked(blob, [columns.index(name) for name in self.layout.key])
        return self._blob(keys)

    def _passed_over(self, which: int, taken: int, wanted: int) -> RefusedError:
        what = f"the target took {taken} of {wanted} {_WHAT[which]}s: a trigger or rule there takes no more"
        return RefusedError(self.layout.full_name, what, NOT_TAKEN)

    def _found_updates(self, found: int, updates: Blob, *, stay: int) -> None:
        if found != updates.rows:
            self._not_all(1, found, updates, self.layout.columns, stay=stay)

    def _check_doubled(self) -> None:
        """Two keys that are one row for the target: only one change after the other tells what comes of it."""
        rows, layout = self._rows, self.layout
        at = [layout.columns.index(name) for name in layout.key]
        keys = [tuple(key) for blob in (rows.deletes, rows.removes, rows.void) for key in self._lines(blob)]
        for blob in (rows.updates, rows.upserts, rows.inserts):
            keys += self._picked(blob, at)
        for patch in rows.patches:
            keys += self._picked(patch.rows, [patch.given.index(i) for i in at])
        keys += [tuple(fill.row[i] for i in at) for fill in rows.fills]
        relation = self._db.stage(self._sql, "k", layout.key, self._blob(dict.fromkeys(keys)))
        if self._db.ask(self._sql.doubled(relation)):
            raise RefusedError(layout.full_name, "two keys of the batch are one for the target", "21000")

    def _compare(self, compare: Compare) -> None:
        columns = (*self.layout.key, *(self.layout.columns[i] for i in compare.columns))
        relation = self._db.stage(self._sql, "r", columns, compare.rows)
        found = self._db.count(self._sql, self._sql.compared(compare, relation))
        if found != compare.rows.rows:
            what = f"{compare.rows.rows - found} of {compare.rows.rows} rows are not as the source had them before"
            raise RefusedError(self.layout.full_name, what, NO_ROW)

    # Rows of blobs

    def _blob(self, rows: Iterable[Image]) -> Blob:
        return self.layout.blob(rows)[0]

    def _lines(self, blob: Blob) -> Sequence[Image]:
        return rows_of(blob.read())

    def _picked(self, blob: Blob, at: Sequence[int]) -> list[tuple[Value, ...]]:
        return [tuple(row[i] for i in at) for row in self._lines(blob)]

    # Deleting

    def _delete_keys(self, keys: Blob) -> int:
        relation = self._db.stage(self._sql, "k", self.layout.key, keys)
        return self._db.join(self._sql, self._sql.delete(relation))

    def _void(self, keys: Blob) -> None:
        """Inserted and deleted again: there must have been nothing in the way."""
        relation = self._db.stage(self._sql, "k", self.layout.key, keys)
        if self.layout.collisions:
            self.counts[0] += self._db.join(self._sql, self._sql.delete(relation))
        elif found := self._db.count(self._sql, self._sql.count(relation)):
            raise RefusedError(self.layout.full_name, f"{found} rows to insert are there already", ROW_EXISTS)

    def _delete_again(self, relation: str) -> int:
        """Delete rows that are going to be written again, with what the source does not have."""
        if self.layout.extras:
            self._db.clear(self._sql, "x")
            self._db.join(self._sql, self._sql.keep_extras(relation))
        return self._db.join(self._sql, self._sql.delete(relation))

    # Writing

    def _write_updates(self, updates: Blob) -> None:
        if self._rewrite:
            self._write_again(self._updates)
            return
        relation = self._db.stage(self._sql, "r", self.layout.columns, updates)
        found = self._update(relation, self.layout.columns)
        if found != updates.rows:
            self._found_updates(found, updates, stay=found)
            self._db.join(self._sql, self._sql.insert(relation, self.layout.columns, missing=True))

    def _write_again(self, relation: str) -> None:
        if not self.layout.extras:
            self._db.join(self._sql, self._sql.insert(relation, self.layout.columns))
            return
        for statement in self._sql.insert_again(relation):
            self._db.join(self._sql, statement)

    def _update(self, relation: str, columns: Sequence[str], condition: str = "") -> int:
        if self._sql.settable(columns):
            return self._db.join(self._sql, self._sql.update(relation, columns, condition))
        return self._db.count(self._sql, self._sql.count(relation, condition))

    def _patch(self, patch: Patch) -> None:
        columns = [self.layout.columns[i] for i in patch.given]
        found = self._update(self._db.stage(self._sql, "r", columns, patch.rows), columns)
        if patch.must and found != patch.rows.rows:
            if self.layout.insert_missing and not self.layout.collisions:
                raise RefusedError(self.layout.full_name, "a row to update is not there, and lacks columns", NO_ROW)
            self._not_all(1, found, patch.rows, columns, stay=found)

    def _overlay(self, blob: Blob) -> int:
        """Write over what is there, and as new what is not; how many were there."""
        columns = self.layout.columns
        relation = self._db.stage(self._sql, "r", columns, blob)
        if self._rewrite:
            found = self._delete_again(relation)
            self._write_again(relation)
            return found
        found = self._update(relation, columns)
        if found < blob.rows:
            self._db.join(self._sql, self._sql.insert(relation, columns, missing=True))
        return found

    def _insert(self, blob: Blob) -> None:
        """New rows, straight into the table where it refuses a second one by itself."""
        if not self.layout.collisions:
            if self.layout.arbiter:
                made = self._db.copy_new(self._sql, blob)
            else:
                relation = self._db.stage(self._sql, "r", self.layout.columns, blob)
                made = self._db.join(self._sql, self._sql.insert(relation, self.layout.columns, missing=True))
            if made != blob.rows:
                raise self._not_inserted(made, blob)
        elif not (self.layout.arbiter and self._db.tried(lambda: self._db.copy_new(self._sql, blob))):
            self.counts[0] += self._overlay(blob)

    def _not_inserted(self, number: int, blob: Blob) -> RefusedError:
        """Rows that were not written are in the table by now only if they were before."""
        if self.layout.key and self._there(self._keys_of(blob, self.layout.columns)) == blob.rows:
            what = f"{blob.rows - number} of {blob.rows} new rows are there already"
            return RefusedError(self.layout.full_name, what, ROW_EXISTS)
        return self._passed_over(0, number, blob.rows)

    # Fills

    def _as_fills(self, patches: Iterable[Patch]) -> list[Fill]:
        """A row that is deleted and inserted again needs all its columns."""
        width, key = len(self.layout.columns), self.layout.key
        at = [self.layout.columns.index(name) for name in key]
        fills = []
        for patch in patches:
            for fields in self._lines(patch.rows):
                row: list[Value] = [MISSING] * width
                for i, value in zip(patch.given, fields, strict=True):
                    row[i] = value
                fills.append(Fill(tuple(row[i] for i in at), tuple(row), must=patch.must))
        return fills

    def _read_fills(self, fills: Sequence[Fill]) -> None:
        groups: dict[tuple[int, ...], list[Image]] = {}  # by the columns that are missing
        for number, fill in enumerate(fills):
            for alternative, (base, row) in enumerate(((fill.base, fill.row), *fill.others)):
                missing = tuple(i for i, value in enumerate(row) if value is MISSING)
                members = groups.setdefault(missing, [])
                own = (number, alternative, list(groups).index(missing), int(fill.there), 0)
                given = (value for value in row if value is not MISSING)
                members.append((*map(str, own), *base, *given))
        self._loose = any(not fill.must for fill in fills)
        self._db.clear(self._sql, "f")
        found = 0
        for group, (missing, members) in enumerate(groups.items()):
            self._db.load(self._sql, "f", self._sql.fill_columns(missing), self._blob(members))
            found += self._db.join(self._sql, self._sql.read_fills(group, missing))
        if found == len(fills) and not any(fill.others for fill in fills):
            self._filled, self._filled_there = found, sum(fill.there for fill in fills)
        else:
            self._choose(fills)

    def _choose(self, fills: Sequence[Fill]) -> None:
        """Take each fill's first base that is there; what has none is refused, written as new, or left out."""
        found = self._db.ask(self._sql.found_fills())
        chosen = {int(number): (int(first), int(many)) for number, first, many in found}
        late: list[Image] = []
        for number, fill in enumerate(fills):
            first, many = chosen.get(number, (-1, 0))
            if many > 1:
                self._db.run(self._sql.drop_fills(number, first))
            if first != 0 and fill.must:
                lacks = first < 0 and fill.new is None
                self._unfound(1, f"no row with key ({_shown(fill.base)}) to take unchanged columns from", lacks=lacks)
            if first < 0 and fill.new is not None:
                late.append(fill.new)
        self._db.run(self._sql.drop_unfound())
        self._late = self._blob(late)
        self._filled = len(chosen)
        self._filled_there = sum(fills[number].there for number in chosen)

    def _unfound(self, number: int, what: str, *, lacks: bool) -> None:
        """Updates whose row is missing; `lacks`: nor are there all columns to make one."""
        if lacks and not self.layout.collisions:
            raise RefusedError(self.layout.full_name, what, NO_ROW)
        self._collided(1, number, what, NO_ROW)

    def _filled_over(self, found: int) -> None:
        """How many rows were where fills are written."""
        there = self._filled_there
        if found > there and not self._loose:
            what = f"{found - there} rows are there already where a key changes to theirs"
            self._collided(1, found - there, what, ROW_EXISTS)
        elif found < there and not self._loose:
            self._missing(1, found, there)

    def _write_fills(self) -> None:
        relation, columns = f"{self._sql.stage('f')} AS s", self.layout.columns + self.layout.extras
        if self._rewrite:
            self._db.join(self._sql, self._sql.insert(relation, columns))
            return
        if self.layout.overlays or self._loose:
            self._filled_over(self._update(relation, columns))
            self._db.join(self._sql, self._sql.insert(relation, columns, missing=True))
            return
        there, moved = self._filled_there, self._filled - self._filled_there
        if there:
            self._filled_over(self._update(relation, columns, f"s.{THERE} = 1"))
        if moved:
            statement = self._sql.insert(relation, columns, f"s.{THERE} = 0", missing=not self.layout.arbiter)
            self._filled_over(there + moved - self._db.join(self._sql, statement))


def _shown(key: Image) -> str:
    return ", ".join(str(text_of(value)) for value in key)
