"""Commands on the Manager."""

from __future__ import annotations

from ggsci.commands.row import MANAGER, row
from ggsci.grammar import Option

ROWS = (
    row(MANAGER, "START MANAGER", "managing:start", None,
         "Start the Manager of this home; it goes on when ggsci exits.", "START MANAGER ; START MGR"),
    row(MANAGER, "STOP MANAGER", "managing:stop", None,
         "Stop the Manager; the groups go on. Asks first, unless the command ends with `!`.", "STOP MANAGER!"),
    row(MANAGER, "INFO MANAGER", "managing:info", None,
         "Show whether the Manager runs, and on which port.", "INFO MANAGER ; INFO MGR --json", lists=True),
    row(MANAGER, "STATUS MANAGER", "managing:info", None, "The same as INFO MANAGER.", "STATUS MANAGER", lists=True),
    row(MANAGER, "SEND MANAGER", "managing:send", None,
         "Ask the running Manager about its children, the Collectors' ports, or its purge rules.",
         "SEND MANAGER CHILDSTATUS ; SEND MANAGER GETPORTINFO",
         Option("CHILDSTATUS", choice="request", needed=True), Option("GETPORTINFO", choice="request"),
         Option("GETPURGEOLDEXTRACTS", choice="request"), lists=True),
)  # fmt: skip
