"""INFO ALL."""

from __future__ import annotations

from ggsci.commands.row import LOOK, row
from ggsci.grammar import Option

ROWS = (
    row(LOOK, "INFO ALL", "looking:info_all", None,
         "Show the Manager and every group: status, lag at the last checkpoint, and how old that is.",
         "INFO ALL ; INFO ALL, DETAIL ; INFO ALL --json",
         Option("TASKS", choice="which"), Option("ALLPROCESSES", choice="which"), Option("DETAIL"), lists=True,
         notes="DETAIL asks every running process, shows each pipeline from source to target with lag, backlog (bytes, "
         "and seconds of the source's time), rates of the last ten seconds and how busy each stage is, and names the "
         "stage that holds the others back, and why. Homes that mgr.prm names (WEBHOME name, DIR path) join in. "
         "TASKS shows only tasks, groups that run once for an initial load: none yet, as no ADD makes one. "
         "ALLPROCESSES shows all."),
)  # fmt: skip
