"""A scripted trail: transactions to write, a writer that resumes as Extract does, and what a reader must then see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trails.codec import binary, decode_data, decode_hole
from trails.ddl import ALTER, DdlChange, DdlColumn, TableShape
from trails.format import BlockKind, Indicator
from trails.fs import Fs, RealFs
from trails.hole import Hole
from trails.plan import Planner
from trails.position import Position, TrailName
from trails.reader import Block, BlockReader
from trails.record import Column, Op, Record, TableDef
from trails.recovery import Mark
from trails.testing import FaultFs
from trails.writer import TrailWriter, WriterIdentity

TRAIL = TrailName("/home/dirdat", "lt")
IDENTITY = WriterIdentity("home", "EXT1", "host", {"kind": "postgresql"})
TABLE = TableDef("s", "t", (Column("id", "int8", "bigint", key=True), Column("v", "text", "text")))
WIDER = TableDef("s", "t", (*TABLE.columns, Column("w", "text", "text")))
MOMENT = 1_700_000_000_000_000
MAX_BYTES = 4096 + 1500  # small, so that the script rolls over several times


@dataclass(frozen=True)
class Tx:
    """One source transaction: its number is its CSN and place; `pieces` > 1 writes it as begin, middle..., end.

    `ddl`: before which of its rows a schema change stands, for scripted sources. `author`: a letter in each row.
    """

    number: int
    rows: int
    pieces: int = 1
    table: TableDef = TABLE
    ddl: int | None = None
    author: str = ""

    @property
    def csn(self) -> str:
        """Sorts as the number does."""
        return f"{self.number:08d}"

    @property
    def change(self) -> DdlChange:
        """The schema change, which changes nothing that this script's rows know of."""
        shapes = [TableShape("s", "t", (DdlColumn(1, name, "text", "text"),)) for name in ("a", "b")]
        return DdlChange(ALTER, *shapes, sql=f"ALTER in {self.number}")

    def records(self) -> list[Record]:
        """Begin, the inserts, commit."""
        width = len(self.table.columns) - 1
        rows = [(Op.INSERT, 0, [f"{self.number}-{i}{self.author}", *["v" * 20] * width]) for i in range(self.rows)]
        return [(Op.BEGIN, self.csn, str(self.number), self.number), *rows, (Op.COMMIT, self.rows)]


SCRIPT = [
    Tx(1, 1), Tx(2, 3), Tx(3, 30, pieces=4), Tx(4, 1), Tx(5, 2, table=WIDER), Tx(6, 40, pieces=3, table=WIDER),
    Tx(7, 1, table=WIDER), Tx(8, 1, table=WIDER),
]  # fmt: skip


