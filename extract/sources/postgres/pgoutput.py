"""PostgreSQL's pgoutput messages (protocol 1) to trail records: bytes in, records out, no I/O.

Strategy: one handler per message tag, in two tables: what may come between transactions and what inside one. Between
them a row is an error; inside one that the trail holds already, rows are passed over. A handler reads its message to
the very last byte; anything unknown, missing or left over is a PgoutputError, because a reader that skips what it
doesn't know loses data.

Speed: a row costs about 0.1 us a column, and nearly all of it is `_image`. Text stays the UTF-8 bytes that came
(msgpack packs them as text); a table's few columns that need another form (boolean, bytea) are known beforehand.
`sink.cache` maps a table's oid straight to what a row needs; the sink empties it whenever a block begins, since table
indexes belong to one block.

Old rows. With REPLICA IDENTITY FULL each update brings its whole old row, which is mostly wanted by nobody: where the
key is as it was it is not parsed, unless a value must be filled from it or the table is under GETUPDATEBEFORES.
"""

from __future__ import annotations

import binascii
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from extract.source import Sink
from trails.codec import binary
from trails.controlflow import ControlFlowError
from trails.ddl import DdlChange
from trails.errors import OperatorError, ProtocolError
from trails.position import Position
from trails.record import MISSING, Op, TableDef

MOST_TABLES: Final = 10_000
"""A session that has met more tables ends before its next transaction: the server never says which ones are gone."""
EPOCH_US: Final = 946_684_800_000_000
"""Microseconds from 1970 to 2000, where PostgreSQL's timestamps begin."""

_INSERT, _UPDATE, _DELETE, _TRUNCATE = int(Op.INSERT), int(Op.UPDATE), int(Op.DELETE), int(Op.TRUNCATE)
DDL_PREFIX: Final = "trailgate.ddl"
"""Of the messages that the event trigger writes."""
_KEY, _NEW, _OLD = b"KNO"
_TEXT, _NULL, _UNCHANGED = b"tnu"

_BEGIN = struct.Struct(">QqI")
_COMMIT = struct.Struct(">BQQq")
_OID = struct.Struct(">I")
_ROW = struct.Struct(">IB")
_WIDTH = struct.Struct(">H")
_FIELD = struct.Struct(">BI")
_COLUMN = struct.Struct(">Ii")
_TRUNCATED = struct.Struct(">IB")
_LSN = struct.Struct(">Q")
_MESSAGE = struct.Struct(">BQ")
_CERTAIN = 0x4E00
"""Below so many bytes a message has `N` and a zero byte side by side nowhere but between its two rows: text has no zero
byte in it, and no length reaches the letter's value in its third byte. (In its last byte text follows it.)
"""
_field = _FIELD.unpack_from
_row = _ROW.unpack_from
_width = _WIDTH.unpack_from

Fix = Callable[[bytes], Any]
"""To a value, or to a binary value in the wrapping that the trail's encoder asks for."""
Image = list[Any]


class DdlMessages(Protocol):
    """What of extract.sources.postgres.ddl.DdlReader is used here."""

    def change(self, content: bytes, born: set[int], where: str) -> DdlChange | None:
        """What a message of DDL_PREFIX says; None if it is not to be told."""
        ...

    def born(self, oid: int, xid: int, where: str) -> tuple[bool, DdlChange | None]:
        """(whether this transaction made the table by CREATE TABLE AS, the change if it is to be told)."""
        ...


class PgoutputError(ProtocolError):
    """The server sent bytes that pgoutput's protocol 1 doesn't have."""


