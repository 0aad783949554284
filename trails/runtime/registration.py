"""Which groups exist, and what ADD and ALTER told about them: one small JSON file a group, `dirpcs/<GROUP>.json`.

Rule: registrations are written by ggsci only and apart from checkpoints, so losing every checkpoint file loses no
group and lets no trail be purged. Written durably, whole or not at all. A running process reads its own once, at start.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any

from trails.errors import DamageError, OperatorError, VersionError
from trails.fs import read_bytes, replace_durably
from trails.runtime import plain
from trails.runtime.home import Home

VERSION = 1


@dataclass(frozen=True, slots=True)
class TrailReg:
    """A trail this group writes: as given in ADD EXTTRAIL or ADD RMTTRAIL."""

    path: str
    type: str  # EXTTRAIL | RMTTRAIL
    megabytes: int = 100


@dataclass(frozen=True, slots=True)
class Registration:
    """One group. `alter` is the last ALTER's order and `alter_no` its number; a process obeys a number once.

    `start`, `start_no`: the same for what the last START with options ordered a Replicat, in the same count.
    """

    name: str
    kind: str  # EXTRACT | REPLICAT
    source: str  # TRANLOG | TRAIL | of tasks SOURCEISTABLE | SPECIALRUN
    trail: str = ""
    trails: tuple[TrailReg, ...] = ()
    alter_no: int = 0
    alter: dict[str, Any] = field(default_factory=dict)
    added_us: int = 0
    desc: str = ""
    checkpoint_table: str = ""
    slot: dict[str, Any] = field(default_factory=dict)
    group_key: int = 0
    start_no: int = 0
    start: dict[str, Any] = field(default_factory=dict)

    @property
    def is_task(self) -> bool:
        """Whether it runs once, for an initial load, and has no place to go on from."""
        return self.source in ("SOURCEISTABLE", "SPECIALRUN")


def load(home: Home, name: str) -> Registration:
    """The group's registration. Raises OperatorError if there is none, DamageError if it can't be read."""
    found = _find(home, name)
    if found is None:
        hint = f"ADD EXTRACT {name} or ADD REPLICAT {name}"
        raise OperatorError(f"group {name} does not exist in {home.root}", hint=hint)
    return found


def _find(home: Home, name: str) -> Registration | None:
    path = home.registration(name)
    try:
        return _decode(path, read_bytes(home.fs, path))
    except FileNotFoundError:
        return None


def save(home: Home, reg: Registration) -> None:
    """Write it durably; an older one of that name is replaced."""
    data = json.dumps({"version": VERSION, **asdict(reg)}, indent=1, ensure_ascii=False)
    replace_durably(home.fs, home.registration(reg.name), data.encode())


def delete(home: Home, name: str) -> None:
    """Forget the group, durably."""
    path = home.registration(name)
    home.fs.remove(path)
    home.fs.sync_dir(os.path.dirname(path))


def all(home: Home) -> list[Registration]:  # noqa: A001  -- reads well as registration.all(home)
    """Every registered group: Extracts first, then Replicats, each by name. One deleted meanwhile is left out."""
    found = (_find(home, name) for name in names(home))
    return sorted((reg for reg in found if reg is not None), key=lambda reg: (reg.kind, reg.name))


def names(home: Home) -> list[str]:
    """The names of all registered groups, also of those whose registration can't be read."""
    listed = home.fs.listdir(home.folder("dirpcs"))
    return sorted(name[:-5] for name in listed if name.endswith(".json") and not name.startswith("."))


def _decode(path: str, data: bytes) -> Registration:
    try:
        fields = json.loads(data)
        version = fields.pop("version")
        if version != VERSION:
            raise VersionError(f"{path}: expected registration version {VERSION}, found {version!r}")
        trails = tuple(plain.of(TrailReg, trail) for trail in fields.pop("trails"))
        return plain.of(Registration, {**fields, "trails": trails})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        hint = "Restore it, or DELETE and ADD the group"
        raise DamageError(f"{path}: the registration can't be read ({error})", hint=hint) from None
