"""Extract's parameters, commands and checkpoint, on a scripted source."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from extract.__main__ import settings
from extract.extract import Extract, Settings
from extract.params import KEYWORDS, ExtractParams
from tests.support.homes import make_home
from tests.support.scripted import Idle, ScriptedLog, ScriptedSource
from tests.support.trail_script import SCRIPT, TRAIL
from trails.errors import OperatorError, ParamError
from trails.runtime.home import registration
from trails.runtime.language.params import parse_text
from trails.testing import FakeClock, FaultFs

GOOD = """EXTRACT ext1
SOURCEDB postgresql://gate:secret@db/shop
EXTTRAIL ./dirdat/lt
TABLE sales.*;
TABLE "Odd"."T";
TABLEEXCLUDE sales.audit_*;
"""


def params(text: str) -> ExtractParams:
    """Parse and check."""
    return ExtractParams.from_statements(parse_text(text, "ext1.prm"))


def test_a_whole_parameter_file() -> None:
    """Values, defaults, and what the table rules capture."""
    found = params(GOOD + "FLUSHCSECS 5\nBLOCKSIZE 64\nRECONNECTSECS 0\n")
    assert (found.group, found.trail, found.url) == ("EXT1", "./dirdat/lt", "postgresql://gate:secret@db/shop")
    assert (found.flush_seconds, found.block_bytes, found.reconnect_seconds) == (0.05, 65536, 0)
    assert (params(GOOD).flush_seconds, params(GOOD).block_bytes, params(GOOD).reconnect_seconds) == (
        0.1,
        1 << 20,
        3600,
    )
    captured = [("sales", "orders"), ("sales", "audit_1"), ("Odd", "T"), ("odd", "t"), ("public", "x")]
    assert [found.tables.wants(*name) for name in captured] == [True, False, True, False, False]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("EXTTRAIL ./dirdat/lt", "EXTTRAIL ./dirdat/long"),
            "ext1.prm:3: EXTTRAIL: expected a path that ends in a two-",
        ),
        (("SOURCEDB postgresql:", "SOURCEDB oracle:"), "ext1.prm:2: SOURCEDB: expected a URL such as postgresql:"),
        (("TABLE sales.*;", "TABEL sales.*"), "ext1.prm:4: TABEL: .* did you mean TABLE"),
        (("EXTTRAIL ./dirdat/lt\n", ""), "EXTTRAIL is missing"),
        (("EXTRACT ext1", "EXTRACT too_long_name"), "ext1.prm:1: EXTRACT"),
    ],
)
def test_a_mistake_is_told_with_its_line(change: tuple[str, str], message: str) -> None:
    """And what was expected; a URL's password is never in it."""
    with pytest.raises(ParamError, match=message) as error:
        params(GOOD.replace(*change))
    assert "secret" not in str(error.value)


def test_every_example_is_right() -> None:
    """Each keyword's own example passes, but for those that are refused by name."""
    for keyword in KEYWORDS.values():
        if keyword.name == "COMMENT" or keyword.refused:
            continue
        (statement,) = parse_text(keyword.example, "example")
        with pytest.raises(ParamError, match=keyword.name) if keyword.refused else contextlib.nullcontext():
            keyword.parse(statement)


def test_checking_parameters_loads_no_driver() -> None:
    """ggsci imports this module."""
    code = "import sys, extract.params; sys.exit(any(m.split('.')[0] in ('psycopg', 'pyspark') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_rollover_that_fails_ends_the_process_whoever_asked_for_it() -> None:
    """The control socket survives every error of an answer: so the work is done by step(), and its error is seen."""
    fs, log = FaultFs(), ScriptedLog([*SCRIPT[:3], Idle(3), Idle(3)])
    settings = Settings("EXT1", "home", "host", TRAIL, "./dirdat/lt")
    extract = Extract.start(fs, settings, ScriptedSource(log), FakeClock())
    extract.step()

    def broken(operation: str, _path: str) -> None:
        if operation in ("datasync", "create"):
            raise OperatorError("the disk is broken")

    fs.fail = broken
    assert extract.command("ROLLOVER", {}) == {}
    with pytest.raises(OperatorError, match="the disk is broken"):
        extract.step()


def test_commands_and_checkpoint() -> None:
    """STATUS, STATS, GETLAG, LOGEND, ROLLOVER, and a checkpoint that never passes what is durable."""
    fs, clock = FaultFs(), FakeClock()
    log = ScriptedLog([*SCRIPT[:3], Idle(3), Idle(3)])
    extract = Extract.start(fs, Settings("EXT1", "home", "host", TRAIL, "./dirdat/lt"), ScriptedSource(log), clock)
    extract.step()
    assert extract.command("STATUS", {})["status"] == "Processing data"
    assert extract.command("STATUS", {})["in_transaction"] == 1
    assert extract.command("LOGEND", {}) == {"logend": False}
    while log.answered[-2:] != [3, 3]:
        extract.step()
        extract.flush()
    assert extract.command("STATUS", {})["status"] == "At EOF"
    assert extract.command("GETLAG", {}) == {"lag_us": 0, "lag_why": "", "at_eof": True, "heartbeats": []}
    (table,) = extract.stats.to_reply()["tables"]
    assert (table["from"], table["inserts"], table["operations"]) == ("s.t", 34, 34)
    assert extract.command("ROLLOVER", {}) == {}
    extract.step()
    with pytest.raises(
        OperatorError, match=r"an Extract knows no request NONSENSE\. It knows FORCESTOP, GETLAG, .*, SHOWTRANS, "
    ):
        extract.command("NONSENSE", {})
    checkpoint = extract.flush()
    assert (checkpoint.group, checkpoint.kind, checkpoint.lag_us) == ("EXT1", "EXTRACT", 0)
    (read,), (write,) = checkpoint.reads, checkpoint.writes
    assert (read.source, read.startup.rba, read.needed.rba) == ("Scripted Log", 0, 3)
    assert (write.seqno, write.rba, write.trail, write.type) == (
        1,
        extract._writer.durable.rba,
        "./dirdat/lt",
        "EXTTRAIL",
    )
    extract.close()


def test_an_order_of_start_holds_until_an_alter_behind_it(tmp_path) -> None:
    """And is refused where the source numbers its transactions as they are read."""
    home = make_home(tmp_path / "home")
    context = SimpleNamespace(home=home, host="host", previous=[])
    trails = (registration.TrailReg("./dirdat/lt", "EXTTRAIL"),)
    known = registration.Registration(
        "EXT1", "EXTRACT", "TRANLOG", trails=trails, alter_no=1, start_no=2, start={"at_csn": "0/1"}
    )
    found = settings(context, params(GOOD), known)  # type: ignore[arg-type]
    assert (found.start_no, found.start) == (2, (("at_csn", "0/1"),))
    found = settings(context, params(GOOD), replace(known, alter_no=3))  # type: ignore[arg-type]
    assert (found.start_no, found.start) == (0, ())
    with pytest.raises(OperatorError, match=r"TRIGGERLOG gets its CSNs as it is read.*ALTER EXTRACT EXT1"):
        settings(context, params(GOOD), replace(known, method="TRIGGERLOG"))  # type: ignore[arg-type]
