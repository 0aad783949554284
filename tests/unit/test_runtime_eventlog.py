"""The event log: text and JSON, rolled by size, written by many processes at once, killed in the middle of a roll."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from demo.patience import PATIENCE
from tests.support.homes import make_home
from trails.errors import OperatorError
from trails.runtime.home.home import Home
from trails.runtime.language import globals as globals_file
from trails.runtime.language.logparams import LogFormat, LogSize
from trails.runtime.language.params import ParamErrors
from trails.runtime.report import eventlog
from trails.runtime.report.eventlog import aged, current, line_of_json, roll, settings
from trails.runtime.report.limits import MAX_KEYS
from trails.runtime.report.repeats import Message, Repeats
from trails.runtime.report.report import Log
from trails.testing import FakeClock


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home."""
    return make_home(tmp_path)


def say(home: Home, text: str) -> None:
    """What GLOBALS says."""
    Path(home.globals).write_text(text)


def files(home: Home) -> list[str]:
    """The log's files, the oldest lines first."""
    names = [aged(home.ggserr, age) for age in range(99, -1, -1)] + [home.ggserr]
    return [name for name in names if os.path.exists(name)]


# --- what GLOBALS says ----------------------------------------------------------------------------------------------


def test_settings_and_their_defaults(home: Home) -> None:
    """No GLOBALS, none of these parameters, some of them; a file with mistakes leaves the defaults to who must log."""
    defaults = (LogSize(20, 10), LogFormat(text=True, json=False))
    assert settings(home) == defaults
    say(home, "CHECKPOINTTABLE gg.chk\n")
    assert settings(home) == defaults
    say(home, "GGSERRLOG KEEP 3\nLOGFORMAT both\n")
    assert settings(home) == (LogSize(20, 3), LogFormat(text=True, json=True))
    say(home, "GGSERRLOG MEGABYTES 0\n")
    assert settings(home) == defaults


@pytest.mark.parametrize(
    "text", ["GGSERRLOG", "GGSERRLOG KEEP 0", "GGSERRLOG KEEP 5 KEEP 6", "LOGFORMAT XML", "LOGFORMAT"]
)
def test_mistakes_are_told_to_those_who_read_globals(home: Home, text: str) -> None:
    """By file, line and what is expected."""
    say(home, text)
    with pytest.raises(ParamErrors, match=r"GLOBALS:1: (GGSERRLOG|LOGFORMAT): expected"):
        globals_file.read(home)


# --- repeated messages ----------------------------------------------------------------------------------------------


def told(home: Home) -> list[str]:
    """What stands in ggserr.log behind time and component."""
    return [f"{line[21:37].strip()} {line.partition(':  ')[2]}" for line in Path(home.ggserr).read_text().splitlines()]


def test_a_message_that_repeats_is_counted(home: Home) -> None:
    """TG-01971 before the next other message, each minute, and at the end; what comes in turns is all written."""
    clock = FakeClock()
    messages = Log(home, "Trailgate Manager", "mgr.prm", clock)
    for text in ("one", "two", "two", "two", "one", "two"):
        messages.warning("TG-00001", text, n=1)
    messages.info("TG-00001", "two", n=1)
    for _ in range(130):
        clock.sleep(1)
        messages.info("TG-00001", "two", n=1)
    messages.end()
    messages.end()
    for _ in range(2):  # each hour: a reminder, written as it is
        clock.sleep(3600)
        messages.info("TG-00001", "two", n=1)
    messages.end()
    assert told(home) == [
        "WARNING TG-00001 one",
        "WARNING TG-00001 two",
        "WARNING TG-01971 The previous message, WARNING TG-00001, repeated 2 times.",
        "WARNING TG-00001 one",
        "WARNING TG-00001 two",
        "INFO    TG-00001 two",
        "INFO    TG-01971 The previous message, INFO TG-00001, repeated 60 times.",
        "INFO    TG-01971 The previous message, INFO TG-00001, repeated 60 times.",
        "INFO    TG-01971 The previous message, INFO TG-00001, repeated 10 times.",
        "INFO    TG-00001 two",
        "INFO    TG-00001 two",
    ]


