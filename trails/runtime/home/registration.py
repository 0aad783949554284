"""Which groups exist, and what ADD and ALTER told about them: one small JSON file a group, `dirpcs/<GROUP>.json`.

Rule: registrations are written by ggsci only and apart from checkpoints, so losing every checkpoint file loses no
group and lets no trail be purged. Written durably, whole or not at all. A running process reads its own once, at start,
and holds the group's lock, so nobody deletes or alters it meanwhile: one that is gone all the same it puts back.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any

from trails.checkpoint import CSN, Place
from trails.errors import OF_ITS_RELEASE, DamageError, OperatorError, VersionError
from trails.format import FILE_MEGABYTES
from trails.fs import read_bytes, replace_durably
from trails.runtime.home import plain
from trails.runtime.home.home import Home

VERSION = 1
SOURCEISTABLE, SPECIALRUN = "SOURCEISTABLE", "SPECIALRUN"
"""The source of tasks: an Extract that reads tables, a Replicat that applies what such a one has written."""


@dataclass(frozen=True, slots=True)
class TrailReg:
    """A trail this group writes: as given in ADD EXTTRAIL or ADD RMTTRAIL."""

    path: str
    type: str  # EXTTRAIL | RMTTRAIL
    megabytes: int = FILE_MEGABYTES


@dataclass(frozen=True, slots=True)
class Registered:
    """What REGISTER EXTRACT noted of a source: what it is, what was made there, and where capture begins.

    `kind` and `database`: what people call it; `title`, `csn_label`: what SHOWCH calls its log and its CSN.
    `identity`: who the source is, by
    names such as `system`, which must stay so. `made`: the name of each thing that was made there by what it is, such
    as {"slot": "tg_1", "publication": "tg_1"}; the first of them holds back the source's log. `state`: the source's own
    beside that place, as a trail keeps it (extract.source). `holds`: whether what was made holds back the log.
    """

    kind: str = ""
    database: str = ""
    title: str = ""
    identity: dict[str, str] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)
    place: Place = field(default_factory=lambda: Place(0, 0))
    csn_label: str = CSN
    state: str = ""
    holds: bool = True

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Registered:
        """Inverse of `asdict`. Raises TypeError or KeyError for anything else."""
        return plain.of(cls, {**fields, "place": plain.of(Place, fields["place"])})

    @property
    def shown(self) -> str:
        """What was made, for people: `slot tg_1, publication tg_1`."""
        return ", ".join(f"{what} {name}" for what, name in self.made.items())

    @property
    def holder(self) -> str:
        """What holds back the source's log: `slot tg_1`."""
        return self.shown.partition(", ")[0]


@dataclass(frozen=True, slots=True)
class Registration:
    """One group. `alter` is the last ALTER's order and `alter_no` its number; a process obeys a number once.

    `registered`: what REGISTER EXTRACT noted, until UNREGISTER EXTRACT. `start`, `start_no`: the same for what the last
    START with options ordered a Replicat, in the same count. `method`: one of METHODS (methods.py).
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
    registered: Registered | None = None
    group_key: int = 0
    start_no: int = 0
    start: dict[str, Any] = field(default_factory=dict)
    method: str = ""

    @property
    def package(self) -> str:
        """The program that runs it: extract, pump or replicat."""
        return "pump" if (self.kind, self.source) == ("EXTRACT", "TRAIL") else self.kind.lower()

    @property
    def writes(self) -> list[str]:
        """The trails that it writes on this host."""
        return [trail.path for trail in self.trails if trail.type == "EXTTRAIL"]

    @property
    def is_task(self) -> bool:
        """Whether it runs once, for an initial load, and has no place to go on from."""
        return self.source in (SOURCEISTABLE, SPECIALRUN)


def load(home: Home, name: str) -> Registration:
    """The group's registration. Raises OperatorError if there is none, DamageError if it can't be read."""
    found = find(home, name)
    if found is None:
        hint = f"ADD EXTRACT {name} or ADD REPLICAT {name}"
        raise OperatorError(f"group {name} does not exist in {home.root}", hint=hint)
    return found


def find(home: Home, name: str) -> Registration | None:
    """The group's registration; None if there is none. Raises DamageError if it can't be read."""
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
    home.fs.remove(home.obeyed(name))
    home.fs.remove(home.journal(name))
    home.fs.remove(home.pinned(name))
    home.fs.sync_dir(os.path.dirname(path))


def all(home: Home) -> list[Registration]:  # noqa: A001  -- reads well as registration.all(home)
    """Every registered group: Extracts first, then Replicats, each by name. One deleted meanwhile is left out."""
    found = (find(home, name) for name in names(home))
    return sorted((reg for reg in found if reg is not None), key=lambda reg: (reg.kind, reg.name))


def names(home: Home) -> list[str]:
    """The names of all registered groups, also of those whose registration can't be read."""
    listed = home.fs.listdir(home.folder("dirpcs"))
    return sorted(name[:-5] for name in listed if name.endswith(".json") and not name.startswith("."))


def lasting(home: Home) -> list[Registration]:
    """Every group but tasks, which run once and have no lag."""
    return [reg for reg in all(home) if not reg.is_task]


def _decode(path: str, data: bytes) -> Registration:
    try:
        fields = json.loads(data)
        version = fields.pop("version")
        if version != VERSION:
            raise VersionError(
                f"{path}: expected registration version {VERSION}, found {version!r}", hint=OF_ITS_RELEASE
            )
        trails = tuple(plain.of(TrailReg, trail) for trail in fields.pop("trails"))
        noted = fields.pop("registered")
        registered = None if noted is None else Registered.of(noted)
        return plain.of(Registration, {**fields, "trails": trails, "registered": registered})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        hint = "Restore it, or DELETE and ADD the group"
        raise DamageError(f"{path}: the registration can't be read ({error})", hint=hint) from None
