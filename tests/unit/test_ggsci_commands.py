"""Commands on a home without any process: registrations, trails, parameter files, scripts, exit codes, JSON."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ggsci import __main__ as entry
from ggsci import admin
from ggsci.commands.session import OperatorSession
from tests.support.homes import as_json, bad, good, group, make_home, run, write
from tests.support.trail_script import IDENTITY, SCRIPT, write_tx
from trails import checkpoint
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint
from trails.fs import RealFs
from trails.position import TrailName
from trails.runtime.home import registration
from trails.runtime.home.registration import Registered
from trails.writer import TrailWriter

REPLICAT_PRM = """REPLICAT rep1
TARGETDB postgresql://gg:s3cret@host/db
MAP s.*, TARGET s.*;
"""


@pytest.fixture
def home(tmp_path):
    return make_home(tmp_path / "home")


@pytest.fixture
def groups(home):
    """An Extract, a pump, a Replicat."""
    good(home, "ADD EXTRACT ext1, TRANLOG, BEGIN NOW")
    good(home, "ADD EXTTRAIL ./dirdat/lt, EXTRACT ext1, MEGABYTES 5")
    good(home, "ADD EXTRACT pmp1, EXTTRAILSOURCE ./dirdat/lt, DESC 'to the copy'")
    good(home, "ADD RMTTRAIL ./dirdat/rt, EXTRACT pmp1")
    good(home, "ADD REPLICAT rep1, EXTTRAIL ./dirdat/rt, CHECKPOINTTABLE gg.ckpt")
    return home


def make_trail(home, path="./dirdat/lt"):
    """A trail of a few files; its positions of blocks in file 0."""
    writer = TrailWriter.open(RealFs(), TrailName.parse(path, home.root), IDENTITY, max_bytes=6000, restart_open=True)
    for tx in SCRIPT[:4]:
        write_tx(writer, tx)
    writer.sync()
    writer.close()


# --- CREATE SUBDIRS ---------------------------------------------------------------------------------------------------


def test_create_subdirs_makes_private_folders_once(tmp_path):
    """0700 folders and an id; a second time leaves them."""
    from trails.runtime.home.home import SUBDIRS, Home

    home = Home(str(tmp_path / "new"))
    first = good(home, "CREATE SUBDIRS")
    assert first.count("created.") == len(SUBDIRS)
    identity = Path(home.root, "dirpcs", "HOME").read_text()
    assert good(home, "create subdirs").count("already exists.") == len(SUBDIRS)
    assert Path(home.root, "dirpcs", "HOME").read_text() == identity
    assert stat.S_IMODE(os.stat(home.folder("dirdat")).st_mode) == 0o700


def test_a_folder_that_is_no_home_is_told(tmp_path):
    """The hint names the command that mends it."""
    from trails.runtime.home.home import Home

    assert "CREATE SUBDIRS" in bad(Home(str(tmp_path)), "INFO ALL")


# --- ADD, ALTER, DELETE -----------------------------------------------------------------------------------------------


def test_a_file_of_a_group_that_is_not_added_yet_is_checked_as_what_it_says(home):
    """GoldenGate's USERIDALIAS line, and no SOURCEDB: an Extract all the same, and what is missing is told."""
    write(home, "ext1", "EXTRACT ext1\nUSERIDALIAS src\nEXTTRAIL ./dirdat/lt\nTABLE s.*;\n")
    text = bad(home, "CHECK PARAMS ext1")
    assert "ext1.prm:2: USERIDALIAS: " in text
    assert "ADD CREDENTIALSTORE" in text
    url = "postgresql://HOST:PORT/DATABASE or mysql://HOST:PORT/DATABASE"
    assert f"and write SOURCEDB {url}, as no URL is there" in text
    assert "EXTTRAIL" not in text
    write(home, "ext1", "EXTRACT ext1\nRMTTRAIL ./dirdat/rt\n")
    assert "RMTHOST is missing" in bad(home, "CHECK PARAMS ext1")


