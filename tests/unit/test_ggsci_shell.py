"""The shell itself: FC, SET EDITOR, SHOW, VIEW, INFO PARAM, runs, tasks, completion, and what only a terminal gets."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import shlex
import subprocess
import sys
import termios
from dataclasses import replace
from pathlib import Path

import pytest

from demo.patience import wait_for
from ggsci import admin
from ggsci.__main__ import main
from ggsci.commands import terminal
from ggsci.commands.fc import edited
from ggsci.commands.help import TOPICS
from ggsci.commands.session import OperatorSession
from ggsci.commands.terminal import Progress, has_colour, page, paint
from ggsci.shell import completing
from ggsci.shell.completing import Choices
from ggsci.shell.prompt import KEEP_COMMANDS, MaskedFile, shorten
from ggsci.table.row import SECTIONS
from ggsci.table.table import COMMANDS, GRAMMAR
from tests.support.homes import as_json, bad, good, make_home, run, write
from trails import checkpoint
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint
from trails.runtime.home import registration
from trails.runtime.home.registration import Registration

ROOT = Path(__file__).parents[2]
PYTHON = shlex.quote(sys.executable)


@pytest.fixture
def home(tmp_path):
    """An Extract, a pump, a Replicat; none has run."""
    made = make_home(tmp_path / "home")
    good(made, "ADD EXTRACT ext1, TRANLOG, BEGIN NOW")
    good(made, "ADD EXTTRAIL ./dirdat/lt, EXTRACT ext1")
    good(made, "ADD EXTRACT pmp1, EXTTRAILSOURCE ./dirdat/lt")
    good(made, "ADD RMTTRAIL ./dirdat/rt, EXTRACT pmp1")
    good(made, "ADD REPLICAT rep1, EXTTRAIL ./dirdat/rt, CHECKPOINTTABLE gg.ckpt")
    return made


# --- FC, SET EDITOR, SHOW, history ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "change", "after"),
    [
        ("info exract ext1", "       it", "info extract ext1"),
        ("info extrract ext1", "        d", "info extract ext1"),
        ("info extttract", "        dd", "info extract"),
        ("info extract ext1", "             rrep9", "info extract rep9"),
        ("stop ext1", "start", "startext1"),
        ("start ext1", "      rrep1", "start rep1"),
        ("start ext1", "          i, x", "start ext1, x"),
        ("info ext1", "            DETAIL", "info ext1   DETAIL"),
    ],
)
def test_fc_changes_what_stands_above(line, change, after):
    """i inserts, r replaces, d deletes, anything else replaces, at its own column."""
    assert edited(line, change) == after


def at_prompt(home, *typed: str) -> OperatorSession:
    """A session in which a person types these lines when asked."""
    session, lines = OperatorSession(home.root), iter(typed)
    session.ask_line = lambda below: next(lines)
    return session


def test_fc_runs_what_came_out(home):
    """The command is shown with the prompt's number, each change below it, and an empty line runs it."""
    session = at_prompt(home, "       it", "")
    bad(home, "info exract ext1, SHOWCH", session)
    text = good(home, "FC", session)
    assert "2> info exract ext1, SHOWCH" in text
    assert "2> info extract ext1, SHOWCH" in text
    assert "Current Checkpoint Detail:" in text
    assert session.history == ["info exract ext1, SHOWCH", "info extract ext1, SHOWCH"]


def test_fc_tells_what_it_can_not_do(home):
    """No prompt, nothing to edit, a password; the edited command's own failure is told once."""
    session = at_prompt(home, "")
    assert "the history is empty" in bad(home, "FC", session)
    bad(home, "DBLOGIN USERID gg@127.0.0.1:1/d, PASSWORD s3cret", session)
    assert "is not kept" in bad(home, "FC dblogin", session)
    bad(home, "INFO nope", session)
    assert bad(home, "FC", session).count("ERROR") == 1
    session.ask_line = None
    assert "this is no prompt" in bad(home, "FC", session)


