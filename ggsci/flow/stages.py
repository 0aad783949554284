"""The stages of one home: each registered group as a stage of some pipeline, with all that is known of it now.

Rule: running groups are asked by their control socket, all at once and for ASK_SECONDS at most; the others are told by
registration, checkpoint file and trails. What is not known now is None, with the reason and the age of the last truth.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from ggsci import facts
from ggsci.facts import GroupFacts
from ggsci.views.heartbeatview import steps
from ggsci.views.view import stamp
from trails.checkpoint import Place
from trails.errors import GateError
from trails.format import FileHeader
from trails.heartbeat import judged
from trails.position import Position, TrailName
from trails.reader import last_header
from trails.runtime.home import pinned
from trails.runtime.home import registration as registrations
from trails.runtime.home.home import MANAGER, Home
from trails.runtime.home.purge import is_same
from trails.runtime.home.registration import Registration
from trails.runtime.language import params
from trails.runtime.process.control import ask
from trails.runtime.report.answers import MetricsAnswer, plain, read_answer
from trails.runtime.report.metrics import trail_backlog, written_us

EXTRACT, PUMP, REPLICAT = "EXTRACT", "PUMP", "REPLICAT"
RUNNING = "RUNNING"
ASK_SECONDS = 1.0
FOR_SPACE = "Waiting for disk space"
FOR_RESTART = "Waiting for its restart (AUTORESTART)"


@dataclass(frozen=True, slots=True)
class Stage:
    """One process of a pipeline as it stands now; None where that is not known.

    `home`: its folder. `status`: STARTING, RUNNING, STOPPED, ABENDED. `lag_us`: how far behind the source it is, true
    `lag_age_us` ago; `lag_why` says why a lag is not known. `backlog_bytes` and `backlog_us`: what waits for it, in
    bytes and in source time. Rates and `busy` (0 to 1) are of the last ten seconds. `reads`, `writes`: a log, a trail
    or a database, as people write it. `holds_back`: it is the one that the others wait for; `why` it is, or what it
    is doing. `extra`: what only this kind has, and home_id, writes_home, fed_by (home_id/group), host, newest_us.
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
    groups = with_waits(
        home, [facts.gather(home, registration, now_us) for registration in registrations.lasting(home)]
    )
    answers = _ask_all(home, [group.name for group in groups if group.status == RUNNING])
    return [_stage(home, group, groups, answers.get(group.name)) for group in groups]


def of_files(home: Home, groups: list[GroupFacts]) -> list[Stage]:
    """The same without asking anybody: what the last checkpoints say."""
    return [_saved(home, group, groups) for group in groups]


def _ask_all(home: Home, names: list[str]) -> dict[str, MetricsAnswer | str]:
    """Each one's answer to METRICS, or why there is none in time."""
    from concurrent.futures import ThreadPoolExecutor

    if not names:
        return {}
    with ThreadPoolExecutor(max_workers=len(names)) as pool:
        return dict(zip(names, pool.map(lambda name: _ask(home, name), names), strict=True))


def _ask(home: Home, name: str) -> MetricsAnswer | str:
    try:
        reply = ask(home, name, "METRICS", timeout=ASK_SECONDS)
    except GateError as error:
        return error.message
    return read_answer(MetricsAnswer, reply) if reply.get("ok") else str(reply.get("error", "no reason given"))


def _stage(home: Home, group: GroupFacts, groups: list[GroupFacts], answer: MetricsAnswer | str | None) -> Stage:
    stage = _common(home, group, groups)
    if isinstance(answer, MetricsAnswer):
        return _answered(stage, answer, group.now_us)
    return _silent(home, stage, group, answer)


def _saved(home: Home, group: GroupFacts, groups: list[GroupFacts]) -> Stage:
    stage = _common(home, group, groups)
    extra = stage.extra | _heartbeat(group.saved_heartbeats, group.now_us) | {"state": group.waits}
    why = "" if group.lag_us is not None else "its last checkpoint tells nothing of now"
    return replace(stage, lag_us=group.lag_us, lag_age_us=group.since_us, lag_why=why, extra=extra)


def _common(home: Home, group: GroupFacts, groups: list[GroupFacts]) -> Stage:
    """What needs no answer."""
    reads, extra = _input(home, group, groups)
    message = (group.waits if group.is_down else "") or group.message or group.damage
    extra.update(home_id=home.id, host=socket.gethostname(), message=message, writes_home=_output_home(home, group))
    if group.amiss:
        extra["tables_amiss"] = group.amiss
    program = group.registration.package.upper()
    return Stage(
        home.root, program, group.name, group.status, group.pid, reads=reads, writes=_output(home, group), extra=extra
    )


def _heartbeat(entries: list[dict[str, Any]], now_us: int) -> dict[str, Any]:
    """The last heartbeat that came to a stage, for `extra`; nothing if none ever came."""
    if not entries:
        return {}
    beat = judged(entries[-1], now_us)
    late = beat["why"] if beat["late"] else ""
    return {
        "heartbeat_lag_us": beat["lag_us"], "heartbeat_age_us": beat["age_us"], "heartbeat_late": late,
        "heartbeat_every_s": beat["every_s"], "heartbeat_steps": steps(beat.get("stages", [])),
    }  # fmt: skip


