"""Who may ask the page what: addresses, hosts, sizes, rates, the token, and the headers of every answer."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from demo.patience import wait_for
from ggsci.manager import webtokens as tokens
from ggsci.manager.webparams import WebParams
from ggsci.web import __main__ as web_main
from ggsci.web import guard
from tests.support.homes import make_home
from tests.support.web import Site
from trails.errors import OperatorError
from trails.runtime.report.report import Log
from trails.testing import FakeClock

FREE = ["/", "/metrics", "/api/history.json", "/api/home.json"]
BEHIND_TOKEN = [
    "/home/home",
    "/stage/home/EXT1",
    "/stage/home/EXT1?tab=params",
    "/trail/home/lt",
    "/trail/home/lt?records=1",
]
ELSEWHERE = WebParams(port=7890, bind="0.0.0.0")


@pytest.fixture
def home(tmp_path):
    made = make_home(tmp_path / "home")
    tokens.ensure_token(made)
    return made


@pytest.fixture
def site(home):
    return Site(home)


def bearer(home):
    """The token as a program shows it."""
    return {"authorization": f"Bearer {tokens.ensure_token(home)}"}


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "X"])
def test_nothing_but_looking(site, method):
    """GET and HEAD only, on every address."""
    got = site.get("/", method=method)
    assert (got.status, got.headers["allow"]) == (405, "GET, HEAD")
    assert site.get("/", method="HEAD").status == 200


@pytest.mark.parametrize(
    "host", ["evil.example.org", "evil.example.org:7890", "localhost.evil.org", "", "127.0.0.1.evil.org"]
)
def test_a_foreign_name_is_refused(site, host):
    """DNS rebinding: a page of somebody else's can't reach in by a name of its own."""
    assert site.get("/", {"host": host}).status == 421


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:7890", "127.0.0.1:7890", "[::1]:7890", "::1", "10.0.0.5", os.uname().nodename]
)
def test_own_names_and_addresses_are_taken(site, host):
    assert site.get("/", {"host": host}).status == 200


def test_webhost_adds_a_name(home):
    site = Site(home, params=WebParams(port=7890, hosts=("gate.example.org",)))
    assert site.get("/login", {"host": "Gate.example.org:443"}).status == 200


@pytest.mark.parametrize(
    "header", [{"host": "gate.example.org"}, {"x-forwarded-for": "10.9.9.9"}, {"via": "1.1 proxy"}]
)
def test_what_a_proxy_passes_on_is_not_from_this_host(home, header):
    """It comes from loopback, and yet nothing is free."""
    site = Site(home, params=WebParams(port=7890, hosts=("gate.example.org",)))
    for path in FREE:
        assert site.get(path).status == 200
        assert site.get(path, header).status == 401
        assert site.get(path, {**header, **bearer(home)}).status == 200


def test_sizes_and_rates_are_bounded(home, site, monkeypatch):
    """A body, a long address, and many requests in a row."""
    assert site.get("/", {"content-length": "5"}).status == 413
    assert site.get("/", {"transfer-encoding": "chunked"}).status == 413
    assert site.get("/?x=" + "y" * guard.MAX_URL).status == 414
    monkeypatch.setattr(guard, "BURST", 3)
    monkeypatch.setattr(guard, "RATE", 0.0)
    site = Site(home)
    codes = [site.get("/none", client="10.9.9.9").status for _ in range(5)]
    assert codes == [401, 401, 401, 429, 429]
    assert site.get("/", client="10.9.9.8").status == 200, "another address is not held back"


# --- the token --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FREE)
def test_on_loopback_figures_are_free(site, path):
    assert site.get(path).status == 200


@pytest.mark.parametrize("path", BEHIND_TOKEN)
def test_texts_and_rows_need_the_token_even_on_loopback(site, path):
    got = site.get(path)
    assert got.status == 401
    assert "INFO WEBTOKEN" in got.text


@pytest.mark.parametrize("path", [*FREE, *BEHIND_TOKEN])
def test_elsewhere_everything_needs_the_token(home, path):
    site = Site(home, params=ELSEWHERE)
    assert site.get(path).status == 401
    assert site.get(path, {"authorization": "Bearer " + "x" * 43}).status == 401
    assert site.get(path, bearer(home)).status in (200, 404)


def test_the_token_in_an_address_becomes_a_cookie(home, site):
    """Gone from the address at once; the cookie is HttpOnly, SameSite=Strict and does not hold the token."""
    token = tokens.ensure_token(home)
    got = site.get(f"/home/home?tab=params&token={token}")
    assert (got.status, got.headers["location"]) == (303, "/home/home?tab=params")
    cookie = got.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie
    assert token not in cookie
    value = cookie.split(";")[0]
    assert site.get("/home/home?tab=params", {"cookie": value}).status == 200
    assert site.get("/home/home", {"cookie": value[:-1] + ("0" if value[-1] != "0" else "1")}).status == 401
    assert "Secure" in Site(home, params=ELSEWHERE).get(f"/?token={token}").headers["set-cookie"]


def test_the_form_sends_the_token_as_a_body(home, site):
    """In no address, so in no log and no history; what it leads to is kept, also when the token was wrong."""
    page = site.get("/home/home?tab=params").text
    assert '<form method="post" action="/login">' in page
    assert 'value="/home/home?tab=params"' in page
    token = tokens.ensure_token(home)
    got = site.post("/login", f"next=%2Fhome%2Fhome%3Ftab%3Dparams&token={token}")
    assert (got.status, got.headers["location"]) == (303, "/home/home?tab=params")
    assert site.get("/home/home", {"cookie": got.headers["set-cookie"].split(";")[0]}).status == 200
    wrong = site.post("/login", "next=%2Fhome%2Fhome&token=x")
    assert wrong.status == 401
    assert 'value="/home/home"' in wrong.text
    assert "set-cookie" not in wrong.headers
    assert site.post("/login", f"next=https://evil.org&token={token}").headers["location"] == "/"
    assert site.post("/login", "x" * (guard.MAX_FORM + 1)).status == 413
    assert site.post("/login", "").status == 401
    assert site.post("/home/home", f"token={token}").status == 405


def test_a_form_that_never_comes_is_not_waited_for(site, monkeypatch):
    monkeypatch.setattr(guard, "FORM_SECONDS", 0.05)
    assert site.get("/login", {"content-length": "10"}, method="POST", body=None).status == 408


def test_a_wrong_token_sets_nothing(site):
    got = site.get("/home/home?token=" + "x" * 43)
    assert got.status == 401
    assert "set-cookie" not in got.headers
    assert "not this home" in got.text


@pytest.mark.parametrize("following", ["//evil.org", "https://evil.org", "/\\evil.org", "/a\nb", "javascript:x", "/ä"])
def test_login_leads_nowhere_else(home, site, following):
    """No open redirect."""
    token = tokens.ensure_token(home)
    assert site.get(f"/login?next={following}&token={token}").headers["location"] == "/"
    assert site.get(f"/login?next=/home/home&token={token}").headers["location"] == "/home/home"


def test_a_renewed_token_ends_all_sessions(home, site):
    """At once, without a restart."""
    token = tokens.ensure_token(home)
    cookie = {"cookie": site.get(f"/?token={token}").headers["set-cookie"].split(";")[0]}
    assert site.get("/home/home", cookie).status == 200
    tokens.renew_token(home)
    assert site.get("/home/home", cookie).status == 401
    assert site.get("/home/home", {"authorization": f"Bearer {token}"}).status == 401
    assert site.get("/home/home", bearer(home)).status == 200


def test_a_session_ends_after_its_time_and_when_idle(home):
    """Twelve hours at most; half an hour after a person's last page, whatever an open page fetches meanwhile."""
    sessions = tokens.Sessions(home)
    value, idle = sessions.open(1000.0), tokens.IDLE_SECONDS
    steps = range(0, tokens.SESSION_SECONDS, idle // 2)
    assert all(sessions.is_open(value, 1000.0 + passed) for passed in steps)
    assert not sessions.is_open(value, 1000.0 + tokens.SESSION_SECONDS)
    value = sessions.open(1000.0)
    assert all(sessions.is_open(value, 1000.0 + passed, by_person=False) for passed in range(0, idle, 60))
    assert not sessions.is_open(value, 1000.0 + idle)
    assert not sessions.is_open(value, 1000.0), "what is over stays over"


def test_sessions_are_bounded(home):
    sessions = tokens.Sessions(home)
    first, *others = [sessions.open(0.0) for _ in range(tokens.MAX_SESSIONS + 1)]
    assert not sessions.is_open(first, 1.0)
    assert all(sessions.is_open(value, 1.0) for value in others)


def test_log_out_ends_the_session_and_not_the_cookie_alone(home, site):
    """A copied cookie is worth nothing any more; other sessions go on."""
    token = tokens.ensure_token(home)
    mine, other = (
        {"cookie": site.post("/login", f"token={token}").headers["set-cookie"].split(";")[0]} for _ in range(2)
    )
    assert "Log out" in site.get("/home/home", mine).text
    assert "Log out" in site.get("/", mine).text
    assert "Log out" not in site.get("/").text
    got = site.get("/logout", {**mine, "content-length": "0"}, method="POST")
    assert (got.status, got.headers["location"]) == (303, "/")
    assert "Max-Age=0" in got.headers["set-cookie"]
    assert site.get("/home/home", mine).status == 401
    assert site.get("/home/home", other).status == 200
    assert site.get("/logout", {"content-length": "0"}, method="POST").status == 303, "without a session nothing ends"


def test_what_a_page_fetches_by_itself_keeps_no_session_open(home, site, monkeypatch):
    """Its header tells: a person's page puts off the end, a poll does not."""
    cookie = {"cookie": site.get(f"/?token={tokens.ensure_token(home)}").headers["set-cookie"].split(";")[0]}
    seen = []
    look = tokens.Sessions.is_open

    def noted(self: tokens.Sessions, value: str, now: float, *, by_person: bool) -> bool:
        seen.append(by_person)
        return look(self, value, now)

    monkeypatch.setattr(tokens.Sessions, "is_open", noted)
    site.get("/home/home", cookie)
    site.get("/home/home", {**cookie, "x-trailgate-poll": "1"})
    assert seen == [True, False]


def test_wrong_tokens_are_told_with_the_address_and_never_the_token(home):
    """By form, address and program; nobody is told of one who shows none, or the right one."""
    told: list[str] = []
    site = Site(home, params=ELSEWHERE, tell=told.append)
    wrong = "x" * 43
    site.get("/")
    site.get("/", bearer(home))
    site.post("/login", "")
    assert told == []
    site.post("/login", f"token={wrong}")
    site.get(f"/?token={wrong}", client="10.9.9.9")
    site.get("/metrics", {"authorization": f"Bearer {wrong}", "x-forwarded-for": "10.1.1.1\n" + "y" * 99})
    assert told[:2] == [
        "The page refused a wrong token from 127.0.0.1, typed into the form",
        "The page refused a wrong token from 10.9.9.9, in an address",
    ]
    assert told[2].startswith("The page refused a wrong token from 127.0.0.1, a proxy that names '10.1.1.1\\ny")
    assert told[2].endswith("', sent by a program")
    assert not any(wrong in line for line in told)
    assert max(map(len, told)) < 200


def test_wrong_tokens_fill_no_disk(home):
    """TG-01964: five lines at once, then one a minute for all of them, with their number."""
    log = Log(home, "Trailgate Web", "mgr.prm", FakeClock())
    tell = web_main._teller(log)
    for number in range(50):
        tell(f"The page refused a wrong token from 10.0.0.{number}, in an address")
    wait_for(lambda: log._repeats._kinds and next(iter(log._repeats._kinds.values())).left_out == 45)
    assert Path(home.ggserr).read_text().count("TG-01964") == 5


def test_a_token_of_another_home_opens_nothing(home, tmp_path):
    other = make_home(tmp_path / "other")
    cookie = Site(other).get(f"/?token={tokens.ensure_token(other)}").headers["set-cookie"].split(";")[0]
    site = Site(home)
    assert site.get("/home/home", {"cookie": cookie}).status == 401
    assert site.get("/home/home", {"cookie": re.sub(r"^\w+", tokens.Sessions(home).cookie, cookie)}).status == 401


def test_the_token_file_is_private(home):
    """0600; one that others can read, or that is empty, lets nobody in."""
    path = tokens.token_path(home)
    assert os.stat(path).st_mode & 0o777 == 0o600
    token = tokens.ensure_token(home)
    assert token == tokens.ensure_token(home)
    os.chmod(path, 0o644)
    with pytest.raises(OperatorError, match="expected mode 0600, found 0644"):
        tokens.ensure_token(home)
    assert not tokens.Sessions(home).is_token(token)
    os.chmod(path, 0o600)
    with open(path, "w") as file:
        file.write("\n")
    with pytest.raises(OperatorError, match="expected a token"):
        tokens.ensure_token(home)
    assert not tokens.Sessions(home).is_token("")
    assert not tokens.Sessions(home).is_open("", 0)


# --- every answer -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/metrics", "/home/home", "/none", "/static/page.css", "/static/nothing"])
def test_every_answer_carries_the_headers(site, path):
    """Nothing runs but the page's own script; nobody frames or caches it."""
    got = site.get(path)
    policy = got.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "strict-transport-security" not in got.headers, "it would bind every other port of this host too"
    assert "unsafe" not in policy
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["referrer-policy"] == "no-referrer"
    assert "max-age=3600" in got.headers["cache-control"] if got.status == 200 and "static" in path else True


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd", "/static/..%2fapp.py"]
)
def test_static_files_stay_inside(site, path):
    assert site.get(path).status == 404
