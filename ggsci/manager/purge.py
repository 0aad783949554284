"""PURGEOLDEXTRACTS: removing trail files that no registered reader needs, and saying of every file why it is kept.

What readers need decides trails.runtime.home.purge; a rule can only keep more. Files go oldest first, each removal
synced, and never past one that stays: whenever the Manager is killed, a trail has no hole, and the next purge goes on.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from ggsci.manager.rules import HOUR, PurgeRule
from trails.errors import GateError, OperatorError
from trails.position import SEQNO_DIGITS, TrailName, parse_file_name
from trails.runtime.home import purge as purging
from trails.runtime.home import registration, status
from trails.runtime.home.home import Home
from trails.runtime.home.purge import FileFate

NO_RULE = "no PURGEOLDEXTRACTS is for this trail"


@dataclass(frozen=True, slots=True)
class Judged:
    """One trail file: does it go, and why or why not; who still needs it; `rule` is the pattern, if there is one."""

    path: str
    goes: bool
    reason: str
    who: tuple[str, ...] = ()
    rule: str = ""
    size: int | None = None
    modified_us: int | None = None


def trails_of(home: Home, rule: PurgeRule) -> list[TrailName]:
    """The trails on disk that a rule is for: the pattern's last part is held against their two characters."""
    folder, wanted = os.path.split(rule.pattern)
    folder = os.path.normpath(os.path.join(home.root, folder))
    return [trail for trail in _trails_in(home, folder) if fnmatch.fnmatchcase(trail.prefix, wanted)]


def _trails_in(home: Home, folder: str) -> list[TrailName]:
    names = {found[0] for found in map(parse_file_name, home.fs.listdir(folder)) if found}
    return [TrailName(folder, prefix) for prefix in sorted(names)]


def verdicts(home: Home, rules: Sequence[PurgeRule], now_us: int) -> list[Judged]:
    """Every file that a rule is for, oldest first. The first rule for a trail counts."""
    found: dict[tuple[str, str], list[Judged]] = {}
    for rule in rules:
        for trail in trails_of(home, rule):
            key = os.path.realpath(trail.folder), trail.prefix
            if key not in found:
                found[key] = _judge(purging.removable(home, home.fs, trail), rule, now_us)
    return [verdict for each in found.values() for verdict in each]


def _judge(fates: list[FileFate], rule: PurgeRule, now_us: int) -> list[Judged]:
    judged: list[Judged] = []
    stats = [_stat(fate.path) for fate in fates]
    written = _written([modified_us for _, modified_us in stats], now_us)
    for number, fate in enumerate(fates):
        size, modified_us = stats[number]
        goes, reason = fate.removable, fate.reason
        if goes and (why := _kept_by(rule, len(fates) - number, written[number], now_us)):
            goes, reason = False, why
        if goes and judged and not judged[-1].goes:
            goes, reason = False, f"an older file stays: {judged[-1].reason}"
        judged.append(Judged(fate.path, goes, reason, fate.who, rule.pattern, size, modified_us))
    return judged


def _kept_by(rule: PurgeRule, files_from_here: int, modified_us: int | None, now_us: int) -> str:
    """Why the rule keeps a file that no reader needs; empty if it does not."""
    if not rule.min_hours:
        return rule.keep if files_from_here <= rule.min_files else ""
    if modified_us is None:
        return f"{rule.keep}: its age is not known"
    hours = (now_us - modified_us) / 1_000_000 / HOUR
    return f"{rule.keep}: last written {max(0.0, hours):.1f} hours ago" if hours < rule.min_hours else ""


def _written(times: list[int | None], now_us: int) -> list[int | None]:
    """When each file was last written, oldest first.

    A time that is yet to come (the clock was ahead for a while) would keep a file, and all behind it, for as long. But
    it was written before the file behind it was.
    """
    found: list[int | None] = []
    behind: int | None = now_us
    for time_us in reversed(times):
        behind = behind if time_us is not None and time_us > now_us else time_us
        found.append(behind)
    return found[::-1]


