"""CHECK PARAMS, CHECKPARAMS and checkprm of an Extract and a pump: what START would find out, with nothing started."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.patience import PATIENCE
from ggsci import checkprm
from tests.support.capturing import Capture
from tests.support.homes import bad, good, make_home
from trails.runtime.home import registration
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration, TrailReg

pytestmark = pytest.mark.e2e


@pytest.fixture
def home(source_db: str, tmp_path: Path) -> Iterator[tuple[Home, Capture]]:
    """A home with a registered Extract, and a source with one table that is fit and one that is not."""
    home = make_home(tmp_path / "home")
    made = Capture(source_db, Path(home.folder("dirdat")))
    made.sql("CREATE TABLE fit (id int PRIMARY KEY, v int)")
    made.register()
    made.sql("CREATE TABLE bare (v int)")
    trails = (TrailReg("./dirdat/lt", "EXTTRAIL", 1),)
    registration.save(home, Registration("EXT1", "EXTRACT", "TRANLOG", trails=trails, registered=made.registered))
    return home, made


def write(home: Home, name: str, text: str) -> Path:
    """A parameter file of the home."""
    path = Path(home.prm(name))
    path.write_text(text)
    return path


def extract(url: str, *more: str) -> str:
    """The parameters of EXT1."""
    return "\n".join(["EXTRACT ext1", f"SOURCEDB {url}", "EXTTRAIL ./dirdat/lt", *more, ""])


def test_an_extract_is_held_against_its_source(home: tuple[Home, Capture], source_db: str, capsys) -> None:
    """A table whose updates the server would refuse is told before START; what matches nothing is a note."""
    where, _ = home
    path = write(where, "ext1", extract(source_db, "TABLE public.fit;", "TABLE sales.*;"))
    text = good(where, "CHECK PARAMS ext1")
    assert "1 tables of the source are captured today" in text
    assert f"{path}:5: TABLE sales.* names no table of the source today" in text
    write(where, "ext1", extract(source_db, "TABLE public.*;"))
    assert "table public.bare" in bad(where, "CHECK PARAMS ext1").replace('"', "")
    assert checkprm.main([str(path)]) == 1
    assert "no replica identity" in capsys.readouterr().err
    assert checkprm.main(["--text", str(path)]) == 0


def test_an_extract_that_is_not_registered_or_has_no_source(home: tuple[Home, Capture], source_db: str) -> None:
    """What can't be looked at is a note, not a mistake."""
    where, made = home
    write(where, "ext2", extract(source_db, "TABLE public.fit;").replace("ext1", "ext2"))
    assert "REGISTER EXTRACT EXT2 makes them" in good(where, "CHECK PARAMS ext2")
    write(where, "ext1", extract("postgresql://nobody@127.0.0.1:1/x", "TABLE public.fit;"))
    assert "Nothing was checked against the source" in good(where, "CHECK PARAMS ext1")
    made.sql(f"SELECT pg_drop_replication_slot('{made.made['slot']}')")
    write(where, "ext1", extract(source_db, "TABLE public.fit;"))
    assert "does not exist" in bad(where, "CHECK PARAMS ext1")


def test_checkparams_stops_before_anything_is_captured(home: tuple[Home, Capture], source_db: str) -> None:
    """The process reports and ends: 0 without mistakes, 2 with; no trail file is made."""
    where, _ = home
    for tables, code, words in (
        ("public.fit", 0, "CHECKPARAMS: no mistakes found"),
        ("public.*", 2, "no replica identity"),
    ):
        write(where, "ext1", extract(source_db, f"TABLE {tables};", "CHECKPARAMS"))
        command = [sys.executable, "-P", "-m", "extract", "--home", where.root, "EXT1"]
        assert subprocess.run(command, stderr=subprocess.PIPE, timeout=PATIENCE).returncode == code
        assert words in Path(where.report("EXT1")).read_text()
    assert list(Path(where.folder("dirdat")).iterdir()) == []


def test_a_pump_is_held_against_its_trails_and_its_manager(tmp_path: Path) -> None:
    """A remote trail that was never added is a mistake; a Manager that is away is a note."""
    where = make_home(tmp_path / "home")
    trails = (TrailReg("./dirdat/rt", "RMTTRAIL", 1),)
    registration.save(where, Registration("PMP1", "EXTRACT", "TRAIL", trail="./dirdat/lt", trails=trails))
    remote = "RMTHOST 127.0.0.1, MGRPORT 1, NOTLS"
    write(where, "pmp1", f"EXTRACT pmp1\n{remote}\nRMTTRAIL ./dirdat/rt\n")
    text = good(where, "CHECK PARAMS pmp1")
    assert "Trail ./dirdat/lt has no file yet" in text and "Warning: Manager at 127.0.0.1:1 can't be reached" in text
    write(where, "pmp1", f"EXTRACT pmp1\n{remote}\nRMTTRAIL ./dirdat/xx\n")
    assert "ADD RMTTRAIL ./dirdat/xx, EXTRACT PMP1" in bad(where, "CHECK PARAMS pmp1")


def test_checkprm_takes_any_file_and_tells_what_it_can_not_do(tmp_path: Path, capsys) -> None:
    """Exit codes: 0 no mistakes, 1 mistakes, 2 no such home or file."""
    where = make_home(tmp_path / "home")
    elsewhere = tmp_path / "mgr.prm"
    elsewhere.write_text("PORT 7809\nPROT 1\n")
    assert checkprm.main([str(elsewhere)]) == 2
    assert "checkprm --home DIR FILE" in capsys.readouterr().err
    assert checkprm.main(["--home", where.root, str(elsewhere)]) == 1
    assert f"{elsewhere}:2: PROT" in capsys.readouterr().err
    elsewhere.write_text("PORT 7809\n")
    assert checkprm.main(["--home", where.root, str(elsewhere)]) == 0
    assert checkprm.main([str(tmp_path / "home" / "dirprm" / "none.prm")]) == 2