def test_set_editor_and_show(home, monkeypatch):
    """SHOW has every path, the editor and the history; SET EDITOR holds until EXIT."""
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    session = OperatorSession(home.root)
    facts = json.loads(good(home, "SHOW --json", session))
    assert facts["Editor"] == "vi"
    for folder in home.folders():
        assert folder in facts.values()
    assert "no program that can be run" in bad(home, "SET EDITOR nosuchprogram", session)
    assert "expected a program" in bad(home, "SET EDITOR", session)
    good(home, f'SET EDITOR {PYTHON} -c \'import sys; open(sys.argv[1], "w").write("PROT 1")\'', session)
    assert "did you mean PORT" in bad(home, "EDIT PARAMS mgr", session)
    text = good(home, "SHOW", session)
    assert sys.executable in text
    assert "History size        6" in text
    assert "Nested OBEY         not allowed" in text


def test_the_history_on_disk_is_masked_and_bounded(tmp_path):
    """Run for years: the file keeps the last commands, and no password."""
    path = str(tmp_path / "history")
    history = MaskedFile(path)
    for number in range(2 * KEEP_COMMANDS + 5):
        history.append_string(f"INFO ALL -- {number}")
    history.append_string("DBLOGIN USERID gg, PASSWORD s3cret")
    shorten(path)
    kept = list(MaskedFile(path).load_history_strings())
    assert len(kept) == KEEP_COMMANDS
    assert kept[0] == "DBLOGIN USERID gg, PASSWORD ***"
    assert kept[1] == f"INFO ALL -- {2 * KEEP_COMMANDS + 4}"
    shorten(path)
    assert list(MaskedFile(path).load_history_strings()) == kept
    shorten(str(tmp_path / "none"))


# --- VIEW -------------------------------------------------------------------------------------------------------------


def test_view_report_aged_by_name_and_its_tail(home, tmp_path):
    """AGED n, a digit, a file's name; TAIL n; nothing outside dirrpt."""
    Path(home.report("EXT1")).write_text("".join(f"line {n}\n" for n in range(30_000)))
    Path(home.report("EXT1", 0)).write_text("before\n")
    assert good(home, "VIEW REPORT ext1, TAIL 2") == "line 29998\nline 29999\n"
    assert good(home, "VIEW REPORT ext1, TAIL 99999").count("\n") == 30_000
    for line in ("ext1, AGED 0", "ext10", "./dirrpt/EXT1.0.rpt", "EXT1.0.rpt"):
        assert good(home, f"VIEW REPORT {line}") == "before\n"
    assert "expected 0 (the youngest) to 9" in bad(home, "VIEW REPORT ext1, AGED 10")
    assert "There are EXT1.0.rpt, EXT1.rpt" in bad(home, "VIEW REPORT ext1, AGED 3")
    (tmp_path / "secret.rpt").write_text("secret")
    os.symlink(tmp_path / "secret.rpt", home.folder("dirrpt") + "/link.rpt")
    for name in ("../dirpcs/HOME", "/etc/passwd", "./dirrpt/../../secret.rpt", "./dirrpt/link.rpt"):
        assert "expected a group, or a file in" in bad(home, f"VIEW REPORT {name}")


def test_view_discard_aged(home):
    """As of reports; a mistyped Replicat is told its nearest."""
    write(home, "rep1", "REPLICAT rep1\nTARGETDB sqlite:///x.db\nMAP s.*, TARGET s.*;\n")
    Path(home.discard("REP1")).write_text("now\n")
    Path(home.folder("dirdsc"), "REP1.0.dsc").write_text("before\n")
    assert good(home, "VIEW DISCARD rep1") == "now\n"
    assert good(home, "VIEW DISCARD rep1, AGED 0") == good(home, "VIEW DISCARD rep10") == "before\n"
    assert "nothing was discarded" in bad(home, "VIEW DISCARD rep1, AGED 4")
    assert "Did you mean REP1?" in bad(home, "VIEW DISCARD rpe1")


def test_view_ggsevt_tail(home):
    """The last lines, however long the log."""
    Path(home.ggserr).write_text("first\n" * 3)
    text = good(home, "VIEW GGSEVT, TAIL 2")
    assert "first" in text
    assert "GGSCI command" in text
    assert text.count("\n") == 2
    Path(home.root, "ggserr.0.log").write_text("rolled\n")
    assert good(home, "VIEW GGSEVT AGED 0") == "rolled\n"
    assert "there is no ./ggserr.7.log" in bad(home, "VIEW GGSEVT AGED 7")


