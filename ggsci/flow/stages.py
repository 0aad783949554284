"""The stages of one home: each registered group as a stage of some pipeline, with all that is known of it now.

Rule: running groups are asked by their control socket, all at once and for ASK_SECONDS at most; the others are told by
registration, checkpoint file and trails. What is not known now is None, with the reason and the age of the last truth.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from ggsci import facts
from ggsci.facts import GroupFacts
from trails.checkpoint import Place
from trails.errors import GateError
from trails.format import FileHeader
from trails.position import Position, TrailName
from trails.reader import last_header
from trails.runtime import params
from trails.runtime import registration as registrations
from trails.runtime.control import ask
from trails.runtime.home import Home
from trails.runtime.metrics import trail_backlog, written_us
from trails.runtime.registration import Registration

EXTRACT, PUMP, REPLICAT = "EXTRACT", "PUMP", "REPLICAT"
RUNNING = "RUNNING"
ASK_SECONDS = 1.0
_KINDS = {"postgresql": "PostgreSQL", "postgres": "PostgreSQL", "mysql": "MySQL", "sqlite": "SQLite"}


@dataclass(frozen=True, slots=True)
class Stage:
    """One process of a pipeline as it stands now; None where that is not known.

    `home`: its folder. `status`: STARTING, RUNNING, STOPPED, ABENDED. `lag_us`: how far behind the source it is, true
    `lag_age_us` ago; `lag_why` says why a lag is not known. `backlog_bytes` and `backlog_us`: what waits for it, in
    bytes and in source time. Rates and `busy` (0 to 1) are of the last ten seconds. `reads`, `writes`: a log, a trail
    or a database, as people write it. `holds_back`: it is the one that the others wait for; `why` it is, or what it
    is doing. `extra`: what only this kind has, and home_id, fed_by (home_id/group), host, newest_us.
    """

    home: str
    program: str
    name: str
    status: str
    pid: int | None = None
    lag_us: int | None = None
    lag_age_us: int | None = None
    lag_why: str = ""
    backlog_bytes: int | None = None
    backlog_us: int | None = None
    ops_s: float | None = None
    bytes_s: float | None = None
    bytes_out_s: float | None = None
    busy: float | None = None
    reads: str = ""
    writes: tuple[str, ...] = ()
    holds_back: bool = False
    why: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The group's name among all homes."""
        return f"{self.extra.get('home_id', self.home)}/{self.name}"

    @property
    def fed_by(self) -> str:
        """The key of the stage that writes what it reads; empty for an Extract."""
        return str(self.extra.get("fed_by", ""))


def of_home(home: Home, now_us: int) -> list[Stage]:
    """Every registered group, Extracts first."""
    groups = [facts.gather(home, registration, now_us) for registration in registrations.all(home)]
    answers = _ask_all(home, [group.name for group in groups if group.status == RUNNING])
    return [_stage(home, group, groups, answers.get(group.name)) for group in groups]


def _ask_all(home: Home, names: list[str]) -> dict[str, dict[str, Any]]:
    """Each one's answer to METRICS; {"ok": False, "error": ...} from who does not give one in time."""
    from concurrent.futures import ThreadPoolExecutor

    if not names:
        return {}
    with ThreadPoolExecutor(max_workers=len(names)) as pool:
        return dict(zip(names, pool.map(lambda name: _ask(home, name), names), strict=True))


def _ask(home: Home, name: str) -> dict[str, Any]:
    try:
        return ask(home, name, "METRICS", timeout=ASK_SECONDS)
    except GateError as error:
        return {"ok": False, "error": error.message}


def _stage(home: Home, group: GroupFacts, groups: list[GroupFacts], answer: dict[str, Any] | None) -> Stage:
    program = PUMP if group.program == EXTRACT and group.registration.trail else group.program
    reads, extra = _input(home, group, groups)
    common = {
        "home": home.root, "program": program, "name": group.name, "status": group.status, "pid": group.pid,
        "reads": reads, "writes": _output(home, group),
    }  # fmt: skip
    extra.update(home_id=home.id, host=socket.gethostname(), message=group.message or group.damage)
    if answer is not None and answer.get("ok"):
        return _answered(common, extra, answer, group.now_us)
    return _silent(home, common, extra, group, answer)


def _answered(common: dict[str, Any], extra: dict[str, Any], answer: dict[str, Any], now_us: int) -> Stage:
    at = answer.get("lag_at_us")
    counts = {name: answer.get(name) for name in _COUNTS}
    return Stage(
        **common,
        lag_us=answer.get("lag_us"), lag_age_us=None if at is None else max(0, now_us - at),
        lag_why=answer.get("lag_why") or ("" if answer.get("lag_us") is not None else "nothing was processed yet"),
        backlog_bytes=answer.get("backlog_bytes"), backlog_us=answer.get("backlog_us"),
        ops_s=answer.get("ops_s"), bytes_s=answer.get("bytes_s"), bytes_out_s=answer.get("bytes_out_s"),
        busy=answer.get("busy"),
        extra={**extra, **counts, **answer.get("extra", {})},
    )  # fmt: skip