def write_tx(writer: TrailWriter, tx: Tx, state: str = "") -> None:
    """Append one transaction with its definition, in as many blocks as it says, and its source's state."""
    writer.define([tx.table])
    records = tx.records()
    before = writer.last
    step = -(-len(records) // tx.pieces)
    pieces = [records[i : i + step] for i in range(0, len(records), step)]
    for i, piece in enumerate(pieces):
        last = i == len(pieces) - 1
        indicator = Indicator.END if last else Indicator.MIDDLE if i else Indicator.BEGIN
        writer.append_data(
            Indicator.WHOLE if len(pieces) == 1 else indicator,
            [tx.table.id],
            piece,
            changes=sum(1 for r in piece if r[0] == Op.INSERT),
            transactions=int(last),
            origin=Position(0, tx.number) if last else before.origin,
            csn=tx.csn if last else before.csn,
            time_us=tx.number,
            state=state,
        )
        if not last:
            writer.sync()


def open_writer(fs: Fs, **options: object) -> TrailWriter:
    """A writer as Extract opens it."""
    options = {"max_bytes": MAX_BYTES, "start": Mark(), "restart_open": True} | options
    return TrailWriter.open(fs, TRAIL, IDENTITY, **options)  # type: ignore[arg-type]


def run_script(fs: Fs, acknowledged: list[int], seen: list[Block], **options: object) -> None:
    """Resume from the trail's own mark and write the rest; sync, acknowledge and read after each transaction."""
    writer = open_writer(fs, **options)
    reader = BlockReader(fs, TRAIL, seen[-1].end if seen else None)
    done = writer.last.origin.rba
    acknowledged.append(done)
    for tx in SCRIPT:
        if tx.number <= done:
            continue
        write_tx(writer, tx)
        if tx.number == 4:
            writer.append_place(Position(0, 4))
        writer.sync()
        acknowledged.append(tx.number)
        while (block := reader.read()) is not None:
            seen.append(block)
    writer.close()


@dataclass
class ScriptWorld:
    """See crashing.World: the files, what was acknowledged to the source, and what a reader has seen."""

    fs: FaultFs = field(default_factory=FaultFs)
    acknowledged: list[int] = field(default_factory=lambda: [0])
    seen: list[Block] = field(default_factory=list)

    def outside(self) -> tuple[int, int]:
        """See World."""
        return max(self.acknowledged), len(self.seen)

    def with_fs(self, fs: FaultFs) -> ScriptWorld:
        """See World."""
        return ScriptWorld(fs, list(self.acknowledged), list(self.seen))

    def live(self, **options: object) -> None:
        """One writer's life: it goes on from where the trail ends, which is behind all that was acknowledged."""
        before, first = max(self.acknowledged), len(self.acknowledged)
        run_script(self.fs, self.acknowledged, self.seen, **options)
        assert self.acknowledged[first] >= before, "an acknowledged transaction is gone"

    def check(self) -> None:
        """All is there once, and what was seen still stands."""
        assert transactions(self.fs) == expected()
        assert_stands(self.fs, self.seen)


def assert_stands(fs: Fs, seen: Sequence[Block]) -> None:
    """What a reader has seen is still there, byte for byte."""
    for block in seen:
        again = BlockReader(fs, TRAIL, block.start).read()
        assert again is not None and (again.header, again.payload) == (block.header, block.payload)


def trail_to_show(folder: str, wide: TableDef, xid: str, *more: Record) -> TrailName:
    """Real files for logdump: the script, and one transaction of a table of an integer and bytes; `more` at its end.

    Tables 0 and 1 of that are the wide one and the script's last.
    """
    name = TrailName(folder, "lt")
    writer = TrailWriter.open(RealFs(), name, IDENTITY, max_bytes=5600, restart_open=True)
    for tx in SCRIPT:
        write_tx(writer, tx)
    writer.define([wide])
    changes = [
        (Op.INSERT, 0, ["1", binary(b"\x00\xff")]), (Op.UPDATE, 0, ["1", None], ["1", False]),
        (Op.DELETE, 0, ["1", None]), *more,
    ]  # fmt: skip
    records = [(Op.BEGIN, "00000009", xid, MOMENT), *changes, (Op.COMMIT, len(changes))]
    writer.append_data(
        Indicator.WHOLE, [wide.id, SCRIPT[-1].table.id], records,
        changes=len(changes), transactions=1, origin=Position(0, 9), csn="00000009", time_us=MOMENT,
    )  # fmt: skip
    writer.sync()
    writer.close()
    return name


def transactions(fs: Fs, trail: TrailName = TRAIL, begin: Position | None = None) -> list[tuple[str, list[str]]]:
    """(csn, first column of each row) of every transaction a reader of records sees; fails on a torn one."""
    reader = BlockReader(fs, trail, begin)
    planner = Planner(reader)
    found: list[tuple[str, list[str]]] = []
    while (unit := planner.next()) is not None:
        open_tx: tuple[str, list[str]] | None = None
        for block in unit.blocks:
            ids, records = decode_data(block.header, payload_of(fs, trail, block))
            for record in records:
                if record[0] == Op.BEGIN:
                    assert open_tx is None
                    open_tx = (record[1], [])
                elif record[0] == Op.COMMIT:
                    assert open_tx is not None and len(open_tx[1]) == record[1]
                    found.append(open_tx)
                    open_tx = None
                elif record[0] == Op.HEARTBEAT:
                    assert unit.is_heartbeat
                elif record[0] == Op.DDL:
                    assert open_tx is not None and block.header.is_ddl
                    open_tx[1].append(DdlChange.from_wire(record[1]).sql)
                else:
                    assert open_tx is not None and not block.header.is_ddl
                    width = len(planner.definitions[ids[record[1]]].columns)
                    assert len(record[2]) == width
                    open_tx[1].append(record[2][0])
        assert open_tx is None
    reader.close()
    return found


def payload_of(fs: Fs, trail: TrailName, block: Block) -> bytes:
    """The checked payload of a block that was planned from its header."""
    again = BlockReader(fs, trail, block.start).read()
    assert again is not None
    return again.payload


def expected(script: list[Tx] = SCRIPT) -> list[tuple[str, list[str]]]:
    """What `transactions` must give."""
    return [(tx.csn, list(_names(tx))) for tx in script]


def _names(tx: Tx) -> Iterator[str]:
    for i in range(tx.rows):
        if i == tx.ddl:
            yield tx.change.sql
        yield f"{tx.number}-{i}"


def holes(fs: Fs, trail: TrailName = TRAIL) -> list[Hole]:
    """The holes that the trail tells of."""
    reader, found = BlockReader(fs, trail), []
    while (block := reader.read()) is not None:
        if block.header.kind == BlockKind.HOLE:
            found.append(decode_hole(block.header, block.payload))
    reader.close()
    return found
