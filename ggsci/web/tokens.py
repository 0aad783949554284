"""The page's token, and the sessions that a browser gets for it.

Rule: the token lies in dircrd/web.token (0600) and is read anew at each use, so that a renewed one counts at once. A
browser that showed it gets a cookie in its place: a time and a mark that only the token could make. The cookie ends
after twelve hours, or with the token; it is good for this home only, and never holds the token itself, because
browsers send a host's cookies to all of its ports.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat

from trails.errors import OperatorError
from trails.fs import replace_durably
from trails.runtime.home import Home

SESSION_SECONDS = 12 * 3600
MAX_TOKEN = 1024
_LEAST = 32


def token_path(home: Home) -> str:
    """Where the token of this home's page lies."""
    return os.path.join(home.folder("dircrd"), "web.token")


def read_token(path: str) -> str:
    """The token in a file that nobody else can read. Raises OperatorError."""
    try:
        mode = os.stat(path).st_mode
        with open(path, "rb") as file:
            text = file.read(MAX_TOKEN + 1).decode("ascii", "replace").strip()
    except OSError as error:
        raise OperatorError(f"token file {path}: {error.strerror}", hint="RENEW WEBTOKEN makes one") from None
    if mode & 0o077:
        found = f"{stat.S_IMODE(mode):04o}"
        raise OperatorError(f"token file {path}: expected mode 0600, found {found}", hint=f"chmod 600 {path}")
    if not _LEAST <= len(text) <= MAX_TOKEN or not text.isascii() or not text.isprintable():
        raise OperatorError(
            f"token file {path}: expected a token of {_LEAST} characters or more", hint="RENEW WEBTOKEN"
        )
    return text


def ensure_token(home: Home) -> str:
    """The token of this home, made now if there is none."""
    path = token_path(home)
    if not home.fs.exists(path):
        return renew_token(home)
    return read_token(path)


def renew_token(home: Home) -> str:
    """A new token; the old one and all sessions made with it end at once."""
    token = secrets.token_urlsafe(32)
    replace_durably(home.fs, token_path(home), f"{token}\n".encode())
    return token


class Sessions:
    """Tells whether a request may see what needs the token."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self.cookie = f"trailgate_{home.id[:8]}"

    def is_token(self, given: str) -> bool:
        """Is it this home's token? A token file that can't be used lets nobody in."""
        token = self._token()
        return bool(token) and hmac.compare_digest(given.encode(), token.encode())

    def open(self, now: float) -> str:
        """A cookie's value, for who showed the token."""
        expires = int(now) + SESSION_SECONDS
        return f"{expires}.{self._mark(expires)}"

    def is_open(self, value: str, now: float) -> bool:
        """Is this cookie one of ours, and not over?"""
        text, _, mark = value.partition(".")
        if not (text.isascii() and text.isdecimal() and len(text) < 16 and self._token()):
            return False
        expires = int(text)
        return hmac.compare_digest(mark.encode(), self._mark(expires).encode()) and now < expires

    def _mark(self, expires: int) -> str:
        return hmac.new(self._token().encode(), f"{self._home.id} {expires}".encode(), hashlib.sha256).hexdigest()

    def _token(self) -> str:
        try:
            return read_token(token_path(self._home))
        except OperatorError:
            return ""
