"""INFO WEBTOKEN and RENEW WEBTOKEN."""

from __future__ import annotations

import socket
from typing import Any

from ggsci.commands.session import OperatorSession
from ggsci.manager.webparams import WebParams
from ggsci.manager.webtokens import ensure_token, renew_token
from ggsci.table.grammar import Parsed
from trails.errors import GateError
from trails.runtime.home.home import MANAGER, Home
from trails.runtime.language import params


def info(session: OperatorSession, _command: Parsed) -> Any:
    """The token, and the page's address with it."""
    return _told(session, ensure_token(session.home))


def renew(session: OperatorSession, _command: Parsed) -> Any:
    """A new token."""
    token = renew_token(session.home)
    session.say("The page has a new token; the old one opens nothing any more.")
    return _told(session, token)


def _told(session: OperatorSession, token: str) -> dict[str, Any]:
    url = page_url(session.home)
    session.say("", f"Web token    {token}")
    if url:
        session.say(f"Page         {url}?token={token}", "")
    else:
        session.say("Page         none: WEBPORT n in mgr.prm, then REFRESH MANAGER, serves one", "")
    return {"token": token, "url": f"{url}?token={token}" if url else None}


def page_url(home: Home) -> str:
    """The page's address by mgr.prm; empty if it names none."""
    from ggsci.manager.params import ManagerParams

    try:
        found = ManagerParams.from_statements(params.parse_file(home.prm(MANAGER)), home.prm(MANAGER)).web
    except (GateError, OSError):
        found = WebParams()
    return found.url(socket.gethostname()) if found.port else ""
