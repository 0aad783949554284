"""What stands before every page: who may ask, how, and how much.

    refused                                           with
    another method than GET or HEAD, but for the      405
    forms sent by POST to /login and /logout
    a Host that is not this host's name (rebinding)   421
    a body, but for those forms                       413
    a longer address                                  414
    more requests in a row from one address           429
    no token where one is needed                      401, a page that asks for it; a wrong one is told to the log
    an answer that takes too long                     503

Rule: nothing behind it changes anything, so no request can do more than look; every answer carries the headers that
keep a browser from running, framing or caching anything else. A request that came through a proxy is not from this
host, whatever address it has.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.parse import parse_qs, quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ggsci.manager.webparams import WebParams
from ggsci.manager.webtokens import SESSION_SECONDS, Sessions
from trails.runtime.report.limits import Rates

MAX_URL = 2048
MAX_FORM = 4096
ANSWER_SECONDS = 30.0
FORM_SECONDS = 10.0
RATE = 40.0
BURST = 200
MAX_NAMED = 60

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}

LOGIN, LOGOUT = "/login", "/logout"
FREE_ANYWHERE = ("/static/", LOGIN)
BY_ITSELF = "x-trailgate-poll"
"""The header of what an open page fetches by itself: no sign of a person."""
SESSION = "trailgate.session"
"""What the pages find in the request's scope: whether there is a session that can be ended."""
FREE_ON_LOOPBACK = ("/metrics", "/api/")
PROXIES = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")

Ask = Callable[[Request, str, str], Response]
"""The page that asks for the token: where it leads to, and what was wrong."""
Tell = Callable[[str], None]
"""Takes a line for the operator, and never waits."""