class ManyTablesError(ControlFlowError):
    """The session knows more tables than are kept; the next one learns those that are still in use, and no others."""


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """One column as a Relation message tells it; `key` means: part of the replica identity."""

    name: str
    type_oid: int
    typmod: int
    key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A table's shape at this place of the WAL. `identity` is d(efault), n(othing), f(ull) or i(ndex)."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """What the records of a captured table need: its definition, and the columns whose text gets another form.

    A provisional shape holds for one transaction; the next one asks for it again.
    `befores`: updates and deletes must have their whole old rows; it says who wants that (file:line).
    """

    definition: TableDef
    fixes: tuple[tuple[int, Fix], ...] = ()
    provisional: bool = False
    befores: str = ""


class _Table(NamedTuple):
    """A captured table inside the block that is being gathered."""

    number: int
    width: int
    key: tuple[int, ...]
    """An update that leaves these columns as they were needs no old row; empty: it always has it."""
    fixes: tuple[tuple[int, Fix], ...]
    identity: tuple[bool, ...]
    definition: TableDef
    befores: str
    upto: int
    """So many columns reach up to the last one of the key."""
    divider: bytes
    """How the new row begins behind an old one that may be passed over; empty: none may."""


_PASSED_OVER: Final = _Table(-1, 0, (), (), (), TableDef("", "", ()), "", 0, b"")


class _Booleans(dict[bytes, bytes]):
    def __missing__(self, text: bytes) -> bytes:
        raise PgoutputError(f"pgoutput: expected t or f in a boolean column, found {len(text)} bytes")


fix_bool: Final[Fix] = _Booleans({b"t": b"true", b"f": b"false"}).__getitem__
"""PostgreSQL's `t` or `f` in the canonical form. A look into a dictionary takes two thirds of a function's time."""


def fix_bytea(text: bytes) -> Any:
    r"""The bytes of `\x...`, wrapped so that the trail stores them as binary."""
    if text[:2] != b"\\x":
        raise PgoutputError(rf"pgoutput: expected \x and hex digits in a bytea column, found {len(text)} bytes")
    try:
        return binary(binascii.unhexlify(text[2:]))
    except binascii.Error as error:
        raise PgoutputError(f"pgoutput: a bytea column holds no hex digits: {error}") from error


FIXES: Final = (fix_bool, fix_bytea)


def lsn_text(lsn: int) -> str:
    """An LSN as a CSN: both halves padded, so that texts sort as the numbers do."""
    return f"{lsn >> 32:08X}/{lsn & 0xFFFFFFFF:08X}"


def parse_lsn(text: str) -> int:
    """Inverse of `lsn_text`; takes PostgreSQL's own unpadded form too. Raises ValueError."""
    high, slash, low = text.partition("/")
    if not slash or not 0 < len(high) <= 8 or not 0 < len(low) <= 8:
        raise ValueError(f"LSN {text!r}: expected two hexadecimal numbers, such as 0/16B3748")
    return int(high, 16) << 32 | int(low, 16)


