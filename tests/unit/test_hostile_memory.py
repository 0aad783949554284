"""What hostile bytes cost in memory: the peak of each reader, and of a real Collector, under a bound that is said."""

from __future__ import annotations

import json
import os
import re
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from demo.patience import PATIENCE
from tests.support.homes import make_home
from trails.codec import COLUMNS_A_BLOCK, Payload, _compress, decode_data, decode_defs, encode_defs, portions
from trails.errors import DamageError
from trails.format import BlockHeader, BlockKind, Indicator, file_seed, make_block_header
from trails.link import wire
from trails.link.wire import Side, WireSession
from trails.position import Position
from trails.record import Column, TableDef
from trails.unpacking import ALLOWANCE, UNCOUNTED, cost_of

MIB = 1 << 20
TRAIL_ID = b"\1" * 16
HELLO = wire.Hello("a" * 32, "PMP1", "here", "./dirdat/rt", TRAIL_ID, {}, 0, None, 100, 60_000)


def array(count: int, inner: bytes) -> bytes:
    return b"\xdd" + count.to_bytes(4) + inner * count


EMPTY_LISTS = array(4 * MIB, b"\x90")
NESTED = (b"\xdd" + MIB.to_bytes(4)) * 400 + b"\xc0" * MIB
BOMBS = {
    "empty lists": EMPTY_LISTS, "lists of one": array(2 * MIB, b"\x91\xc0"), "texts": array(3 * MIB, b"\xa2ab"),
    "maps": array(4 * MIB, b"\x80"), "promised lists": NESTED, "zeros": bytes(20 * MIB),
    "a definition of lists": array(1, b"\x93\xa1s\xa1t" + array(4 * MIB, b"\x90")),
    "columns": array(1, b"\x93\xa1s\xa1t" + array(MIB, b"\x94\xa0\xa0\xa0\xc2")),
}  # fmt: skip


def header_of(kind: BlockKind, made: Payload) -> BlockHeader:
    return BlockHeader(kind, Indicator.NONE, made.flags, len(made.data), made.raw_len, payload_crc=made.crc)


READERS: dict[str, Callable[[Payload], Any]] = {
    "rows": lambda made: decode_data(header_of(BlockKind.DATA, made), made.data),
    "definitions": lambda made: decode_defs(header_of(BlockKind.METADATA, made), made.data),
}


def meet_bombs() -> None:
    """In a process of its own: how much each reader's peak of memory grew, in bytes."""
    packed = {name: (_compress(b"\x92\x90" + raw), _compress(raw)) for name, raw in BOMBS.items()}
    before, grown = memory_of(os.getpid()), {}
    for reader, which in (("definitions", 1), ("rows", 0)):
        for made in packed.values():
            with pytest.raises(DamageError):
                READERS[reader](made[which])
        grown[reader] = memory_of(os.getpid()) - before
    print(json.dumps(grown))


def test_a_reader_pays_for_what_came_and_not_for_what_it_says() -> None:
    """17 kB of LZ4 that are four million empty lists took 300 MB; now they are damage before one of them is made.

    What is unpacked without being walked first (a block of many small rows) takes 128 MiB at most.
    """
    code = "from tests.unit.test_hostile_memory import meet_bombs; meet_bombs()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=Path(__file__).parents[2])
    grown = json.loads(done.stdout)
    assert grown["definitions"] < 64 * MIB
    assert grown["rows"] < 150 * MIB


def test_a_block_of_many_small_rows_is_not_walked() -> None:
    """What a source makes stays below the bound, and what passes it is what a large row is: long, not many."""
    assert cost_of(b"\x92\x90" + array(1, b"\xdb" + (64 * MIB).to_bytes(4) + bytes(64 * MIB)), MIB) < 1000
    with pytest.raises(ValueError, match="would take more than"):
        cost_of(EMPTY_LISTS, ALLOWANCE)
    assert UNCOUNTED * 64 <= 128 * MIB


def test_the_walk_knows_every_first_byte() -> None:
    """It goes on by exactly what msgpack wrote: a tree of every kind of value ends where its bytes end."""
    values: list[Any] = [
        None, True, 1, -1, 200, 70_000, 1 << 33, -200, -70_000, -(1 << 33), 1.5, "", "x" * 40, "x" * 300, "x" * 70_000,
        b"", b"x" * 300, b"x" * 70_000, [0] * 20, [0] * 70_000, {1: 2},
    ]  # fmt: skip
    values += [msgpack.ExtType(1, bytes(n)) for n in (0, 1, 2, 3, 4, 8, 16, 300, 70_000)]
    for value in values:
        alone, followed = (cost_of(msgpack.packb([value, *rest]), 10 * MIB) for rest in ([], [[]] * 10))
        assert followed - alone == 10 * (64 + 8), value