def test_messages_of_a_kind_are_few(home: Home) -> None:
    """Five at once, then one a minute, no text twice within a minute; kinds don't disturb each other."""
    clock = FakeClock()
    messages = Log(home, "Trailgate Manager", "mgr.prm", clock)
    for n in range(8):
        messages.warning("TG-01230", f"port {n}", alike="10.0.0.1")
        messages.error("TG-00965", "damaged", alike="BAD")
    clock.sleep(60)
    messages.warning("TG-01230", "port 9", alike="10.0.0.1")
    messages.error("TG-00965", "damaged", alike="BAD")
    lines = told(home)
    assert [line.split()[-1] for line in lines[:6]] == ["0", "damaged", "1", "2", "3", "4"]
    assert lines[6:] == [
        "WARNING TG-01230 port 9 (3 alike before it were not logged)",
        "ERROR   TG-00965 damaged (7 alike before it were not logged)",
    ]


def test_what_is_so_again_is_told_again(home: Home) -> None:
    """The target is away, is back, and away for good a moment later: the log's last line says so."""
    clock = FakeClock()
    messages = Log(home, "Trailgate Delivery", "rep1.prm", clock)
    for text in ("away", "back", "away"):
        messages.info("TG-06507", text, alike=text)
        clock.sleep(10)
    assert [line.split()[-1] for line in told(home)] == ["away", "back", "away"]


def test_kinds_are_bounded() -> None:
    """Strangers have many addresses."""
    repeats = Repeats()
    for n in range(2 * MAX_KEYS):
        assert repeats.to_write(Message("WARNING", "TG-01230", "x"), str(n), 0.0)
    assert len(repeats._kinds) == MAX_KEYS


# --- JSON -----------------------------------------------------------------------------------------------------------


def test_messages_as_objects(home: Home) -> None:
    """One object a line: time, severity, code, component, group, pid, text, fields; passwords hidden everywhere."""
    say(home, "LOGFORMAT JSON\n")
    messages = Log(home, "Trailgate Capture", "ext1.prm", FakeClock(1_770_000_000_123_456))
    messages.warning("TG-01027", "postgresql://u:geheim@h\nline two", xid="77", url="postgresql://u:geheim@h", age_us=5)
    Log(home, "Trailgate Command Interpreter", "", FakeClock()).info("TG-00987", "INFO ALL")
    first, second = (json.loads(line) for line in Path(home.ggserr_json).read_text().splitlines())
    assert first.pop("time").startswith("2026-02-0")
    assert first.pop("pid") == os.getpid()
    assert first == {
        "time_us": 1_770_000_000_123_456, "severity": "WARNING", "code": "TG-01027", "component": "Trailgate Capture",
        "group": "EXT1", "source": "ext1.prm", "text": "postgresql://u:********@h\nline two",
        "fields": {"xid": "77", "url": "postgresql://u:********@h", "age_us": 5},
    }  # fmt: skip
    assert (second["group"], second["fields"]) == ("", {})
    assert not os.path.exists(home.ggserr)


def test_the_current_file_and_its_lines_as_text(home: Home) -> None:
    """VIEW GGSEVT after LOGFORMAT was changed: where messages go now, a line of it as ggserr.log would have it."""
    messages = ("TG-01027", "open for long\nsecond line")
    Log(home, "Trailgate Capture", "ext1.prm", FakeClock()).warning(*messages)
    text = Path(home.ggserr).read_text()
    assert current(home) == home.ggserr
    say(home, "LOGFORMAT JSON\n")
    assert current(home) == home.ggserr  # nothing went there yet
    Log(home, "Trailgate Capture", "ext1.prm", FakeClock()).warning(*messages)
    assert current(home) == home.ggserr_json
    (line,) = Path(home.ggserr_json).read_text().splitlines()
    assert line_of_json(line) + "\n" == text
    for torn in ("", "{", "[]", "7", line[:50], '{"text": 1}', '{"time_us": 1e400}'):
        assert line_of_json(torn) == torn
    say(home, "LOGFORMAT BOTH\n")
    assert current(home) == home.ggserr


def test_both_forms(home: Home) -> None:
    """LOGFORMAT BOTH writes each message to both."""
    say(home, "LOGFORMAT BOTH\n")
    Log(home, "Trailgate Capture", "ext1.prm", FakeClock()).info("TG-00993", "started")
    assert Path(home.ggserr).read_text().endswith("  INFO    TG-00993  Trailgate Capture, ext1.prm:  started\n")
    assert json.loads(Path(home.ggserr_json).read_text())["text"] == "started"


# --- rolling --------------------------------------------------------------------------------------------------------


def fill(home: Home, mark: str) -> None:
    """A log that is full, with a mark in it."""
    Path(home.ggserr).write_text(mark + "x" * (1 << 20))


def marks(home: Home) -> list[str]:
    """The marks from the oldest file to the newest."""
    return [Path(name).read_text()[:1] for name in files(home)]