class Decoder:
    """Feeds a sink from messages. One decoder serves one replication session: the server sends each Relation anew."""

    def __init__(
        self,
        sink: Sink,
        describe: Callable[[Relation, int], Shape | None],
        after: int,
        ddl: DdlMessages | None = None,
        most_tables: int = MOST_TABLES,
    ) -> None:
        """`describe(relation, xid)` gives a captured table's shape, None for one that no rule captures.

        Transactions that committed before the LSN `after` stand in the trail already and are dropped whole.
        `ddl` reads the messages that tell of schema changes; None: all messages are passed over.
        `decode` raises ManyTablesError once more than `most_tables` were met: then a new session is due.
        """
        self._sink = sink
        self._append = sink.records.append
        self._cache = sink.cache
        self._describe = describe
        self._after = after
        self._ddl = ddl
        self._born: set[int] = set()  # tables that this transaction made and whose rows came before the message
        self._relations: dict[int, Relation] = {}  # the server names each once a session, so none can be left out
        self._most_tables = most_tables
        self._shapes: dict[int, Shape | None] = {}
        self._provisional: list[int] = []
        self._final = 0
        self._xid = 0
        self.open = False
        """Inside a transaction: a keepalive's place says nothing now."""
        anywhere: dict[int, Callable[[bytes, int], None]] = {
            ord("R"): self._on_relation,
            ord("Y"): self._on_type,
            ord("M"): self._on_message,
        }
        self._outside = {**anywhere, ord("B"): self._on_begin}
        inside = {**anywhere, ord("C"): self._on_commit, ord("O"): self._on_origin}
        self._inside = {
            **inside,
            ord("I"): self._on_insert,
            ord("U"): self._on_update,
            ord("D"): self._on_delete,
            ord("T"): self._on_truncate,
        }
        self._passing = {**inside, **dict.fromkeys(b"IUDT", self._pass_over)}
        self._handlers = self._outside

    @property
    def after(self) -> int:
        """Transactions that committed before this LSN are dropped."""
        return self._after

    @property
    def takes(self) -> bool:
        """Whether rows that come now are wanted: those of an open transaction that the trail does not hold."""
        return self._handlers is self._inside

    @property
    def begins_plainly(self) -> bool:
        """Whether a begin has nothing to do here but to be noted."""
        return not (self._provisional or self._born or len(self._relations) > self._most_tables)

    def passed(self, final: int, xid: int, *, is_open: bool) -> None:
        """A transaction was begun by the decoder in front of this one, and ended unless it `is_open`."""
        self._final, self._xid, self.open = final, xid, is_open
        self._handlers = self._inside if is_open else self._outside

    def decode(self, data: bytes, at: int = 0) -> None:
        """Take the message that stands in `data` from `at` to the end."""
        try:
            handler = self._handlers[data[at]]
        except (KeyError, IndexError) as error:
            where = "inside" if self.open else "outside"
            raise PgoutputError(
                f"pgoutput: message {data[at : at + 40]!r} {where} a transaction is none of {self._known()}"
            ) from error
        try:
            handler(data, at + 1)
        except struct.error as error:
            raise _broken(data, "a whole message, and nothing behind it", error) from error

    def _known(self) -> str:
        return " ".join(sorted(map(chr, self._handlers)))

    # --- transactions -----------------------------------------------------------------------------------------------

    def _on_begin(self, data: bytes, at: int) -> None:
        final, time_us, xid = _BEGIN.unpack(data[at:])
        if len(self._relations) > self._most_tables:
            # Between transactions, and never before one: so each session gets on, however many tables there are.
            raise ManyTablesError(f"{len(self._relations)} tables were met since the session began")
        self._final, self._xid, self.open = final, xid, True
        self._born.clear()
        while self._provisional:
            oid = self._provisional.pop()
            self._shapes.pop(oid, None)
            self._cache.pop(oid, None)
        if final < self._after:
            self._handlers = self._passing
            return
        self._handlers = self._inside
        self._sink.begin(lsn_text(final), str(xid), time_us + EPOCH_US)

    def _on_commit(self, data: bytes, at: int) -> None:
        flags, commit, end, time_us = _COMMIT.unpack(data[at:])
        if flags or commit != self._final or end < commit:
            raise PgoutputError(
                f"pgoutput: commit of {lsn_text(commit)} up to {lsn_text(end)}, flags {flags}; "
                f"expected the transaction {lsn_text(self._final)} that is open, and flags 0"
            )
        passed_over = self._handlers is self._passing
        self._handlers, self.open = self._outside, False
        if not passed_over:
            self._sink.commit(Position(0, end), lsn_text(commit), time_us + EPOCH_US)

    def _pass_over(self, _data: bytes, _at: int) -> None:
        """A change that the trail holds already."""

    # --- changes ----------------------------------------------------------------------------------------------------

    def _on_insert(self, data: bytes, at: int) -> None:
        oid, marker = _row(data, at)
        table: _Table = self._cache.get(oid) or self._table(oid)
        if table.number < 0:
            return
        if marker != _NEW:
            raise _broken(data, f"marker N in an insert, found {marker}")
        after, end, holes = _image(data, at + 5, table.width)
        if holes or end != len(data):
            raise _broken(
                data, f"an insert's whole row of {len(data)} bytes, found {end} bytes, {holes} unchanged values"
            )
        for i, fix in table.fixes:
            if after[i]:
                after[i] = fix(after[i])
        self._append((_INSERT, table.number, after))

    def _on_update(self, data: bytes, at: int) -> None:
        oid, marker = _row(data, at)
        table: _Table = self._cache.get(oid) or self._table(oid)
        if table.number < 0:
            return
        before, passed, at = None, 0, at + 5
        if marker != _NEW:
            before, passed, at = self._over_old(data, at, marker, table)
        after, end, holes = _image(data, at, table.width)
        if end != len(data):
            raise _broken(data, f"an update of {len(data)} bytes, found {end}")
        if passed and (holes or not _begin_alike(data, passed, at, after[: table.upto])):
            before, _ = self._old(data, passed, marker, table)
        for i, fix in table.fixes:
            if after[i]:
                after[i] = fix(after[i])
        if table.befores and marker != _OLD:
            raise _no_old_row(table, "an update", after, self._where)
        if holes:
            _fill(after, before, table.definition, self._final, self._sink)
        if before is not None and table.key and all(before[i] == after[i] for i in table.key):
            before = None
        self._append((_UPDATE, table.number, after, before))

    def _on_delete(self, data: bytes, at: int) -> None:
        oid, marker = _row(data, at)
        table: _Table = self._cache.get(oid) or self._table(oid)
        if table.number < 0:
            return
        before, end = self._old(data, at + 5, marker, table)
        if end != len(data):
            raise _broken(data, f"a delete of {len(data)} bytes, found {end}")
        if table.befores and marker != _OLD:
            raise _no_old_row(table, "a delete", before, self._where)
        self._append((_DELETE, table.number, before))

    def _on_truncate(self, data: bytes, at: int) -> None:
        count, flags = _TRUNCATED.unpack_from(data, at)
        oids = struct.Struct(f">{count}I") if count <= len(data) else _OID
        captured = [oid for oid in oids.unpack(data[at + 5 :]) if self._table(oid).number >= 0]
        if flags & ~3:
            raise _broken(data, f"truncate flags 0 to 3, found {flags}")
        if captured:
            # Looked up again: naming one table may have begun a new block, with new indexes.
            self._append((_TRUNCATE, tuple(self._table(oid).number for oid in captured), flags))

    def _over_old(self, data: bytes, at: int, marker: int, table: _Table) -> tuple[Image | None, int, int]:
        """(an update's old row, or None; where that begins, if it was passed over; where the new one begins)."""
        if table.divider and marker == _OLD and len(data) < _CERTAIN:
            new = data.find(table.divider, at + 2) + 1
            if not new:
                raise _broken(data, "an old row and a new one, both of the table's width, found no new one")
            return None, at, new
        before, new = self._old(data, at, marker, table)
        if data[new : new + 1] != b"N":
            raise _broken(data, f"marker N after the old row, found {data[new : new + 1]!r}")
        return before, 0, new + 1

    def _old(self, data: bytes, at: int, marker: int, table: _Table) -> tuple[Image, int]:
        """The old image: a whole row, or only its key (then all else is MISSING: what stands there is no value)."""
        if marker not in (_KEY, _OLD):
            raise _broken(data, f"marker K or O before an old row, found {marker}")
        before, end, holes = _image(data, at, table.width)
        if holes:
            raise _broken(data, "an old row with all its values, found unchanged ones")
        if marker == _KEY:
            before = [value if given else MISSING for value, given in zip(before, table.identity, strict=True)]
        for i, fix in table.fixes:
            if before[i]:
                before[i] = fix(before[i])
        return before, end

    # --- tables -----------------------------------------------------------------------------------------------------

    def _table(self, oid: int) -> _Table:
        """Look a table up, or bring it into the block that is being gathered."""
        known: _Table | None = self._cache.get(oid)
        if known is not None:
            return known
        if oid not in self._shapes:
            if oid not in self._relations:
                raise PgoutputError(f"pgoutput: a change of table {oid}, which no Relation message has described")
            found = self._shapes[oid] = self._describe(self._relations[oid], self._xid)
            if found is not None and self._ddl is not None and oid not in self._born:
                self._make_known(oid, self._ddl)
        shape = self._shapes[oid]
        if shape is not None and shape.provisional:
            self._provisional.append(oid)
        if shape is None:
            table = _PASSED_OVER
        else:
            definition, columns = shape.definition, self._relations[oid].columns
            number = self._sink.table(definition)
            identity = tuple(column.key for column in columns)
            key = () if shape.befores else definition.key
            divider = b"N" + _WIDTH.pack(len(columns)) if key and len(columns) < 256 else b""
            upto = max(key, default=-1) + 1
            table = _Table(number, len(columns), key, shape.fixes, identity, definition, shape.befores, upto, divider)
        self._cache[oid] = table
        return table

    def _make_known(self, oid: int, ddl: DdlMessages) -> None:
        """Before the first rows of a table: CREATE TABLE AS tells of itself only behind them."""
        found, change = ddl.born(oid, self._xid, self._where)
        if found:
            self._born.add(oid)
        if change is not None:
            self._sink.ddl(change)

    def _on_relation(self, data: bytes, at: int) -> None:
        (oid,) = _OID.unpack_from(data, at)
        schema, at = _name(data, at + 4)
        name, at = _name(data, at)
        identity = chr(_byte(data, at))
        if identity not in "dnfi":
            raise _broken(data, f"a replica identity d, n, f or i, found {identity!r}")
        (width,) = _WIDTH.unpack_from(data, at + 1)
        at += 3
        columns = []
        for _ in range(width):
            column, at = _column(data, at)
            columns.append(column)
        _ends(data, at)
        # The whole shape is replaced: rows that follow have the columns of the last Relation before them.
        self._relations[oid] = Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))
        self._shapes.pop(oid, None)
        self._cache.pop(oid, None)

    # --- what is read and passed over -------------------------------------------------------------------------------

    def _on_type(self, data: bytes, at: int) -> None:
        _OID.unpack_from(data, at)
        _, at = _name(data, at + 4)
        _, at = _name(data, at)
        _ends(data, at)

    def _on_origin(self, data: bytes, at: int) -> None:
        _LSN.unpack_from(data, at)
        _, at = _name(data, at + 8)
        _ends(data, at)

    def _on_message(self, data: bytes, at: int) -> None:
        """pg_logical_emit_message. Only a schema change means something.

        A message that is not transactional comes at any place, and may even come of a transaction that rolls back.
        """
        flags, _ = _MESSAGE.unpack_from(data, at)
        prefix, at = _name(data, at + 9)
        (size,) = _OID.unpack_from(data, at)
        _ends(data, at + 4 + size)
        if flags > 1:
            raise _broken(data, f"message flags 0 or 1, found {flags}")
        if self._ddl is None or not flags or prefix != DDL_PREFIX or self._handlers is self._passing:
            return
        if not self.open:
            raise _broken(data, "a transactional message inside a transaction, found it outside")
        change = self._ddl.change(data[at + 4 :], self._born, self._where)
        if change is not None:
            self._sink.ddl(change)

    @property
    def _where(self) -> str:
        return f"CSN {lsn_text(self._final)}"