def test_alter_exttrail_changes_the_size_of_files_to_come(groups):
    """As GoldenGate's ALTER EXTTRAIL; a trail that is not registered, or a size that can't be, changes nothing."""
    assert good(groups, "ALTER EXTTRAIL dirdat/lt, MEGABYTES 50") == "EXTTRAIL altered.\n"
    assert "is not registered" in bad(groups, "ALTER EXTTRAIL ./dirdat/lt, EXTRACT pmp1, MEGABYTES 60")
    assert "expected 1 to 2000" in bad(groups, "ALTER EXTTRAIL ./dirdat/lt, EXTRACT ext1, MEGABYTES 2001")
    good(groups, "ALTER RMTTRAIL ./dirdat/rt, EXTRACT pmp1, MEGABYTES 7")
    assert group(groups, "EXT1").trails == (registration.TrailReg("./dirdat/lt", "EXTTRAIL", 50),)
    assert group(groups, "PMP1").trails == (registration.TrailReg("./dirdat/rt", "RMTTRAIL", 7),)
    lock = groups.fs.lock(groups.lock("EXT1"))
    assert "STOP EXT1 first" in bad(groups, "ALTER EXTTRAIL ./dirdat/lt, MEGABYTES 5")
    lock.release()


def test_add_registers_groups_and_trails(groups):
    """The registration holds what was told; INFO shows it without any checkpoint."""
    assert group(groups, "EXT1").trails == (registration.TrailReg("./dirdat/lt", "EXTTRAIL", 5),)
    pump = group(groups, "PMP1")
    assert (pump.source, pump.trail, pump.desc) == ("TRAIL", "./dirdat/lt", "to the copy")
    replicat = group(groups, "REP1")
    assert (replicat.checkpoint_table, replicat.alter_no, replicat.alter) == ("gg.ckpt", 0, {})
    assert [row["group"] for row in as_json(groups, "INFO ALL")["groups"]] == ["EXT1", "PMP1", "REP1"]
    assert "UNKNOWN (no checkpoint yet)" in good(groups, "INFO rep1")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("ADD EXTRACT ext1, TRANLOG", "group EXT1 already exists"),
        ("ADD REPLICAT ext1, EXTTRAIL ./dirdat/rt", "group EXT1 already exists"),
        ("ADD EXTRACT mgr, TRANLOG", "the Manager's own name"),
        ("ADD EXTRACT e2, TRANLOG, BEGIN 2026-01-01", "Use BEGIN NOW"),
        ("ADD EXTRACT p2, EXTTRAILSOURCE ./dirdat/long", "two-character prefix"),
        ("ADD EXTRACT p2, EXTTRAILSOURCE ./dirdat/lt, LSN 0/1", "for an Extract on a database's log"),
        ("ADD EXTTRAIL ./dirdat/lt, EXTRACT ext1", "a trail has one writer"),
        ("ADD EXTTRAIL ./dirdat/lx, EXTRACT pmp1", "ADD RMTTRAIL ./dirdat/lx, EXTRACT PMP1, and RMTHOST localhost"),
        ("ADD RMTTRAIL ./dirdat/rt, EXTRACT ext1", "writes a local trail"),
        ("ADD EXTTRAIL ./dirdat/lx, EXTRACT nope", "group NOPE does not exist"),
        ("ADD EXTTRAIL ./dirdat/lx, EXTRACT rep1", "EXTRACT REP1 does not exist; there is a REPLICAT"),
        ("ADD EXTTRAIL ./dirdat/lx, EXTRACT ext1, MEGABYTES 0", "expected 1 to 2000, found 0"),
        ("DELETE EXTTRAIL ./dirdat/zz", "is not registered"),
        ("ALTER EXTRACT pmp1", "what is to be altered?"),
        ("ALTER EXTRACT pmp1, EXTRBA 5", "EXTRBA needs EXTSEQNO"),
        ("ALTER EXTRACT pmp1, EXTSEQNO 7", "has no file 7; its files are none"),
        ("INFO EXTRACT ext2", "Did you mean INFO EXT1?"),
        ("INFO al", "Did you mean INFO ALL?"),
        ("INFO REPLICAT x*", "no REPLICAT matches X*"),
        ("DELETE ER *", "End the command with !"),
        ("START EXTRACT ext1", "START MANAGER first"),
        ("STATS ext1", "not currently running (status STOPPED)"),
        ("SEND MANAGER CHILDSTATUS", "the Manager is not running"),
        ("REGISTER EXTRACT ext1", "Use DBLOGIN"),
        ("ADD TRANDATA s.*", "Use DBLOGIN"),
        ("DELETE CHECKPOINTTABLE", "expected a schema.table"),
        ("VIEW PARAMS ext1", "does not exist"),
        ("VIEW REPORT ext1", "there is no report of ext1"),
        ("VIEW DISCARD ext1", "there is no Replicat ext1 in this home"),
        ("EDIT PARAMS ../../etc/passwd", "expected a group, MGR, or ./GLOBALS"),
        ("OBEY nowhere.oby", "No such file"),
        ("SHELL exit 7", "ended with code 7"),
        ("! 99", "the history is empty"),
        ("HELP FROBNICATE", "no command"),
    ],
)
def test_what_cannot_be_done_is_told(groups, line, told):
    """One clear line that names the thing and what to do."""
    assert told in bad(groups, line)


