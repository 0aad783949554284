"""The page without a socket: a request through the whole site, guard and all; and pipelines to draw."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ggsci.flow.pipelines import Pipeline, Stage
from ggsci.manager.webparams import WebParams
from ggsci.web import app
from ggsci.web.watch import HomesWatch
from trails.runtime.home.home import Home


@dataclass(frozen=True)
class Got:
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


class Site:
    """One home's site, whose watch has looked once at the pipelines that `found` gives."""

    def __init__(
        self, home: Home, found: list[Pipeline] | None = None, params: WebParams | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self.home = home
        self.found = found if found is not None else []
        self.params = params or WebParams(port=7890)
        self.watch = HomesWatch(home, self.params, lambda *_: self.found)
        self.watch.look()
        self.watch.close()
        self.app = app.make(home, self.params, self.watch, tell)

    def post(self, url: str, form: str) -> Got:
        """Send a form."""
        return self.get(url, {"content-length": str(len(form))}, "POST", body=form.encode())

    def get(
        self, url: str, headers: Mapping[str, str] | None = None, method: str = "GET", client: str = "127.0.0.1",
        body: bytes | None = b"",
    ) -> Got:  # fmt: skip
        """Ask for an address; a `body` of None never comes."""
        path, _, query = url.partition("?")
        given = {"host": "localhost:7890", **(headers or {})}
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
            "client": (client, 40000), "server": ("127.0.0.1", 7890), "state": {},
        }  # fmt: skip
        return asyncio.run(self._run(scope, body))

    async def _run(self, scope: dict[str, Any], body: bytes | None) -> Got:
        sent: list[dict[str, Any]] = []
        asked = False

        async def receive() -> dict[str, Any]:
            nonlocal asked
            if asked or body is None:
                await asyncio.Event().wait()  # the browser stays
            asked = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self.app(scope, receive, send)  # type: ignore[arg-type]
        headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Got(sent[0]["status"], headers, b"".join(one.get("body", b"") for one in sent[1:]))


def stage(home: Home, name: str = "EXT1", program: str = "EXTRACT", **changes: Any) -> Stage:
    """A stage that runs well."""
    given: dict[str, Any] = {
        "status": "RUNNING", "pid": 4711, "lag_us": 400_000, "lag_age_us": 1000, "backlog_bytes": 2048,
        "backlog_us": 100_000, "ops_s": 1234.0, "bytes_s": 4096.0, "busy": 0.5, "reads": "PostgreSQL shop",
        "writes": ("./dirdat/lt",), "extra": {"home_id": home.id},
    }  # fmt: skip
    return Stage(home.root, program, name, **{**given, **changes})


def pipeline(*stages: Stage) -> Pipeline:
    """A pipeline of these."""
    last = stages[-1]
    name = " > ".join(one.name for one in stages)
    return Pipeline(name, "PostgreSQL shop", "postgresql host/shop", stages, last.lag_us, last.lag_age_us)
