"""INFO ALL."""

from __future__ import annotations

from ggsci.commands.row import LOOK, row

ROWS = (
    row(LOOK, "INFO ALL", "looking:info_all", None,
         "Show the Manager and every group: status, lag at the last checkpoint, and how old that is.",
         "INFO ALL ; INFO ALL --json", lists=True),
)  # fmt: skip
