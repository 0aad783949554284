"""The checkpoint table: its columns for every kind of target, and the statements that read and move a group's row.

Rule: pure text, no driver. Whatever a Row holds is named here once; a column that a later release adds has a default,
and connect() adds it to an older table, so that a row written before reads as what it meant then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from replicat.target import Row
from trails.position import Position

VERSION = 1
"""Of the row's meaning; stands in its column `version`."""

# Each type as PostgreSQL, SQLite and MySQL/MariaDB name it. Moments are UTC text where there is no type for them.
_TYPES: dict[str, tuple[str, str, str]] = {
    "name": ("varchar(64)", "TEXT", "varchar(64) CHARACTER SET ascii COLLATE ascii_bin"),
    "key": ("numeric(20)", "INTEGER", "decimal(20)"),
    "number": ("bigint", "INTEGER", "bigint"),
    "version": ("integer", "INTEGER", "integer"),
    "moment": ("timestamptz", "TEXT", "datetime(6)"),
    "stamp": ("varchar(29)", "TEXT", "varchar(29)"),
    "csn": ("varchar(128)", "TEXT", "varchar(128)"),
    "xids": ("varchar(2000)", "TEXT", "varchar(2000)"),
    "trail": ("varchar(32)", "TEXT", "varchar(32)"),
    "folder": ("text", "TEXT", "text"),
}
_KINDS = ("postgresql", "sqlite", "mysql")
_NOW = {
    "postgresql": "now()",
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now')",
    "mysql": "utc_timestamp(6)",
}


@dataclass(frozen=True, slots=True)
class RowColumn:
    """A column of the checkpoint table. `default`: SQL text, with which older tables get it (empty: no default)."""

    name: str
    type: str
    null: bool = False
    default: str = ""

    def definition(self, kind: str) -> str:
        """As CREATE TABLE and ADD COLUMN have it on a target of this kind."""
        made = f"{self.name} {_TYPES[self.type][_KINDS.index(kind)]}"
        if self.default:
            made += f" DEFAULT {self.default}"
        return made if self.null else f"{made} NOT NULL"


COLUMNS = (
    RowColumn("group_name", "name"),
    RowColumn("group_key", "key"),
    RowColumn("seqno", "number"),
    RowColumn("rba", "number"),
    RowColumn("audit_ts", "stamp", null=True),
    RowColumn("create_ts", "moment"),
    RowColumn("last_update_ts", "moment"),
    RowColumn("current_dir", "folder"),
    RowColumn("log_bsn", "csn", null=True),
    RowColumn("log_csn", "csn", null=True),
    RowColumn("log_xid", "csn", null=True),
    RowColumn("log_cmplt_csn", "csn", null=True),
    RowColumn("log_cmplt_xids", "xids", null=True),
    RowColumn("version", "version"),
    RowColumn("trail_id", "trail"),
    RowColumn("commit_us", "number", null=True),
    RowColumn("alter_no", "number"),
    RowColumn("added_us", "number"),
    RowColumn("flush_seqno", "number"),
    RowColumn("flush_rba", "number"),
    RowColumn("split", "number", default="0"),
    RowColumn("skip_until", "csn", default="''"),
)
LATER = ("split", "skip_until")
"""Columns that tables of earlier releases lack."""

FIELDS = (
    "seqno", "rba", "trail_id", "log_csn", "log_xid", "commit_us", "alter_no", "added_us", "flush_seqno", "flush_rba",
    "split", "skip_until",
)  # fmt: skip
"""The columns that hold a Row, in the order of values() and row_of()."""


def create(table: str, kind: str) -> str:
    """CREATE TABLE; `table` is quoted already."""
    columns = ", ".join(column.definition(kind) for column in COLUMNS)
    return f"CREATE TABLE {table} ({columns}, PRIMARY KEY (group_name, group_key))"


def upgrades(table: str, kind: str, found: Sequence[str]) -> list[str]:
    """The statements that add what a table with the columns `found` lacks; connect() runs them."""
    return [
        f"ALTER TABLE {table} ADD COLUMN {column.definition(kind)}"
        for column in COLUMNS
        if column.name in LATER and column.name not in found
    ]


def delete(table: str, mark: str = "%s") -> str:
    """Forget the group's row; parameters: group name, group key."""
    return f"DELETE FROM {_named(table, mark)} WHERE group_name = {mark} AND group_key = {mark}"


