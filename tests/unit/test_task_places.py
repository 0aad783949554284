"""Where an Extract that reads tables writes: EXTFILE, RMTFILE or RMTTASK; and RMTHOST beside the last two."""

from __future__ import annotations

import pytest

from extract.params import ExtractParams
from ggsci.check import check_group_file
from tests.support.homes import bad, good, make_home, write
from trails import wholefile
from trails.runtime.home import registration
from trails.runtime.language.params import ParamErrors, parse_text
from trails.runtime.language.remotehost import CarryOrder, RemoteHost

HEAD, TAIL = "EXTRACT load1\nSOURCEDB postgresql://h/d\n", "\nTABLE s.*;\n"
HOST = "RMTHOST there, MGRPORT 7809, TIMEOUT 20\n"


def read(text: str) -> ExtractParams:
    return ExtractParams.from_statements(parse_text(HEAD + text + TAIL, "load1.prm"))


def test_each_place():
    """The file of RMTTASK is named after its Replicat."""
    assert (read("EXTFILE ./dirdat/in").file, read("EXTFILE ./dirdat/in").remote) == ("./dirdat/in", None)
    sent = read(HOST + "RMTFILE ./dirdat/in, MEGABYTES 2000, PURGE")
    assert (sent.file, sent.remote, sent.task) == ("./dirdat/in", RemoteHost("there", 7809, 20), "")
    task = read(HOST + "RMTTASK replicat, group load2")
    assert (task.file, task.task) == ("./dirdat/.LOAD2.rmttask/in", "LOAD2")
    assert wholefile.task_of("/home/dirdat/.LOAD2.rmttask/in") == "LOAD2"
    for other in (
        "./dirdat/in",
        "./dirdat/.load2.rmttask/in",
        "./dirdat/..rmttask/in",
        "./dirdat/.TOOLONGNAME.rmttask/in",
    ):
        assert wholefile.task_of(other) == "", other


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (HOST + "EXTTRAIL ./dirdat/lt", "expected RMTFILE or RMTTASK of a task beside it, found neither"),
        ("RMTFILE ./dirdat/in", "expected RMTHOST, which says where that is, found none"),
        (HOST + "RMTFILE ./dirdat/in\nEXTFILE ./dirdat/in", "expected it, or EXTFILE; found both"),
        (HOST + "RMTFILE ./dirdat/in\nRMTTASK REPLICAT, GROUP r", "expected it, or RMTFILE; found both"),
        ("EXTFILE ./dirdat/in\nEXTTRAIL ./dirdat/lt", "expected it, or EXTTRAIL; found both"),
        (HOST + "RMTTASK EXTRACT, GROUP r", "expected REPLICAT, GROUP group"),
        (HOST + "RMTTASK REPLICAT, GROUP", "expected REPLICAT, GROUP group"),
        (
            "RMTHOST there, MGRPORT 1, NOTLS, ENCRYPT AES256\nRMTFILE ./dirdat/in",
            "expected ENCRYPT or NOTLS, found both",
        ),
        ("TABLE s.t;", "EXTTRAIL"),
    ],
)
def test_what_does_not_go_together(text: str, told: str):
    """Each with its line."""
    with pytest.raises(ParamErrors, match=told):
        read(text)


@pytest.mark.parametrize(
    ("source", "line", "told"),
    [
        ("TRANLOG", HOST + "RMTTASK REPLICAT, GROUP load2", "was added with TRANLOG, which writes EXTTRAIL"),
        ("SOURCEISTABLE", "EXTTRAIL ./dirdat/lt", "which writes EXTFILE, RMTFILE or RMTTASK"),
    ],
)
def test_a_file_is_for_a_task_and_a_trail_for_who_captures(tmp_path, source: str, line: str, told: str):
    """START goes by how the group was added."""
    home = make_home(tmp_path)
    write(home, "load1", HEAD + line + TAIL)
    said = good(home, f"ADD EXTRACT load1, {source}")
    assert ("EXTFILE, RMTFILE or RMTTASK" in said) == (source == "SOURCEISTABLE")
    with pytest.raises(ParamErrors, match=told):
        check_group_file(home, registration.load(home, "LOAD1"))


def test_a_replicat_without_a_file(tmp_path):
    """ADD REPLICAT says what it is for."""
    home = make_home(tmp_path)
    assert "expected EXTTRAIL or EXTFILE" in bad(home, "ADD REPLICAT load2")
    assert "name EXTFILE, not EXTTRAIL" in bad(home, "ADD REPLICAT load2, SPECIALRUN, EXTTRAIL ./dirdat/lt")
    assert "leave EXTSEQNO out" in bad(home, "ADD REPLICAT load2, SPECIALRUN, EXTSEQNO 3")
    assert "RMTTASK REPLICAT, GROUP LOAD2" in good(home, "ADD REPLICAT load2, SPECIALRUN")


def test_an_order_arrives_as_it_was_given():
    """Through JSON: extract/carrier.py writes it, pump/carry.py reads it."""
    told = {"home": "/h", "group": "LOAD1", "host": "here", "file": "./dirdat/in", "encrypt": True, "task": "LOAD2",
            "remote": {"host": "there", "port": 1, "dead_seconds": 3, "tls": False}}  # fmt: skip
    assert CarryOrder.of(told) == CarryOrder(
        "/h", "LOAD1", "here", RemoteHost("there", 1, 3, False), "./dirdat/in", True, "LOAD2"
    )