def test_old_files_are_kept_as_many_as_asked(home: Home) -> None:
    """The youngest is ggserr.0.log; a smaller KEEP takes away what it no longer allows."""
    for mark in "abcde":
        fill(home, mark)
        assert roll(home, home.ggserr, LogSize(1, 3))
        assert not roll(home, home.ggserr, LogSize(1, 3))
    assert marks(home) == ["c", "d", "e"]
    assert [os.path.basename(name) for name in files(home)] == ["ggserr.2.log", "ggserr.1.log", "ggserr.0.log"]
    fill(home, "f")
    roll(home, home.ggserr, LogSize(1, 1))
    assert marks(home) == ["f"]


def test_a_crash_at_any_rename_loses_nothing_that_is_to_be_kept(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next roll closes the gap; the order of the files stays that of their lines."""
    replace = os.replace
    for crash_at in range(4):
        for name in files(home):
            os.unlink(name)
        for mark in "abc":
            fill(home, mark)
            roll(home, home.ggserr, LogSize(1, 4))
        fill(home, "d")
        calls = [0]

        def crashing(old: str, new: str, at: int = crash_at, calls: list[int] = calls) -> None:
            if calls[0] == at:
                raise KeyboardInterrupt
            calls[0] += 1
            replace(old, new)

        monkeypatch.setattr(os, "replace", crashing)
        with pytest.raises(KeyboardInterrupt):
            roll(home, home.ggserr, LogSize(1, 4))
        monkeypatch.setattr(os, "replace", replace)
        assert marks(home) == ["a", "b", "c", "d"]
        assert roll(home, home.ggserr, LogSize(1, 4))
        assert marks(home) == ["a", "b", "c", "d"]


def test_who_rolls_while_another_does_goes_on(home: Home) -> None:
    """The lock is not waited for: the message is written, whoever rolls."""
    import fcntl

    fill(home, "a")
    with open(os.path.join(home.folder("dirpcs"), ".ggserr.lock"), "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert not roll(home, home.ggserr, LogSize(1, 3))
    assert roll(home, home.ggserr, LogSize(1, 3))


def test_a_folder_that_cannot_be_renamed_in_is_told_once_and_ends_nobody(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which file, and why; messages go on into the file that is there, and it is rolled once that is possible."""

    def refuse(old: str, new: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(eventlog.os, "replace", refuse)
    fill(home, "a")
    with pytest.raises(OperatorError, match=r"ggserr\.log can't be rolled over: Permission denied"):
        roll(home, home.ggserr, LogSize(1, 3))
    say(home, "GGSERRLOG MEGABYTES 1\n")
    writer = Log(home, "Trailgate Capture", "ext1.prm", FakeClock())
    for text in ("first", "second"):
        writer.info("TG-00001", text)
    lines = Path(home.ggserr).read_text().splitlines()
    assert [line.split("  ")[-1] for line in lines[::2]] == ["first", "second"]
    assert "WARNING TG-01977  Trailgate Capture, ext1.prm:  " in lines[1]
    assert lines[1].endswith("can't be rolled over: Permission denied. It grows until that is mended")
    monkeypatch.undo()
    writer.info("TG-00001", "third")
    assert not os.path.exists(home.ggserr)


WRITER = """
import sys
from trails.clock import RealClock
from trails.runtime.home.home import Home
from trails.runtime.report.report import Log
log = Log(Home(sys.argv[1]), "Writer", f"w{sys.argv[2]}.prm", RealClock())
for n in range(1000):
    log.info("TG-00001", f"<{sys.argv[2]}:{n}> " + "x" * 1000)
"""


def test_many_writers_lose_and_tear_no_line(home: Home) -> None:
    """Four processes write four megabytes between them: every line stands once, whole, in some file."""
    say(home, "GGSERRLOG MEGABYTES 1, KEEP 20\n")
    writers = [subprocess.Popen([sys.executable, "-P", "-c", WRITER, home.root, str(n)]) for n in range(4)]
    assert [writer.wait(PATIENCE) for writer in writers] == [0] * 4
    assert len(files(home)) > 1  # how many, and how long, is up to who is stopped while it rolls
    lines = [line for name in files(home) for line in Path(name).read_text().splitlines()]
    assert all(line.endswith("x" * 1000) for line in lines)
    found = [line.split("<")[1].split(">")[0] for line in lines]
    assert sorted(found) == sorted(f"{writer}:{n}" for writer in range(4) for n in range(1000))
