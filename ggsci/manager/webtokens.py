"""The page's token, and the sessions that a browser gets for it.

Rule: the token lies in dircrd/web.token (0600) and is read anew at each use, so that a renewed one counts at once. A
browser that showed it gets a cookie in its place, a random number that this process knows: never the token itself,
because browsers send a host's cookies to all of its ports.

    a session ends                                          then
    by Log out, in any window of that browser               the number is forgotten, so a copied cookie is worth nothing
    IDLE_SECONDS after the last page that a person asked    the same; what an open page fetches by itself does not count
    SESSION_SECONDS after it began                          the same
    with the token (RENEW WEBTOKEN), with the process       the same
    MAX_SESSIONS newer ones later                           the same
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from dataclasses import dataclass

from trails.errors import OperatorError
from trails.fs import replace_durably
from trails.runtime.home.home import Home

SESSION_SECONDS = 12 * 3600
IDLE_SECONDS = 30 * 60
MAX_SESSIONS = 256
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


@dataclass(slots=True)
class _Session:
    began: float
    used: float
    token: bytes  # its digest


class Sessions:
    """Tells whether a request may see what needs the token. Times are monotonic seconds; one thread uses it."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self.cookie = f"trailgate_{home.id[:8]}"
        self._open: dict[bytes, _Session] = {}

    def is_token(self, given: str) -> bool:
        """Is it this home's token? A token file that can't be used lets nobody in."""
        token = self._token()
        return bool(token) and hmac.compare_digest(given.encode(), token.encode())

    def open(self, now: float) -> str:
        """A cookie's value, for who showed the token."""
        value = secrets.token_urlsafe(32)
        while len(self._open) >= MAX_SESSIONS:
            del self._open[next(iter(self._open))]
        self._open[_digest(value)] = _Session(now, now, _digest(self._token()))
        return value

    def is_open(self, value: str, now: float, *, by_person: bool = True) -> bool:
        """Is this cookie one of ours, and not over? `by_person`: this request puts off its end."""
        key, token = _digest(value), self._token()
        found = self._open.get(key)
        if found is None or not token:
            return False
        over = now >= found.began + SESSION_SECONDS or now >= found.used + IDLE_SECONDS
        if over or not hmac.compare_digest(found.token, _digest(token)):
            del self._open[key]
            return False
        if by_person:
            found.used = now
        return True

    def end(self, value: str) -> None:
        """Log out."""
        self._open.pop(_digest(value), None)

    def _token(self) -> str:
        try:
            return read_token(token_path(self._home))
        except OperatorError:
            return ""


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()