# --- parsing --------------------------------------------------------------------------------------------------------


def _image(data: bytes, at: int, width: int) -> tuple[Image, int, int]:
    """(values, place after them, how many are unchanged). The hot loop: one struct and one slice a column."""
    values: Image = []
    add = values.append
    holes = 0
    try:
        if _width(data, at)[0] != width:
            raise _broken(data, f"a row of {width} columns, found {_width(data, at)[0]}")
        at += 2
        for _ in range(width):
            kind, size = _field(data, at)
            if kind == _TEXT:
                start = at + 5
                at = start + size
                add(data[start:at])
            elif kind == _NULL:
                add(None)
                at += 1
            elif kind == _UNCHANGED:
                add(MISSING)
                holes += 1
                at += 1
            else:
                raise _broken(data, f"a value of kind t, n or u, found {kind}")
    except struct.error:
        # The last columns, if they are of one byte each, are shorter than what `_field` reads.
        rest = data[at : at + width - len(values)]
        if len(values) + len(rest) != width or rest.strip(b"nu"):
            raise _broken(data, f"a row of {width} columns, found it cut off at byte {at}") from None
        values += [None if kind == _NULL else MISSING for kind in rest]
        holes += rest.count(b"u")
        at += len(rest)
    return values, at, holes


def _begin_alike(data: bytes, old: int, new: int, values: Image) -> bool:
    """Whether the rows at `old` and `new` have one width and begin with the same columns: `values`, of the new one."""
    size = 2
    for value in values:
        size += 1 if value is None else 5 + len(value)
    return data.startswith(data[new : new + size], old)


