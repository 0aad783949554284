"""Any bytes give events or one kind of error, and two sessions over a pipe that may be cut never disagree."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.hostile import hostile
from trails.errors import ProtocolError, VersionError
from trails.link import wire
from trails.link.wire import FRAME, Side, Type, WireSession, WireState
from trails.position import Position

HELLO = wire.Hello("h" * 32, "PMP1", "here", "./dirdat/rt", b"\1" * 16, {}, 0, None, 100, 10_000)
WELCOME = wire.Welcome(Position(0, 0), b"\2" * 16, False, 0, Position(0, 4096))

frames = st.builds(lambda t, body: FRAME.pack(t, len(body)) + body, st.integers(0, 12), st.binary(max_size=200))
greetings = st.builds(
    lambda v, body: FRAME.pack(1, 6 + len(body)) + wire.GREETING.pack(b"TGWL", v) + body,
    st.integers(0, 3),
    st.binary(max_size=100),
)
streams = st.lists(st.one_of(st.binary(max_size=40), frames, greetings), max_size=6).map(b"".join)
reachable = st.sampled_from([(side, state) for side in Side for state in WireState if state is not WireState.DEAD])


@hostile(200)
@given(reachable, streams, st.lists(st.integers(1, 50), max_size=20))
def test_any_bytes_give_events_or_a_protocol_error(place, data, cuts):
    """In every state, fed in any pieces; and the pieces make no difference."""
    whole, pieces = _drive(place, data, []), _drive(place, data, cuts)
    assert whole == pieces


def _drive(place, data, cuts):
    end = WireSession(place[0])
    end.state = place[1]
    found = []
    try:
        for cut in [*cuts, len(data)]:
            for event in end.receive(data[:cut]):
                found.append(event)  # noqa: PERF402  -- events before an error count
            data = data[cut:]
    except (ProtocolError, VersionError) as error:
        assert end.state is WireState.DEAD
        found.append(str(error))
    return found


class Pair(RuleBasedStateMachine):
    """A pump and a Collector over a pipe that delivers any number of bytes at a time and may be cut for good.

    The Collector syncs when it likes. At every step: what is acknowledged was synced, what is synced was sent.
    """

    @initialize(trail=st.integers(0, 5))
    def begin(self, trail):
        self.ends = {side: WireSession(side) for side in Side}
        self.pipes = {side: bytearray() for side in Side}  # by sender
        self.cut = False
        self.sent: list[wire.BlockMessage] = []
        self.came: list[wire.BlockMessage] = []
        self.synced = 0
        self.acked = Position(0, 0)
        self.place = Position(0, 0)
        self._send(Side.PUMP, HELLO)

    def _send(self, side, message):
        data = b"".join(bytes(piece) for piece in self.ends[side].send(message))
        if not self.cut:
            self.pipes[side] += data

    def _may(self, side, kind):
        return self.ends[side].may_send(kind)

    @rule(side=st.sampled_from(list(Side)), count=st.integers(1, 400))
    def deliver(self, side, count):
        data = bytes(self.pipes[side][:count])
        del self.pipes[side][:count]
        to = Side.COLLECTOR if side is Side.PUMP else Side.PUMP
        for event in self.ends[to].receive(data):
            self._handle(to, event)

    def _handle(self, side, event):
        match event:
            case wire.Hello():
                self._send(side, WELCOME)
            case wire.BlockMessage():
                self.came.append(event)
            case wire.Ack():
                self.acked = event.origin
            case wire.Ping(number):
                if self._may(side, Type.PONG):
                    self._send(side, wire.Pong(number))
            case _:
                pass

    @precondition(lambda self: self._may(Side.PUMP, Type.BLOCK))
    @rule(step=st.integers(0, 50), size=st.integers(0, 300))
    def block(self, step, size):
        start = Position(self.place.seqno, self.place.rba + step)
        end = Position(start.seqno, start.rba + 96 + size)
        block = wire.BlockMessage(start, end, bytes(96), bytes([size % 256]) * size)
        self._send(Side.PUMP, block)
        self.place = end
        self.sent.append(block)

    @precondition(lambda self: self._may(Side.COLLECTOR, Type.ACK) and self.synced < len(self.came))
    @rule(count=st.integers(1, 3))
    def sync(self, count):
        self.synced = min(len(self.came), self.synced + count)
        self._send(Side.COLLECTOR, wire.Ack(self.came[self.synced - 1].end, Position(0, self.synced)))

    @rule(side=st.sampled_from(list(Side)))
    def ping(self, side):
        if self._may(side, Type.PING):
            self._send(side, wire.Ping(1))

    @rule(side=st.sampled_from(list(Side)))
    def bye(self, side):
        if self._may(side, Type.BYE):
            self._send(side, wire.Bye("enough"))

    @rule()
    def refuse(self):
        if self._may(Side.COLLECTOR, Type.REFUSE) and self.ends[Side.COLLECTOR].state is WireState.STREAMING:
            self._send(Side.COLLECTOR, wire.Refuse(False, "disk full"))

    @rule()
    def cut_the_link(self):
        self.cut = True
        for pipe in self.pipes.values():
            pipe.clear()

    @invariant()
    def nothing_is_doubled_lost_or_out_of_order(self):
        assert self.came == self.sent[: len(self.came)]
        assert self.acked <= (self.came[self.synced - 1].end if self.synced else Position(0, 0))
        assert WireState.DEAD not in {end.state for end in self.ends.values()}


TestPair = Pair.TestCase
TestPair.settings = settings(max_examples=80, stateful_step_count=40)
