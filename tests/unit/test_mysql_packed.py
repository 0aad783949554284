"""Packed and kept transactions: payloads of MySQL, packed events of MariaDB, what outgrows memory."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
import zstandard

from extract.sources.mysql import events as ev
from extract.sources.mysql.events import BinlogError
from extract.sources.mysql.flavour import Flavour
from extract.sources.mysql.rows import RowShape
from extract.sources.mysql.state import State
from tests.support.binlog_streams import (
    MARIADB,
    MYSQL,
    WHOLE,
    Loose,
    Tables,
    bare,
    decoder,
    described,
    event,
    feed,
    names,
    rotate,
    whole,
)

# --- packed ---------------------------------------------------------------------------------------------------------


def payload(events: list[bytes], end: int, *, size: int | None = None) -> bytes:
    """The TRANSACTION_PAYLOAD of events, as MySQL 8.0.20 and later write it."""
    plain = b"".join(bare(data) for data in events)
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(plain)
    fields = ((2, b"\0"), (3, number(len(plain) if size is None else size)), (1, number(len(packed))))
    head = b"".join(number(kind) + number(len(value)) + value for kind, value in fields) + b"\0"
    return event(ev.TRANSACTION_PAYLOAD, head + packed, end=end)


def number(value: int) -> bytes:
    """A length-encoded one."""
    if value < 251:
        return bytes([value])
    return b"\xfc" + value.to_bytes(2, "little") if value < 1 << 16 else b"\xfe" + value.to_bytes(8, "little")


def packed_groups(file: str) -> list[bytes]:
    """A file of MySQL's in which every transaction is packed that may be: what stands between its GTID and its end."""
    made: list[bytes] = []
    group: list[bytes] | None = None
    at = 4
    for data in MYSQL.events(file):
        at += 0 if data[17] & ev.ARTIFICIAL else len(data)
        if group is not None:
            group.append(data)
            if names(data) in (ev.XID, ev.XA_PREPARE) or data[-10:-4] in (b"COMMIT", b"LLBACK"):
                made.append(payload(group, at))
                group = None
        elif names(data) == ev.QUERY and (data[-9:-4] == b"BEGIN" or b"XA START" in data):
            group = [data]
        else:
            made.append(data)
    assert group is None
    return made


def test_CW_34_a_packed_transaction_is_the_same_one_and_cut_anywhere_is_none():
    """The same rows at the same places; and of a payload that is cut at any byte nothing is committed."""
    reference, sink = whole(MYSQL), Tables()
    one = decoder(Flavour.MYSQL, sink)
    cuts = 0
    for file in WHOLE:
        for data in packed_groups(file):
            if names(data) == ev.TRANSACTION_PAYLOAD:
                before = len(sink.commits)
                for upto in range(19, len(data) - 4):
                    broken = event(ev.TRANSACTION_PAYLOAD, data[19:upto], end=int.from_bytes(data[13:17], "little"))
                    torn = Tables()
                    other = decoder(Flavour.MYSQL, torn)
                    feed(other, [rotate(file), MYSQL.events(file)[1], ANONYMOUS])
                    with pytest.raises(BinlogError):
                        feed(other, [broken])
                    assert not torn.commits
                    cuts += 1
                assert len(sink.commits) == before
            feed(one, [data])
    assert cuts > 2000
    assert sink.commits == reference.commits
    assert sink.rows == reference.rows


ANONYMOUS = event(ev.ANONYMOUS_GTID, b"\0" * 25 + b"\x02" + b"\0" * 16)


def test_a_payload_of_100_megabytes_takes_little_memory():
    """It is taken apart as it is unpacked."""
    table = next(data for data in MYSQL.events(WHOLE[0]) if names(data) == ev.TABLE_MAP)
    row = b"\x04" + struct.pack("<I", 7) + b"\xa0" + b"v" * 0xA0  # one of 165 bytes, without a note
    rows = event(ev.WRITE_ROWS_V2, table[19:25] + b"\x01\0\x02\0" + b"\x03\xff" + row * 48)
    begin = next(data for data in MYSQL.events(WHOLE[0]) if data[-9:-4] == b"BEGIN")
    xid = next(data for data in MYSQL.events(WHOLE[0]) if names(data) == ev.XID)
    count = 15_000
    compressor = zstandard.ZstdCompressor().compressobj()
    pieces = [compressor.compress(bare(begin) + bare(table))]
    block = bare(rows) * 100
    pieces += [compressor.compress(block) for _ in range(count // 100)]
    pieces += [compressor.compress(bare(xid)), compressor.flush()]
    total = sum(map(len, (bare(begin), bare(table), bare(xid)))) + count * len(bare(rows))
    assert total > 110 << 20
    head = b"\x02\x01\0\x03\x09" + number(total) + b"\0"
    sink = Counting()
    one = decoder(Flavour.MYSQL, sink, describe=lambda table: counting_shape(sink, table))
    feed(one, [rotate(WHOLE[0]), MYSQL.events(WHOLE[0])[1], ANONYMOUS])
    data = event(ev.TRANSACTION_PAYLOAD, head + b"".join(pieces), end=1 << 20)
    tracemalloc.start()
    one.decode(data, 0, len(data))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sink.count == count * len(row) * 48
    assert len(sink.commits) == 1
    assert peak < 8 << 20
    assert 0 < sink.largest < 256 << 10


class Counting(Loose):
    """Counts bytes of rows, and keeps none."""

    count = 0

    def inserts(self, _data, at, upto, _number, _append) -> int:
        self.count += upto - at
        return 1

    deletes = updates = inserts


def counting_shape(sink: Counting, table):
    """A shape whose rows are counted."""
    return RowShape(described(table).definition, sink)


# --- what is kept ---------------------------------------------------------------------------------------------------


def test_kept_changes_outgrow_memory_into_a_file(tmp_path):
    """With no memory to speak of all of it goes through files, which nobody sees, and the same comes out."""
    for recording in (MARIADB, MYSQL):
        reference, sink = whole(recording), Tables()
        one = decoder(recording.flavour, sink, scratch=str(tmp_path / "kept"), memory=100)
        for file in WHOLE:
            feed(one, recording.events(file))
        assert sink.commits == reference.commits
        assert sink.rows == reference.rows
        assert (tmp_path / "kept").is_dir()
        assert list((tmp_path / "kept").iterdir()) == []
        assert one._shelf.weight == 0


def test_a_prepared_transaction_holds_the_place_to_read_from():
    """From its PREPARE to its end, over files."""
    for recording in (MARIADB, MYSQL):
        held = [State.parse(recording.flavour, state).again for _, state in whole(recording).places]
        first = next(i for i, again in enumerate(held) if again)
        assert {again.origin.seqno for again in held[first:] if again} == {2}
        assert held[-1] is None
