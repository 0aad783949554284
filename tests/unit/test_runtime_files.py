"""Homes, registrations, reports, statistics, masking and purging: what lies in a home and what people read."""

from __future__ import annotations

import dataclasses
import os
import stat
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from trails import checkpoint
from trails import fs as fs_module
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint
from trails.errors import DamageError, OperatorError, VersionError
from trails.fs import RealFs, file_system_of, refuse_network_file_system
from trails.position import TrailName
from trails.record import Op
from trails.runtime.home import purge, registration
from trails.runtime.home.home import SUBDIRS, Home, group_name
from trails.runtime.home.registration import Registered, Registration, TrailReg
from trails.runtime.masking import mask, mask_parameters
from trails.runtime.report.report import Log, Report
from trails.runtime.report.stats import Stats, report_lines
from trails.testing import FakeClock


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A new home."""
    Home(str(tmp_path)).create_subdirs()
    return Home.at(str(tmp_path))


# --- home -----------------------------------------------------------------------------------------------------------


def test_subdirs_are_private_and_made_once(tmp_path: Path) -> None:
    """The second CREATE SUBDIRS makes nothing and keeps the home's id."""
    first = Home(str(tmp_path)).create_subdirs()
    identity = Home.at(str(tmp_path)).id
    again = Home(str(tmp_path)).create_subdirs()
    assert [made for _, made in first] == [True] * len(SUBDIRS)
    assert [made for _, made in again] == [False] * len(SUBDIRS)
    assert Home.at(str(tmp_path)).id == identity
    assert {stat.S_IMODE(os.stat(path).st_mode) for path, _ in first} == {0o700}


def test_a_folder_that_is_no_home_is_refused(tmp_path: Path) -> None:
    """The message names the folder and the command that makes it a home."""
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(OperatorError, match=rf"{path} is no home.*CREATE SUBDIRS"):
            Home.at(str(path))


def test_a_home_open_to_others_is_refused(home: Home) -> None:
    """Trails hold rows: 0700 or nothing."""
    os.chmod(home.folder("dirdat"), 0o750)
    with pytest.raises(OperatorError, match=r"dirdat: expected mode 0700, found 0750.*chmod 700"):
        Home.at(home.root)


def test_a_home_without_its_id_is_refused(home: Home) -> None:
    """Lost or damaged: a new id would make old checkpoint rows strangers."""
    path = Path(home.root, "dirpcs", "HOME")
    path.write_text("nonsense")
    with pytest.raises(DamageError, match="expected 32 hex digits, found 'nonsense'"):
        Home.at(home.root)
    path.unlink()
    with pytest.raises(OperatorError, match="id is missing"):
        Home.at(home.root)