def test_definitions_of_many_tables_are_several_blocks() -> None:
    """Three thousand tables of fifty columns: each block can be read, and nothing is left out."""
    columns = tuple(Column(f"column_{n}", "text", "character varying(80)", n == 0) for n in range(50))
    defs = [TableDef("sales", f"table_{n}", columns) for n in range(3_000)]
    found = []
    for part in portions(defs):
        assert sum(len(d.columns) + 1 for d in part) <= COLUMNS_A_BLOCK
        made = encode_defs(part)
        found += decode_defs(header_of(BlockKind.METADATA, made), made.data)
    assert found == defs


# --- a Collector process ----------------------------------------------------------------------------------------------


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A Collector in plain TCP: (process, port)."""
    home = make_home(tmp_path / "home")
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "collector", "--home", home.root, "--trail", "./dirdat/rt", "--ports", "0",
         "--notls", "--ready-fd", str(writer)],
        pass_fds=(writer,), stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(writer)
    with os.fdopen(reader) as said:
        port = json.loads(said.readline())["port"]
    yield process, port
    process.kill()
    process.wait()


def memory_of(pid: int) -> int:
    """The most that the process ever had in memory, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    assert found
    return int(found[1]) << 10


def answer(sock: socket.socket, session: WireSession) -> Any:
    """The next message."""
    while (event := session.next_event()) is wire.NEED_DATA:
        count = sock.recv_into(session.get_buffer())
        assert count, "the Collector closed the link"
        session.received(count)
    return event


@pytest.mark.parametrize("name", ["empty lists", "columns"])
def test_a_collector_refuses_a_bomb_and_stays_small(collector: Any, name: str) -> None:
    """A real process: what 65 kB on the wire become is bounded in what the system saw it take."""
    process, port = collector
    session = WireSession(Side.PUMP)
    with socket.create_connection(("127.0.0.1", port), 30) as sock:
        sock.sendall(b"".join(map(bytes, session.send(HELLO))))
        assert isinstance(answer(sock, session), wire.Welcome)
        before = memory_of(process.pid)
        made = _compress(BOMBS[name])
        raw = make_block_header(header_of(BlockKind.METADATA, made), file_seed(TRAIL_ID, 0), 0)
        place = Position(0, 0)
        ended = os.pidfd_open(process.pid)
        sock.sendall(b"".join(map(bytes, session.send(wire.BlockMessage(place, place, raw, made.data)))))
        refusal = answer(sock, session)
        assert isinstance(refusal, wire.Refuse) and refusal.permanent
        assert memory_of(process.pid) - before < 150 * MIB
    select.select([ended], [], [], 60)
    os.close(ended)
    assert process.wait(PATIENCE) == 2


def test_long_types_count_too_where_definitions_are_bounded(collector: Any) -> None:
    """A type may be of any length, and LZ4 makes 31 MiB of 127 kB: each such table stayed in the Collector's memory."""
    process, port = collector
    session = WireSession(Side.PUMP)
    with socket.create_connection(("127.0.0.1", port), 30) as sock:
        sock.sendall(b"".join(map(bytes, session.send(HELLO))))
        assert isinstance(answer(sock, session), wire.Welcome)
        place = Position(0, 0)
        for number in range(12):
            made = encode_defs([TableDef("s", f"t{number}", (Column("c", "text", "x" * (24 * MIB)),))])
            raw = make_block_header(header_of(BlockKind.METADATA, made), file_seed(TRAIL_ID, 0), 0)
            try:
                sock.sendall(b"".join(map(bytes, session.send(wire.BlockMessage(place, place, raw, made.data)))))
            except OSError:
                break  # refused already
        while isinstance(said := answer(sock, session), wire.Ack):
            continue
        assert isinstance(said, wire.Refuse) and said.permanent
        assert "bound of 1000000" in said.text
    assert process.wait(PATIENCE) == 2


def test_what_a_table_counts_grows_with_its_texts() -> None:
    """Ordinary names and types count as little beside the columns; a text of a MiB counts as 16,384 columns."""
    columns = tuple(Column(f"column_{n}", "text", "text", n == 0) for n in range(50))
    assert TableDef("sales", "orders", columns).weight < 75
    assert TableDef("s", "t", (Column("c", "text", "x" * MIB),)).weight > MIB // 64