def test_view_ggsevt_of_a_log_in_json(home):
    """LOGFORMAT JSON: the same layout, of the file that messages go to now."""
    Path(home.ggserr).write_text("stale\n")
    Path(home.globals).write_text("LOGFORMAT JSON\n")
    bad(home, "INFO nobody")
    text = good(home, "VIEW GGSEVT")
    assert "stale" not in text
    first, second = text.splitlines()
    assert "  INFO    TG-00987  Trailgate Command Interpreter:  GGSCI command (" in first
    assert first.endswith("): INFO nobody.")
    assert second.endswith("): VIEW GGSEVT.")
    assert good(home, "VIEW GGSEVT, TAIL 1").endswith("VIEW GGSEVT, TAIL 1.\n")
    Path(home.root, "ggserr.0.json").write_text("no message\n")
    assert good(home, "VIEW GGSEVT AGED 0") == "no message\n"


# --- parameters -------------------------------------------------------------------------------------------------------


def test_parameters_are_explained_and_listed(home):
    """By name, by pattern, as JSON; a mistyped one is told its nearest."""
    text = good(home, "INFO PARAM rmttrail")
    assert "Pump: RMTTRAIL" in text
    assert "Example:" in text
    assert {row["parameter"] for row in as_json(home, "INFO PARAM *trail")} >= {"EXTTRAIL", "RMTTRAIL"}
    row = next(row for row in as_json(home, "INFO PARAM port") if row["program"] == "Manager")
    assert row["example"].startswith("PORT")
    assert "Did you mean RMTTRAIL?" in bad(home, "INFO PARAM rmttrial")
    assert "Did you mean RMTTRAIL?" in bad(home, "HELP PARAM rmttrial")
    assert "Did you mean RMTTRAIL?" in bad(home, "HELP rmttrial")
    assert "Pump: RMTTRAIL" in good(home, "HELP PARAM rmttrail")
    assert "RMTTRAIL" in good(home, "HELP PARAM")
    assert "ADD REPLICAT rep1, EXTTRAIL" in good(home, "HELP add rep")
    assert good(home, "HELP add rep;") == good(home, "HELP add rep")
    assert "Options of MAP" in good(home, "HELP PARAMS")


# --- runs, tasks, SYNCHRONIZE -----------------------------------------------------------------------------------------


def save_runs(home, name: str, *runs: int) -> None:
    """Checkpoints of these runs, each from place 10 * its number to 10 * it + 5."""
    group = registration.load(home, name)
    base = group.added_us + 1
    for number in runs:
        begin, end = Place(0, 10 * number, base + 60_000_000 * number), Place(number, 10 * number + 5, base + number)
        save = Checkpoint(
            name, group.kind, (ReadCheckpoint("GGS Log Trail", begin, replace(end, csn=f"C{number}")),), (),
            base + number, base + number, "G",
        )  # fmt: skip
        checkpoint.save(home.fs, home.checkpoint(name, group.kind), save)


def test_detail_shows_the_runs_and_cleanup_forgets_them(home):
    """Newest first, also those of which no save is left; the last run always stays."""
    save_runs(home, "REP1", *range(1, 15))
    text = good(home, "INFO REPLICAT rep1, DETAIL")
    assert text.count("./dirdat/rt0000000") == 14 + 1 + 1, "its runs, its place, and the line of ADD"
    assert text.index("rt000000014 ") < text.index("rt000000013 ") < text.index("rt000000001 ")
    assert "Last Committed Transaction CSN value:\n  C14\n" in text
    assert [run["end"]["seqno"] for run in as_json(home, "INFO rep1")[0]["runs"]] == list(range(14, 0, -1))
    assert "11 runs forgotten, 3 runs kept" in good(home, "CLEANUP REPLICAT rep1, SAVE 2")
    assert [run["end"]["seqno"] for run in as_json(home, "INFO rep1")[0]["runs"]] == [14, 13, 12]
    assert "2 runs forgotten, 1 run kept" in good(home, "CLEANUP ER *")
    assert "C14" in good(home, "INFO REPLICAT rep1, SHOWCH --json")
    lock = home.fs.lock(home.lock("REP1"))
    assert "is running" in bad(home, "CLEANUP REPLICAT rep1")
    lock.release()


def test_a_group_that_was_added_again_has_no_runs_of_the_old_one(home):
    """Where a crash left the old checkpoint file."""
    save_runs(home, "PMP1", 1, 2)
    group = registration.load(home, "PMP1")
    registration.save(home, replace(group, added_us=group.added_us + 10_000_000))
    assert as_json(home, "INFO pmp1")[0]["runs"] == []
    assert good(home, "INFO pmp1, DETAIL").count("* Initialized *   First Record") == 1