def test_a_network_file_system_is_known_by_its_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mount table says what holds a folder; NFS is refused."""
    device = os.stat(tmp_path).st_dev
    table = tmp_path / "mountinfo"
    table.write_text(f"36 35 {os.major(device)}:{os.minor(device)} / /x rw,noatime master:1 - nfs4 there:/export rw\n")
    assert file_system_of(str(tmp_path), str(table)) == "nfs4"
    assert file_system_of(str(tmp_path), str(tmp_path / "none")) == ""
    assert file_system_of("/proc") == "proc"
    monkeypatch.setattr(fs_module, "file_system_of", lambda folder: "nfs4")
    with pytest.raises(OperatorError, match="network file system"):
        refuse_network_file_system(str(tmp_path))
    with pytest.raises(OperatorError, match="network file system"):  # a trail's, wherever it lies
        RealFs().lock(str(tmp_path / ".lt.lock"))


def test_group_names_have_one_form() -> None:
    """Upper case, a letter first, eight at most."""
    assert group_name("ext_1") == "EXT_1"
    for wrong in ("", "1ext", "toolongname", "a-b", "a/b", "ä"):
        with pytest.raises(OperatorError, match="group name"):
            group_name(wrong)


def test_paths_inside_the_home_are_shown_short(home: Home) -> None:
    """As in parameter files; others stay whole."""
    assert home.shown(home.folder("dirdat") + "/lt") == "./dirdat/lt"
    assert home.shown("/elsewhere/lt") == "/elsewhere/lt"


# --- registrations --------------------------------------------------------------------------------------------------

EXT1 = Registration(
    "EXT1", "EXTRACT", "TRANLOG", trails=(TrailReg("./dirdat/lt", "EXTTRAIL", 5),), alter={"csn": "0/5"}, alter_no=2,
    desc="größe", registered=Registered("PostgreSQL", made={"slot": "s"}), group_key=7,
)  # fmt: skip


def test_a_registration_comes_back_as_it_was(home: Home) -> None:
    """Save, load, list in order, delete."""
    rep = Registration("AREP", "REPLICAT", "TRAIL", "./dirdat/rt")
    for reg in (rep, EXT1):
        registration.save(home, reg)
    assert registration.load(home, "EXT1") == EXT1
    assert registration.all(home) == [EXT1, rep]
    registration.delete(home, "EXT1")
    assert registration.all(home) == [rep]
    with pytest.raises(OperatorError, match="group EXT1 does not exist"):
        registration.load(home, "EXT1")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", DamageError),
        ("[]", DamageError),
        ('{"version": 1}', DamageError),
        ('{"version": 1, "trails": [], "name": "EXT1", "kind": "EXTRACT", "source": "TRAIL", "new": 1}', DamageError),
        ('{"version": 2}', VersionError),
    ],
)
def test_a_broken_registration_is_named(home: Home, text: str, error: type[Exception]) -> None:
    """Damage and a newer version are different errors; both name the file."""
    Path(home.registration("EXT1")).write_text(text)
    with pytest.raises(error, match=r"EXT1\.json"):
        registration.load(home, "EXT1")


# --- passwords ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "SOURCEDB postgresql://me:geheim@host:5432/db",
        "SOURCEDB postgresql://me:geh@eim@host/db?x=1",
        "SOURCEDB postgresql://me:x/geheim@host/db",
        "SOURCEDB postgresql://me@host/db?password=geheim&sslmode=require",
        "SOURCEDB postgresql://:geheim@host/db",
        "TARGETDB host=h user=me password=geheim dbname=d",
        "TARGETDB host=h password = 'ge heim' dbname=d",
        "sslpassword=geheim",
        "USERID me, PASSWORD geheim",
        "userid me, password 'ge heim', other",
        'USERID me, PASSWORD "ge heim"',
        "USERID me, PASSWORD &\n  geheim",
        "USERID me, PASSWORD ge)heim=heim",
        "SPARKOPTIONS spark.hadoop.fs.s3a.secret.key=geheim",
        "SPARKOPTIONS spark.ssl.keyPassword = geheim",
        "TARGETDB host=h password=ge)'heim dbname=d",
    ],
)
def test_passwords_are_hidden(text: str) -> None:
    """In every place where one can stand, and nothing of it remains."""
    hidden = mask_parameters(text)
    assert "heim" not in hidden
    assert "********" in hidden


def test_messages_without_a_password_stay_as_they_are() -> None:
    """The word alone is no password: servers say it in their errors."""
    for text in (
        'FATAL:  password authentication failed for user "me"',
        "SOURCEDB postgresql://me@host:5432/db",
        "see http://docs.example/page",
    ):
        assert mask(text) == text
    assert mask("postgresql://me:x@h/d?a=b@c") == "postgresql://me:********@h/d?a=b@c"


# --- report and ggserr.log ------------------------------------------------------------------------------------------


def test_reports_are_aged(home: Home) -> None:
    """Ten older ones stay, the youngest is number 0; the report of group EXT10 is another file."""
    Path(home.report("EXT10")).write_text("another group's")
    for run in range(13):
        Report(home, "EXT1").lines([f"run {run}"])
    texts = [Path(home.report("EXT1", age)).read_text() for age in range(10)]
    assert texts == [f"run {11 - age}\n" for age in range(10)]
    assert Path(home.report("EXT1")).read_text() == "run 12\n"
    assert Path(home.report("EXT10")).read_text() == "another group's"


def test_a_log_line_has_goldengates_shape(home: Home) -> None:
    """Time, severity, code, component and parameter file; further lines indented; passwords hidden."""
    clock = FakeClock(int(datetime(2026, 2, 3, 2, 30, 5).astimezone().timestamp() * 1_000_000))
    messages = Log(home, "Trailgate Capture", "ext1.prm", clock, Report(home, "EXT1"))
    messages.info("TG-00993", "EXTRACT EXT1 started.")
    messages.error("TG-00446", "postgresql://u:geheim@h is away\nsecond line")
    assert Path(home.ggserr).read_text().splitlines() == [
        "2026-02-03 02:30:05  INFO    TG-00993  Trailgate Capture, ext1.prm:  EXTRACT EXT1 started.",
        "2026-02-03 02:30:05  ERROR   TG-00446  Trailgate Capture, ext1.prm:  postgresql://u:********@h is away",
        "    second line",
    ]
    assert Path(home.report("EXT1")).read_text().startswith("2026-02-03 02:30:05  INFO    TG-00993  EXTRACT EXT1 sta")


def test_what_others_say_commands_no_terminal_and_forges_no_line(home: Home) -> None:
    """Keys, names of tables, messages of databases: whoever writes rows must not write our log."""
    messages = Log(home, "Trailgate Delivery", "rep1.prm", FakeClock(), Report(home, "REP1"))
    said = "key (a\x1b[2J\r2026-02-03  ERROR\x85x\u2028y\u202ez\udc80)\nmore\tof it"
    messages.error("TG-00446", said)
    messages.detail("TG-00447", said)
    for path in (home.ggserr, home.report("REP1")):
        text = Path(path).read_text()
        assert "key (a\\x1b[2J\\r2026-02-03  ERROR\\x85x\\u2028y\\u202ez\\udc80)\n" in text
        assert all(char.isprintable() or char in "\n\t" for char in text)


def test_a_log_that_cannot_be_written_ends_nobody_and_says_later_what_is_missing(home: Home) -> None:
    """The file and the system's reason, once it takes lines again."""
    os.mkdir(home.ggserr)
    log = Log(home, "Trailgate Capture", "", FakeClock())
    log.info("TG-00993", "x")  # noqa: PLE1205
    log.info("TG-00993", "y")  # noqa: PLE1205
    assert "2 lines of log or report could not be written" in log.unwritten
    os.rmdir(home.ggserr)
    log.info("TG-00993", "z")  # noqa: PLE1205
    told, missing = Path(home.ggserr).read_text().splitlines()
    assert told.endswith("z") and "ggserr.log can't be written: Is a directory" in missing
    assert not log.unwritten