class Guard:
    """ASGI middleware around the pages."""

    def __init__(self, app: ASGIApp, params: WebParams, sessions: Sessions, ask_token: Ask, tell: Tell) -> None:
        self._app = app
        self._tell = tell
        self._params = params
        self._sessions = sessions
        self._ask_token = ask_token
        self._names = own_names() | set(params.hosts)
        self._rates = Rates(RATE, BURST)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        send = _with_headers(send)
        answer = self._refusal(request)
        if answer is None:
            answer = await self._form(request) if request.method == "POST" else self._without_token(request)
        if answer is None:
            await self._in_time(scope, receive, send)
        else:
            await answer(scope, receive, send)

    async def _in_time(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._app(scope, receive, noted)
        except TimeoutError:
            if not started:
                await _plain(503, "This took too long; try again.")(scope, receive, send)

    # --- refusals ---

    def _refusal(self, request: Request) -> Response | None:
        form = request.method == "POST" and request.scope["path"] in (LOGIN, LOGOUT)
        if request.method not in ("GET", "HEAD") and not form:
            return _plain(405, "This page only looks: GET and HEAD.", {"Allow": "GET, HEAD"})
        if not self._is_own(request.headers.get("host", "")):
            return _plain(421, "This host has no such name here. WEBHOST in mgr.prm adds one.")
        length = request.headers.get("content-length", "0")
        plain = length.isascii() and length.isdecimal() and len(length) < 10
        if not plain or int(length) > (MAX_FORM if form else 0) or "transfer-encoding" in request.headers:
            return _plain(413, "No body is taken.", {"Connection": "close"})
        if len(request.scope["raw_path"]) + len(request.scope["query_string"]) > MAX_URL:
            return _plain(414, f"An address has at most {MAX_URL} characters.")
        if not self._rates.take(request.client.host if request.client else "", time.monotonic()):
            return _plain(429, "Too many requests in a row.", {"Retry-After": "2"})
        return None

    def _is_own(self, host: str) -> bool:
        """An IP address can't be rebound; a name must be one of ours."""
        name = host_name(host)
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    # --- the token ---

    def _without_token(self, request: Request) -> Response | None:
        """None if the request may go on; a token in the address becomes a cookie."""
        path = request.scope["path"]
        value = request.cookies.get(self._sessions.cookie, "")
        person = BY_ITSELF not in request.headers
        request.scope[SESSION] = bool(value) and self._sessions.is_open(value, time.monotonic(), by_person=person)
        given = parse_qs(request.scope["query_string"].decode("latin-1")).get("token")
        if given is not None:
            return self._exchange(request, given[0], without_token(request))
        if self._is_free(request, path) or self._has_token(request):
            return None
        return self._ask_token(request, without_token(request), "")

    async def _form(self, request: Request) -> Response:
        """The token's form: sent as a body, so that no history and no proxy's log keeps the token. Or Log out."""
        if request.scope["path"] == LOGOUT:
            # From another site the browser sends no cookie along, so nobody else can end a session.
            self._sessions.end(request.cookies.get(self._sessions.cookie, ""))
            answer = RedirectResponse("/", 303)
            answer.delete_cookie(self._sessions.cookie, httponly=True, samesite="strict", secure=self._params.tls)
            return answer
        try:
            async with asyncio.timeout(FORM_SECONDS):
                form = parse_qs((await request.body()).decode("latin-1"))
        except (TimeoutError, ClientDisconnect):
            return _plain(408, "The form did not come in time.", {"Connection": "close"})
        following = safe_path((form.get("next") or ["/"])[0])
        return self._exchange(request, (form.get("token") or [""])[0], following)

    def _refused(self, request: Request, how: str) -> None:
        """A wrong token is news: who showed it, and by which way."""
        who = request.client.host if request.client else "an unknown address"
        passed = request.headers.get("x-forwarded-for", "")[:MAX_NAMED]
        proxy = f", a proxy that names {passed!r}" if passed else ""
        self._tell(f"The page refused a wrong token from {who}{proxy}, {how}")

    def _is_free(self, request: Request, path: str) -> bool:
        if path.startswith(FREE_ANYWHERE):
            return True
        local = self._params.is_loopback and not self._is_proxied(request)
        return local and (path == "/" or path.startswith(FREE_ON_LOOPBACK))

    def _is_proxied(self, request: Request) -> bool:
        """Did it come from elsewhere to a proxy on this host?"""
        name = host_name(request.headers.get("host", ""))
        return name in self._params.hosts or any(header in request.headers for header in PROXIES)

    def _has_token(self, request: Request) -> bool:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            if self._sessions.is_token(given.strip()):
                return True
            self._refused(request, "sent by a program")
        return bool(request.scope[SESSION])

    def _exchange(self, request: Request, token: str, following: str) -> Response:
        """A cookie for the token, and on to where one wanted to go, which is never a foreign address."""
        if not self._sessions.is_token(token):
            if token:
                self._refused(request, "typed into the form" if request.method == "POST" else "in an address")
            return self._ask_token(request, following, "That is not this home's token.")
        answer = RedirectResponse(following, 303)
        answer.set_cookie(
            self._sessions.cookie, self._sessions.open(time.monotonic()), max_age=SESSION_SECONDS, httponly=True,
            samesite="strict", secure=self._params.tls,
        )  # fmt: skip
        return answer


def without_token(request: Request) -> str:
    """The request's path and query, less the token; the login page leads to where one wanted to go."""
    query = parse_qs(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
    query.pop("token", None)
    path = request.scope["path"]
    if path == LOGIN:
        return safe_path((query.get("next") or ["/"])[0])
    return safe_path(quote(path) + (f"?{urlencode(query, doseq=True)}" if query else ""))


def safe_path(path: str) -> str:
    """A path of this page, or the overview: never an address elsewhere."""
    inside = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() and path.isascii()
    return path if inside else "/"


def host_name(host: str) -> str:
    """The name of a Host header, without port and brackets, lower case."""
    name = host.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0] if name.count(":") == 1 else name


def own_names() -> set[str]:
    """What this host is called. Not asked of a name server: that may take long, and is not ours to trust."""
    full = socket.gethostname().lower()
    return {"localhost", full, full.partition(".")[0]}


def _plain(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(f"{status} {HTTPStatus(status).phrase}\n{text}\n", status, headers)


def _with_headers(send: Send) -> Send:
    async def sender(message: Message) -> Awaitable[None] | None:  # type: ignore[return]
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return sender  # type: ignore[return-value]
