"""How the prompt of logdump lays out records and totals: GoldenGate's two columns, with what our trail has."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from datetime import timezone

from trails.codec import state_of
from trails.record import Op, time_of
from trails.show.cursor import TYPES, Item, Transaction
from trails.show.filters import raw, values_of
from trails.show.printing import record_lines
from trails.show.rows import Wanted

_RULER = "_" * 67
_Size = tuple[int, int, str, str, int, int]
_IMAGES = {Op.INSERT: "A", Op.UPDATE: "A", Op.DELETE: "B"}


@dataclass(slots=True)
class View:
    """What ENV shows: the switches, and how times are shown."""

    ghdr: bool = False
    detail: str = "OFF"  # OFF, ON, DATA
    hex: bool = True
    tokens: bool = False
    fileheader: str = "OFF"
    reclen: int = 280
    offset: timezone | None = None

    def stamp(self, time_us: int) -> str:
        """`2021/03/11 10:30:18.000.000`, in local time or at TIMEOFFSET."""
        if not time_us:
            return "Not Available"
        at = time_of(time_us).astimezone(self.offset)
        return f"{at:%Y/%m/%d %H:%M:%S}.{at.microsecond // 1000:03d}.{at.microsecond % 1000:03d}"

    def lines(self) -> list[str]:
        """ENV."""
        on = {True: "ON", False: "OFF"}
        offset = "LOCAL" if self.offset is None else str(self.offset)
        return [
            f"GHDR               {on[self.ghdr]}", f"DETAIL             {self.detail}",
            f"HEX                {on[self.hex]}", f"GGSTOKEN           {on[self.tokens]}",
            f"FILEHEADER         {self.fileheader}", f"RECLEN             {self.reclen}",
            f"TIMEOFFSET         {offset}",
        ]  # fmt: skip


def record(item: Item, view: View) -> list[str]:
    """One record as NEXT shows it."""
    size = sum(map(len, map(raw, values_of(item))))
    lines = header(item, view, size) if view.ghdr else []
    rba = f"RBA {item.block.start.rba}" + (f", record {item.number} of {item.total}" if item.row else "")
    lines.append(f"{view.stamp(item.time_us)} {item.type:16} Len {size:>5} {rba}")
    if item.tables:
        lines.append(f"Name: {item.tables}")
    if item.row is not None:
        lines += _images(item, view)
    if view.tokens and item.row is not None:
        lines += ["GGS tokens:", f"LOGCSN  : {item.csn}", f"TRANID  : {item.xid}"]
    if view.tokens and item.block.header.has_state and item.number == item.total:
        lines.append(f"STATE   : {state_of(item.block.payload, str(item.block.start))}")
    return [*lines, ""]


def header(item: Item, view: View, size: int) -> list[str]:
    """GHDR: two columns."""
    block, op = item.block.header, item.row.op if item.row else None
    trans = item.transaction
    pairs = (
        ("Hdr-Ind", block.kind.name, "Indicator", block.indicator.name),
        ("BeforeAfter", _IMAGES.get(op, ".") if op else ".", "RecCount", f"{item.number} of {item.total}"),
        ("RecLength", f"{size}  (x{size:04x})", "IO Time", view.stamp(item.time_us)),
        ("IOType", f"{op.value if op else 0}  (x{op.value if op else 0:02x})", "TransInd", _trans(trans)),
        ("AuditRBA", item.block.start.seqno, "AuditPos", item.block.start.rba),
        ("BlockLength", block.size, "Encrypted", "Y" if block.is_encrypted else "N"),
        ("LogCSN", item.csn or "-", "TransID", item.xid or "-"),
        ("Origin", block.origin, "Transactions", block.transactions),
    )
    return [_RULER, *(f"{a:11}: {b!s:24} {c:12}: {d}" for a, b, c, d in pairs), ""]


def _trans(trans: Transaction) -> str:
    return f"{trans.name}  (x{trans.value:02x})"


def _images(item: Item, view: View) -> list[str]:
    assert item.row is not None
    shown = record_lines(item.row, Wanted())[1:]
    if item.row.op not in _IMAGES:
        return shown
    lines: list[str] = []
    if view.detail == "DATA":
        lines += [line.replace("    after", "After  Image:").replace("    before", "Before Image:") for line in shown]
    titles = {Op.DELETE: ("Before",)}.get(item.row.op, ("After ", "Before"))
    for title, image in zip(titles, item.row.record[2:], strict=False):
        if image is None:
            continue
        if view.detail != "DATA":
            lines.append(f"{title} Image:")
        if view.detail == "ON":
            lines += [
                f"Column {n:>5} (x{n:04x}), Len {len(raw(value)):>5} (x{len(raw(value)):04x})"
                for n, value in enumerate(image)
            ]
        if view.hex:
            lines += hex_lines(b"".join(raw(value) for value in image)[: view.reclen])
    return lines


def hex_lines(data: bytes) -> list[str]:
    """Sixteen bytes a line, with the letters beside them."""
    lines = []
    for at in range(0, len(data), 16):
        part = data[at : at + 16]
        digits = " ".join(part[n : n + 2].hex() for n in range(0, len(part), 2))
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f" {digits:39} | {letters}")
    return lines


@dataclass(slots=True)
class Sizes:
    """TRANSHIST: the `most` largest transactions. One is (bytes, records, its CSN, xid, time and first RBA)."""

    most: int
    count: int = 0
    _largest: list[_Size] = field(default_factory=list)
    _now: _Size | None = None

    def add(self, item: Item) -> None:
        """One record; those of a transaction stand together."""
        if item.row is None:
            return
        if self._now is None or self._now[2:4] != (item.csn, item.xid):
            self._end()
            self._now = (0, 0, item.csn, item.xid, item.time_us, item.block.start.rba)
            self.count += 1
        self._now = (self._now[0] + sum(map(len, map(raw, values_of(item)))), self._now[1] + 1, *self._now[2:])

    def _end(self) -> None:
        if self._now is not None:
            heapq.heappush(self._largest, self._now)
        if len(self._largest) > self.most:
            heapq.heappop(self._largest)
        self._now = None

    def lines(self, view: View) -> list[str]:
        """The largest first."""
        self._end()
        return [
            f"{self.count} transactions; the largest:",
            f"{'TransID':>14} {'Records':>9} {'Bytes':>12} {'RBA':>12}  {'Time':27} LogCSN",
            *(
                f"{xid or '-':>14} {records:>9} {size:>12} {rba:>12}  {view.stamp(time_us):27} {csn or '-'}"
                for size, records, csn, xid, time_us, rba in sorted(self._largest, reverse=True)
            ),
            "",
        ]


@dataclass(slots=True)
class Counted:
    """COUNT: how much of what."""

    types: Counter[str] = field(default_factory=Counter)
    tables: dict[str, Counter[str]] = field(default_factory=dict)
    bytes: int = 0
    before: int = 0
    after: int = 0
    transactions: int = 0

    def add(self, item: Item) -> None:
        """One record."""
        self.types[item.type] += 1
        if item.row is None:
            return
        self.bytes += sum(map(len, map(raw, values_of(item))))
        self.transactions += item.ends_transaction
        images = [image is not None for image in item.row.record[2:]] if item.row.op in _IMAGES else []
        self.before += sum(images[1:]) if item.row.op is Op.UPDATE else item.row.op is Op.DELETE
        self.after += item.row.op in (Op.INSERT, Op.UPDATE)
        if item.tables:
            self.tables.setdefault(item.tables, Counter())[item.type] += 1

    def lines(self, path: str, *, detail: bool) -> list[str]:
        """As GoldenGate's COUNT."""
        records = sum(self.types.values())
        lines = [
            f"LogTrail {path} has {records} records",
            f"Total Data Bytes      {self.bytes:>12}", f"  Avg Bytes/Record    {self.bytes // max(1, records):>12}",
            *(f"{name:22}{self.types[name]:>12}" for name in TYPES if self.types[name]),
            f"Before Images         {self.before:>12}", f"After Images          {self.after:>12}", "",
            f"Transactions that end {self.transactions:>12}", "",
        ]  # fmt: skip
        for name, types in sorted(self.tables.items()) if detail else ():
            lines += [name, *(f"  {kind:20}{count:>12}" for kind, count in sorted(types.items())), ""]
        return lines
