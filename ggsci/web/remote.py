"""Asks the page of another home what its pipelines do: one GET with that page's token, over TLS unless told otherwise.

Rule: any answer, or none, costs so many seconds and so many bytes at most. What comes back is data to be drawn, taken
apart field by field: names are names, figures are finite numbers, texts are short, stages are few. What doesn't fit is
one AwayError that names the address, so that nothing behind it ever meets anything else.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import os
import re
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ggsci.flow.pipelines import Pipeline, Stage
from ggsci.manager.webparams import WebHome
from ggsci.manager.webtokens import read_token
from trails.errors import AwayError, OperatorError
from trails.link import tls
from trails.runtime.home.home import Home, group_name

SECONDS = 4.0
MAX_ANSWER = 4 << 20
MAX_STAGES = 1000
MAX_TEXT = 1000
MAX_EXTRA = 64
MAX_LOADS = 100
_FAR = 1 << 62
_WORD = re.compile(r"[A-Z]{1,12}\Z")
PATH = "/api/home.json"

_NO_ANSWER = (
    OSError, http.client.HTTPException, ValueError, TypeError, KeyError, AttributeError, RecursionError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Answer:
    """What another home's page said of itself; `age_us` is how old it was then."""

    home: str
    manager: str
    age_us: int
    pipelines: tuple[Pipeline, ...]
    id: str = ""


def fetch(home: Home, other: WebHome) -> Answer:
    """What that page says now. Raises AwayError, or OperatorError if the token file can't be used."""
    token = read_token(other.token_file)
    end = time.monotonic() + SECONDS
    try:
        return _parsed(_get(home, other.url, token, end))
    except ssl.SSLCertVerificationError as error:
        raise AwayError(
            f"{other.url}: its certificate is not trusted: {error.verify_message}",
            hint="Both homes need certificates of one CREATE CERTIFICATES",
        ) from None
    except _NO_ANSWER as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
        raise AwayError(f"{other.url} gives no answer: {reason[:MAX_TEXT]}") from None


def _get(home: Home, url: str, token: str, end: float) -> Any:
    parts = urlsplit(url)
    link = _connection(home, parts.scheme, parts.hostname or "", parts.port)
    # A socket's own timeout is for each piece: one that sends a byte a second has no end of it.
    closer = threading.Timer(max(0.0, end - time.monotonic()), _cut, (link,))
    closer.daemon = True
    closer.start()
    try:
        link.request("GET", PATH, headers={"Authorization": f"Bearer {token}", "Connection": "close"})
        answer = link.getresponse()
        body = _body(answer, end)
    finally:
        closer.cancel()
        link.close()
    if answer.status == 401:
        raise ValueError("it refuses the token")
    if answer.status != 200:
        raise ValueError(f"it answers {answer.status} {answer.reason}")
    return json.loads(body)


def _connection(home: Home, scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
    if scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=SECONDS)
    authority = os.path.join(tls.folder_of(home.root), tls.CA)
    context = ssl.create_default_context(cafile=authority if os.path.exists(authority) else None)
    return http.client.HTTPSConnection(host, port, timeout=SECONDS, context=context)


def _body(answer: http.client.HTTPResponse, end: float) -> bytes:
    """All of it, unless it is too long or too slow."""
    parts, size = [], 0
    while data := answer.read1(1 << 16):
        parts.append(data)
        size += len(data)
        if size > MAX_ANSWER:
            raise ValueError(f"its answer has more than {MAX_ANSWER} bytes")
        if time.monotonic() > end:
            raise TimeoutError(f"its answer takes longer than {SECONDS:g} seconds")
    return b"".join(parts)


def _cut(link: http.client.HTTPConnection) -> None:
    """Its time is over: whoever reads from it finds the end."""
    with contextlib.suppress(OSError, TypeError):
        socket.socket.shutdown(link.sock, socket.SHUT_RDWR)


# --- taking it apart --------------------------------------------------------------------------------------------------


