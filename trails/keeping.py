"""What was synced must still be found under its name: files that somebody deletes or replaces under their writer.

An open file goes on existing without its name, and fdatasync goes on succeeding: so before anything is acknowledged the
writer compares the file that it holds with the one that the path leads to. If they differ it acknowledges nothing and
ends (`rescue`). A file that nobody else holds any more is written anew first, as it is lost with the writer's end:

    the path leads to          the open file           then
    no file                    has no other name       it is written anew under its name: START goes on, nothing is lost
    another file               has no other name       it is kept as NAME.kept, for a person to judge and to put back
    anything                   has another name        nothing is written: the file was moved, or its folder was

The open file may also be cut, or another be copied over it (`cp`, `>`), which leaves its name as it is. It is seen by
its length before each append, and by length and header each second; nobody has then what it held.

A crash in here leaves a NAME.tmp, which the next writer removes, and the file is gone as if nobody had noticed.

`.lt.last` tells a later writer which file was the last to be begun, so that the number of a deleted file is never used
again: who had read a part of it must not take another file for it. It is replaced durably when a file has its name and
before its durable end is set, so a file that any reader entered is noted. Only where every file is gone a new trail
begins, with a new id, at file 0.
"""

from __future__ import annotations

import json
import os
from contextlib import closing
from dataclasses import dataclass
from typing import NoReturn

from trails.errors import AnewError, DamageError, GateError, MismatchError
from trails.format import BODY_OFFSET, FileHeader, parse_file_header, parse_header_length
from trails.fs import File, Fs, read_bytes, replace_durably
from trails.position import TrailName

PIECE = 1 << 20
KEPT = ".kept"
PAGE = "docs/recovery.md#deleted-under-writer"


@dataclass(frozen=True, slots=True)
class Last:
    """The newest file that was ever begun, the trail that it belongs to, and the last ALTER that the trail obeyed."""

    trail_id: bytes
    seqno: int
    alter: int = 0


def read_last(fs: Fs, trail: TrailName) -> Last | None:
    """What `.lt.last` says; None if there is none. Raises DamageError if it can't be read."""
    path = trail.last_path()
    try:
        found = json.loads(read_bytes(fs, path))
        return Last(bytes.fromhex(found["trail"]), int(found["seqno"]), int(found["alter"]))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DamageError(
            f"{path}: expected a trail's id and its last file's number, found something else ({error})",
            hint="Remove it if the trail's newest file is still there, then START",
        ) from None


def write_last(fs: Fs, trail: TrailName, last: Last) -> None:
    """Note, durably, that this file was begun."""
    said = {"trail": last.trail_id.hex(), "seqno": last.seqno, "alter": last.alter}
    replace_durably(fs, trail.last_path(), json.dumps(said).encode())


def forget_last(fs: Fs, trail: TrailName) -> None:
    """A trail of this name is to begin anew; while it has a file this changes nothing."""
    if not trail.seqnos(fs.listdir(trail.folder)):
        fs.remove(trail.last_path())


def lost_text(trail: TrailName, lost: tuple[int, int]) -> str:
    """Which files are gone, for people."""
    first, last = lost
    if first == last:
        return f"trail file {trail.path(first)} was deleted"
    return f"trail files {trail.path(first)} to {trail.file_name(last)} were deleted"


def rescue(fs: Fs, file: File, path: str) -> NoReturn:
    """`path` leads to this open file no more: raise AnewError if a new start mends it, else MismatchError."""
    there = fs.exists(path)
    what = f"{path} was {'replaced' if there else 'removed'} while it was written; nothing more was acknowledged"
    if file.links():
        raise MismatchError(what, hint="It was moved, or its folder was: put it back, then START")
    target = path + KEPT if there else path
    try:
        _copy(fs, file, path + ".tmp", target)
    except (GateError, OSError) as error:
        hint = f"See {PAGE}"
        raise MismatchError(f"{what}; it could not be written anew: {error}", hint=hint) from None
    if there:
        raise MismatchError(what, hint=f"What was written stands in {target}: mv it to {path}, then START ({PAGE})")
    raise AnewError(what, hint="It was written anew from what was still open: START, nothing is lost")


OVERWRITTEN = "Something was written over it: see docs/recovery.md#truncated-trail-file"


def truncated(path: str, end: int, found: int) -> MismatchError:
    """The file is shorter than what was written to it."""
    return MismatchError(
        f"{path} was truncated while it was written: expected {end} bytes, found {found}", hint=OVERWRITTEN
    )


def check_header(file: File, header: FileHeader, path: str) -> None:
    """Raise MismatchError if the file being written does not begin with its header any more.

    It is read from the open file, which was just found under its name: no other can come between.
    """
    try:
        length = parse_header_length(file.read_at(0, BODY_OFFSET), path)
        found, _ = parse_file_header(file.read_at(0, length), path)
    except GateError as error:
        raise MismatchError(f"{path} was overwritten while it was written: {error.message}", hint=OVERWRITTEN) from None
    if (found.trail_id, found.created_us) != (header.trail_id, header.created_us):
        raise MismatchError(f"{path} was overwritten by another file while it was written", hint=OVERWRITTEN)


def _copy(fs: Fs, file: File, temp: str, target: str) -> None:
    fs.remove(temp)
    with closing(fs.create(temp)) as made:
        for offset in range(0, file.size(), PIECE):
            made.write_at(offset, file.read_at(offset, PIECE))
        made.datasync()
    fs.rename(temp, target)
    fs.sync_dir(os.path.dirname(target))