def test_a_trail_is_the_same_however_it_is_written(groups):
    """`dirdat/rt` and `./dirdat/rt`: INFO finds where its writer is, ADD refuses it twice, DELETE finds it."""
    write = checkpoint.WriteCheckpoint(3, 4096, None, "dirdat/rt", "RMTTRAIL")
    path = groups.checkpoint("PMP1", "EXTRACT")
    checkpoint.save(groups.fs, path, Checkpoint("PMP1", "EXTRACT", writes=(write,), saved_us=1))
    assert as_json(groups, "INFO RMTTRAIL dirdat/r*")[0]["seqno"] == 3
    assert "registered already" in bad(groups, "ADD RMTTRAIL dirdat/rt, EXTRACT pmp1")
    good(groups, "DELETE RMTTRAIL dirdat/rt")


def test_an_alter_is_recorded_with_a_new_number(groups):
    """CW-19: the process compares the number with the one its output bears, so each is obeyed once."""
    make_trail(groups)
    good(groups, "ALTER EXTRACT pmp1, EXTSEQNO 0, EXTRBA 0")
    assert (group(groups, "PMP1").alter, group(groups, "PMP1").alter_no) == ({"seqno": 0, "rba": 0}, 1)
    text = good(groups, "ALTER EXTRACT pmp1, EXTSEQNO 1, EXTRBA 0, ETROLLOVER")
    assert "was not obeyed yet; it is replaced" in text
    assert (group(groups, "PMP1").alter, group(groups, "PMP1").alter_no) == (
        {"seqno": 1, "rba": 0, "etrollover": True},
        2,
    )
    text = good(groups, "ALTER EXTRACT ext1, LSN 0/16B3748!")
    assert "EXT1 has captured up to" in text
    assert (group(groups, "EXT1").alter, group(groups, "EXT1").alter_no) == ({"csn": "0/16B3748"}, 3)
    good(groups, "ALTER EXTRACT ext1, DESC 'renamed'")
    assert group(groups, "EXT1").alter_no == 3


def test_an_alter_of_an_extract_is_known_obeyed_by_its_trail(groups):
    """CW-19: the trail's newest header bears the number, so the next ALTER replaces nothing."""
    good(groups, "ALTER EXTRACT ext1, ETROLLOVER")
    trail = TrailName.parse("./dirdat/lt", groups.root)
    TrailWriter.open(RealFs(), trail, IDENTITY, alter=1, restart_open=True).close()
    assert "replaced" not in good(groups, "ALTER EXTRACT ext1, ETROLLOVER")
    assert "replaced" in good(groups, "ALTER EXTRACT ext1, ETROLLOVER")


def test_an_alter_number_is_never_used_again(groups):
    """CW-19: also not by a group deleted and added again, whose output still bears the old number."""
    make_trail(groups)
    good(groups, "ALTER EXTRACT pmp1, EXTSEQNO 0, EXTRBA 0")
    good(groups, "DELETE EXTRACT pmp1")
    good(groups, "ADD EXTRACT pmp1, EXTTRAILSOURCE ./dirdat/lt, EXTSEQNO 1, EXTRBA 0")
    assert group(groups, "PMP1").alter_no == 2


