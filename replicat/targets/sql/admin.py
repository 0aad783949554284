"""What replicat/admin.py does in a database of SQL: the checkpoint table, the rows in it, and what is there besides.

Rule: each call has a connection of its own. A database says how it is reached, and what its catalog is asked.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from replicat.targets.contract import GroupRow, Kind, RunStatement, Table
from replicat.targets.sql import rowtable


class SqlAdmin:
    """Administration of any database that speaks SQL; replicat.targets.contract.Admin says what each method does."""

    who = ""
    """A query for user, database and server."""
    catalog = ""
    """A query for schema and name of each table of a user's, by name."""
    remark = ""
    """A query for what stands beside a table as a remark; parameters: schema and name."""
    as_text = "CAST({} AS text)"

    def __init__(self, kind: Kind) -> None:
        self.words = kind.words
        self._kind = kind

    # Hooks

    def statements(self, url: str) -> AbstractContextManager[RunStatement]:
        raise NotImplementedError

    def unverified(self, url: str) -> str:  # noqa: ARG002  -- a file has no link
        return ""

    def make(self, url: str, table: Table, made: str, remark: str) -> list[str]:
        """The statements for a table with a remark beside it; `made`: CREATE TABLE."""
        raise NotImplementedError

    # What is done

    def database_info(self, url: str) -> dict[str, str]:
        with self.statements(url) as run:
            (found,) = run(self.who)
        return dict(zip(("user", "database", "server"), found, strict=True))

    def tables(self, url: str) -> list[Table]:
        with self.statements(url) as run:
            return [(schema, name) for schema, name in run(self.catalog)]

    def add_row_table(self, url: str, table: Table) -> None:
        made = rowtable.create(self._named(table), self.words)
        with self.statements(url) as run:
            for statement in self.make(url, table, made, rowtable.remark()):
                run(statement)

    def row_table_made(self, url: str, table: Table) -> int | None:
        with self.statements(url) as run:
            found = run(self.remark, table)
        return rowtable.made_us(str(found[0][0]) if found else None)

    def drop_row_table(self, url: str, table: Table) -> None:
        with self.statements(url) as run:
            run(f"DROP TABLE {self._named(table)}")

    def rows_of_table(self, url: str, table: Table) -> list[GroupRow] | None:
        key, made, moved = map(self.as_text.format, ("group_key", "create_ts", "last_update_ts"))
        columns = f"group_name, {key}, seqno, rba, log_csn, alter_no, {made}, {moved}"
        named = self._named(table)
        with self.statements(url) as run:
            if not run(self.words.columns, table):
                return None
            found = run(f"SELECT {columns} FROM {named} ORDER BY 1, 2")
        return [GroupRow(*row) for row in found]

    def delete_row(self, url: str, table: Table, group: str, group_key: int) -> bool:
        whose, named = [group, group_key], self._named(table)
        with self.statements(url) as run:
            found = run(rowtable.select(named, self.words), whose)
            run(rowtable.delete(named, self.words), whose)
        return bool(found)

    def _named(self, table: Table) -> str:
        return rowtable.quoted(self._kind, table)