def _stat(path: str) -> tuple[int | None, int | None]:
    """(bytes, time of the last write in us); None for what is not on this machine's disk."""
    try:
        found = os.stat(path)
    except OSError:
        return None, None
    return found.st_size, found.st_mtime_ns // 1000


def purge(home: Home, rules: Sequence[PurgeRule], now_us: int, due: Collection[str] | None = None) -> Iterator[Judged]:
    """Remove what goes, oldest first and each synced: not even a power loss leaves a hole. Yields what went.

    `due`: only what the rules of these patterns are for. A trail whose files can't be removed keeps no other trail
    waiting: it is told at the end, by an OperatorError.
    """
    stuck: dict[str, GateError] = {}
    for verdict in verdicts(home, rules, now_us):
        trail = verdict.path[:-SEQNO_DIGITS]
        if not verdict.goes or trail in stuck or (due is not None and verdict.rule not in due):
            continue
        try:
            home.fs.remove(verdict.path)
            home.fs.sync_dir(os.path.dirname(verdict.path))
        except GateError as error:
            stuck[trail] = error
        else:
            yield verdict
    if stuck:
        raise OperatorError("; ".join(map(str, stuck.values())))


# --- why is this file kept --------------------------------------------------------------------------------------------


def explain(home: Home, rules: Sequence[PurgeRule], now_us: int) -> list[Judged]:
    """Every trail file of the home, also those that no rule is for; by trail, oldest first."""
    ruled = verdicts(home, rules, now_us)
    known = {os.path.realpath(verdict.path) for verdict in ruled}
    others = [verdict for trail in _all_trails(home) for verdict in _unruled(home, trail, now_us)]
    rest = [verdict for verdict in others if os.path.realpath(verdict.path) not in known]
    return sorted([*ruled, *rest], key=lambda verdict: verdict.path)


def _unruled(home: Home, trail: TrailName, now_us: int) -> list[Judged]:
    judged = _judge(purging.removable(home, home.fs, trail), PurgeRule(""), now_us)
    return [replace(verdict, goes=False, reason=NO_RULE if verdict.goes else verdict.reason) for verdict in judged]


def _all_trails(home: Home) -> list[TrailName]:
    """Those in dirdat and where any group reads or writes one on this host."""
    folders = {home.folder("dirdat"): None}
    for group in registration.all(home):
        paths = [*group.writes, *([group.trail] if group.source == "TRAIL" else [])]
        folders |= {TrailName.parse(path, home.root).folder: None for path in paths}
    unique = {os.path.realpath(folder): folder for folder in reversed(folders)}
    return [trail for folder in unique.values() for trail in _trails_in(home, folder)]


def stale(home: Home) -> list[dict[str, str]]:
    """Registrations that hold files for nothing, or wait for files that are not there; what to do about each."""
    found = []
    for group in registration.all(home):
        if group.source == "TRAIL" and (why := _stale_reader(home, group)):
            found.append({"group": group.name, "kind": group.kind, "trail": group.trail, "why": why})
        found += [
            {"group": group.name, "kind": group.kind, "trail": path, "why": "it has written no file there yet"}
            for path in group.writes
            if not _seqnos(home, path)
        ]
    return found


def _stale_reader(home: Home, group: registration.Registration) -> str:
    seqnos = _seqnos(home, group.trail)
    if not seqnos:
        return f"there is no file of the trail it reads; is {group.trail} the path its writer uses?"
    trail = TrailName.parse(group.trail, home.root)
    need = purging.need_of(home, home.fs, trail, group)
    if need.seqno > seqnos[-1]:
        return f"it needs file {need.seqno}, and the trail's last is {seqnos[-1]}: was the trail deleted and made anew?"
    if 0 < need.seqno < seqnos[0]:
        return f"it needs file {need.seqno}, and the oldest there is {seqnos[0]}"
    behind = sum(1 for seqno in seqnos if seqno >= need.seqno) - 1
    if behind and not status.status_of(home, group).status.is_alive:
        return f"it does not run and keeps {behind + 1} files; START it, or DELETE it if nobody needs it any more"
    return ""


def _seqnos(home: Home, path: str) -> list[int]:
    trail = TrailName.parse(path, home.root)
    return trail.seqnos(home.fs.listdir(trail.folder))