@pytest.mark.parametrize(
    ("position", "told"),
    [
        ("EXTSEQNO 0, EXTRBA 4231", "block border"),
        ("EXTSEQNO 9, EXTRBA 0", "no file 9"),
        ("EXTSEQNO 1, EXTRBA 999999", ""),
    ],
)
def test_only_a_block_border_can_be_a_position(groups, position, told):
    """The position is checked against the trail before it is recorded."""
    make_trail(groups)
    assert told in bad(groups, f"ALTER EXTRACT pmp1, {position}")
    assert group(groups, "PMP1").alter_no == 0


def test_the_file_after_the_last_may_be_a_position(groups):
    """After a rollover its readers are sent there before it exists."""
    make_trail(groups)
    last = TrailName.parse("./dirdat/lt", groups.root).seqnos(os.listdir(groups.folder("dirdat")))[-1]
    good(groups, f"ALTER EXTRACT pmp1, EXTSEQNO {last + 1}, EXTRBA 0")
    bad(groups, f"ALTER EXTRACT pmp1, EXTSEQNO {last + 2}, EXTRBA 0")


def test_a_running_group_is_neither_altered_nor_deleted(groups):
    """The group's lock is held by whoever runs it."""
    lock = groups.fs.lock(groups.lock("PMP1"))
    assert "is running" in bad(groups, "DELETE EXTRACT pmp1")
    assert "is running" in bad(groups, "ALTER EXTRACT pmp1, ETROLLOVER")
    assert "is running" in bad(groups, "ADD RMTTRAIL ./dirdat/ry, EXTRACT pmp1")
    lock.release()
    good(groups, "DELETE EXTRACT pmp1")


def test_delete_says_that_the_checkpoint_row_remains(groups):
    """CW-18: without DBLOGIN the row stays, and the same key finds it again."""
    key = group(groups, "REP1").group_key
    text = good(groups, "DELETE REPLICAT rep1")
    assert "the row of REPLICAT REP1 in gg.ckpt remains" in text
    good(groups, "ADD REPLICAT rep1, EXTTRAIL ./dirdat/rt, CHECKPOINTTABLE gg.ckpt")
    assert group(groups, "REP1").group_key == key


def test_delete_removes_checkpoint_and_names_the_slot(groups):
    """A slot that nobody drops fills the source's disk: it is named."""
    saved = replace(group(groups, "EXT1"), registered=Registered("PostgreSQL", "shop", made={"slot": "tg_ext1"}))
    registration.save(groups, saved)
    path = groups.checkpoint("EXT1", "EXTRACT")
    checkpoint.save(groups.fs, path, Checkpoint("EXT1", "EXTRACT"))
    assert "remains in database shop and holds back its log: slot tg_ext1." in good(groups, "DELETE EXTRACT ext1")
    assert not os.path.exists(path)
    assert "EXT1" not in good(groups, "INFO ALL")


def test_a_group_whose_registration_cant_be_read_is_deleted_and_added_again(groups):
    """As its message says; a Replicat goes on at its row, which bears the same key."""
    for name, kind, more in (("EXT1", "EXTRACT", "TRANLOG, BEGIN NOW"), ("REP1", "REPLICAT", "EXTTRAIL ./dirdat/rt")):
        key = group(groups, name).group_key
        Path(groups.registration(name)).write_text("{")
        assert "DELETE and ADD the group" in bad(groups, f"INFO {name}")
        good(groups, f"DELETE {kind} {name}")
        good(groups, f"ADD {kind} {name}, {more}")
        assert group(groups, name).group_key == key


def test_wildcards_mean_all_that_match(groups):
    """DELETE with the mark takes them all."""
    text = good(groups, "DELETE ER *!")
    assert text.count("Deleted ") == 3
    assert as_json(groups, "INFO ALL")["groups"] == []


def test_trails_are_listed_and_deleted(groups):
    """INFO EXTTRAIL and RMTTRAIL know their own kind only."""
    assert [row["trail"] for row in as_json(groups, "INFO EXTTRAIL *")] == ["./dirdat/lt"]
    assert as_json(groups, "INFO RMTTRAIL ./dirdat/r?")[0]["group"] == "PMP1"
    good(groups, "DELETE RMTTRAIL ./dirdat/rt")
    assert group(groups, "PMP1").trails == ()
    assert "No RMTTRAIL is registered." in good(groups, "INFO RMTTRAIL")