def test_tasks_are_shown_only_if_asked_for(home):
    """INFO and STATUS by wildcard; a task that is named is shown."""
    registration.save(home, Registration("LOAD1", "EXTRACT", "SOURCEISTABLE"))

    def names(line: str) -> list[str]:
        found = as_json(home, line)
        return [row["group"] for row in (found["groups"] if isinstance(found, dict) else found)]

    assert names("INFO ALL") == names("STATUS *") == ["EXT1", "PMP1", "REP1"]
    assert names("INFO ALL, TASKS") == names("INFO EXTRACT *, TASKS") == ["LOAD1"]
    assert names("INFO ALL ALLPROCESSES") == names("STATUS ER *, ALLPROCESSES") == ["EXT1", "LOAD1", "PMP1", "REP1"]
    assert names("INFO load1") == ["LOAD1"]
    assert "no task matches *" in bad(home, "INFO REPLICAT *, TASKS")


def test_synchronize_says_why_it_is_never_needed(home):
    """One row, committed with the data: nothing can be out of step."""
    save_runs(home, "REP1", 3)
    text = good(home, "SYNCHRONIZE REPLICAT *")
    assert "REPLICAT REP1 needs no SYNCHRONIZE" in text
    assert "sequence # 3, RBA 35" in text
    assert as_json(home, "SYNCHRONIZE REPLICAT rep1")[0]["read"]["seqno"] == 3


# --- databases, with a stand-in for the sub-process -------------------------------------------------------------------

ADMIN = """
import json, sys
request = json.load(sys.stdin)
with open(sys.argv[1], "a") as log:
    log.write(json.dumps([sys.argv[2], request]) + "\\n")
replies = {
    "dblogin": {"user": "gg", "database": "shop", "server": "PostgreSQL 16.1"},
    "list_tables": {"tables": ["sales.items", "sales.orders"]},
    "info_checkpointtable": {"exists": True, "rows": json.loads(sys.argv[3])},
    "delete_row": {"deleted": True},
}
print(json.dumps({"ok": True, **replies[request["verb"]]}))
"""


@pytest.fixture
def database(home, tmp_path, monkeypatch):
    """What was asked of extract.admin and replicat.admin, which know two tables and three checkpoint rows."""
    from ggsci.commands.groups import group_key

    rows = [{"group": name, "group_key": str(group_key(home, name))} for name in ("OLD1", "REP1")]
    rows.append({"group": "OLD1", "group_key": "12345"})
    monkeypatch.setattr(completing, "TABLE_SECONDS", 60.0)
    script, log = tmp_path / "admin.py", tmp_path / "asked"
    script.write_text(ADMIN)
    for program in ("extract", "replicat"):
        command = [sys.executable, str(script), str(log), program, json.dumps(rows)]
        monkeypatch.setitem(admin.COMMANDS, program, command)
    return lambda: [json.loads(line) for line in log.read_text().splitlines()]


def test_list_tables_asks_the_database_of_the_login(home, database):
    """A source by extract.admin, a target by replicat.admin; VERSIONS tells its version."""
    session = OperatorSession(home.root)
    assert "Use DBLOGIN" in bad(home, "LIST TABLES sales.*", session)
    good(home, "DBLOGIN SOURCEDB postgresql://gg@host/shop", session)
    assert "sales.orders\n\nFound 2 tables." in good(home, "LIST TABLES sales.*", session)
    good(home, "DBLOGIN TARGETDB mysql://gg@host/shop", session)
    assert json.loads(good(home, "LIST TABLES --json", session)) == ["sales.items", "sales.orders"]
    asked = [(program, request["pattern"]) for program, request in database() if request["verb"] == "list_tables"]
    assert asked == [("extract", "sales.*"), ("replicat", "*.*")]
    assert "shop: PostgreSQL 16.1" in good(home, "VERSIONS", session)


