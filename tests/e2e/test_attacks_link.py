"""What a peer with a certificate of the home's CA tries, over a real link: Manager, Collector, Replicat, a superuser's
database behind them. Its trails are written by hand, and real pumps send them.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from demo.patience import PATIENCE, wait_for
from demo.servers import PostgresServer
from tests.support.ddl_hostile import BEFORE as SHAPE
from tests.support.ddl_hostile import HOSTILE, adding, column, creating
from tests.support.ddl_target import feed_ddl
from tests.support.homes import good
from tests.support.link import records_of
from tests.support.replicat_trail import table
from tests.support.siege import Chain, Siege
from trails.codec import _compress
from trails.ddl import DdlChange
from trails.errors import AwayError
from trails.format import BlockHeader, BlockKind, Indicator
from trails.fs import RealFs
from trails.link import wire
from trails.link.wire import Side, WireSession
from trails.position import Position, TrailName
from trails.record import Op
from trails.show.dump import main as logdump

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("siege")]

MIB = 1 << 20
FORGED = "x\x1b]0;owned\x07\n2026-01-01 00:00:00  ERROR   TG-09999  forged"
T = table("s", "t", "id keep", "id")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""All but tabs and ends of lines."""


@pytest.fixture(scope="module")
def siege(pg_target: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Siege]:
    """One for all attacks; each has a trail of its own."""
    pg_target.sql("CREATE DATABASE besieged")
    made = Siege(tmp_path_factory.mktemp("siege"), pg_target.url("besieged"))
    try:
        yield made
    finally:
        made.close()
        pg_target.sql("DROP DATABASE besieged WITH (FORCE)")


def test_what_a_peer_calls_types_and_values_stays_data(siege: Siege) -> None:
    """Statements in types, defaults and values; a key of 105,000 letters that is refused; names that forge a log."""
    siege.sql("CREATE TABLE public.t (id varchar(9) PRIMARY KEY, keep varchar(9))")
    siege.sql("INSERT INTO public.t VALUES ('1', 'kept')")
    back = DdlChange("ALTER", adding(column(), SHAPE).new, SHAPE, "ALTER TABLE ...")
    lines = ("DDL INCLUDE MAPPED", "DDLERROR DEFAULT IGNORE", "REPERROR (DEFAULT, DISCARD)")
    with Chain(siege, "A", *lines) as chain:
        for change in HOSTILE:
            feed_ddl(chain.feed, change, *([back] if change.op == "ALTER" else []))
        feed_ddl(chain.feed, creating(FORGED))
        chain.feed.tx((Op.INSERT, T, ["A1@:/%=" * 15_000, "x"]))
        chain.feed.tx((Op.INSERT, table("s", FORGED, "id", "id"), ["no number"]))
        chain.through()
        shown = good(siege.far, f"STATS REPLICAT {chain.group}") + good(siege.far, f"VIEW REPORT {chain.group}")
    assert siege.sql("SELECT id, keep FROM public.t") == [("1", "kept")]
    assert siege.sql("SELECT 1 FROM pg_roles WHERE rolname = 'intruder'") == []
    assert siege.sql("SELECT 1 FROM pg_class WHERE relname IN ('t1', 't2', 't4', 't5', 'y')") == []
    shown += chain.said()
    assert "is left out by DDLERROR" in shown
    assert "TG-09999" in shown
    assert "CREATE ROLE" not in shown
    assert not CONTROL.search(shown)
    assert not re.search(r"^2026-01-01.*TG-09999", shown, re.MULTILINE)


BEGIN = [Op.BEGIN, f"{1:016d}", "7", 1]
MALFORMED = {
    "a table that is not there": [[], [BEGIN, [Op.INSERT, 77, ["x"]], [Op.COMMIT, 1]]],
    "a count that is a text": [[], [BEGIN, [Op.COMMIT, "\x1b[2J"]]],
    "a record of another shape": [[], [BEGIN, {"op": FORGED}, [Op.COMMIT, 1]]],
}
BOMB = b"\x92\x90\xdd" + (4 * MIB).to_bytes(4) + b"\x91\xc0" * (4 * MIB)