# --- looking ----------------------------------------------------------------------------------------------------------


def test_a_damaged_checkpoint_file_is_shown_as_such(groups):
    """INFO goes on with the other groups; the lag is unknown."""
    Path(groups.checkpoint("REP1", "REPLICAT")).write_bytes(b"not a checkpoint")
    text = good(groups, "INFO *")
    assert "UNKNOWN (" in text
    assert "EXTRACT    PMP1" in text
    assert "damaged" in as_json(groups, "INFO rep1")[0]["checkpoint_damage"]


def test_every_list_is_json_and_nothing_else(groups):
    """Raw numbers, null for what is not known."""
    place = Place(3, 4096, None, "0/1")
    save = Checkpoint("REP1", "REPLICAT", (ReadCheckpoint("GGS Log Trail", place, place),), lag_us=None)
    checkpoint.save(groups.fs, groups.checkpoint("REP1", "REPLICAT"), save)
    found = as_json(groups, "INFO REPLICAT rep1, SHOWCH")[0]
    assert found["checkpoints"][0]["reads"][0]["current"]["rba"] == 4096
    assert found["lag_us"] is None
    for line in ("INFO ALL", "INFO *", "STATUS *", "INFO MANAGER", "INFO EXTTRAIL *", "HISTORY", "VERSIONS", "SHOW"):
        as_json(groups, line)


def test_an_error_is_json_too(groups):
    """With --json standard output holds JSON also when the command failed."""
    assert "does not exist" in json.loads(bad(groups, "INFO EXTRACT nope --json"))["error"]


# --- parameter files --------------------------------------------------------------------------------------------------


def test_every_mistake_of_a_parameter_file_is_listed(groups):
    """File, line, what was expected; START would refuse the same."""
    write(groups, "rep1", "REPLICAT rep1\nTARGTDB postgresql://h/d\nMAP s.*, TARGET s.*\n")
    text = bad(groups, "CHECK PARAMS rep1")
    path = groups.prm("rep1")
    assert f"{path}:2" in text
    assert "did you mean TARGETDB" in text
    assert f"{path}:3" in text
    write(groups, "rep1", REPLICAT_PRM.replace("@host", "@127.0.0.1:1"))
    text = good(groups, "CHECK PARAMS rep1")
    assert "no mistakes found" in text
    assert "The target's tables were not checked: the target database can't be reached" in text
    assert "s3cret" not in text


def test_check_params_takes_a_wildcard(groups):
    """The Manager and all groups that it matches, each with its mistakes; what it does not match is not looked at."""
    write(groups, "rep1", "REPLICAT rep1\nTARGTDB postgresql://h/d\nMAP s.*, TARGET s.*;\n")
    write(groups, "mgr", "PORT 7809\n")
    text = bad(groups, "CHECK PARAMS *")
    assert f"{groups.prm('mgr')}: no mistakes found" in text
    assert f"{groups.prm('rep1')}:2" in text
    assert groups.prm("ext1") in text
    assert groups.prm("rep1") not in good(groups, "CHECK PARAMS m*")
    assert "no group matches X*" in bad(groups, "CHECK PARAMS X*")


def test_a_mistake_in_globals_is_told_with_every_file(home):
    """No process starts with it, so no file is called right; both files' mistakes are told."""
    Path(home.prm("mgr")).write_text("PORT 7809\n")
    assert "no mistakes" in good(home, "CHECK PARAMS mgr")
    Path(home.globals).write_text("CHECKPOINTTABLE chk\n")
    assert f"{home.globals}:1: CHECKPOINTTABLE: expected schema.table" in bad(home, "CHECK PARAMS mgr")
    Path(home.prm("mgr")).write_text("PORT x\n")
    text = bad(home, "CHECK PARAMS mgr")
    assert f"{home.globals}:1:" in text
    assert f"{home.prm('mgr')}:1: PORT" in text


def test_view_params_masks_passwords(groups):
    """What is shown on a screen, and kept in its scroll-back, holds none."""
    write(groups, "rep1", REPLICAT_PRM)
    text = good(groups, "VIEW PARAMS rep1")
    assert "TARGETDB postgresql://gg:" in text
    assert "s3cret" not in text


