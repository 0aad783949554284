"""`python -P -m pump.admin`: what ggsci asks of a pump's program.

check_params{home, group, path}  -> mistakes, notes: what START would find out
"""

from __future__ import annotations

import sys
from typing import Any

from pump.checking import check_group
from trails.errors import OperatorError
from trails.runtime.home.home import Home
from trails.runtime.process.requests import replied, serve


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The reply to one request."""
    return replied(request, _check_params)


def _check_params(request: dict[str, Any]) -> dict[str, Any]:
    if request.get("verb") != "check_params":
        raise OperatorError(
            f"pump.admin knows check_params only, found {request.get('verb')!r}", hint="Use ggsci of the same release"
        )
    return check_group(Home.at(str(request["home"])), str(request["group"]), str(request.get("path") or "")).to_reply()


if __name__ == "__main__":
    sys.exit(serve(answer))