_COUNTS = ("operations", "transactions", "bytes_in", "bytes_out", "turn_age_us", "read", "write")


def _silent(
    home: Home, common: dict[str, Any], extra: dict[str, Any], group: GroupFacts, answer: dict[str, Any] | None
) -> Stage:
    """What the files know of a group that is not running, or does not answer."""
    place = group.checkpoint.reads[0].current if group.checkpoint and group.checkpoint.reads else None
    if answer is not None:
        why = f"it runs, but does not tell: {answer.get('error', 'no reason given')}"
    else:
        why = group.status if not group.message else f"{group.status}: {group.message}"
    return Stage(
        **common, lag_age_us=group.since_us, lag_why=why, backlog_bytes=_waiting(home, group.registration, place),
        extra={**extra, "unanswered": answer is not None, "newest_us": place.time_us if place else None},
    )  # fmt: skip


def _waiting(home: Home, registration: Registration, place: Place | None) -> int | None:
    """Bytes of the trail behind the last checkpoint; of a log only its server knows."""
    if not registration.trail:
        return None
    try:
        trail = TrailName.parse(registration.trail, home.root)
        return trail_backlog(home.fs, trail, Position(place.seqno, place.rba) if place else None)
    except GateError:
        return None


# --- what it reads and writes, as people write it ---------------------------------------------------------------------


def _input(home: Home, group: GroupFacts, groups: list[GroupFacts]) -> tuple[str, dict[str, Any]]:
    """(its name, what its trail tells of who writes it and of the source)."""
    registration = group.registration
    if not registration.trail:
        slot = registration.slot
        name = f"PostgreSQL {slot.get('dbname', '')}".strip()
        return name, {"source": name, **({"slot": slot["slot"]} if slot.get("slot") else {})}
    extra: dict[str, Any] = {}
    try:
        trail = TrailName.parse(registration.trail, home.root)
        header = last_header(home.fs, trail)
        extra["input_us"] = written_us(trail, home.fs)
    except GateError:
        return registration.trail, extra
    if writer := _local_writer(home, trail, groups):
        extra["fed_by"] = f"{home.id}/{writer}"
    if header is not None:
        extra.setdefault("fed_by", f"{header.home_id}/{header.group}")
        extra.update(writer=header.group, writer_host=header.host, source=_source(header))
    return registration.trail, extra


def _local_writer(home: Home, trail: TrailName, groups: list[GroupFacts]) -> str:
    """The group of this home that is registered to write this very trail."""
    for group in groups:
        for written in group.registration.trails:
            path = TrailName.parse(written.path, home.root)
            same = path.prefix == trail.prefix and os.path.realpath(path.folder) == os.path.realpath(trail.folder)
            if same and written.type == "EXTTRAIL":
                return group.name
    return ""


def _source(header: FileHeader) -> str:
    kind = header.source.get("kind", "")
    return f"{_KINDS.get(kind, kind)} {header.source.get('database', '')}".strip()


def _output(home: Home, group: GroupFacts) -> tuple[str, ...]:
    if group.program == REPLICAT:
        return (target,) if (target := database(_statement(home, group.name, "TARGETDB"))) else ()
    paths = [trail.path for trail in group.registration.trails]
    if not group.registration.trail:
        return tuple(paths)
    remote = _statement(home, group.name, "RMTHOST").replace(",", " ").split()
    host = remote[0] if remote else ""
    port = next((b for a, b in pairwise(remote) if a.upper() == "MGRPORT"), "")
    return tuple(f"{host}:{port} {path}" if host else path for path in paths)


def database(url: str) -> str:
    """What people call a database by its URL: `PostgreSQL copy at db:5432`, without user, password and options."""
    url = url.split(",", maxsplit=1)[0].strip().strip("'\"")
    try:
        parts = urlsplit(url)
        host = f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
    except ValueError:
        return ""
    kind = _KINDS.get(parts.scheme, parts.scheme)
    return f"{kind} {parts.path.removeprefix('/')}{f' at {host}' if host else ''}".strip()


def _statement(home: Home, name: str, keyword: str) -> str:
    path = home.prm(name)
    try:
        found = os.stat(path)
        return _arguments(path, found.st_mtime_ns, found.st_size).get(keyword, "")
    except (GateError, OSError):
        return ""


@lru_cache(maxsize=256)
def _arguments(path: str, _changed: int, _size: int) -> dict[str, str]:
    """A parameter file's arguments by keyword. One with mistakes has none: START says what is wrong with it."""
    return {statement.keyword: statement.text for statement in params.parse_file(path)}