def test_cleanup_checkpointtable_removes_rows_of_groups_that_are_gone(home, database):
    """Only this home's: its groups have keys of their own, so rows of other homes are never touched."""
    session = OperatorSession(home.root)
    good(home, "DBLOGIN TARGETDB postgresql://gg@host/shop", session)
    assert "not confirmed" in bad(home, "CLEANUP CHECKPOINTTABLE gg.ckpt", session)
    text = good(home, "CLEANUP CHECKPOINTTABLE gg.ckpt!", session)
    assert "Removed the row of REPLICAT OLD1 from gg.ckpt." in text
    assert "1 row of other homes' groups stay" in text
    removed = [request["group_key"] for _, request in database() if request["verb"] == "delete_row"]
    assert len(removed) == 1
    assert removed != [12345]
    good(home, "ADD REPLICAT old1, EXTTRAIL ./dirdat/rt, CHECKPOINTTABLE gg.ckpt", session)
    assert "has no row of a group" in good(home, "CLEANUP CHECKPOINTTABLE gg.ckpt", session)


def test_cleanup_checkpointtable_leaves_the_row_of_a_group_that_came_back(home, database, monkeypatch):
    """Added, and perhaps started, while the question stood there: its row is where it goes on."""
    session = OperatorSession(home.root)
    good(home, "DBLOGIN TARGETDB postgresql://gg@host/shop", session)
    add = "ADD REPLICAT old1, EXTTRAIL ./dirdat/rt, CHECKPOINTTABLE gg.ckpt"
    monkeypatch.setattr(session, "confirm", lambda *_: good(home, add))
    assert "REPLICAT OLD1 was added again" in bad(home, "CLEANUP CHECKPOINTTABLE gg.ckpt", session)
    assert "delete_row" not in [request["verb"] for _, request in database()]


def test_a_shell_command_in_a_script_does_not_read_the_script(home):
    """The lines behind it are commands still."""
    command = [sys.executable, "-P", "-m", "ggsci", "--home", home.root]
    script = "SHELL cat\n" + "-- a comment that fills what was read ahead\n" * 2000 + "SHELL echo still here\n"
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "still here\n"), done.stderr


def test_the_end_of_input_at_a_question_is_no_bug(home):
    """Ctrl-D in FC, or at a password."""
    session = OperatorSession(home.root)
    good(home, "INFO ALL", session)

    def end_of_input(_):
        raise EOFError

    session.ask_line = end_of_input
    assert bad(home, "FC", session).endswith("ERROR: interrupted\n")


# --- completion -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("STA", ["START", "STATS", "STATUS"]),
        ("set ed", ["EDITOR"]),
        ("INFO P", ["PARAMS", "PMP1"]),
        ("info ext1, sh", ["SHOWCH"]),
        ("START REPLICAT ", ["REP1"]),
        ("START EXTRACT ", ["EXT1", "PMP1"]),
        ("START REPLICAT rep1, ", ["ATCSN", "AFTERCSN", "SKIPTRANSACTION", "FILTERDUPTRANSACTIONS", "PASTHOLE"]),
        ("START REPLICAT rep1, ATCSN 3 ", []),
        ("START EXTRACT ext1, ", ["ATCSN", "AFTERCSN"]),
        ("ADD EXTRACT ", []),
        ("ADD EXTRACT e9, EXTTRAILSOURCE ", ["./dirdat/lt", "./dirdat/rt"]),
        ("ADD EXTRACT e9, TRANLOG, B", ["BEGIN"]),
        ("ADD EXTRACT e9, TRANLOG, EXTT", []),
        ("ADD EXTTRAIL ./dirdat/lx EXTRACT ", ["EXT1", "PMP1"]),
        ("INFO EXTTRAIL ", ["./dirdat/lt", "./dirdat/rt"]),
        ("VIEW PARAMS ", ["EXT1", "PMP1", "REP1", "MGR", "./GLOBALS"]),
        ("VIEW DISCARD ", ["REP1"]),
        ("VIEW DISCARD rep1, AGED 0, ", ["TAIL"]),
        ("VIEW REPORT ext1.", ["EXT1.0.rpt"]),
        ("HELP PARAM RMTT", ["RMTTASK", "RMTTRAIL"]),
        ("HELP info ex", ["EXTRACT", "EXTTRAIL"]),
        ("INFO EXT e", ["EXT1"]),
        ("stats rep ", ["REP1"]),
        ("INFO PARAM CHECKPOINTT", ["CHECKPOINTTABLE"]),
        ("OBEY dirpr", ["dirprm/"]),
        ("ADD TRANDATA sales.o", ["sales.orders"]),
        ("STATS rep1, TABLE ", ["sales.items", "sales.orders"]),
        ("FROB ", []),
        ("INFO EXTRACT 'open", []),
    ],
)
def test_tab_offers_what_may_stand_next(home, database, line, offered):
    """Commands, options that are left, groups of the kind, trails, tables after DBLOGIN, parameters, files."""
    Path(home.report("EXT1", 0)).write_text("")
    session = OperatorSession(home.root)
    good(home, "DBLOGIN SOURCEDB postgresql://gg@host/shop", session)
    assert Choices(session).after(line)[1] == offered