def values(row: Row) -> list[Any]:
    """A Row as the values of FIELDS."""
    return [
        row.position.seqno, row.position.rba, row.trail_id.hex(), row.csn, row.xid, row.time_us, row.alter_no,
        row.added_us, row.flushed.seqno, row.flushed.rba, row.split, row.skip_until,
    ]  # fmt: skip


def row_of(found: Sequence[Any]) -> Row:
    """Inverse of values()."""
    seqno, rba, trail_id, csn, xid, time_us, alter_no, added_us, flush_seqno, flush_rba, split, skip_until = found
    return Row(
        Position(seqno, rba), bytes.fromhex(trail_id), csn or "", xid or "", time_us, alter_no, added_us,
        Position(flush_seqno, flush_rba), split, skip_until or "",
    )  # fmt: skip


def select(table: str, mark: str = "%s") -> str:
    """The group's row; parameters: group name, group key."""
    return f"SELECT {', '.join(FIELDS)} FROM {_named(table, mark)} WHERE group_name = {mark} AND group_key = {mark}"


def insert(table: str, kind: str, mark: str = "%s") -> str:
    """A new row; parameters of insert_values()."""
    names = f"group_name, group_key, {', '.join(FIELDS)}, current_dir, version, create_ts, last_update_ts"
    marks = ", ".join([mark] * (len(FIELDS) + 4))
    return f"INSERT INTO {_named(table, mark)} ({names}) VALUES ({marks}, {_NOW[kind]}, {_NOW[kind]})"


def insert_values(group: str, key: int, row: Row, home: str) -> list[Any]:
    """Parameters of insert()."""
    return [group, key, *values(row), home, VERSION]


def move(table: str, kind: str, mark: str = "%s") -> str:
    """Compare and set: exactly one row is changed if it stood where it was left; parameters of move_values()."""
    # Standard SQL takes log_csn on the right side as it was; MySQL takes it as already set, so this must come first.
    sets = ["log_cmplt_csn = log_csn", f"log_cmplt_xids = {mark}", *(f"{name} = {mark}" for name in FIELDS)]
    return (
        f"UPDATE {_named(table, mark)} SET {', '.join(sets)}, audit_ts = {mark}, last_update_ts = {_NOW[kind]}, "
        f"current_dir = {mark} WHERE group_name = {mark} AND group_key = {mark} AND seqno = {mark} AND rba = {mark} "
        f"AND trail_id = {mark} AND alter_no = {mark} AND added_us = {mark} AND split = {mark} AND skip_until = {mark}"
    )


def move_values(group: str, key: int, old: Row, new: Row, home: str) -> list[Any]:
    """Parameters of move()."""
    return [
        new.xid, *values(new), _timestamp(new.time_us), home, group, key, old.position.seqno, old.position.rba,
        old.trail_id.hex(), old.alter_no, old.added_us, old.split, old.skip_until,
    ]  # fmt: skip


def newest_dropped(table: str, group: str, trail: str, but: int, keep: int) -> str:
    """The place of the newest row of a group and trail that is not among the newest `keep`; `but`: a key left aside.

    Rows without a place (RBA 0) are none of them.
    """
    return (
        f"SELECT seqno, rba FROM {table} WHERE group_name = '{group}' AND trail_id = '{trail}' AND group_key <> {but} "
        f"AND rba > 0 ORDER BY seqno DESC, rba DESC LIMIT 1 OFFSET {keep}"
    )


def drop_up_to(table: str, mark: str = "%s") -> str:
    """Forget a group's rows of a trail up to a place; parameters: group, trail, a key left aside, seqno twice, RBA."""
    return (
        f"DELETE FROM {_named(table, mark)} WHERE group_name = {mark} AND trail_id = {mark} AND group_key <> {mark} "
        f"AND (seqno < {mark} OR (seqno = {mark} AND rba <= {mark}))"
    )


def place(table: str, mark: str = "%s") -> str:
    """Give a row another place; parameters: seqno, RBA, group, key."""
    named = _named(table, mark)
    return f"UPDATE {named} SET seqno = {mark}, rba = {mark} WHERE group_name = {mark} AND group_key = {mark}"


def _named(table: str, mark: str) -> str:
    """The table's name beside parameters; drivers whose mark is %s take any other % for one too."""
    return table.replace("%", "%%") if mark == "%s" else table


def _timestamp(us: int | None) -> str | None:
    if us is None:
        return None
    return datetime.fromtimestamp(us / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
