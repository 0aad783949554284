"""Homes with certificates for tests of the link, and a Manager's TCP side that a thread moves."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

from demo.patience import PATIENCE
from demo.ports import free_port
from ggsci.certificates import files
from ggsci.certificates.folder import Folder
from ggsci.manager.collectors import Collectors
from ggsci.manager.params import ManagerParams
from trails.clock import RealClock
from trails.link import tls
from trails.runtime.home.home import Home
from trails.runtime.language.params import parse_text
from trails.runtime.report.report import Log


def folder(home: Home) -> Folder:
    """Its certificate files."""
    return Folder(home, tls.folder_of(home.root))


def certify(ca_home: Home, *homes: Home, names: tuple[str, ...] = files.ALWAYS, days: int = 60) -> None:
    """Certificates of `ca_home`'s CA for `homes`; days=0 has expired when it is made."""
    files.ensure_ca(folder(ca_home), ca_home.id, 60)
    for home in homes:
        files.issue(folder(ca_home), folder(home), os.path.basename(home.root), names, days, home.id)


def without_certificates(home: Home) -> None:
    """As CREATE SUBDIRS left it."""
    shutil.rmtree(tls.folder_of(home.root), ignore_errors=True)


class Listening:
    """A Manager's TCP side at work in `home`; its log lines are in ggserr.log."""

    def __init__(self, home: Home, text: str = "") -> None:
        self.home = home
        self.params = ManagerParams.from_statements(parse_text(f"PORT {free_port()}\n{text}", "mgr.prm"), "mgr.prm")
        log = Log(home, "Trailgate Manager", "mgr.prm", RealClock())
        self.collectors = Collectors(home, self.params, log, RealClock())
        self.port = self.collectors.port
        self._end = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._end:
            self.collectors.step()
            time.sleep(0.002)

    @property
    def alive(self) -> bool:
        """Whether it still serves."""
        return self._thread.is_alive()

    def log(self) -> str:
        """What it logged."""
        path = Path(self.home.ggserr)
        return path.read_text() if path.exists() else ""

    def close(self) -> None:
        """End it."""
        self._end = True
        self._thread.join(PATIENCE)
        self.collectors.close()
