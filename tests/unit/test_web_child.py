"""The page's process as the Manager sees it: its parameters, its restarts, its end, and what mgr.prm may say."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from demo.patience import PATIENCE, wait_for
from demo.ports import free_port
from ggsci.manager.params import ManagerParams
from ggsci.manager.ports import numbers
from ggsci.manager.web import END_SECONDS, LONGEST_WAIT, RETRIES, WebChild
from ggsci.manager.webparams import WebHome, WebParams
from ggsci.manager.webtokens import token_path
from tests.support.homes import as_json, good, make_home, write
from trails.clock import RealClock
from trails.errors import OperatorError, ParamError
from trails.runtime.language.params import parse_text
from trails.runtime.report.report import Log
from trails.testing import FakeClock

PAGE = WebParams(port=7890)


def manager(text):
    """mgr.prm with this text."""
    return ManagerParams.from_statements(parse_text(text, "mgr.prm"), "mgr.prm")


def params(text):
    """What it says of the page."""
    return manager(text).web


@pytest.fixture
def home(tmp_path):
    return make_home(tmp_path / "home")


class Child:
    """A WebChild whose program is `sh -c script`, on a clock that a test moves."""

    def __init__(self, home, script, params=PAGE):
        self.clock = FakeClock()
        log = Log(home, "Trailgate Manager", "mgr.prm", RealClock())
        self.web = WebChild(home, params, log, self.clock, lambda _: ["sh", "-c", script])

    @property
    def process(self):
        return self.web._process

    def ended(self):
        """Step until the process that runs has ended and was seen off."""
        self.process.wait(PATIENCE)
        self.web.step()

    def later(self, seconds):
        self.clock.sleep(seconds)
        self.web.step()


def log_text(home):
    with open(home.ggserr) as file:
        return file.read()


# --- mgr.prm ----------------------------------------------------------------------------------------------------------


def test_without_webport_there_is_no_page(home):
    """Off unless asked for."""
    assert params("") == WebParams()
    child = Child(home, "exit 0", WebParams())
    child.web.step()
    assert child.process is None
    assert child.web.row() is None


def test_every_keyword_is_understood():
    found = params(
        "WEBPORT 7890\nWEBBIND 0.0.0.0\nWEBNOTLS\nWEBCHECKSECONDS 2\nWEBHOST Gate.example.org\n"
        "WEBHOME target, DIR /opt/gate\n"
        "WEBHOME far, URL https://gate2:7890/, TOKENFILE /opt/far.token\n"
    )
    homes = (
        WebHome("target", folder="/opt/gate"),
        WebHome("far", url="https://gate2:7890", token_file="/opt/far.token"),
    )
    assert found == WebParams(7890, "0.0.0.0", True, 2, ("gate.example.org",), homes)
    assert WebParams.from_line(found.to_line()) == found


def test_loopback_is_plain_and_all_else_is_tls():
    assert not params("WEBPORT 1").tls
    assert not params("WEBPORT 1\nWEBBIND ::1").tls
    assert params("WEBPORT 1\nWEBBIND 10.0.0.1").url("host") == "https://10.0.0.1:1/"
    assert params("WEBPORT 1\nWEBBIND 0.0.0.0").url("host") == "https://host:1/"
    assert params("WEBPORT 1\nWEBBIND ::\nWEBNOTLS").url("host") == "http://host:1/"
    assert params("WEBPORT 1\nWEBBIND ::1").url("host") == "http://[::1]:1/"


@pytest.mark.parametrize(
    ("url", "is_open"),
    [("https://far:1", False), ("http://far:1", True), ("http://10.0.0.1:1", True), ("http://127.0.0.1:1", False),
     ("http://[::1]:1", False), ("http://localhost:1", False), ("", False)],
)  # fmt: skip
def test_a_token_that_is_sent_in_the_clear_is_known(url, is_open):
    """The page warns of it in ggserr.log."""
    assert WebHome("far", url=url).is_open_to_others == is_open


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("WEBPORT 0", "a whole number"),
        ("WEBCHECKSECONDS 11", "a whole number"),
        ("WEBBIND here", "an IP address"),
        ("WEBHOST a b", "one word"),
        ("WEBHOST a/b", "a host name"),
        ("WEBHOME x", "DIR path"),
        ("WEBHOME x, DIR relative", "a full path"),
        ("WEBHOME ../x, DIR /a", "a name of at most"),
        ("WEBHOME x, URL ftp://a, TOKENFILE /t", "an address such as"),
        ("WEBHOME x, URL https://user:pw@a, TOKENFILE /t", "an address such as"),
        ("WEBHOME x, URL https://a", "DIR path"),
    ],
)
def test_mistakes_are_told_with_their_line(text, told):
    with pytest.raises(ParamError) as error:
        params(f"-- comment\n{text}\n")
    assert "mgr.prm:2" in str(error.value)
    assert told in str(error.value)


def test_no_collector_gets_the_page_s_port():
    """It would be taken while the page is started again. 7890 lies among the ports above the default PORT."""
    assert 7890 not in numbers(manager("WEBPORT 7890").ports)
    assert len(numbers(manager("WEBPORT 7890").ports)) == 255
    assert numbers(manager("WEBPORT 7841\nDYNAMICPORTLIST 7840-7842").ports) == [7840, 7842]
    for text in ("PORT 7809\nWEBPORT 7809", "WEBPORT 7840\nDYNAMICPORTLIST 7840"):
        with pytest.raises(OperatorError, match="Choose another WEBPORT"):
            manager(text)


def test_parameters_that_would_not_fit_the_pipe_are_refused():
    """The Manager must never wait for a page that does not read."""
    homes = "".join(f"WEBHOME h{n}, DIR /{'x' * 2000}\n" for n in range(40))
    with pytest.raises(OperatorError, match="expected at most"):
        params(f"WEBPORT 1\n{homes}")


@pytest.mark.parametrize("line", ["", "x", "[]", "{}", '{"port": 1}', '{"homes": [{"a": 1}], "hosts": []}'])
def test_a_wrong_line_on_standard_input_is_refused(line):
    with pytest.raises(ValueError, match=r"JSON|Expecting|expected"):
        WebParams.from_line(line)


# --- the child --------------------------------------------------------------------------------------------------------


def test_its_parameters_come_by_standard_input_and_its_end_is_the_end(home, tmp_path):
    """Nothing of them in the process list; the page goes with its Manager."""
    child = Child(home, f"cat > {tmp_path}/given")
    child.web.step()
    assert child.web.row()["pid"] == child.process.pid
    process = child.process
    child.web.close()
    assert process.returncode == 0
    assert (tmp_path / "given").read_text() == PAGE.to_line()


def test_a_page_that_dies_is_started_again_ever_later_and_not_for_ever(home):
    child = Child(home, "echo the last word; kill -9 $$")
    child.web.step()
    waits = []
    for _ in range(RETRIES):
        child.ended()
        assert child.process is None
        waits.append(child.web._due - child.clock.monotonic())
        child.later(waits[-1])
    assert waits[:4] == [1.0, 2.0, 4.0, 8.0]
    assert max(waits) == LONGEST_WAIT
    child.ended()
    child.later(10_000)
    assert child.process is None
    assert "killed by signal 9" in log_text(home)
    assert "the last word" in log_text(home)
    assert f"{RETRIES} restarts did not help" in log_text(home)


def test_what_somebody_must_mend_is_not_tried_again_before_refresh(home):
    child = Child(home, "echo no certificate; exit 2")
    child.web.step()
    child.ended()
    child.later(10_000)
    assert child.process is None
    assert "no certificate" in log_text(home)
    child.web.refresh(PAGE)
    child.web.step()
    assert child.process is not None
    child.web.close()


def test_refresh_starts_it_anew_only_if_something_changed(home):
    child = Child(home, "cat > /dev/null")
    child.web.step()
    first = child.process
    child.web.refresh(PAGE)
    child.web.step()
    assert child.process is first
    child.web.refresh(WebParams(port=7891))
    first.wait(PATIENCE)
    child.web.step()
    assert child.process not in (first, None)
    child.web.refresh(WebParams())
    wait_for(lambda: child.web.step() or child.web._leaving is None)
    assert child.web.row() is None


def test_one_that_does_not_end_is_killed_without_being_waited_for(home):
    child = Child(home, "exec sleep 1000")
    child.web.step()
    stubborn = child.process
    child.web.refresh(WebParams())
    child.web.step()
    assert stubborn.poll() is None
    child.later(END_SECONDS)
    assert stubborn.wait(PATIENCE) == -9


def test_a_program_that_cant_be_started_is_told(home):
    log = Log(home, "Trailgate Manager", "mgr.prm", RealClock())
    web = WebChild(home, PAGE, log, FakeClock(), lambda _: ["/nonexistent/program"])
    web.step()
    assert "The page can't be started: No such file" in log_text(home)
    web.close()


# --- the process ------------------------------------------------------------------------------------------------------


def page(home, given, stdin=subprocess.PIPE):
    """The page as a process; `given` its parameters."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "ggsci.web", "--home", home.root], stdin=stdin, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    process.stdin.write(given)
    process.stdin.flush()
    return process


