"""START with a place and END at a CSN, through ggsci, a Manager and the real process, though without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.ports import free_port
from tests.e2e.test_replicat_process import LOG, Group
from tests.support import sparkless
from tests.support.homes import end_all, ggsci, good, status, write
from trails.record import Op

pytestmark = pytest.mark.e2e


@pytest.fixture
def group(tmp_path: Path, target_db: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Group]:
    """A group whose home has a Manager."""
    for name, value in sparkless.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    made = Group(tmp_path, target_db)
    made.sql("CREATE TABLE log (note text)")
    (Path(made.home.root) / "GLOBALS").touch()
    write(made.home, "mgr", f"PORT {free_port()}\n")
    yield made
    end_all(made.home)
    made.close()


def test_aftercsn_to_end_csn(group: Group):
    """From behind one CSN to another, and not once more; the report and START say why the process ended."""
    for number in range(1, 9):
        group.feed.tx((Op.INSERT, LOG, [str(number)]))
    group.parameters("END CSN 6")
    ggsci(group.home, "START", "MANAGER")
    said = good(group.home, "START REPLICAT rep1, AFTERCSN 3")
    if "has stopped already" not in said:
        group.wait(lambda: str(status(group.home, "REP1").status) == "STOPPED")
    assert group.sql("SELECT note FROM log ORDER BY 1") == [("4",), ("5",), ("6",)]
    assert "END is reached at position 0/" in Path(group.home.report("REP1")).read_text()
    again = good(group.home, "START REPLICAT rep1")
    if "has stopped already" in again:
        assert "END is reached" in again
    group.wait(lambda: str(status(group.home, "REP1").status) == "STOPPED")
    assert "CSN 0000000000000006 is applied already" in Path(group.home.report("REP1")).read_text()
