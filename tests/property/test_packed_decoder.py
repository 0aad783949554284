"""The compiled decoder and the plain one: equal blocks, places, counts and refusals, whatever comes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from extract.assemble import Assembler
from extract.heartbeat import Heartbeats, Owner
from extract.sources.postgres.kernel import PackedDecoder, PackedRecords
from extract.sources.postgres.pgoutput import FIXES, Decoder, ManyTablesError
from tests.support import pgwire
from tests.support.hostile import hostile
from tests.support.pgstreams import OWNER, TABLES, Ddl, Stream, describe
from tests.support.pgwire import UNCHANGED
from trails.codec import encode_data
from trails.errors import GateError
from trails.position import Position
from trails.runtime.language.heartbeattable import HeartbeatTable
from trails.runtime.report.stats import Stats
from trails.testing import FakeClock

MOST_TABLES = 9
Gulp = Callable[[Sequence[bytes]], int]


class Blocks:
    """What goes into the trail, and what the operator is told of it."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def define(self, defs: Sequence[Any], origin: Position | None = None) -> Sequence[Any]:
        """See Output."""
        return ()

    def append_data(self, indicator: Any, tables: Sequence[bytes], records: Any, **facts: Any) -> None:
        """See Output."""
        self.told.append((indicator, encode_data(tables, records), facts))

    def append_place(self, *place: Any) -> None:
        """See Output."""
        self.told.append(place)

    def append_restart(self) -> None:
        """See Output."""
        self.told.append("restart")


class Capture:
    """One of the two forms, from messages to blocks."""

    def __init__(self, packed: bool, after: int, block_bytes: int) -> None:
        self.blocks, self.packed, self.clock = Blocks(), packed, FakeClock()
        self.stats = Stats(self.clock.now_us, "./dirdat/lt")
        home, group = OWNER.split("/")
        self.sink = Assembler(
            self.blocks, Position(0, after), "", block_bytes=block_bytes, stats=self.stats, now_us=self.clock.now_us,
            heartbeats=Heartbeats(HeartbeatTable(), Owner(home, group), self.clock),
        )  # fmt: skip
        if packed:
            assert self.sink.packs(PackedRecords())
        self.taken = 0
        self.begin()

    def begin(self) -> None:
        """A session."""
        self.sink.abandon()
        self.sink.cache.clear()
        self.decoder = Decoder(self.sink, describe, self.sink.origin.rba, Ddl(), MOST_TABLES)
        self.front = PackedDecoder(self.sink.records, self.decoder, self.sink, FIXES, None) if self.packed else None

    def gulp(self, messages: Sequence[bytes]) -> None:
        """Messages as they come in one go."""
        if self.front is None:
            for message in messages:
                self.decoder.decode(message, 25)
        else:
            libpq = Libpq(messages)
            try:
                size, answer, last = self.front.gulp(0, *libpq.addresses)
                assert (size, answer, last) == (sum(map(len, messages)), 0, messages[-1][:25] if messages else b"")
            finally:
                assert libpq.freed == libpq.given
                self.taken = self.front.taken
        self.sink.grew(sum(map(len, messages)))

    def state(self) -> Any:
        """What is known between two gulps."""
        sink, decoder = self.sink, self.decoder
        return (
            self.blocks.told, sink.origin, sink.time_us, sink.operations, sink.transactions, sink.bytes_in,
            len(sink.records), sink.in_transaction, sink.open_transaction, sink.has_whole, sink.is_empty, decoder.open,
            self.stats.answer() if hasattr(self.stats, "answer") else None,
        )  # fmt: skip


