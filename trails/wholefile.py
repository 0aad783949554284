"""The file of a task that reads tables: under its name it is always whole, of one run, and on disk.

Until then it is a trail of one file in a hidden folder beside its name. So whoever finds the name never waits for more,
and a run that is killed, or whose link is lost, leaves the file of the run before as it was. There is no place to go on
from: another run has another snapshot. The header says which one (SNAPSHOT), and so tells a load from the trail of a
pipeline; a trail also has a lock and a note of its last file beside it, and such a file has neither.
"""

from __future__ import annotations

import os
import re
from typing import Final

from trails.errors import MismatchError
from trails.format import SNAPSHOT, FileHeader
from trails.fs import Fs
from trails.position import TrailName
from trails.reader import last_header

ONE_FILE: Final = 1 << 62
"""Bytes that no file has: a load never rolls over."""


def of_task(group: str) -> str:
    """The file of a Replicat that is a task and names none: RMTTASK sends it there, and has the Manager start it."""
    return f"./dirdat/.{group}.rmttask/in"


def task_of(trail: str) -> str:
    """The Replicat that such a file is for; empty where it is another one."""
    found = re.fullmatch(r"\.([A-Z][A-Z0-9_]{0,7})\.rmttask", os.path.basename(os.path.dirname(trail)))
    return found[1] if found else ""


def hidden(name: TrailName, group: str) -> TrailName:
    """Where a group's file is written before it has its name."""
    folder = os.path.join(name.folder, f".{name.prefix}.{group}.task")
    return TrailName(folder, name.prefix, name.wallet_folder)


def clear(fs: Fs, place: TrailName) -> None:
    """Make the hidden folder, empty of what an earlier run has left. Nobody else may write there: a lock says so."""
    fs.makedirs(place.folder)
    lock = fs.lock(place.lock_path())
    try:
        for name in fs.listdir(place.folder):
            if os.path.join(place.folder, name) != place.lock_path():
                fs.remove(os.path.join(place.folder, name))
    finally:
        lock.release()


def standing(fs: Fs, name: TrailName) -> FileHeader | None:
    """The header of the whole file of that name; None if there is none, or a trail is there."""
    header = last_header(fs, name)
    return header if header is not None and SNAPSHOT in header.source and not _is_trail(fs, name) else None


def _is_trail(fs: Fs, name: TrailName) -> bool:
    return fs.exists(name.lock_path()) or fs.exists(name.last_path())


def check_replaceable(fs: Fs, name: TrailName, title: str, home_id: str, group: str) -> FileHeader | None:
    """The header of the file that is replaced, None where there is none.

    `title`: keyword and name, as the operator wrote them. Raises MismatchError where it is the trail of a pipeline, or
    the file of another group.
    """
    header = standing(fs, name)
    if header is None and (_is_trail(fs, name) or last_header(fs, name) is not None):
        raise MismatchError(
            f"{title}: a trail is there, which other groups write and read",
            hint="Name two characters that no trail has",
        )
    if header is not None and (header.home_id, header.group) != (home_id, group):
        raise MismatchError(
            f"{title}: {name.path(0)} was written by group {header.group} of host {header.host}",
            hint="Move that file away, or name another one",
        )
    return header


def publish(fs: Fs, place: TrailName, name: TrailName) -> str:
    """Give the file its name, once its writer has finished it; the path."""
    path = name.path(0)
    fs.rename(place.path(0), path)
    fs.sync_dir(name.folder)
    clear(fs, place)
    return path