def _answered(stage: Stage, answer: MetricsAnswer, now_us: int) -> Stage:
    told = plain(answer)
    counts = {name: told[name] for name in _COUNTS}
    return replace(
        stage,
        lag_us=answer.lag_us,
        lag_age_us=None if answer.lag_at_us is None else max(0, now_us - answer.lag_at_us),
        lag_why=answer.lag_why or ("" if answer.lag_us is not None else "nothing was processed yet"),
        **{name: told[name] for name in _FIGURES},
        extra={**stage.extra, **_heartbeat(answer.heartbeats, now_us), **counts, **answer.extra},
    )


_FIGURES = ("backlog_bytes", "backlog_us", "ops_s", "bytes_s", "bytes_out_s", "busy")
_COUNTS = ("operations", "transactions", "bytes_in", "bytes_out", "turn_age_us", "read", "write")


def _silent(home: Home, stage: Stage, group: GroupFacts, answer: str | None) -> Stage:
    """What the files know of a group that is not running, or does not answer."""
    place = group.checkpoint.reads[0].current if group.checkpoint and group.checkpoint.reads else None
    if answer is not None:
        why = f"it runs, but does not tell: {answer}"
    else:
        why = ": ".join(filter(None, (group.status, group.waits or group.message)))
    return replace(
        stage, lag_age_us=group.since_us, lag_why=why, backlog_bytes=_waiting(home, group.registration, place),
        extra={
            **stage.extra, **_heartbeat(group.saved_heartbeats, group.now_us), "unanswered": answer is not None,
            "newest_us": place.time_us if place else None,
        },
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


# --- what the Manager waits for ---------------------------------------------------------------------------------------


def with_waits(home: Home, groups: Sequence[GroupFacts]) -> list[GroupFacts]:
    """The groups; those that are down and wait for disk space, or for their restart by AUTORESTART, say so.

    Only the Manager knows, and it is asked once: where none answers, nobody waits. The Manager never calls this, as it
    would ask itself.
    """
    if not any(group.is_down for group in groups):
        return list(groups)
    try:
        children = ask(home, MANAGER, "CHILDSTATUS", timeout=ASK_SECONDS).get("children", [])
    except GateError:
        return list(groups)
    rows = {str(child["group"]): child for child in children}
    return [replace(group, waiting=_waits(rows.get(group.name, {}), group)) if group.is_down else group
            for group in groups]  # fmt: skip


def _waits(child: dict[str, Any], group: GroupFacts) -> str:
    if child.get("waits_for"):
        return f"{FOR_SPACE}: {child['waits_for']}"
    if child.get("retry_us"):
        return f"{FOR_RESTART} at {stamp(child['retry_us'])}: {group.message or 'it left no message'}"
    return ""


# --- what it reads and writes, as people write it ---------------------------------------------------------------------


def _input(home: Home, group: GroupFacts, groups: list[GroupFacts]) -> tuple[str, dict[str, Any]]:
    """(its name, what its trail tells of who writes it and of the source)."""
    registration = group.registration
    if not registration.trail:
        if (noted := registration.registered) is None:
            return "a database", {"source": "a database"}
        name = f"{noted.kind} {noted.database}".strip()
        return name, {"source": name, "holder": noted.holder}
    extra: dict[str, Any] = {}
    try:
        trail = TrailName.parse(registration.trail, home.root)
        header = last_header(home.fs, trail)
        if (written := written_us(trail, home.fs)) is not None:
            extra.update(input_us=written, input_age_us=max(0, group.now_us - written))
    except GateError:
        return registration.trail, extra
    if writer := _local_writer(home, trail, groups):
        extra["fed_by"] = f"{home.id}/{writer}"
    if header is not None:
        extra.setdefault("fed_by", f"{header.home_id}/{header.group}")
        extra.update(writer=header.group, writer_host=header.host, source=_source(header))
        extra["writer_program"] = PUMP if header.copies else EXTRACT
    return registration.trail, extra


def _local_writer(home: Home, trail: TrailName, groups: list[GroupFacts]) -> str:
    """The group of this home that is registered to write this very trail."""
    for group in groups:
        if any(is_same(TrailName.parse(path, home.root), trail) for path in group.registration.writes):
            return group.name
    return ""


def _source(header: FileHeader) -> str:
    from extract.params import URLS

    return f"{URLS.title(header.source.get('kind', ''))} {header.source.get('database', '')}".strip()


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


def _output_home(home: Home, group: GroupFacts) -> str:
    """The home in which its trails lie; empty where no other home has taken them yet."""
    if not _statement(home, group.name, "RMTHOST"):
        return home.id
    try:
        pin = pinned.read(home.fs, home.pinned(group.name))
    except GateError:
        return ""
    return pin.home if pin else ""


_BEHIND_URL = re.compile(r"(?i),|\sUSERID(?:ALIAS)?\s")
"""Where SOURCEDB's or TARGETDB's URL ends, and a user, or a password, may begin."""


def database(url: str) -> str:
    """What people call a target by its URL: its kind, `copy at db:3306`, without user, password and options."""
    url = _BEHIND_URL.split(url, maxsplit=1)[0].strip().strip("'\"")
    try:
        parts = urlsplit(url)
        host = f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
    except ValueError:
        return ""
    from replicat.params import URLS

    return f"{URLS.title(parts.scheme)} {parts.path.removeprefix('/')}{f' at {host}' if host else ''}".strip()


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