# --- statistics -----------------------------------------------------------------------------------------------------


def _stats() -> Stats:
    clock = FakeClock()
    stats = Stats(clock.now_us, "./dirdat/lt")
    stats.count("s.t", "s.t", Op.INSERT, 4)
    stats.count("s.t", "s.t", Op.UPDATE)
    stats.count("s.t", "s.t", "discards", 2)
    return stats


def test_counts_by_table() -> None:
    """Operations are the data operations, discards apart."""
    stats = _stats()
    assert stats.to_reply()["tables"] == [
        {"from": "s.t", "to": "s.t", "inserts": 4, "updates": 1, "deletes": 0, "truncates": 0, "ddls": 0, "discards": 2,
         "operations": 5}
    ]  # fmt: skip
    assert stats.total() == 5


def test_the_layout_of_statistics_in_a_report() -> None:
    """Table by table; none is said."""
    stats = _stats()
    assert stats.report_lines()[:3] == [
        "From Table s.t to s.t:",
        "       #                   inserts:         4",
        "       #                   updates:         1",
    ]
    empty = Stats(FakeClock().now_us).to_reply()
    assert report_lines(empty)[0] == "No database operations have been performed."


# --- purge ----------------------------------------------------------------------------------------------------------


def _trail(home: Home, files: int) -> TrailName:
    trail = TrailName.parse("./dirdat/rt", home.root)
    for seqno in range(files):
        Path(trail.path(seqno)).write_bytes(b"x")
    return trail


def _reader(home: Home, name: str, at: int | None, kind: str = "REPLICAT", **fields: Any) -> Registration:
    reg = Registration(name, kind, "TRAIL", "./dirdat/rt", **fields)
    registration.save(home, reg)
    if at is not None:
        _save(home, reg, at)
    return reg


def _save(home: Home, reg: Registration, at: int, recovery: int | None = None, **extra: Any) -> None:
    behind = Place(recovery, 1) if recovery is not None else None
    read = ReadCheckpoint("GGS Log Trail", Place(0, 0), Place(at, 9), behind)
    path = home.checkpoint(reg.name, reg.kind)
    checkpoint.save(home.fs, path, Checkpoint(reg.name, reg.kind, (read,), saved_us=5, extra=extra))


def _removed(home: Home, trail: TrailName) -> list[int]:
    return [fate.seqno for fate in purge.removable(home, home.fs, trail) if fate.removable]


