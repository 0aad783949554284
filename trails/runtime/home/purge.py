"""Which files of a trail nobody needs any more, and why each of the others stays.

Rule (invariant I2): a file goes only when every registered reader of the trail is durably past it. A reader whose
checkpoint file is missing or damaged keeps everything, so does one whose registration was deleted by hand, a trail
without registered readers keeps everything, and the last file always stays: the writer finds there where to go on.
A reader that stood in another trail of this name (it was deleted and made anew) is past nothing, and who reads the
trail of another home only that home knows. What is unsure stays, with the reason.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from trails import checkpoint
from trails.errors import GateError
from trails.fs import Fs
from trails.position import TrailName
from trails.reader import last_header
from trails.runtime.home import registration, status
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration


@dataclass(frozen=True, slots=True)
class FileFate:
    """One file of the trail: whether it may be removed, the reason either way, and who still needs it."""

    seqno: int
    path: str
    removable: bool
    reason: str
    who: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Need:
    """From which file on a reader may still read, and why, in words; `state` says so if it does not even run."""

    seqno: int
    group: str
    reason: str
    state: str = ""


def removable(home: Home, fs: Fs, trail: TrailName) -> list[FileFate]:
    """The fate of each file of the trail, oldest first."""
    seqnos = trail.seqnos(fs.listdir(trail.folder))
    if other := home.other_home_of(trail.folder):
        why = f"it lies in the home {other}, whose Manager knows who reads it"
        return [FileFate(seqno, trail.path(seqno), False, why) for seqno in seqnos]
    needs = needs_of(home, fs, trail)
    return [_fate(trail, seqno, seqnos[-1], needs) for seqno in seqnos]


def needs_of(home: Home, fs: Fs, trail: TrailName) -> list[Need]:
    """What each registered reader of the trail still needs, the oldest need first."""
    found = [need_of(home, fs, trail, reader) for reader in readers(home, trail)]
    return sorted([*found, *_unregistered(home, fs, trail)], key=lambda need: need.seqno)


def _unregistered(home: Home, fs: Fs, trail: TrailName) -> list[Need]:
    """Groups with a checkpoint in this trail whose registration somebody deleted; DELETE removes the checkpoint too."""
    known, found = set(registration.names(home)), []
    for name in sorted(fs.listdir(home.folder("dirchk"))):
        group, suffix = os.path.splitext(name)
        if suffix not in (".cpe", ".cpr") or group in known:
            continue
        with contextlib.suppress(GateError, OSError):
            history = checkpoint.load(fs, os.path.join(home.folder("dirchk"), name))
            trail_id, header = history[0].extra.get("trail_id") if history else None, last_header(fs, trail)
            if trail_id and header is not None and header.trail_id.hex() == trail_id:
                why = f"{group} has a checkpoint in it, no registration: put dirpcs/{group}.json back, or remove {name}"
                found.append(Need(0, group, why))
    return found


GONE = "TG-01850"


def gone(home: Home, fs: Fs, trail: TrailName, lost: str) -> str:
    """The warning of a writer that found files of its trail deleted; who had read how far says what that costs."""
    found = "; ".join(need.reason for need in needs_of(home, fs, trail)) or "no group is registered to read it here"
    return f"{lost}; the trail goes on in a new file. Its readers: {found}. A reader behind that file is told its name"


def readers(home: Home, trail: TrailName) -> list[Registration]:
    """The registered groups that read this trail."""
    found = [r for r in registration.all(home) if r.source == "TRAIL"]
    return [r for r in found if is_same(TrailName.parse(r.trail, home.root), trail)]


def is_same(one: TrailName, other: TrailName) -> bool:
    """By the real folder: a group that was added with a path through a symbolic link counts like any other."""
    return one.prefix == other.prefix and os.path.realpath(one.folder) == os.path.realpath(other.folder)


def _fate(trail: TrailName, seqno: int, last: int, needs: list[Need]) -> FileFate:
    path = trail.path(seqno)
    who = tuple(need.group for need in needs if need.seqno <= seqno)
    if seqno == last:
        return FileFate(seqno, path, False, "the trail's last file always stays", who)
    if not needs:
        return FileFate(seqno, path, False, "no registered group reads this trail")
    if who:
        return FileFate(seqno, path, False, needs[0].reason + needs[0].state, who)
    return FileFate(seqno, path, True, f"every reader is past it ({needs[0].reason})")


def need_of(home: Home, fs: Fs, trail: TrailName, reader: Registration) -> Need:
    """What one of its readers still needs of the trail."""
    seqno, reason = _oldest_needed(home, fs, trail, reader)
    now = status.status_of(home, reader).status
    return Need(seqno, reader.name, reason, "" if now.is_alive else f"; it is {now}")


def _oldest_needed(home: Home, fs: Fs, trail: TrailName, reader: Registration) -> tuple[int, str]:
    """(first file the reader may still ask for, the reason in words)."""
    who = f"{reader.kind} {reader.name}"
    try:
        history = checkpoint.load(fs, home.checkpoint(reader.name, reader.kind))
    except GateError as error:
        return 0, f"{who}: its checkpoint can't be read: {error.message}"
    if not history or not history[0].reads:
        return 0, f"{who} has no checkpoint"
    if (history[0].group, history[0].kind) != (reader.name, reader.kind):
        return 0, f"{who}: its checkpoint file is that of {history[0].kind} {history[0].group}"
    # A group of that name was deleted and its checkpoint file survived a crash. (The runtime always sets saved_us.)
    if 0 < history[0].saved_us < reader.added_us:
        return 0, f"{who} has no checkpoint since it was added"
    if why := _read_another(fs, trail, str(history[0].extra.get("trail_id") or "")):
        return 0, f"{who} {why}"
    needed = history[0].reads[0].needed.seqno
    # An ALTER not yet obeyed sends the reader to another place at its next start.
    if history[0].extra.get("alter_no", 0) < reader.alter_no:
        altered = _altered_to(reader, needed)
        if altered < needed:
            return altered, f"{who} was altered to begin in file {altered}"
    amiss = history[0].extra.get("tables_amiss") if needed < history[0].reads[0].current.seqno else ""
    return needed, f"{who} needs file {needed} on{f' ({amiss})' if amiss else ''}"


def _read_another(fs: Fs, trail: TrailName, trail_id: str) -> str:
    """Why a reader that stood in the trail with this id is past no file of ours; empty if it is the same."""
    if not trail_id:
        return ""
    try:
        header = last_header(fs, trail)
    except (GateError, OSError) as error:
        return f"may be past it, but the trail's last file can't be read: {error}"
    if header is None or header.trail_id.hex() == trail_id:
        return ""
    return "stood in another trail of this name, which was deleted and made anew"


def _altered_to(reader: Registration, needed: int) -> int:
    """The file where the reader's last ALTER sends it; 0 where only the reader itself can tell."""
    if set(reader.alter) <= {"etrollover"}:
        return needed
    return int(reader.alter.get("seqno", 0))
