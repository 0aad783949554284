"""The checkpoint table: its columns, and the statements that read and move a group's row, in any database's words.

Rule: pure text, no driver. Whatever a CheckpointRow holds is named here once. Beside it the row has a number, `moves`,
which each transaction that moves the row raises, also one that leaves the place as it is: who has read the row before
such a one moves nothing (CW-01).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from replicat.model.target import CheckpointRow
from replicat.targets.contract import Kind, RunStatement, Table, Words
from replicat.targets.sql.quoting import dotted
from trails.errors import OperatorError
from trails.position import Position
from trails.record import time_of, us_of

VERSION = 1
"""Of the row's meaning; stands in its column `version`."""
_MADE = "Checkpoint table of Trailgate, made "

COLUMNS = (
    ("group_name", "varchar(64) NOT NULL"),
    ("group_key", "numeric(20) NOT NULL"),
    ("seqno", "bigint NOT NULL"),
    ("rba", "bigint NOT NULL"),
    ("audit_ts", "varchar(29)"),
    ("create_ts", "timestamptz NOT NULL"),
    ("last_update_ts", "timestamptz NOT NULL"),
    ("current_dir", "text NOT NULL"),
    ("log_bsn", "varchar(128)"),
    ("log_csn", "varchar(128)"),
    ("log_xid", "varchar(128)"),
    ("log_cmplt_csn", "varchar(128)"),
    ("log_cmplt_xids", "varchar(2000)"),
    ("version", "integer NOT NULL"),
    ("trail_id", "varchar(32) NOT NULL"),
    ("commit_us", "bigint"),
    ("alter_no", "bigint NOT NULL"),
    ("added_us", "bigint NOT NULL"),
    ("flush_seqno", "bigint NOT NULL"),
    ("flush_rba", "bigint NOT NULL"),
    ("split", "bigint NOT NULL"),
    ("skip_until", "varchar(128) NOT NULL"),
    ("moves", "bigint NOT NULL"),
)
"""Each column's name and its type, as the standard names it."""
FIELDS = (
    "seqno", "rba", "trail_id", "log_csn", "log_xid", "commit_us", "alter_no", "added_us", "flush_seqno", "flush_rba",
    "split", "skip_until",
)  # fmt: skip
"""The columns that hold a Row, in the order of values() and row_of()."""


def create(table: str, words: Words) -> str:
    """CREATE TABLE; `table` is quoted already."""
    return words.create_table(table, COLUMNS, ["group_name", "group_key"])


def quoted(kind: Kind, table: Table) -> str:
    """The table's name in SQL."""
    only = kind.words.schema
    if only and table[0].lower() != only:
        raise OperatorError(
            f"table {table[0]}.{table[1]}: {kind.title} has one schema, {only}", hint=f"Write {only}.{table[1]}"
        )
    return dotted(*table)


def check(run: RunStatement, words: Words, table: Table) -> None:
    """OperatorError if there is no such table."""
    name = ".".join(table)
    if not run(words.columns, table):
        raise OperatorError(f"checkpoint table {name} does not exist in the target", hint=f"ADD CHECKPOINTTABLE {name}")


def load(
    run: RunStatement, table: str, words: Words, group: str, key: int, *, lock: bool = False
) -> tuple[CheckpointRow, int] | None:
    """The group's row and its `moves`; None if it has none yet. `lock`: it stays so until the open transaction ends."""
    found = run(f"{select(table, words)}{words.for_update if lock else ''}", [group, key])
    return (row_of(found[0][:-1]), int(found[0][-1])) if found else None


def remark() -> str:
    """What the target keeps beside a new table, as its comment: when it was made. Holds no quote."""
    return _MADE + datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")


def made_us(remark: str | None) -> int | None:
    """When the table was made, by its comment; None if that does not say."""
    _, told, rest = (remark or "").partition(_MADE)
    return _microseconds(rest[:19]) if told else None


def delete(table: str, words: Words) -> str:
    """Forget the group's row; parameters: group name, group key."""
    return f"DELETE FROM {_named(table, words)} WHERE {_the_group(words)}"


def values(row: CheckpointRow) -> list[Any]:
    """A Row as the values of FIELDS."""
    return [
        row.position.seqno, row.position.rba, row.trail_id.hex(), row.csn, row.xid, row.time_us, row.alter_no,
        row.added_us, row.flushed.seqno, row.flushed.rba, row.split, row.skip_until,
    ]  # fmt: skip