def test_edit_params_runs_the_editor_and_checks(groups, monkeypatch):
    """The mistakes are told at once, while the editor is still in mind."""
    monkeypatch.setenv("VISUAL", "sh -c 'echo PROT 7809 > \"$0\"'")
    assert "did you mean PORT" in bad(groups, "EDIT PARAMS mgr")


def test_globals_names_the_checkpoint_table(home):
    """For Replicats that are added without one."""
    Path(home.globals).write_text("CHECKPOINTTABLE gg.ckpt\n")
    good(home, "ADD REPLICAT r1, EXTTRAIL ./dirdat/rt")
    assert group(home, "R1").checkpoint_table == "gg.ckpt"
    Path(home.globals).write_text("CHECKPOINTTABEL gg.ckpt\n")
    assert "did you mean CHECKPOINTTABLE" in bad(home, "ADD REPLICAT r2, EXTTRAIL ./dirdat/rt")


# --- reports, log, script ---------------------------------------------------------------------------------------------


def test_view_report_knows_aged_ones(groups):
    """EXT10 is EXT1's report before the present one."""
    Path(groups.report("EXT1")).write_text("now\n")
    Path(groups.report("EXT1", 0)).write_text("before\n")
    assert good(groups, "VIEW REPORT ext1") == "now\n"
    assert good(groups, "VIEW REPORT ext10") == "before\n"


def test_commands_are_logged_masked(home):
    """ggserr.log has each command with its user, and no password."""
    bad(home, "DBLOGIN USERID gg@nowhere:1/db, PASSWORD s3cret")
    good(home, "INFO ALL")
    text = good(home, "VIEW GGSEVT")
    assert "GGSCI command" in text
    assert "INFO ALL" in text
    assert "s3cret" not in text
    assert "s3cret" not in Path(home.ggserr).read_text()


def test_obey_echoes_runs_all_and_fails_if_one_did(home):
    """Continuation lines and comments; a failed command does not stop the others."""
    script = Path(home.root, "setup.oby")
    script.write_text(
        "-- a comment\nADD EXTRACT e1, &\n  TRANLOG, &\n  BEGIN NOW\n"
        "ADD EXTRACT e1, TRANLOG\n\nADD EXTRACT e2, TRANLOG\n"
    )
    text = bad(home, "OBEY setup.oby")
    assert "1> ADD EXTRACT e1," in text.replace("2>", "1>")
    assert "1 of 3 commands failed" in text
    assert [reg.name for reg in registration.all(home)] == ["E1", "E2"]


def test_obey_stops_an_endless_nesting(home):
    """A file that obeys itself ends with one clear error; without ALLOWNESTED at its first line."""
    Path(home.root, "loop.oby").write_text("OBEY loop.oby\n")
    session = OperatorSession(home.root)
    text = bad(home, "OBEY loop.oby", session)
    assert text.count("may not OBEY another one") == 1
    good(home, "ALLOWNESTED", session)
    assert "more than 16 deep" in bad(home, "OBEY loop.oby", session)
    good(home, "NOALLOWNESTED", session)
    assert "ALLOWNESTED allows it" in bad(home, "OBEY loop.oby", session)


def test_history_and_again(home):
    """By number, from the end, by beginning; a password is not kept."""
    session = OperatorSession(home.root)
    for line in ("INFO ALL", "VERSIONS", "DBLOGIN USERID gg, PASSWORD s3cret"):
        run(home, line, session)
    assert "1: INFO ALL" in good(home, "HISTORY", session)
    assert "Program     Status" in good(home, "! 1", session)
    assert "Trailgate" in good(home, "! vers", session)
    assert "is not kept" in bad(home, "! dblogin", session)


def test_arguments_and_standard_input_have_one_exit_code(groups, monkeypatch, capsys):
    """0 if all succeeded, 1 if one failed, 2 if ggsci itself can't be understood."""
    assert entry.main(["--home", groups.root, "INFO", "ALL"]) == 0
    assert entry.main(["--home", groups.root, "INFO ALL --json"]) == 0
    assert entry.main(["--home", groups.root, "--json", "INFO", "EXTRACT", "nope"]) == 1
    assert entry.main(["--frob"]) == 2
    monkeypatch.setattr(sys, "stdin", io.StringIO("INFO ALL\nINFO nope\nVERSIONS\nEXIT\nnever reached\n"))
    assert entry.main(["--home", groups.root]) == 1
    out = capsys.readouterr()
    assert "Operating System" in out.out
    assert "never" not in out.out + out.err


