"""START EXTRACT with ATCSN or AFTERCSN: what is left out, by whom it is told, and what no crash makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extract.extract import Settings
from tests.fault.test_extract_crashes import SETTINGS, assert_right, run
from tests.support.crashing import crash_everywhere
from tests.support.scripted import Inside, Item, ScriptedLog, ScriptedSource, ScriptedWorld
from tests.support.trail_script import SCRIPT, Tx, expected, holes, transactions
from trails.checkpoint import Place
from trails.errors import OperatorError
from trails.hole import Hole
from trails.position import Position
from trails.testing import FaultFs

pytestmark = pytest.mark.fault


class Numbered(ScriptedSource):
    """Names a place by the CSN of its transaction, as databases do."""

    first = 0

    def place(self, origin: Position, time_us: int | None) -> Place:
        """See Source."""
        return Place(origin.seqno, origin.rba, time_us, f"{origin.rba:08d}")

    def first_origin(self) -> Position:
        """See Source: where REGISTER EXTRACT was called."""
        return Position(0, self.first)


@pytest.fixture(autouse=True)
def numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of the source that counts by itself."""
    monkeypatch.setattr("tests.fault.test_extract_crashes.ScriptedSource", Numbered)


def ordered(key: str, number: int, order: int = 1) -> Settings:
    """As START notes it."""
    return replace(SETTINGS, start_no=order, start=((key, str(number)),))


@pytest.mark.parametrize(("key", "number", "left"), [("at_csn", 5, SCRIPT[4:]), ("after_csn", 5, SCRIPT[5:])])
def test_killed_at_every_call_it_leaves_out_the_same_transactions(key: str, number: int, left: list[Tx]) -> None:
    """I3, I8, CW-19: large ones too, also where the link is lost inside; one hole, which names both places."""
    items: list[Item] = [
        *SCRIPT[:2],
        Inside(SCRIPT[2], 25, "lost"),
        *SCRIPT[3:5],
        Inside(SCRIPT[5], 3, "lost"),
        *SCRIPT[6:],
    ]
    world = ScriptedWorld(FaultFs(), ScriptedLog(items, states=True))
    run(world.fs, ScriptedLog(list(SCRIPT[:2]), states=True))

    def check(found: ScriptedWorld) -> None:
        assert_right(found.fs, expected([*SCRIPT[:2], *left]))
        word = "ATCSN" if key == "at_csn" else "AFTERCSN"
        assert holes(found.fs) == [Hole("START EXTRACT EXT1", "00000002", f"{word} 00000005")]

    assert crash_everywhere(world, lambda at: run(at.fs, at.log, ordered(key, number)), check) > 30


def test_it_holds_until_the_trail_is_past_it_and_then_it_is_over() -> None:
    """A restart before that obeys it again, without another hole; what comes later is all captured."""
    fs, log = FaultFs(), ScriptedLog(list(SCRIPT[:2]))
    run(fs, log)
    log.items += SCRIPT[2:4]
    run(fs, log, ordered("after_csn", 6))
    log.items += SCRIPT[4:6]
    run(fs, log, ordered("after_csn", 6))
    assert transactions(fs) == expected(SCRIPT[:2])
    log.items += SCRIPT[6:]
    run(fs, log, ordered("after_csn", 6))
    assert transactions(fs) == expected([*SCRIPT[:2], *SCRIPT[6:]])
    assert len(holes(fs)) == 1


def test_a_schema_change_goes_with_its_transaction() -> None:
    """One that is left out leaves its shape out too; the next one brings its own."""
    script = [Tx(1, 2), Tx(2, 3, ddl=1), Tx(3, 2, ddl=0), Tx(4, 1)]
    fs = FaultFs()
    run(fs, ScriptedLog(script[:1]))
    run(fs, ScriptedLog(script), ordered("at_csn", 3))
    assert transactions(fs) == expected([script[0], *script[2:]])


@pytest.mark.parametrize(("key", "number"), [("at_csn", 3), ("at_csn", 1), ("after_csn", 2)])
def test_what_the_trail_has_is_refused(key: str, number: int) -> None:
    """It would come twice. The order that the message names goes on behind it, without a hole."""
    fs, log = FaultFs(), ScriptedLog(list(SCRIPT[:3]))
    run(fs, log)
    log.items += SCRIPT[3:]
    with pytest.raises(
        OperatorError, match=r"up to 00000003, which would come twice.*AFTERCSN 00000003 goes on"
    ) as error:
        run(fs, log, ordered(key, number))
    assert len(str(error.value).split()) <= 40
    run(fs, log, ordered("after_csn", 3, 2))
    assert transactions(fs) == expected(SCRIPT)
    assert holes(fs) == []


def test_a_new_trail_begins_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing lies before it, so there is no hole; what lies before the place of REGISTER EXTRACT is refused."""
    monkeypatch.setattr(Numbered, "first", 2)
    fs = FaultFs()
    with pytest.raises(OperatorError, match=r"ATCSN 00000001: the new trail begins at 00000002") as error:
        run(fs, ScriptedLog(list(SCRIPT)), ordered("at_csn", 1))
    assert len(str(error.value).split()) <= 40
    with pytest.raises(OperatorError, match=r"ATCSN: expected a CSN such as 00000002, found 'x'"):
        run(fs, ScriptedLog(list(SCRIPT)), replace(SETTINGS, start_no=1, start=(("at_csn", "x"),)))
    run(fs, ScriptedLog(list(SCRIPT)), ordered("at_csn", 4))
    assert transactions(fs) == expected(SCRIPT[3:])
    assert holes(fs) == []


def test_an_alter_and_a_start_behind_it() -> None:
    """Both are obeyed by the same start, and spent by the same file."""
    fs = FaultFs()
    run(fs, ScriptedLog(list(SCRIPT[:2])))
    both = replace(ordered("at_csn", 6, 2), alter_no=1, alter=(("csn", "4"),))
    run(fs, ScriptedLog(list(SCRIPT)), both)
    assert transactions(fs) == expected([*SCRIPT[:2], *SCRIPT[5:]])
    run(fs, ScriptedLog([*SCRIPT, Tx(20, 1)], confirmed=8), both)
    assert transactions(fs) == expected([*SCRIPT[:2], *SCRIPT[5:], Tx(20, 1)])