def test_tab_never_fails(tmp_path, home, monkeypatch):
    """No home, no login, a database that does not answer: then nothing is offered, and it is asked once."""
    assert Choices(OperatorSession(str(tmp_path))).after("START ER ")[1] == []
    session = OperatorSession(home.root)
    choices = Choices(session)
    assert choices.after("ADD TRANDATA ")[1] == []
    calls = tmp_path / "calls"
    broken = [sys.executable, "-c", f"open({str(calls)!r}, 'a').write('x')"]
    monkeypatch.setitem(admin.COMMANDS, "extract", broken)
    from ggsci.commands.session import Login

    session.login = Login("postgresql://gg@host/shop", "gg", "shop")
    assert choices.after("ADD TRANDATA ")[1] == []
    assert choices.after("ADD TRANDATA ")[1] == []
    assert calls.read_text() == "x"


# --- what only a terminal gets ----------------------------------------------------------------------------------------


class Terminal:
    """A pseudo-terminal: what is written to `stream` is read back with `seen`."""

    def __init__(self) -> None:
        self.ours, theirs = pty.openpty()
        os.set_blocking(self.ours, False)
        self.stream = os.fdopen(theirs, "w")
        self._seen = b""

    def seen(self) -> str:
        """All that was written so far."""
        try:
            while data := os.read(self.ours, 65536):
                self._seen += data
        except BlockingIOError:
            pass
        return self._seen.decode()

    def close(self) -> None:
        """Both ends."""
        self.stream.close()
        os.close(self.ours)