def _parsed(given: Any) -> Answer:
    items = given["pipelines"]
    if not isinstance(items, list) or sum(len(item["stages"]) for item in items) > MAX_STAGES:
        raise ValueError(f"expected a list of pipelines with at most {MAX_STAGES} stages")
    age = _count(given["age_us"])
    if age is None:
        raise ValueError("age_us: expected a number")
    found = tuple(_pipeline(item) for item in items)
    return Answer(_text(given["home"], 64), _word(given["manager"]), age, found, _text(given["id"], 64))


def _pipeline(item: Any) -> Pipeline:
    members = tuple(_stage(one) for one in item["stages"])
    if not members:
        raise ValueError("expected a stage in each pipeline")
    name, source, target = (_text(item[name]) for name in ("name", "source", "target"))
    return Pipeline(name, source, target, members, _whole(item["lag_us"]), _count(item["lag_age_us"]))


_TEXTS = ("home", "lag_why", "reads", "why")
_COUNTS = ("pid", "lag_age_us", "backlog_bytes", "backlog_us")
_RATES = ("ops_s", "bytes_s", "bytes_out_s", "busy")


def _stage(given: Any) -> Stage:
    made: dict[str, Any] = {name: _text(given[name]) for name in _TEXTS}
    made |= {name: _count(given[name]) for name in _COUNTS} | {name: _number(given[name]) for name in _RATES}
    return Stage(
        **made, program=_word(given["program"]), status=_word(given["status"]), name=_group(given["name"]),
        lag_us=_whole(given["lag_us"]), writes=tuple(_text(one) for one in given["writes"][:MAX_EXTRA]),
        holds_back=given["holds_back"] is True, extra=_extra(given["extra"]),
    )  # fmt: skip


def _extra(given: Any) -> dict[str, Any]:
    """Figures and short texts, and positions; anything else is left out."""
    if not isinstance(given, dict) or len(given) > MAX_EXTRA:
        raise ValueError(f"extra: expected at most {MAX_EXTRA} figures")
    plain = {_text(name, 64): value for name, value in given.items() if not isinstance(value, list | dict)}
    made = {name: _text(value) if isinstance(value, str) else _number(value) for name, value in plain.items()}
    for name in ("read", "write"):
        place = given.get(name)
        if isinstance(place, dict) and "seqno" in place and "rba" in place:
            made[name] = {part: _count(place[part]) for part in ("seqno", "rba")}
    if "load_states" in given:
        made |= _loads(given)
    if "own_lag_why" in made:
        made["own_lag_us"], made["own_lag_age_us"] = _whole(given["own_lag_us"]), _count(given["own_lag_age_us"])
        made["own_lag_why"] = _text(given["own_lag_why"])
    return made


def _loads(given: Any) -> dict[str, Any]:
    """The tables that a Replicat there loads."""
    states, tables = given["load_states"], given["loading"]
    if not isinstance(states, dict) or not isinstance(tables, list) or max(len(states), len(tables)) > MAX_LOADS:
        raise ValueError(f"loading: expected at most {MAX_LOADS} tables")
    return {
        "load_states": {_text(state, 64): _count(number) for state, number in states.items()},
        "loading": [
            {name: _text(one[name]) for name in ("source", "target", "state")}
            | {name: _count(one[name]) for name in ("chunks", "chunks_done", "rows", "bytes", "left_us")}
            | {name: _number(one[name]) for name in ("rows_s", "bytes_s")}
            for one in tables
        ],
    }


def _text(value: Any, longest: int = MAX_TEXT) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a text, found {type(value).__name__}")
    return value[:longest]


def _word(value: Any) -> str:
    if not isinstance(value, str) or not _WORD.match(value):
        raise ValueError("expected a word such as RUNNING")
    return value


def _group(value: Any) -> str:
    try:
        return group_name(_text(value))
    except OperatorError as error:
        raise ValueError(error.message) from None


def _number(value: Any) -> Any:
    """None, a truth, or a number that can be drawn."""
    if value is None or isinstance(value, bool):
        return value
    if not isinstance(value, int | float) or not math.isfinite(value) or abs(value) > _FAR:
        raise ValueError("expected a finite number")
    return value


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _count(value: Any) -> int | None:
    number = _whole(value)
    if number is not None and number < 0:
        raise ValueError("expected a number from 0")
    return number
