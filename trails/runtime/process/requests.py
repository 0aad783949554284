"""A program that ggsci asks: a JSON request in each line of standard input, a JSON reply in a line of standard output.

Replies are {"ok": true, ...} or {"ok": false, "error": text}. The exit code is 0 either way, as the reply says it all.
It ends with its input. Nothing is kept from one request to the next: files and databases may have changed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from trails.errors import GateError
from trails.lasting import keep_imports
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
    """Answer each request; the exit code."""
    keep_imports()
    for line in sys.stdin:
        try:
            request = json.loads(line)
        except ValueError as error:
            request = {"verb": f"(no JSON: {error})"}
        print(json.dumps(answer(request if isinstance(request, dict) else {})), flush=True)
    return 0