@pytest.fixture
def screen(monkeypatch):
    """A terminal with colours."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    made = Terminal()
    yield made
    made.close()


def test_colour_is_for_terminals_only(home, screen, monkeypatch):
    """Status words, on a terminal, unless NO_COLOR or a dumb one; never in JSON; columns stay."""
    assert paint("EXTRACT     ABENDED     EXT1") == "EXTRACT     \x1b[31mABENDED\x1b[0m     EXT1"
    assert paint("./dirdat/RUNNING RUNNINGS x.ERROR") == "./dirdat/RUNNING RUNNINGS x.ERROR"
    session = OperatorSession(home.root, out=screen.stream)
    assert session.run("INFO ALL")
    assert "\x1b[33mSTOPPED\x1b[0m" in screen.seen()
    assert "\x1b" not in good(home, "INFO ALL")
    before = len(screen.seen())
    session = OperatorSession(home.root, out=screen.stream)
    assert session.run("INFO ALL --json")
    assert not session.run("INFO nope --json")
    monkeypatch.setenv("NO_COLOR", "1")
    assert session.run("INFO ALL")
    assert "\x1b[3" not in screen.seen()[before:]
    monkeypatch.delenv("NO_COLOR")
    assert has_colour(screen.stream)
    monkeypatch.setenv("TERM", "dumb")
    assert not has_colour(screen.stream)


def test_a_long_command_shows_that_it_works(screen, monkeypatch):
    """One line with the time, gone when something is printed and when it is done; silent while a password is typed."""
    monkeypatch.setattr(Progress, "FIRST_SECONDS", 0.01)
    monkeypatch.setattr(Progress, "SPIN_SECONDS", 0.01)
    with Progress(screen.stream, "START EXTRACT ext1") as progress:
        wait_for(lambda: re.search(r"START EXTRACT ext1 \d+ s", screen.seen()))
        progress.aside("EXTRACT EXT1 starting", screen.stream)
        assert "\r\x1b[KEXTRACT EXT1 starting" in screen.seen()
        with Progress(screen.stream, "inner", progress):
            wait_for(lambda: re.search(r"inner \d+ s", screen.seen()))
        progress.pause()
        modes = termios.tcgetattr(screen.stream.fileno())
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(screen.stream.fileno(), termios.TCSANOW, modes)
        progress.resume()
        before = screen.seen()
        turns: list[int] = []
        monkeypatch.setattr(terminal, "_echoes", lambda stream: turns.append(1) or False)
        wait_for(lambda: len(turns) > 3)
        assert screen.seen() == before
    assert screen.seen().endswith("\r\x1b[K")


def test_a_password_being_typed_is_seen_by_its_terminal(screen):
    """Echo is off then."""
    assert terminal._echoes(screen.stream)
    modes = termios.tcgetattr(screen.stream.fileno())
    modes[3] &= ~termios.ECHO
    termios.tcsetattr(screen.stream.fileno(), termios.TCSANOW, modes)
    assert not terminal._echoes(screen.stream)


def test_without_a_terminal_progress_is_plain_lines(home, monkeypatch):
    """Beside the output, now and then; none with --json, and none while a shell command runs."""
    monkeypatch.setattr(Progress, "PLAIN_SECONDS", 0.05)
    out, err = io.StringIO(), io.StringIO()
    session = OperatorSession(home.root, out=out, err=err)
    wait_until_told = "import time, sys; time.sleep(0.3)"
    with Progress(err, "START EXTRACT ext1"):
        wait_for(lambda: re.search(r"START EXTRACT ext1: \d+ s so far\n", err.getvalue()))
    err.truncate(0)
    assert session.run(f'SHELL {PYTHON} -c "{wait_until_told}"')
    assert session.run("INFO ALL --json")
    assert "so far" not in err.getvalue() + out.getvalue()


@pytest.fixture
def paged(tmp_path, monkeypatch):
    """The file in which $PAGER puts what it gets, on a screen of 24 lines."""
    seen, script = tmp_path / "seen", tmp_path / "pager.py"
    script.write_text("import sys; open(sys.argv[1], 'w').write(sys.stdin.read())")
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setenv("PAGER", f"{PYTHON} {script} {seen}")
    return seen


def test_a_long_file_goes_through_the_pager(paged, monkeypatch):
    """$PAGER gets it, but for one that fits the screen; leaving it early is no error; without one all is printed."""
    assert not page(["one"] * 10)
    assert page([f"line {n}" for n in range(100)])
    assert paged.read_text().endswith("line 99\n")
    monkeypatch.setenv("PAGER", f"{PYTHON} -c pass")
    assert page(["x" * 100] * 100_000)
    monkeypatch.setenv("PAGER", "nosuchpager")
    assert not page(["one"] * 100)


def test_a_person_at_a_terminal_gets_pages(home, screen, paged):
    """VIEW at the prompt; a script gets the text."""
    Path(home.report("EXT1")).write_text("line RUNNING\n" * 100)
    session = OperatorSession(home.root, out=screen.stream, interactive=True)
    assert session.run("VIEW REPORT ext1")
    assert paged.read_text().count("line \x1b[32mRUNNING\x1b[0m\n") == 100
    assert "line" not in screen.seen()
    assert run(home, "VIEW REPORT ext1")[1].count("line RUNNING\n") == 100


def test_help_by_topic(home, capsys):
    """A screen of topics; each topic's commands; all of them; no topic hides a command, and none is left out."""
    text = good(home, "HELP")
    assert len(text.splitlines()) < 40
    assert all(f"  {topic} " in text for topic in TOPICS)
    assert "START {EXTRACT | REPLICAT | ER}" in text
    assert set(TOPICS.values()) == set(SECTIONS)
    assert not {command.words[0] for command in COMMANDS} & set(TOPICS)
    trails = good(home, "HELP trails")
    assert "ADD EXTTRAIL" in trails
    assert "DBLOGIN" not in trails
    assert all(command.words[0] in good(home, "HELP ALL") for command in COMMANDS)
    assert main(["--help"]) == main(["-h"]) == 0
    assert "--home DIR   the home" in capsys.readouterr().out


VERBS = ("INFO", "START", "STOP", "KILL", "STATUS", "STATS", "LAG", "SEND", "CLEANUP", "DELETE")


@pytest.mark.parametrize("kind", ["", "EXTRACT ", "EXT ", "REPLICAT ", "ER "])
@pytest.mark.parametrize("verb", VERBS)
def test_a_wildcard_stands_wherever_several_groups_may(kind, verb):
    """GoldenGate: EXT*, *, ?X*1; the kind may be left out where the names tell."""
    for name in ("EXT*", "*", "?X*1"):
        behind = {"SEND": ", STATUS", "STOP": "!", "DELETE": "!", "STATS": ", TABLE s.*"}.get(verb, "")
        assert GRAMMAR.parse(f"{verb} {kind}{name}{behind}").operand == name
