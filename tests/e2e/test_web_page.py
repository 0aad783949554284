"""The Manager's page, served by a real Manager over real processes, looked at by a headless Chromium."""

from __future__ import annotations

import os
import signal
import urllib.error
import urllib.request

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By

from demo.browser import be, chromium, complaints
from demo.patience import PATIENCE, wait_for
from demo.ports import free_port
from ggsci.manager.webtokens import ensure_token, token_path
from tests.support.homes import end_all, ggsci, good, make_home, status, write
from tests.support.link import Source
from trails.fs import RealFs
from trails.position import TrailName
from trails.runtime.home.home import MANAGER
from trails.runtime.home.status import manager_status
from trails.runtime.process.control import ask

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.xdist_group("web")]

PUMP = "EXTRACT pmp1\nRMTHOST 127.0.0.1, MGRPORT {port}, NOTLS\nRMTTRAIL ./dirdat/rt\nPASSTHRU\nCHECKPOINTSECS 1\n"


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    """A source home with a pump and a target home with a Replicat that never ran; the Managers of both run.

    The source's page knows the target's folder, the target's page knows the source's page. (homes, pages' ports)
    """
    folder = tmp_path_factory.mktemp("homes")
    here, there = make_home(folder / "here"), make_home(folder / "there")
    manager, page, far_page, low = free_port(), free_port(), free_port(), free_port()
    write(there, "mgr", f"PORT {manager}\nNOTLS\nDYNAMICPORTLIST {low}-{min(low + 20, 65535)}\nWEBPORT {far_page}\n"
          "WEBCHECKSECONDS 1\n"
          f"WEBHOME src, URL http://127.0.0.1:{page}, TOKENFILE {token_path(here)}\n")  # fmt: skip
    write(
        here, "mgr", f"PORT {free_port()}\nNOTLS\nWEBPORT {page}\nWEBCHECKSECONDS 1\nWEBHOME there, DIR {there.root}\n"
    )
    write(here, "pmp1", PUMP.format(port=manager))
    ensure_token(here)
    good(here, "ADD EXTRACT pmp1, EXTTRAILSOURCE ./dirdat/lt")
    good(here, "ADD RMTTRAIL ./dirdat/rt, EXTRACT pmp1")
    good(there, "ADD REPLICAT rep1, EXTTRAIL ./dirdat/rt, CHECKPOINTTABLE a.b")
    source = Source(RealFs(), TrailName.parse("./dirdat/lt", here.root))
    source.mixed(20)
    source.writer.close()
    ggsci(there, "START", "MANAGER")
    ggsci(here, stdin="START MANAGER\nSTART EXTRACT pmp1\n")
    wait_for(lambda: os.path.exists(TrailName.parse("./dirdat/rt", there.root).path(0)))
    yield here, there, page, far_page
    end_all(here)
    end_all(there)


@pytest.fixture(scope="module")
def browser():
    """One for all of them: starting it takes longer than what most of them do with it."""
    with chromium() as made:
        yield made


def fetch(url, token=""):
    """(status, body)."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def answers(url):
    """The body of a page that is being started; empty as long as it isn't there."""
    try:
        return fetch(url)[1]
    except OSError:
        return ""


_STATES = """
return Object.fromEntries([...document.querySelectorAll(".stage")].map(
    (one) => [one.querySelector(".title").textContent, one.querySelector(".pill").textContent]))
"""


def states(browser):
    """What the page shows: stage -> status. Asked by one script, as the page may be redrawn at any moment."""
    return browser.execute_script(_STATES)


def click(browser, selector):
    """Click it, whichever element that is now."""
    browser.execute_script(f"document.querySelector({selector!r}).click()")


def count(browser, selector):
    """So many elements of the page."""
    return len(browser.find_elements(By.CSS_SELECTOR, selector))


def steady(look):
    """What a look finds; once more if the page was loaded anew under it, as it is each 10 s where no script runs."""
    try:
        return look()
    except StaleElementReferenceException:
        return look()


def page_pid(home):
    """The page's process id as the Manager tells it."""
    return ask(home, MANAGER, "STATUS")["web"]["pid"]


