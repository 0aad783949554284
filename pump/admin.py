"""`python -P -m pump.admin`: what ggsci asks of a pump's program. One JSON request on stdin, one JSON reply on stdout.

check_params{home, group, path}  -> mistakes, notes: what START would find out
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pump.checking import check_group
from trails.errors import GateError
from trails.runtime.home import Home
from trails.runtime.masking import mask


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The reply to one request."""
    if request.get("verb") != "check_params":
        return {"ok": False, "error": f"pump.admin knows check_params only, found {request.get('verb')!r}"}
    try:
        found = check_group(Home.at(str(request["home"])), str(request["group"]), str(request.get("path") or ""))
    except (GateError, OSError) as error:
        return {"ok": False, "error": mask(str(error))}
    return {"ok": True, **found.to_reply()}


def main() -> int:
    """One request, one reply."""
    try:
        request = json.load(sys.stdin)
    except ValueError as error:
        request = {"verb": f"(no JSON: {error})"}
    json.dump(answer(request if isinstance(request, dict) else {}), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