def _fill(after: Image, before: Image | None, table: TableDef, commit: int, sink: Sink) -> None:
    """Give unchanged out-of-line values, which the server leaves out, from the old row.

    Without one they would be lost: refused, unless the trail does not get the column at all.
    """
    for i, value in enumerate(after):
        if value is not MISSING:
            continue
        if before is None or before[i] is MISSING:
            if not sink.keeps(table, i):
                continue
            key = ", ".join(str(after[k], "utf-8", "replace") for k in table.key if isinstance(after[k], bytes))
            raise OperatorError(
                f"table {table.full_name}, row ({key}), CSN {lsn_text(commit)}: an update left out the large value "
                f"(TOAST) of column {table.columns[i].name}, which it does not change",
                hint=f"ADD TRANDATA {table.full_name} mends later changes. Bring this row "
                "across by hand, and ALTER EXTRACT past it",
            )
        after[i] = before[i]


def _no_old_row(table: _Table, op: str, row: Image, where: str) -> OperatorError:
    """A change under GETUPDATEBEFORES without its whole old row."""
    definition = table.definition
    key = ", ".join(str(row[k], "utf-8", "replace") for k in definition.key if isinstance(row[k], bytes))
    return OperatorError(
        f"table {definition.full_name}, row ({key}), {where}: {op} came without its whole old row, which "
        f"GETUPDATEBEFORES asks for ({table.befores})",
        hint=f"ADD TRANDATA {definition.full_name}, ALLCOLS mends later changes. IGNOREUPDATEBEFORES for the "
        "table lets the earlier ones pass",
    )