class Libpq:
    """PQgetCopyData and PQfreemem over a list of messages."""

    def __init__(self, messages: Sequence[bytes]) -> None:
        self.given = self.freed = 0
        self._buffers = [ctypes.create_string_buffer(message, len(message)) for message in messages]
        self._next = iter(self._buffers)
        self._get = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int)(
            self._copy
        )
        self._free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._let_go)

    @property
    def addresses(self) -> Iterator[Any]:
        """Of both."""
        return (ctypes.cast(function, ctypes.c_void_p).value for function in (self._get, self._free))

    def _copy(self, _connection: Any, found: Any, _async: int) -> int:
        buffer = next(self._next, None)
        if buffer is None:
            return 0
        self.given += 1
        found[0] = ctypes.addressof(buffer)
        return len(buffer)

    def _let_go(self, _memory: Any) -> None:
        self.freed += 1


def both(messages: Sequence[bytes], chance: Random, after: int = 0) -> tuple[Capture, Any]:
    """Both forms through the same gulps; what they were refused with, if they were. Asserts that they are equal."""
    block = chance.choice([2_000, 50_000, 1 << 20])
    captures = [Capture(packed, after, block) for packed in (False, True)]
    wire = [b"w" + bytes(24) + message for message in messages]
    at, refused = 0, ["", ""]
    while at < len(wire) and not any(refused):
        upto = at + chance.choice([1, 2, 5, 50, 1000])
        then = chance.random()
        for i, capture in enumerate(captures):
            try:
                capture.gulp(wire[at:upto])
                if then < 0.2:
                    capture.sink.cut()
                    capture.sink.put_place()
            except (GateError, ManyTablesError, IndexError) as error:
                refused[i] = f"{type(error).__name__}: {error}"
        assert refused[0] == refused[1]
        if not refused[0]:
            assert captures[0].state() == captures[1].state()
        at = upto
        if then > 0.97:  # the connection is lost: what was open comes again, with all that follows
            for capture in captures:
                capture.begin()
            return captures[1], None
    if not refused[0]:
        for capture in captures:
            capture.sink.cut()
        assert captures[0].state() == captures[1].state()
    return captures[1], refused[0] or None


@hostile(400)
@given(st.integers(0, 2**32))
def test_both_forms_make_the_same_of_any_stream(seed: int) -> None:
    """Every byte of every block, and all that is known of places and counts in between."""
    chance = Random(seed)
    both(Stream.drawn(chance).messages, chance)


@hostile(400)
@given(st.integers(0, 2**32))
def test_both_forms_refuse_a_broken_stream_in_the_same_words(seed: int) -> None:
    """Or take it alike, where one value was changed to another one."""
    chance = Random(seed)
    both(Stream.drawn(chance).broken(), chance)


@hostile(200)
@given(st.integers(0, 2**32))
def test_both_forms_go_on_alike_behind_what_the_trail_has(seed: int) -> None:
    """The server sends again what committed before the place; a part of it, or all."""
    chance = Random(seed)
    stream = Stream.drawn(chance)
    both(stream.messages, chance, chance.choice(stream.ends)[0])


def test_what_is_usual_is_taken_by_the_compiled_form() -> None:
    """Whatever else is proved here would hold for a form that hands everything over."""
    keyed, whole, messages = TABLES[1], TABLES[2], []
    for number in range(10):
        messages += [pgwire.begin(100 * number + 50), *([] if number else map(pgwire.relation, (keyed, whole)))]
        for relation in (keyed, whole):
            row: list[Any] = [b"x", b"%d" % number, b"t", b"\\x00ff"]
            old = row if relation is whole else None
            changed = [*row[:3], UNCHANGED if relation is whole else None]
            messages += [pgwire.insert(relation.oid, row), pgwire.update(relation.oid, changed, old)]
            messages.append(pgwire.delete(relation.oid, row, b"O" if relation is whole else b"K"))
        messages.append(pgwire.commit(100 * number + 50))
    capture = Capture(True, 0, 1 << 20)
    capture.gulp([b"w" + bytes(24) + message for message in messages])
    # Two shapes, the first row of each table, and the end of the transaction in which they came.
    assert capture.taken == len(messages) - 5