def row_of(found: Sequence[Any]) -> CheckpointRow:
    """Inverse of values(), of what select() gives but for `moves`."""
    *found, made = found
    seqno, rba, trail_id, csn, xid, time_us, alter_no, added_us, flush_seqno, flush_rba, split, skip_until = found
    return CheckpointRow(
        Position(seqno, rba), bytes.fromhex(trail_id), csn or "", xid or "", time_us, alter_no, added_us,
        Position(flush_seqno, flush_rba), split, skip_until or "", _microseconds(made),
    )  # fmt: skip


def _microseconds(moment: Any) -> int | None:
    """A `create_ts` as a driver gives it: a moment, or text; UTC where it says no zone."""
    try:
        found = moment if isinstance(moment, datetime) else datetime.fromisoformat(str(moment))
    except ValueError:
        return None
    return us_of(found if found.tzinfo else found.replace(tzinfo=UTC))


def select(table: str, words: Words) -> str:
    """The group's row, when it was made, and its `moves`; parameters: group name, group key."""
    return f"SELECT {', '.join(FIELDS)}, create_ts, moves FROM {_named(table, words)} WHERE {_the_group(words)}"


def insert(table: str, words: Words) -> str:
    """A new row; parameters of insert_values()."""
    names = f"group_name, group_key, {', '.join(FIELDS)}, current_dir, version, create_ts, last_update_ts, moves"
    marks = ", ".join([words.mark] * (len(FIELDS) + 4))
    return f"INSERT INTO {_named(table, words)} ({names}) VALUES ({marks}, {words.now}, {words.now}, 0)"


def insert_values(group: str, key: int, row: CheckpointRow, home: str) -> list[Any]:
    """Parameters of insert()."""
    return [group, key, *values(row), home, VERSION]


def move(table: str, words: Words) -> str:
    """Compare and set: exactly one row is changed if it is as it was left; parameters of move_values()."""
    # Standard SQL takes log_csn on the right side as it was; some take it as already set, so this must come first.
    mark = words.mark
    sets = ["log_cmplt_csn = log_csn", *(f"{name} = {mark}" for name in ("log_cmplt_xids", *FIELDS, "audit_ts"))]
    return (
        f"UPDATE {_named(table, words)} SET {', '.join(sets)}, last_update_ts = {words.now}, current_dir = {mark}, "
        f"moves = moves + 1 WHERE {_the_group(words)} AND moves = coalesce({mark}, moves) "
        f"AND seqno = {mark} AND rba = {mark} AND trail_id = {mark} AND alter_no = {mark} AND added_us = {mark} "
        f"AND split = {mark} AND skip_until = {mark}"
    )


def move_values(
    group: str, key: int, old: CheckpointRow, new: CheckpointRow, home: str, moves: int | None
) -> list[Any]:
    """Parameters of move(). `moves`: as it was read with `old`, or raised by who read it; None: whatever it is."""
    time = None if new.time_us is None else f"{time_of(new.time_us):%Y-%m-%d %H:%M:%S.%f}"
    return [
        new.xid, *values(new), time, home, group, key, moves, old.position.seqno, old.position.rba,
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


def drop_up_to(table: str, words: Words) -> str:
    """Forget a group's rows of a trail up to a place; parameters: group, trail, a key left aside, seqno twice, RBA."""
    mark = words.mark
    return (
        f"DELETE FROM {_named(table, words)} WHERE group_name = {mark} AND trail_id = {mark} AND group_key <> {mark} "
        f"AND (seqno < {mark} OR (seqno = {mark} AND rba <= {mark}))"
    )


def place(table: str, words: Words) -> str:
    """Give a row another place; parameters: seqno, RBA, group, key."""
    mark = words.mark
    return f"UPDATE {_named(table, words)} SET seqno = {mark}, rba = {mark} WHERE {_the_group(words)}"


def _named(table: str, words: Words) -> str:
    """The table's name beside parameters; drivers whose mark is %s take any other % for one too."""
    return table.replace("%", "%%") if words.mark == "%s" else table


def _the_group(words: Words) -> str:
    return f"group_name = {words.mark} AND group_key = {words.mark}"