def test_figures_without_javascript_on_a_narrow_screen_and_from_the_other_page(homes, browser):
    """/metrics of running processes; everything but the charts without a script; the target's page draws the pump."""
    here, _, port, far_port = homes
    url = f"http://127.0.0.1:{port}"
    wanted = 'trailgate_write_seqno{group="PMP1",home="here",program="PUMP",trail="./dirdat/rt"}'
    wait_for(lambda: wanted in answers(f"{url}/metrics"), told="the pump's first checkpoint")
    text = answers(f"{url}/metrics")
    assert 'trailgate_group_up{group="PMP1",home="here",program="PUMP"} 1.0' in text
    assert 'trailgate_manager_up{home="here"} 1.0' in text
    assert 'trailgate_disk_free_bytes{home="here"' in text
    far = f"http://127.0.0.1:{far_port}/"
    wait_for(lambda: f'href="{url}/stage/here/PMP1"' in answers(far), told="the source's pump on the target's page")
    wait_for(lambda: "PMP1 → REP1" in answers(far), told="one pipeline there too")
    assert fetch(f"{url}/stage/here/PMP1")[0] == 401
    assert "Read Checkpoint #1" in fetch(f"{url}/stage/here/PMP1?tab=showch", ensure_token(here))[1]
    be(browser, width=400, height=800, dark=True, script=False)
    browser.get(f"{url}/stage/here/PMP1?tab=params&token={ensure_token(here)}")
    assert "RMTTRAIL ./dirdat/rt" in browser.find_element(By.CSS_SELECTOR, "pre.text").text
    browser.get(url)
    titles = steady(lambda: {one.text for one in browser.find_elements(By.CSS_SELECTOR, ".stage .title")})
    assert titles == {"PMP1", "REP1"}
    assert count(browser, ".u-over") == 0, "no script runs"
    assert steady(lambda: browser.find_element(By.TAG_NAME, "main").size["width"]) <= 400
    steady(lambda: browser.find_element(By.CSS_SELECTOR, ".link a").click())
    wait_for(lambda: "Trail ./dirdat/lt" in steady(lambda: browser.find_element(By.TAG_NAME, "h1").text))
    assert complaints(browser) == []
    browser.delete_all_cookies()


def test_a_pipeline_over_two_homes_in_a_browser(homes, browser):
    """Drawn and joined; token, SHOWCH, trail; a kill is seen without a reload; the page's own end is seen (GG-19).

    It ends the source's Manager, which the target's page looks at.
    """
    here, _, port, far_port = homes
    url = f"http://127.0.0.1:{port}"
    wait_for(lambda: "REP1" in answers(url), told="the page with both homes")
    be(browser)
    browser.get(url)
    wait_for(lambda: states(browser) == {"PMP1": "RUNNING", "REP1": "STOPPED"}, told="both stages on the page")
    wait_for(lambda: count(browser, ".panel") == 1, told="one pipeline over both homes")
    wait_for(lambda: count(browser, ".u-over") == 3, told="three charts")
    click(browser, "[data-key='here/PMP1'].stage")
    wait_for(lambda: "needs the token" in browser.page_source)
    browser.find_element(By.NAME, "token").send_keys(ensure_token(here) + "\n")
    wait_for(lambda: browser.find_elements(By.LINK_TEXT, "SHOWCH"))
    assert browser.current_url == f"{url}/stage/here/PMP1"
    click(browser, "a[href$=showch]")
    shown = "return document.querySelector('pre.text')?.textContent ?? ''"
    wait_for(lambda: "Write Checkpoint #1" in browser.execute_script(shown))
    browser.get(f"{url}/trail/there/rt?records=1")
    assert "INSERT" in browser.find_element(By.CSS_SELECTOR, "pre.text").text
    assert [one for one in complaints(browser) if "401" not in one] == []  # the token's form
    browser.get(url)
    wait_for(lambda: states(browser).get("PMP1") == "RUNNING")
    browser.execute_script("window.mark = 1")
    os.kill(status(here, "PMP1").pid, signal.SIGKILL)
    wait_for(lambda: states(browser).get("PMP1") == "ABENDED", told="the kill on the page")
    assert browser.execute_script("return window.mark") == 1, "seen without a reload"
    pid = page_pid(here)
    os.kill(manager_status(here).pid, signal.SIGKILL)
    offline = browser.find_element(By.ID, "offline")
    wait_for(lambda: "No answer since" in offline.text, told="the page's end on the page")
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"), told="the page to end with its Manager")
    far = f"http://127.0.0.1:{far_port}"
    wait_for(lambda: "gives no answer" in answers(far), told="the other page to say that this one is gone")
    assert "UNKNOWN" in answers(far)


def test_the_page_dies_and_comes_back_and_changes_by_refresh(homes):
    """Killed: started again. Another port by REFRESH MANAGER; none when WEBPORT is gone. Of the target's Manager."""
    _, home, _, first = homes
    with open(home.prm(MANAGER)) as file:
        given = [line for line in file.read().splitlines() if not line.startswith("WEB")]
    second = free_port()
    pid = page_pid(home)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: page_pid(home) not in (None, pid) and answers(f"http://127.0.0.1:{first}"))
    write(home, "mgr", "\n".join([*given, f"WEBPORT {second}"]))
    ask(home, MANAGER, "REFRESH")
    wait_for(lambda: answers(f"http://127.0.0.1:{second}"))
    assert not answers(f"http://127.0.0.1:{first}")
    write(home, "mgr", "\n".join(given))
    ask(home, MANAGER, "REFRESH")
    wait_for(lambda: not answers(f"http://127.0.0.1:{second}"))
    assert ask(home, MANAGER, "STATUS")["web"] is None
    assert manager_status(home).status.is_alive