def test_off_loopback_without_certificate_it_refuses(home):
    """Exit code 2, with the statement that mends it; WEBNOTLS is the other way."""
    process = page(home, WebParams(port=free_port(), bind="0.0.0.0").to_line())
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert "CREATE CERTIFICATES" in out
    assert "CREATE CERTIFICATES" in log_text(home)


def test_a_page_that_hangs_ends_with_its_manager_too(home):
    """Here it still waits for its port, which somebody else holds for ever: the leash is not held by that."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code = (
            "import sys; from ggsci.web import __main__ as page, server\n"
            "page.END_SECONDS = 0.1; server.BIND_SECONDS = 1000\n"
            f"sys.exit(page.main(['--home', {home.root!r}]))"
        )
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
        process.stdin.write(WebParams(port=taken.getsockname()[1]).to_line().encode())
        process.stdin.close()
        assert process.wait(PATIENCE) == 3


@pytest.mark.parametrize("given", ["nonsense\n", ""])
def test_nonsense_on_standard_input_ends_it(home, given):
    process = page(home, given)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert "ERROR" in out


# --- ggsci ------------------------------------------------------------------------------------------------------------


def test_info_and_renew_webtoken(home):
    """The token, and the address with it; made when first asked for, private, never in the event log."""
    write(home, "mgr", "PORT 7809\nWEBPORT 7890\n")
    first = as_json(home, "INFO WEBTOKEN")
    assert first["url"] == f"http://127.0.0.1:7890/?token={first['token']}"
    assert first["token"] in good(home, "INFO WEBTOKEN")
    second = as_json(home, "RENEW WEBTOKEN")
    assert second["token"] != first["token"]
    with open(token_path(home)) as file:
        assert file.read().strip() == second["token"]
    assert second["token"] not in log_text(home)
    write(home, "mgr", "PORT 7809\n")
    assert as_json(home, "INFO WEBTOKEN")["url"] is None
