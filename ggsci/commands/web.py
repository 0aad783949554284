"""Commands on the Manager's page."""

from __future__ import annotations

from ggsci.commands.row import MANAGER, row

ROWS = (
    row(MANAGER, "INFO WEBTOKEN", "webtoken:info", None,
         "Show the page's token, and the address that opens the page with it.", "INFO WEBTOKEN", lists=True,
         notes="The token is made when it is first asked for, and lies in dircrd/web.token. Whoever has it sees "
         "reports, parameters, checkpoints and the rows in the trails."),
    row(MANAGER, "RENEW WEBTOKEN", "webtoken:renew", None,
         "Make a new token for the page: the old one, and every browser that showed it, is out at once.",
         "RENEW WEBTOKEN", lists=True),
)  # fmt: skip
