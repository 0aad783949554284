"""The place in a server's log that an ADD or ALTER EXTRACT names: for START, and for the command itself."""

from __future__ import annotations

from typing import Any

from extract.sources.mysql import gtid, server
from extract.sources.mysql.link import MysqlSession
from extract.sources.mysql.places import FIRST, file_number, origin_of, parse_csn
from extract.sources.mysql.walk import Walker
from trails.errors import OperatorError
from trails.position import Position


def ordered(session: MysqlSession, walker: Walker, order: dict[str, Any], epoch: int) -> Position:
    """Of an order as extract.kinds.placed() has it; `epoch`: of this server.

    Raises OperatorError where the log has no such place.
    """
    logs = server.logs(session)
    if str(order.get("begin", "")).lower() == "now":
        end = server.log_end(session)
        assert end is not None, "the checks have found a log"
        return origin_of(epoch, file_number(end.file), end.pos)
    if "begin_us" in order:
        border = walker.since(int(order["begin_us"]), logs)
    elif "gtid" in order:
        border = walker.behind(_set_of(session, str(order["gtid"])), logs)
    else:
        number, pos = _file_and_pos(order, epoch)
        found = next((log for log in logs if log.number == number), None)
        if found is None:
            raise OperatorError(
                f"ALTER EXTRACT: the server has no binary log of number {number}",
                hint=f"It has {logs[0].name} up to {logs[-1].name}",
            )
        border = walker.at(found.name, pos)
    return origin_of(epoch, file_number(border.file), border.pos)


def _file_and_pos(order: dict[str, Any], epoch: int) -> tuple[int, int]:
    if "seqno" in order:
        return int(order["seqno"]), int(order.get("rba", 0)) or FIRST
    try:
        told, number, pos = parse_csn(str(order.get("csn", "")))
    except ValueError as error:
        raise OperatorError(f"ALTER EXTRACT: {error}", hint="ALTER EXTRACT again, with such a CSN") from None
    if told != epoch:
        raise OperatorError(
            f"ALTER EXTRACT: CSN {order['csn']} is a place of another server: this one counts as {epoch}",
            hint="ALTER EXTRACT again, with a place of this server",
        )
    return number, pos


def _set_of(session: MysqlSession, text: str) -> gtid.GtidSet:
    try:
        return gtid.parse(session.flavour, text)
    except ValueError as error:
        raise OperatorError(f"ALTER EXTRACT: {error}", hint="ALTER EXTRACT again, with such a set") from None
