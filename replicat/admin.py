"""`python -P -m replicat.admin`: ggsci's hand in the target. One JSON request on stdin, one JSON reply on stdout.

dblogin{url}                                     -> user, database, server
add_checkpointtable{url, table}                  makes the table (and its schema)
info_checkpointtable{url, table}                 -> exists, rows
delete_checkpointtable{url, table}
row{url, table, group, group_key}                -> row, or null
delete_row{url, table, group, group_key}         -> deleted
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from replicat.params import exact_table
from trails.errors import GateError, OperatorError
from trails.runtime.report import mask

Reply = dict[str, Any]


def answer(request: dict[str, Any]) -> Reply:
    """The reply to one request; an error is a reply too."""
    try:
        verb = _VERBS.get(str(request.get("verb")))
        if verb is None:
            raise OperatorError(f"unknown verb {request.get('verb')!r}; expected one of {', '.join(_VERBS)}")
        return {"ok": True, **verb(request)}
    except KeyError as error:
        return {"ok": False, "error": f"the request lacks {error}"}
    except GateError as error:
        return {"ok": False, "error": mask(str(error)), "exit_code": error.exit_code}


def _dblogin(request: dict[str, Any]) -> Reply:
    from replicat.targets.postgres import database_info

    return dict(database_info(request["url"]))


def _add_table(request: dict[str, Any]) -> Reply:
    from replicat.targets.postgres import add_row_table

    add_row_table(request["url"], _table(request))
    return {}


def _info_table(request: dict[str, Any]) -> Reply:
    from replicat.targets.postgres import rows_of_table

    rows = rows_of_table(request["url"], _table(request))
    return {"exists": rows is not None, "rows": rows or []}


def _delete_table(request: dict[str, Any]) -> Reply:
    from replicat.targets.postgres import drop_row_table

    drop_row_table(request["url"], _table(request))
    return {}


def _row(request: dict[str, Any]) -> Reply:
    from replicat.targets.postgres import read_row

    row = read_row(request["url"], _table(request), request["group"], int(request["group_key"]))
    if row is None:
        return {"row": None}
    return {
        "row": {
            "seqno": row.position.seqno,
            "rba": row.position.rba,
            "csn": row.csn,
            "xid": row.xid,
            "time_us": row.time_us,
            "trail_id": row.trail_id.hex(),
            "alter_no": row.alter_no,
            "flush_seqno": row.flushed.seqno,
            "flush_rba": row.flushed.rba,
        }
    }


def _delete_row(request: dict[str, Any]) -> Reply:
    from replicat.targets.postgres import delete_row

    return {"deleted": delete_row(request["url"], _table(request), request["group"], int(request["group_key"]))}


def _table(request: dict[str, Any]) -> tuple[str, str]:
    try:
        return exact_table(str(request["table"]))
    except ValueError as error:
        raise OperatorError(f"table {request['table']!r}: expected {error}") from None


_VERBS: dict[str, Callable[[dict[str, Any]], Reply]] = {
    "dblogin": _dblogin,
    "add_checkpointtable": _add_table,
    "info_checkpointtable": _info_table,
    "delete_checkpointtable": _delete_table,
    "row": _row,
    "delete_row": _delete_row,
}


def main() -> int:
    """One request, one reply."""
    try:
        request = json.load(sys.stdin)
    except ValueError as error:
        request = {"verb": f"(no JSON: {error})"}
    reply = answer(request if isinstance(request, dict) else {})
    json.dump(reply, sys.stdout)
    sys.stdout.write("\n")
    return 0 if reply["ok"] else 2


if __name__ == "__main__":
    sys.exit(main())
