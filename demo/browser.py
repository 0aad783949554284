"""A headless Chromium for tests and pictures, driven by Selenium; Debian's packages chromium and chromium-driver."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.chrome.webdriver import WebDriver

_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--disable-background-networking", "--no-first-run", "--disable-component-update",
)  # fmt: skip


class NoBrowserError(RuntimeError):
    """There is no Chromium here, or no chromedriver."""


@contextmanager
def chromium(*, width: int = 1400, height: int = 1000, dark: bool = False) -> Iterator[WebDriver]:
    """A browser with a profile of its own; it and the profile are gone afterwards."""
    binary = next((found for name in _CHROMIUM if (found := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        raise NoBrowserError("no Chromium: apt-get install chromium chromium-driver (make setup tries to)")
    with tempfile.TemporaryDirectory(prefix="tg-browser-") as profile:
        options = Options()
        options.binary_location = binary
        for argument in (*_ARGUMENTS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        made = webdriver.Chrome(options=options, service=Service(driver))
        try:
            be(made, width=width, height=height, dark=dark)
            yield made
        finally:
            made.quit()


def be(browser: WebDriver, *, width: int = 1400, height: int = 1000, dark: bool = False, script: bool = True) -> None:
    """Another screen, or a browser that runs no JavaScript, from the next page on."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not script})


def complaints(browser: WebDriver) -> list[str]:
    """What the browser's console holds against the pages since it was asked last: errors, broken policies.

    What the browser's own pages (``chrome://``, such as a new tab's) do wrong says nothing of ours, and is left out.
    """
    entries = browser.get_log("browser")  # type: ignore[no-untyped-call]
    told = [str(entry["message"]) for entry in entries if entry["level"] in ("SEVERE", "WARNING")]
    return [one for one in told if not one.startswith("chrome://")]
