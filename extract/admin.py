"""`python -P -m extract.admin`: what ggsci asks of a source database.

A process of its own, because ggsci imports no driver. A request has a verb, and either a `url`, whose kind of database
knows the verb (`extract.source.SourceKind.verbs`), or `home` and `group`, whose parameter file has the URL:
check_params, kept and captured.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

from extract import kinds
from extract.checking import check_group
from extract.durable import DurableEnd
from extract.params import ExtractParams
from extract.source import Reply, Request, SourceSettings
from trails.errors import OperatorError
from trails.position import TrailName
from trails.runtime.home import registration
from trails.runtime.home.home import Home
from trails.runtime.language import params
from trails.runtime.process.requests import replied, serve


def answer(request: Request) -> Reply:
    """The reply to one request; every expected error becomes a reply."""
    return replied(request, _BY_GROUP.get(str(request.get("verb")), _by_url))


def _by_url(request: Request) -> Reply:
    kind = kinds.of(str(request["url"]))
    kinds.method(kind, str(request.get("method") or ""))
    verbs = kind.verbs()
    do = verbs.get(str(request.get("verb")))
    if do is None:
        raise OperatorError(
            f"unknown request {request.get('verb')!r} to {kind.name}; expected one of {', '.join(verbs)}"
        )
    with closing(kind.connect(request["url"], "trailgate ggsci")) as connection:
        return do(connection, request)


def _check_params(request: Request) -> Reply:
    """What START would find out about a group's parameter file."""
    return check_group(Home.at(str(request["home"])), str(request["group"]), str(request.get("path") or "")).to_reply()


def _kept(request: Request) -> Reply:
    """What the source keeps for a group, and whether it still has all that is to be captured."""
    settings = _settings(request)
    kind = kinds.of(settings.url)
    with closing(kind.connect(settings.url, f"trailgate {settings.group} guard")) as connection:
        return kinds.method(kind, settings.method).kept(connection, settings)


def _captured(request: Request) -> Reply:
    """Whether all that was committed up to a place, or up to now, stands in a group's trail."""
    settings = _settings(request)
    kind = kinds.of(settings.url)
    with closing(kind.connect(settings.url, f"trailgate {settings.group} wait")) as connection:
        return kinds.method(kind, settings.method).captured(
            connection, settings, str(request["goal"]), float(request["seconds_to_wait"])
        )


def _settings(request: Request) -> SourceSettings:
    """Of a registered group."""
    home, group = Home.at(str(request["home"])), str(request["group"])
    reg = registration.load(home, group)
    found = ExtractParams.from_statements(params.parse_file(home.prm(group))).resolved(home)
    trail = TrailName.parse(found.trail, home.root)
    return replace(found.settings(reg.registered, method=reg.method), durable=DurableEnd(home.fs, trail))


_BY_GROUP: dict[str, Callable[[Request], Reply]] = {
    "check_params": _check_params, "kept": _kept, "captured": _captured
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(serve(answer))
