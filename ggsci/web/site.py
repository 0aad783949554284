"""What all pages draw from, and the few threads in which they are drawn.

Rule: what may wait (files, processes) runs in one of a few threads, and a browser waits for it only so long; what
hangs keeps its thread, so there are never more. Pages drawn from memory have threads of their own, and never wait
behind those.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from ggsci.manager.webparams import WebParams
from ggsci.views.view import stamp
from ggsci.web import figures, words, zones
from ggsci.web.watch import HomesWatch
from trails.errors import GateError
from trails.runtime.home.home import Home

THREADS, QUICK_THREADS = 12, 2
FIGURES_SECONDS = 2.0
FIGURES_PATIENCE = 5.0
_log = logging.getLogger("ggsci.web")

Work = Callable[["Site", Request], Response]


class Site:
    """What the pages draw from."""

    def __init__(self, home: Home, params: WebParams, watch: HomesWatch) -> None:
        self.home = home
        self.params = params
        self.watch = watch
        self._threads = ThreadPoolExecutor(THREADS, "page")
        self._quick = ThreadPoolExecutor(QUICK_THREADS, "quick")
        self._figures: tuple[float, Response] | None = None
        self._making_figures = threading.Lock()
        self._environment = Environment(
            loader=PackageLoader("ggsci.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
            lstrip_blocks=True,
        )  # fmt: skip
        self._environment.filters |= {"bytes": words.size, "stamp": stamp}

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """A page made from its template."""
        # What is behind the token is seen by those who have shown it.
        signed_in = template in ("home.html", "stage.html", "trail.html", "blocks.html", "records.html")
        home = {"home_name": self.watch.name, "root": self.home.root, "every": self.watch.every, "zone": zones.own()}
        values = {"signed_in": signed_in, **home, **values}
        return HTMLResponse(self._environment.get_template(template).render(values), status)

    def endpoint(self, work: Work, *, quick: bool) -> Callable[[Request], Awaitable[Response]]:
        """A route's function: the work in a thread; an error that names what is wrong is a page that says so."""
        threads = self._quick if quick else self._threads

        @functools.wraps(work)
        async def run(request: Request) -> Response:
            return await asyncio.get_running_loop().run_in_executor(threads, self._done, work, request)

        return run

    def _done(self, work: Work, request: Request) -> Response:
        try:
            return work(self, request)
        except (GateError, OSError) as error:
            return self.page("error.html", 500, title="This can't be shown", text=str(error))
        except HTTPException:
            raise
        except Exception as error:  # noqa: BLE001  -- told by name, with its traceback in the page's own output
            _log.exception("%s", request.scope["path"])
            return self.page("error.html", 500, title="A bug in Trailgate", text=type(error).__name__)

    def ask_token(self, request: Request, following: str, wrong: str) -> Response:
        """The form that asks for the token; a program gets a line of text."""
        path = request.scope["path"]
        if path.startswith(("/api/", "/metrics")):
            return PlainTextResponse(
                "401 Unauthorized\nExpected: Authorization: Bearer <token of INFO WEBTOKEN>\n", 401
            )
        return self.page("login.html", 401, following=following, wrong=wrong)

    def figures(self) -> Response:
        """The figures for Prometheus, made anew every few seconds at most."""
        if not self._making_figures.acquire(timeout=FIGURES_PATIENCE):  # many that ask at once are one look
            return PlainTextResponse("503 a look that began before hangs\n", 503)
        try:
            made = self._figures
            if made is None or time.monotonic() - made[0] > FIGURES_SECONDS:
                answer = self._made_figures()
                made = self._figures = (time.monotonic(), answer)
            return made[1]
        finally:
            self._making_figures.release()

    def _made_figures(self) -> Response:
        picture = self.watch.picture()
        view = picture.homes[0] if picture.homes else None
        if view is None:
            return PlainTextResponse("503 nothing seen yet\n", 503)
        samples = figures.collect(self.home, view, picture.age_us, picture.pipelines, time.time_ns() // 1000)
        body, kind = figures.exposition(samples)
        return Response(body, media_type=kind)