def test_a_password_on_the_command_line_is_refused(groups, capsys):
    """Everybody on the host could read it in the process list."""
    assert entry.main(["--home", groups.root, "DBLOGIN", "SOURCEDB", "postgresql://gg:s3cret@h/db"]) == 1
    assert "s3cret" not in "".join(capsys.readouterr())


# --- database commands, with a stand-in for the sub-process -----------------------------------------------------------

ADMIN = """
import json, sys
request = json.load(sys.stdin)
with open(sys.argv[1], "a") as log:
    log.write(json.dumps(request) + "\\n")
verb = request["verb"]
replies = {
    "dblogin": {"user": "gg", "database": "shop", "server": "16"},
    "register": {
        "kind": "PostgreSQL", "database": "shop", "title": "PostgreSQL WAL", "identity": {"system": "7"},
        "made": {"slot": "tg_ext1", "publication": "tg_ext1"}, "place": {"seqno": 1, "rba": 9, "csn": "0/16B3748"},
        "csn_label": "LSN",
    },
    "add_trandata": {"tables": [{"table": "s.t", "message": "replica identity FULL is set for table s.t."}]},
}
if "wrong" in request["url"] or ("strict" in request["url"] and "typed" not in request["url"]):
    print(json.dumps({"ok": False, "error": "password authentication failed for user gg"}))
else:
    print(json.dumps({"ok": True, **replies.get(verb, {})}))
"""


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """The requests that reached the sub-process."""
    program, log = tmp_path / "admin.py", tmp_path / "asked"
    program.write_text(ADMIN)
    command = [sys.executable, str(program), str(log)]
    monkeypatch.setattr(admin, "COMMANDS", {"extract": command, "replicat": command})
    return lambda: [json.loads(line) for line in log.read_text().splitlines()]


def test_dblogin_gives_the_password_to_standard_input_only(groups, asked):
    """USERID and PASSWORD become a URL with everything quoted; the prompt shows the login."""
    session = OperatorSession(groups.root)
    good(groups, "DBLOGIN USERID gg@host:5433/shop, PASSWORD 'p@ss/word'", session)
    assert asked()[0]["url"] == "postgresql://gg:p%40ss%2Fword@host:5433/shop"
    assert " as gg@shop) 2> " in session.prompt
    assert "p@ss" not in repr(session.login)
    assert "password authentication failed" in bad(groups, "DBLOGIN USERID gg@wrong/shop, PASSWORD x", session)
    assert session.login is None


def test_a_password_is_asked_for_only_where_the_database_wants_one(groups, asked, monkeypatch):
    """No question where the URL has none and none is needed; what was given is not asked for again."""
    questions = []
    monkeypatch.setattr(OperatorSession, "ask_secret", lambda self, question: questions.append(question) or "typed")
    session = OperatorSession(groups.root, may_ask=True)
    good(groups, "DBLOGIN SOURCEDB postgresql://gg@host/shop", session)
    assert questions == []
    good(groups, "DBLOGIN SOURCEDB postgresql://gg@strict/shop", session)
    assert questions == ["Password: "]
    assert asked()[-1]["url"] == "postgresql://gg:typed@strict/shop"
    bad(groups, "DBLOGIN SOURCEDB postgresql://gg:given@strict/shop", session)
    assert len(questions) == 1


def test_register_notes_the_slot(groups, asked):
    """Extract refuses any other slot than the registered one."""
    session = OperatorSession(groups.root)
    good(groups, "DBLOGIN SOURCEDB postgresql://gg@host/shop", session)
    assert "at LSN 0/16B3748" in good(groups, "REGISTER EXTRACT ext1", session)
    noted = group(groups, "EXT1").registered
    assert (noted.shown, noted.place.time_us is not None) == ("slot tg_ext1, publication tg_ext1", True)
    assert asked()[1]["home_id"] == groups.id
    assert "is registered already" in bad(groups, "REGISTER EXTRACT ext1", session)
    assert "is a pump" in bad(groups, "REGISTER EXTRACT pmp1", session)
    good(groups, "UNREGISTER EXTRACT ext1", session)
    assert group(groups, "EXT1").registered is None
    assert asked()[-1]["made"] == {"slot": "tg_ext1", "publication": "tg_ext1"}