def quoted(name: str) -> str:
    """A name as SQL takes it."""
    return '"' + name.replace('"', '""') + '"'


def _column(data: bytes, at: int) -> tuple[RelationColumn, int]:
    flags = _byte(data, at)
    name, at = _name(data, at + 1)
    type_oid, typmod = _COLUMN.unpack_from(data, at)
    if flags > 1:
        raise _broken(data, f"column flags 0 or 1, found {flags}")
    return RelationColumn(name, type_oid, typmod, bool(flags)), at + _COLUMN.size


def _name(data: bytes, at: int) -> tuple[str, int]:
    end = data.find(b"\0", at)
    if end < 0:
        raise _broken(data, "a name that ends in a zero byte")
    # An SQL_ASCII database may hold names in any encoding.
    return data[at:end].decode("utf-8", "surrogateescape"), end + 1


def _byte(data: bytes, at: int) -> int:
    if at >= len(data):
        raise _broken(data, f"a byte at {at}, found the end")
    return data[at]


def _ends(data: bytes, at: int) -> None:
    if at != len(data):
        raise _broken(data, f"the message to end at byte {at}, found {len(data)} bytes")


def _broken(data: bytes, expected: str, cause: object = "") -> PgoutputError:
    return PgoutputError(f"pgoutput: expected {expected} in {data[:60]!r}{f' ({cause})' if cause else ''}")
