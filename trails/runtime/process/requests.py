"""A program that ggsci asks: one JSON request on standard input, one JSON reply on standard output.

Replies are {"ok": true, ...} or {"ok": false, "error": text}. The exit code is 0 either way, as the reply says it all.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from trails.errors import GateError
from trails.runtime.masking import mask
from trails.runtime.secrets.credentials import hide_url

AdminReply = dict[str, Any]
Answer = Callable[[dict[str, Any]], AdminReply]


def replied(request: dict[str, Any], do: Answer) -> AdminReply:
    """What `do` makes of a request; every expected error becomes a reply too."""
    hide_url(str(request.get("url", "")))
    try:
        return {"ok": True, **do(request)}
    except KeyError as error:
        return {"ok": False, "error": f"the request {request.get('verb')} lacks {error}"}
    except (GateError, OSError) as error:
        return {"ok": False, "error": mask(str(error))}


def serve(answer: Answer) -> int:
    """Answer the one request; the exit code."""
    try:
        request = json.load(sys.stdin)
    except ValueError as error:
        request = {"verb": f"(no JSON: {error})"}
    json.dump(answer(request if isinstance(request, dict) else {}), sys.stdout)
    print()
    return 0