def test_trandata_and_checkpoint_tables_are_asked_for(groups, asked):
    """Patterns and names go through as written."""
    session = OperatorSession(groups.root)
    good(groups, "DBLOGIN SOURCEDB postgresql://gg@host/shop", session)
    assert "replica identity FULL is set for table s.t." in good(groups, "ADD TRANDATA s.*", session)
    good(groups, "add trandata s.t, allcols", session)
    good(groups, 'ADD CHECKPOINTTABLE gg."Ckpt"', session)
    good(groups, "DELETE CHECKPOINTTABLE gg.ckpt!", session)
    assert [r.get("allcols") for r in asked()[1:3]] == [False, True]
    assert [(r["verb"], r.get("pattern") or r.get("table")) for r in asked()[1:]] == [
        ("add_trandata", "s.*"),
        ("add_trandata", "s.t"),
        ("add_checkpointtable", 'gg."Ckpt"'),
        ("delete_checkpointtable", "gg.ckpt"),
    ]


def test_a_checkpoint_table_is_that_of_the_parameter_file(groups, asked, monkeypatch):
    """Which Replicat obeys first: as JSON, and where it is asked whose place would be lost."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\nn\n"))
    session = OperatorSession(groups.root, may_ask=True)
    good(groups, "DBLOGIN TARGETDB postgresql://gg@host/copy", session)
    write(groups, "rep1", "REPLICAT rep1\nTARGETDB postgresql://h/c\nCHECKPOINTTABLE b.new\nMAP s.*, TARGET s.*;\n")
    assert as_json(groups, "INFO REPLICAT rep1")[0]["checkpoint_table"] == "b.new"
    for table, whose in (("b.new", " REPLICAT REP1 would lose their place."), ("gg.ckpt", "")):
        assert f"This drops {table}.{whose} Are you sure" in bad(groups, f"DELETE CHECKPOINTTABLE {table}", session)


def test_CW_18_delete_replicat_with_a_login_removes_the_row(groups, asked):
    """CW-18: then a Replicat of that name begins anew."""
    session = OperatorSession(groups.root)
    key = group(groups, "REP1").group_key
    good(groups, "DBLOGIN TARGETDB postgresql://gg@host/copy", session)
    assert "Removed the row of REPLICAT REP1 from gg.ckpt" in good(groups, "DELETE REPLICAT rep1", session)
    assert (asked()[-1]["verb"], asked()[-1]["group"], asked()[-1]["group_key"]) == ("delete_row", "REP1", key)


def test_a_row_that_can_not_be_removed_is_told_after_the_group_is_gone(groups, asked, monkeypatch):
    """CW-18: never a group without its row, which a START would apply from the trail's begin once more."""
    session = OperatorSession(groups.root)
    good(groups, "DBLOGIN TARGETDB postgresql://gg@host/copy", session)
    monkeypatch.setitem(admin.COMMANDS, "replicat", [sys.executable, "-c", "import sys; sys.exit('gone away')"])
    text = bad(groups, "DELETE REPLICAT rep1", session)
    assert "Deleted REPLICAT REP1." in text
    assert "gone away: the row of REPLICAT REP1 in gg.ckpt remains. A REPLICAT REP1 added again goes on" in text
    assert not os.path.exists(groups.registration("REP1"))


# --- start-up ---------------------------------------------------------------------------------------------------------


def test_ggsci_loads_nothing_heavy_before_a_command_needs_it():
    """The first prompt within 0.3 s: no driver, no Spark, no lark; no prompt_toolkit where no prompt is shown."""
    heavy = ("prompt_toolkit", "lark", "psycopg", "pyspark", "pandas", "msgpack", "watchdog", "argparse")
    code = f"import sys, ggsci.__main__, ggsci.commands.session; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