def test_files_that_every_reader_has_passed_go(home: Home) -> None:
    """The slowest reader decides, and the reason names it."""
    trail = _trail(home, 6)
    _reader(home, "REP1", 4)
    _reader(home, "REP2", 2)
    assert _removed(home, trail) == [0, 1]
    assert [fate.reason for fate in purge.removable(home, home.fs, trail)] == [
        "every reader is past it (REPLICAT REP2 needs file 2 on)",
        "every reader is past it (REPLICAT REP2 needs file 2 on)",
        "REPLICAT REP2 needs file 2 on; it is STOPPED",
        "REPLICAT REP2 needs file 2 on; it is STOPPED",
        "REPLICAT REP2 needs file 2 on; it is STOPPED",
        "the trail's last file always stays",
    ]


def test_what_is_unsure_stays(home: Home) -> None:
    """No reader, a reader without a checkpoint, a damaged checkpoint: nothing goes."""
    trail = _trail(home, 3)
    assert _removed(home, trail) == []
    rep = _reader(home, "REP1", None)
    assert _removed(home, trail) == []
    _save(home, rep, 2)
    assert _removed(home, trail) == [0, 1]
    path = Path(home.checkpoint("REP1", "REPLICAT"))
    path.write_bytes(path.read_bytes()[:-1])
    assert _removed(home, trail) == []
    assert "can't be read" in purge.removable(home, home.fs, trail)[0].reason
    path.unlink()
    assert "has no checkpoint" in purge.removable(home, home.fs, trail)[0].reason


def test_the_checkpoint_file_of_another_group_does_not_count(home: Home) -> None:
    """I2: somebody copied it over the reader's own: where that one reads is not known, so nothing goes."""
    trail = _trail(home, 4)
    rep1, pump = _reader(home, "REP1", 3), Registration("REP1", "EXTRACT", "TRAIL", "./dirdat/lt", added_us=1)
    _reader(home, "REP2", 1)
    path = Path(home.checkpoint("REP2", "REPLICAT"))
    assert _removed(home, trail) == [0]
    for other in (rep1, dataclasses.replace(pump, name="REP2")):
        _save(home, other, 3)
        path.write_bytes(Path(home.checkpoint(other.name, other.kind)).read_bytes())
        assert _removed(home, trail) == []
        said = f"REPLICAT REP2: its checkpoint file is that of {other.kind} {other.name}"
        assert purge.removable(home, home.fs, trail)[0].reason.startswith(said)


def test_the_last_file_stays_even_when_all_is_read(home: Home) -> None:
    """The writer finds there where to go on."""
    trail = _trail(home, 3)
    _reader(home, "REP1", 7)
    assert _removed(home, trail) == [0, 1]


def test_a_recovery_place_counts_before_the_current_one(home: Home) -> None:
    """What the target has not flushed may be asked for again."""
    trail = _trail(home, 6)
    _save(home, _reader(home, "REP1", None), 5, recovery=1)
    assert _removed(home, trail) == [0]


def test_an_alter_that_is_not_obeyed_yet_keeps_its_files(home: Home) -> None:
    """ALTER sends the reader back at its next start; once obeyed it no longer counts."""
    trail = _trail(home, 6)
    reg = _reader(home, "REP1", 4, alter={"seqno": 1, "rba": 0}, alter_no=1)
    assert _removed(home, trail) == [0]
    _save(home, reg, 4, alter_no=1)
    assert _removed(home, trail) == [0, 1, 2, 3]
    registration.save(home, dataclasses.replace(reg, alter={"csn": "0/1"}, alter_no=2))
    assert _removed(home, trail) == []
    registration.save(home, dataclasses.replace(reg, alter={"etrollover": True}, alter_no=2))
    assert _removed(home, trail) == [0, 1, 2, 3]


def test_a_checkpoint_of_a_deleted_group_of_the_same_name_does_not_count(home: Home) -> None:
    """The group was added after it was saved: it says nothing about where the new one reads."""
    trail = _trail(home, 3)
    _reader(home, "REP1", 2, added_us=6)
    assert _removed(home, trail) == []
    assert "since it was added" in purge.removable(home, home.fs, trail)[0].reason


def test_readers_of_other_trails_do_not_matter(home: Home) -> None:
    """Another prefix, and an Extract that reads no trail."""
    trail = _trail(home, 3)
    _reader(home, "REP1", 2)
    registration.save(home, Registration("REP2", "REPLICAT", "TRAIL", "./dirdat/xx"))
    registration.save(home, EXT1)
    assert [reg.name for reg in purge.readers(home, trail)] == ["REP1"]
    assert _removed(home, trail) == [0, 1]
    assert purge.removable(home, home.fs, TrailName.parse("./dirdat/zz", home.root)) == []
