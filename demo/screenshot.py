"""`python -m demo.screenshot`: pictures of the Manager's page for the documentation: a real pipeline works, then is
stopped at its source.

Two servers, two homes and a workload, as the demo makes them; then a browser looks. Nothing is left running.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from selenium.webdriver.common.by import By

from demo import workload
from demo.browser import chromium
from demo.patience import wait_for
from demo.pipeline import Options, Pipeline
from demo.ports import free_port
from demo.servers import PostgresServer
from demo.workload import Workload

DEFAULT = Path("docs/images/page.png")
ROWS = 40_000


def add_page(pipeline: Pipeline) -> str:
    """Have the source's Manager serve the page, with the target's home on it; its address."""
    port = free_port()
    with (pipeline.source.home / "dirprm" / "mgr.prm").open("a") as file:
        file.write(f"WEBPORT {port}\nWEBHOME target, DIR {pipeline.target.home}\n")
    return f"http://127.0.0.1:{port}/"


WORKING, STOPPED = ".stage.running ~ .stage.running ~ .stage.running", ".problem.stopped"
"""What is on the page of a pipeline that works; and of one whose Extract was stopped."""


def picture(url: str, path: Path, wanted: str, *, width: int, dark: bool) -> None:
    """Look at the page once what is wanted is there."""
    with chromium(width=width, height=900, dark=dark) as browser:
        browser.get(f"{url}?minutes=15")
        wait_for(lambda: bool(browser.find_elements(By.CSS_SELECTOR, wanted)), lambda: f"{wanted} on the page")
        time.sleep(6)  # the charts and one redrawing
        size = browser.execute_script("return document.querySelector('main').getBoundingClientRect().bottom")
        shape = {"width": width, "height": int(size) - 20, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", shape)
        time.sleep(1)
        path.parent.mkdir(parents=True, exist_ok=True)
        browser.save_screenshot(str(path))


def _database(server: PostgresServer, name: str) -> str:
    server.sql(f"CREATE DATABASE {name}")
    workload.create_tables(server.url(name))
    return server.url(name)


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m demo.screenshot")
    parser.add_argument("--to", type=Path, default=DEFAULT, help="the picture's path")
    parser.add_argument("--seconds", type=float, default=240, help="how long the pipeline works before")
    parser.add_argument("--width", type=int, default=1360)
    parser.add_argument("--dark", action="store_true")
    given = parser.parse_args(argv)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tg-page-")))
        servers = [stack.enter_context(PostgresServer(version=version, tcp=True)) for version in (16, 18)]
        source, target = (_database(*one) for one in zip(servers, ("shop", "warehouse"), strict=True))
        pipeline = stack.enter_context(Pipeline(folder, source, target, Options(checkpoint_seconds=2)))
        pipeline.create()
        url = add_page(pipeline)
        pipeline.start()
        workload.fill(source)
        load = stack.enter_context(Workload(source, rate=120.0))
        time.sleep(given.seconds * 0.6)
        workload.large_transaction(source, ROWS)  # something to see in the charts
        time.sleep(given.seconds * 0.4)
        picture(url, given.to, WORKING, width=given.width, dark=given.dark)
        load.stop()
        pipeline.source.run("STOP EXT1")
        stopped = given.to.with_stem(f"{given.to.stem}-stopped")
        picture(url, stopped, STOPPED, width=given.width, dark=given.dark)
    for path in (given.to, stopped):
        print(f"{path}: {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