@pytest.mark.parametrize(
    ("letter", "raw"),
    [
        *zip("BCD", (msgpack.packb(tree, use_bin_type=False) for tree in MALFORMED.values()), strict=True),
        ("E", BOMB),
    ],
    ids=[*MALFORMED, "33 kB that are four million lists"],
)  # fmt: skip
def test_a_block_that_is_wrong_under_a_right_crc_is_damage(siege: Siege, letter: str, raw: bytes, capsys: Any) -> None:
    """The Collector stores it; Replicat, which may take 150 MiB more, and logdump end with exit code 2 where it is."""
    with Chain(siege, letter) as chain:
        chain.through()
        _give(chain.replicat.pid, 150 * MIB)
        made = _compress(raw)
        header = BlockHeader(
            BlockKind.DATA, Indicator.WHOLE, made.flags, len(made.data), made.raw_len, 1, 1, Position(0, 9), 1,
            f"{9:016d}", made.crc,
        )  # fmt: skip
        chain.feed.writer.append_block(header, made.data, Position(0, 9))
        chain.feed.writer.sync()
        assert chain.replicat.wait(PATIENCE) == 2, chain.said()
    assert re.search(r"ERROR .*/r.0{9}.* RBA \d+", chain.said()), chain.said()
    assert logdump([str(chain.remote), "--records"]) == 2
    shown = "".join(capsys.readouterr()) + chain.said()
    assert not CONTROL.search(shown)


def _give(pid: int, more: int) -> None:
    """From now on it can take so much memory more; who wants more of it ends by a MemoryError, which is exit code 1."""
    found = re.search(r"VmData:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    assert found
    most = (int(found[1]) << 10) + more
    resource.prlimit(pid, resource.RLIMIT_DATA, (most, most))


def hello(home: str, host: str = "here") -> wire.Hello:
    """As a pump PMPX of that home says it, for the trail x0 and an hour."""
    return wire.Hello(home, "PMPX", host, "./dirdat/x0", b"1" * 16, {}, 0, None, 100, 3_600_000)


def talk(sock: Any, message: wire.Hello) -> Any:
    """The answer; None where the link is closed."""
    session = WireSession(Side.PUMP)
    sock.sendall(b"".join(bytes(piece) for piece in session.send(message)))
    while data := sock.recv(1 << 16):
        for event in session.receive(data):
            return event
    return None


def test_a_home_gets_its_share_of_the_collectors_and_nobody_elses(siege: Siege) -> None:
    """The fifth is refused, another home gets one; and a Collector hears no home but the one it was started for."""
    held = [siege.call(siege.other, f"./dirdat/x{n}") for n in range(4)]
    try:
        with pytest.raises(AwayError, match="this home has 4 Collectors already"):
            siege.call(siege.other, "./dirdat/x4")
        held.append(siege.call(siege.near, "./dirdat/y0"))
        for said in (hello(siege.near.id), hello(siege.other.id), hello(siege.other.id, FORGED)):
            with siege.visit(siege.near, held[0].getpeername()) as sock:
                assert not isinstance(talk(sock, said), wire.Welcome)
        assert isinstance(talk(held[0], hello(siege.other.id)), wire.Welcome)
    finally:
        for sock in held:
            sock.close()
    log = Path(siege.far.ggserr).read_text(encoding="utf-8")
    assert "HELLO: key 'host': expected at most 1024 printable characters" in log
    assert f"is pump {siege.near.id}/PMPX; this Collector was started for {siege.other.id}/PMPX" in log
    assert f"says to be home {siege.other.id}; its certificate is home {siege.near.id}'s" in log


def test_another_home_of_the_authority_takes_no_pumps_trail(siege: Siege) -> None:
    """It answers at the pump's address, its certificate fits, and the pump lost its checkpoint: it gets no block."""
    with Chain(siege, "F") as chain:
        chain.through()
        chain.pump.terminate()
        assert chain.pump.wait(PATIENCE) == 0
        shutil.rmtree(siege.near.folder("dirchk"))
        os.mkdir(siege.near.folder("dirchk"), 0o700)
        with siege.answered_by(siege.other):
            code = chain.send().wait(PATIENCE)
            assert chain.pump.stderr is not None
            said = chain.pump.stderr.read().decode()
        assert code == 2
        assert f"is of home {siege.other.id}; PMPF has sent this trail to home {siege.far.id}" in said
        assert records_of(RealFs(), TrailName.parse("./dirdat/rf", siege.other.root)) == []
        chain.send()
        wait_for(lambda: "Linked to" in Path(siege.near.report("PMPF")).read_text())
