"""Layouts of answers to SEND (STATUS, SHOWTRANS, GETTCPSTATS, GETPARAMINFO); nothing here reads a file or a clock."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ggsci.views.view import span, stamp
from trails.runtime.report.answers import PlaceAnswer, StatusAnswer, WriteAnswer

_LABEL = 22
_RULER = "-" * 60


def status(program: str, group: str, pid: int | None, answer: StatusAnswer) -> list[str]:
    """SEND ..., STATUS."""
    lines = ["", f"{program} {group} (PID {pid})", f"  Current status: {answer.status}", ""]
    if answer.paused:
        lines += [f"  Left out, paused or failed (INFO TABLES says why): {', '.join(answer.paused)}", ""]
    if answer.catching_up:
        lines += [f"  Catching up: {', '.join(answer.catching_up)}", ""]
    if answer.in_transaction:
        lines += [f"  {answer.in_transaction} records in current transaction", ""]
    if answer.read:
        csn = [f"  CSN: {answer.read.csn}"] if answer.read.csn else []
        lines += ["  Current read position:", *_place(answer.read), *csn, ""]
    for write in answer.write:
        lines += ["  Current write position:", *_place(write), f"  Extract Trail: {write.trail}", ""]
    if answer.clocks:
        lines += [f"  {_clocks(answer.clocks)}", ""]
    return lines


def _clocks(found: dict[str, int]) -> str:
    ahead, error = found["ahead_us"] / 1_000_000, found["error_us"] / 1_000_000
    side = "ahead of" if ahead >= 0 else "behind"
    return (
        f"Clock of the remote host: {abs(ahead):.3f} s {side} this one, give or take {error:.3f} s "
        f"({span(found['age_us'])} ago)"
    )


def _place(place: PlaceAnswer | WriteAnswer) -> list[str]:
    timestamp = stamp(place.time_us, micros=True)
    return [f"  Sequence #: {place.seqno}", f"  RBA: {place.rba}", f"  Timestamp: {timestamp}"]


# --- SHOWTRANS --------------------------------------------------------------------------------------------------------


def transactions(group: str, reply: dict[str, Any], *, tabular: bool) -> list[str]:
    """SEND EXTRACT ..., SHOWTRANS: what is open in the source, the oldest first, and the log it keeps."""
    found = reply.get("transactions") or []
    lines = ["", *_kept(reply), ""]
    unhide = str(reply.get("unhide") or "")
    if reply.get("hidden"):
        lines += [f"Open transactions are not shown to this Extract's user: {unhide} TO that user shows them.", ""]
    elif not found:
        return [*lines, "No open transactions found.", ""]
    if tabular and found:
        return lines + _table(group, found)
    return lines + [line for one in found for line in _block(group, one, unhide)]


def _kept(reply: dict[str, Any]) -> list[str]:
    if not reply.get("restart"):
        return ["Oldest log necessary to restart Extract: Not Available"]
    size = reply.get("kept_bytes")
    kept = "" if size is None else f", {size / (1 << 20):.1f} MB kept by {reply['holder']}"
    return [f"Oldest log necessary to restart Extract: {reply['restart']}{kept}"]


def _block(group: str, one: dict[str, Any], unhide: str) -> list[str]:
    fields: Sequence[tuple[str, object]] = (
        ("XID", one["xid"]),
        ("Items", one["items"]),
        ("Extract", group),
        ("Start Time", _start(one, unhide)),
        ("Open for", span(one["age_us"]) if one["age_us"] is not None else ""),
        ("CSN", one["csn"]),
        ("User", one["user"]),
        ("Database", one["database"]),
        ("Client", one["client"]),
        ("State", one["state"]),
        ("Prepared as", one["name"]),
        ("Status", one["status"]),
    )
    return [_RULER, *(f"{label + ':':{_LABEL}}{value}" for label, value in fields if value not in ("", None)), ""]


def _start(one: dict[str, Any], unhide: str) -> str:
    if one["start_us"] is not None:
        return stamp(one["start_us"]).replace(" ", ":", 1)
    shows = f" ({unhide} shows it)" if unhide else ""
    return f"UNKNOWN{shows}" if not one["csn"] else ""


_COLUMNS = (
    (12, "XID"),
    (10, "Items"),
    (22, "Start Time"),
    (12, "Open for"),
    (11, "Status"),
    (14, "User"),
    (14, "Database"),
)


def _table(group: str, found: Sequence[dict[str, Any]]) -> list[str]:
    head = "".join(f"{title:{width}}" for width, title in _COLUMNS) + "Client"
    lines = [f"Transactions that hold back Extract {group}: {len(found)}", "", head, "-" * 110]
    for one in found:
        start = stamp(one["start_us"], missing="UNKNOWN") if not one["csn"] else ""
        values = (
            one["xid"], str(one["items"]), start, span(one["age_us"]), one["status"], one["user"], one["database"],
        )  # fmt: skip
        cells = "".join(f"{value:{width}}" for value, (width, _) in zip(values, _COLUMNS, strict=True))
        lines.append(cells + (one["name"] or one["client"]))
    return [*lines, ""]


# --- GETTCPSTATS ------------------------------------------------------------------------------------------------------


def tcp(reply: dict[str, Any]) -> list[str]:
    """SEND EXTRACT ..., GETTCPSTATS."""
    seconds = reply["elapsed_us"] / 1_000_000
    tls = "TLS" if reply["tls"] else "not encrypted"
    link = f"Local address {reply['local']}  Remote address {reply['remote']}  {tls}"
    return [
        "",
        f"Stats started {stamp(reply['since_us'], micros=True)}  {span(reply['elapsed_us'])}",
        "",
        link if reply["remote"] else "There is no link now",
        f"{'Sessions':24}{reply['sessions']:>14}",
        _moved("Inbound Msgs", reply["messages_in"], reply["bytes_in"], seconds),
        _moved("Outbound Msgs", reply["messages_out"], reply["bytes_out"], seconds),
        f"{'Recvs':24}{reply['receives']:>14}",
        f"{'Sends':24}{reply['sends']:>14}",
        _means("Avg bytes per recv", reply["bytes_in"], reply["receives"], reply["messages_in"]),
        _means("Avg bytes per send", reply["bytes_out"], reply["sends"], reply["messages_out"]),
        f"{'Bytes not yet sent':24}{reply['unsent']:>14}",
        _waited("Send Wait Time", reply["send_wait_us"], reply["blocks"]),
        _waited("Acknowledge Wait Time", reply["ack_wait_us"], reply["acknowledged"]),
        "",
        "Data compression is that of the trail's blocks, which travel as they are stored",
        f"{'Blocks':24}{reply['blocks']:>14}",
        f"{'Uncompressed bytes':24}{reply['raw_bytes']:>14}",
        f"{'Compressed bytes':24}{reply['stored_bytes']:>14}{_ratio(reply)}",
        "",
    ]


def _moved(label: str, messages: int, size: int, seconds: float) -> str:
    return f"{label:24}{messages:>14}{'Bytes':>14}{size:>16},{size / max(seconds, 0.001):>14.0f} bytes/second"


def _means(label: str, total: int, calls: int, messages: int) -> str:
    return f"{label:24}{total // max(calls, 1):>14}, per msg{total // max(messages, 1):>14}"


def _waited(label: str, wait_us: int, blocks: int) -> str:
    return f"{label:24}{wait_us / 1_000_000:>14.6f} s, per block{wait_us / max(blocks, 1) / 1_000_000:>14.6f} s"


def _ratio(reply: dict[str, Any]) -> str:
    return f"  (ratio {reply['raw_bytes'] / reply['stored_bytes']:.2f} : 1)" if reply["stored_bytes"] else ""


# --- GETPARAMINFO -----------------------------------------------------------------------------------------------------


def parameters(reply: dict[str, Any], name: str) -> list[str]:
    """SEND ..., GETPARAMINFO: the file as the running process has read it, or all settings of one parameter."""
    if not name:
        return ["", f"Parameter file {reply.get('file')}:", *(f"  {line}" for line in reply.get("parameters", [])), ""]
    found = [
        f"  {value['parameter']} {value['value']}".rstrip() + f"  ({os.path.basename(value['file'])}:{value['line']})"
        for value in reply.get("values", [])
    ]
    return ["", *(found or [f"  {name.upper()} is not in {reply.get('file')}: its default holds."]), ""]
