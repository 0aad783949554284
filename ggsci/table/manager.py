"""Commands on the Manager and its page."""

from __future__ import annotations

from ggsci.table.grammar import Option
from ggsci.table.row import MANAGER, row

ROWS = (
    row(MANAGER, "START MANAGER", "managing:start", None,
         "Start the Manager of this home; it goes on when ggsci exits.", "START MANAGER ; START MGR"),
    row(MANAGER, "STOP MANAGER", "managing:stop", None,
         "Stop the Manager; the groups go on. Asks first, unless the command ends with `!`.", "STOP MANAGER!"),
    row(MANAGER, "INFO MANAGER", "managing:info", None,
         "Show whether the Manager runs, and on which port; DETAIL: also what it looks after, and the disk.",
         "INFO MANAGER ; INFO MGR DETAIL ; INFO MGR --json", Option("DETAIL"), lists=True),
    row(MANAGER, "STATUS MANAGER", "managing:info", None, "The same as INFO MANAGER.", "STATUS MANAGER",
         Option("DETAIL"), lists=True),
    row(MANAGER, "REFRESH MANAGER", "managing:refresh", None,
         "Have the running Manager read mgr.prm and GLOBALS anew. A file with mistakes is refused whole, and the "
         "parameters of before stay in force.", "REFRESH MANAGER ; REFRESH MGR", lists=True,
         notes="PORT, BIND and NOTLS stay as they are until the next START MANAGER. Groups and Collectors that run "
         "are not touched."),
    row(MANAGER, "SEND MANAGER", "managing:send", None,
         "Ask the running Manager about its children, the Collectors' ports, or which trail files it keeps and why.",
         "SEND MANAGER CHILDSTATUS DEBUG ; SEND MANAGER GETPORTINFO DETAIL ; SEND MANAGER GETPURGEOLDEXTRACTS",
         Option("CHILDSTATUS", choice="request", needed=True), Option("GETPORTINFO", choice="request"),
         Option("GETPURGEOLDEXTRACTS", choice="request"), Option("DEBUG"), Option("DETAIL"), lists=True,
         notes="DEBUG adds to CHILDSTATUS how each group is watched and how it last ended. DETAIL adds to GETPORTINFO "
         "every port of DYNAMICPORTLIST."),
    row(MANAGER, "INFO WEBTOKEN", "webtoken:info", None,
         "Show the page's token, and the address that opens the page with it.", "INFO WEBTOKEN", lists=True,
         notes="The token is made when it is first asked for, and lies in dircrd/web.token. Whoever has it sees "
         "reports, parameters, checkpoints and the rows in the trails."),
    row(MANAGER, "RENEW WEBTOKEN", "webtoken:renew", None,
         "Make a new token for the page. The old one is refused at once, and so is every browser that showed it.",
         "RENEW WEBTOKEN", lists=True),
)  # fmt: skip
