"""Each default once: what a parameter's help calls its default is what the program does where it is not given.

Rule: the help names a default by "... if not given", and the same words behind the keyword change nothing.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from extract.params import KEYWORDS as EXTRACT
from extract.params import ExtractParams
from ggsci.certificates.files import HOME_DAYS
from ggsci.manager.params import KEYWORDS as MANAGER
from ggsci.manager.params import ManagerParams
from ggsci.manager.rules import GroupSpec, RestartRule
from ggsci.table.table import COMMANDS
from pump.params import KEYWORDS as PUMP
from pump.params import PumpParams
from replicat.params import KEYWORDS as REPLICAT
from replicat.params import ReplicatParams
from trails.format import FILE_MEGABYTES
from trails.runtime.language import freespace, heartbeattable, logparams, params
from trails.runtime.language.globals import GLOBALS_KEYWORDS
from trails.runtime.process import clockdiff

PROGRAMS: dict[str, tuple[Any, Any, str]] = {
    "extract": (EXTRACT, ExtractParams, "EXTRACT e\nSOURCEDB postgresql://h/d\nEXTTRAIL ./dirdat/lt\nTABLE s.*;\n"),
    "pump": (PUMP, PumpParams, "EXTRACT p\nRMTHOST h, MGRPORT 7809\nRMTTRAIL ./dirdat/rt\n"),
    "replicat": (REPLICAT, ReplicatParams, "REPLICAT r\nTARGETDB postgresql://h/d\nMAP s.*, TARGET t.*;\n"),
    "manager": (MANAGER, ManagerParams, "NOTLS\n"),
}

BY_HAND = {
    ("extract", "WARNLONGTRANS"): "1h, CHECKINTERVAL 5m",
    ("pump", "RMTHOST"): "h, MGRPORT 7809, TIMEOUT 10",
    ("pump", "RETRYSECS"): "86400",  # "a day if not given"
    ("replicat", "DISCARDFILE"): "./dirdsc/R.dsc, APPEND, MEGABYTES 50",
    ("manager", "DYNAMICPORTLIST"): "7810-8065",  # "the 256 above PORT"
}
"""Defaults of options, and those that the help says in its own words."""
NO_VALUE = {
    # Written from the default itself, in its source's folder; or made from who asks.
    "WALWARN", "WALCRITICAL", "QUEUEWARN", "QUEUECRITICAL", "BINLOGWARN", "BINLOGCRITICAL", "SERVERID",
    "BATCHSECS", "GROUPTRANSOPS", "MAXTRANSOPS", "DDL", "DDLERROR", "WEBPORT",  # without it something is not done
    "COLLECTORSPERHOME", "PURGEOLDEXTRACTS", "ACCESSRULE",  # as above, or of an option that stands in each rule
}  # fmt: skip
STATED = re.compile(r"([\w.\[\]]+) if not given|If not given it is ([\w.]+),")


def _stating() -> list[tuple[str, str]]:
    return [
        (program, name)
        for program, (table, *_) in PROGRAMS.items()
        for name, keyword in table.items()
        if "f not given" in keyword.help
        and name not in NO_VALUE
        and (program, name) != ("extract", "RMTHOST")  # it is the pump's, and stands beside no EXTTRAIL
    ]


def _value(program: str, name: str) -> str:
    """The default as the help says it."""
    (found,) = STATED.findall(PROGRAMS[program][0][name].help)
    return "".join(found)


def _parsed(program: str, *more: str) -> Any:
    """The parameter file's value; a statement of `more` stands instead of the one of its keyword, or behind all."""
    _, kind, text = PROGRAMS[program]
    said = {line.split()[0]: line for line in (*text.splitlines(), *more)}
    return kind.from_statements(params.parse_text("\n".join(said.values()) + "\n", "x.prm"))


@pytest.mark.parametrize(("program", "name"), _stating())
def test_the_default_that_the_help_names_changes_nothing(program: str, name: str) -> None:
    """Given or not, the program is told the same."""
    if name == "CHECKPOINTSECS":
        assert _value(program, name) == str(params.CHECKPOINT_SECONDS)
        return
    value = BY_HAND.get((program, name)) or _value(program, name)
    told = _parsed(program, f"{name} {value}")
    if name == "DISCARDFILE":
        told = dataclasses.replace(told, discard_file=dataclasses.replace(told.discard_file, path=""))
    assert told == _parsed(program)


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_a_short_file_leaves_open_is_the_defaults_of_the_value(program: str) -> None:
    """A value made without a file, as tests and commands make it, has the same ones."""
    found = _parsed(program)
    given = {"tables", "database", "maps", "tls", "own"}  # what the file says in other words
    for one in dataclasses.fields(found):
        if one.default is not dataclasses.MISSING and one.name not in given:
            assert getattr(found, one.name) == one.default, one.name


def test_GLOBALS_and_options_name_the_defaults_that_are_in_force() -> None:
    """Of GLOBALS, AUTORESTART, DDLERROR and three commands, whose help says defaults in its own words."""
    said = {name: keyword.help for name, keyword in GLOBALS_KEYWORDS.items()}
    size, warn, stop = logparams.LogSize(), freespace.DEFAULT_WARN, freespace.DEFAULT_STOP
    assert f"({size.megabytes} if not given)" in said["GGSERRLOG"]
    assert f"({size.keep} if not given)" in said["GGSERRLOG"]
    assert f"{heartbeattable.SCHEMA} if not given" in said["GGSCHEMA"]
    assert f"{clockdiff.DEFAULT_SECONDS} if not given" in said["CLOCKDIFFSECS"]
    assert f"it is {warn}, at most {(warn.at_most or 0) >> 30}G" in said["DISKWARN"]
    assert f"it is {stop}, at most {(stop.at_most or 0) >> 30}G" in said["DISKSTOP"]
    assert f"it is {stop.at_least >> 20}M" in said["DISKSTOP"]
    notes = {command.name: command.notes for command in COMMANDS}
    days, beats, trail = notes["CREATE CERTIFICATES"], notes["ADD HEARTBEATTABLE"], notes["ADD EXTTRAIL"]
    usual = heartbeattable.HeartbeatSettings()
    assert f": {HOME_DAYS} if not given" in days
    stated = re.findall(r"(\d+) if not given", beats)
    assert stated == [str(usual.frequency), str(usual.retention), str(usual.purge)]
    assert f"{FILE_MEGABYTES} if not given" in trail
    rule, restart = RestartRule(GroupSpec(("EXTRACT",), "*")), MANAGER["AUTORESTART"].help
    assert f"at most RETRIES starts ({rule.retries}) within RESETMINUTES ({rule.reset_s // 60:.0f})" in restart
    assert f"after a wait ({rule.wait_s // 60:.0f} minutes)" in restart
