"""A home: one installation's working folder on one host, and the only place that makes the paths inside it.

Rule: every other module asks `Home` for a path. A home is made once by CREATE SUBDIRS (`create_subdirs`) and found
again by `Home.at`, which refuses a folder that was never made, that others can read, or that lies on a network
file system (locks and fsync there do not keep what the trail promises).
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from trails.errors import DamageError, OperatorError
from trails.fs import Fs, RealFs, read_bytes, refuse_network_file_system, replace_durably

SUBDIRS = ("dirprm", "dirrpt", "dirchk", "dirpcs", "dirdat", "dirdsc", "dircrd", "dirwlt", "dirtmp")
MANAGER = "MGR"
_GROUP = re.compile(r"[A-Z][A-Z0-9_]{0,7}\Z")
HOME_ID = re.compile(r"[0-9a-f]{32}\Z")
_SUFFIX = {"EXTRACT": "e", "REPLICAT": "r", "MANAGER": "m"}


def group_name(text: str) -> str:
    """The group's name in its one form, upper case. Raises OperatorError if it can't be one."""
    name = text.upper()
    if not _GROUP.match(name):
        raise OperatorError(
            f"group name {text!r}: expected one to eight letters, digits or '_', a letter first",
            hint="Name it like EXT1",
        )
    return name


def user_name() -> str:
    """Who runs this process; some containers have no name for him."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


@dataclass(frozen=True)
class Home:
    """The folder `root` and the names of everything in it."""

    root: str
    fs: Fs = field(default_factory=RealFs, repr=False, compare=False)

    @classmethod
    def at(cls, path: str, fs: Fs | None = None) -> Home:
        """The home at `path`. Raises OperatorError if it was never made, is open to others, or lies on a network."""
        home = cls(os.path.abspath(path), fs or RealFs())
        for folder in home.folders():
            _check_folder(folder, home.root)
        refuse_network_file_system(home.root)
        refuse_network_file_system(home.folder("dirdat"))
        home.id  # noqa: B018  -- a home whose id is lost must not start anything
        return home

    def create_subdirs(self) -> list[tuple[str, bool]]:
        """Make what is missing, and the home's id. Returns (path, was made now) for each folder."""
        made = []
        for folder in self.folders():
            new = not self.fs.exists(folder)
            self.fs.makedirs(folder)
            made.append((folder, new))
        if not self.fs.exists(self._id_path):
            replace_durably(self.fs, self._id_path, (self.fs.host.random_bytes(16).hex() + "\n").encode())
        return made

    @cached_property
    def id(self) -> str:
        """32 hex digits, made once with the home; distinguishes equal group names of different homes."""
        if not self.fs.exists(self._id_path):
            raise OperatorError(f"{self._id_path}: the home's id is missing", hint=_CREATE_HINT)
        text = read_bytes(self.fs, self._id_path).decode("ascii", "replace").strip()
        if not HOME_ID.match(text):
            raise DamageError(f"{self._id_path}: expected 32 hex digits, found {text[:40]!r}", hint="Restore this file")
        return text

    @property
    def _id_path(self) -> str:
        return os.path.join(self.root, "dirpcs", "HOME")

    @contextlib.contextmanager
    def alone(self, folder: str) -> Iterator[None]:
        """With no other command at the files of one of SUBDIRS: they are read, changed and written anew."""
        lock = self.fs.lock(os.path.join(self.folder(folder), ".lock"))
        try:
            yield
        finally:
            lock.release()

    def folder(self, name: str) -> str:
        """One of SUBDIRS as a full path."""
        return os.path.join(self.root, name)

    def folders(self) -> list[str]:
        """All of SUBDIRS as full paths."""
        return [self.folder(name) for name in SUBDIRS]

    def prm(self, name: str) -> str:
        """Parameter file of a group, or of the Manager (`mgr`)."""
        return os.path.join(self.root, "dirprm", name.lower() + ".prm")

    def report(self, group: str, age: int | None = None) -> str:
        """Report of the running or last run; `age` 0..9 names an older one, 0 the youngest of them.

        The aged ones are `EXT1.0.rpt`, with a dot: `EXT10.rpt` would be the report of a group EXT10.
        """
        return os.path.join(self.root, "dirrpt", group + ("" if age is None else f".{age}") + ".rpt")

    def discard(self, group: str) -> str:
        """Discard file of a Replicat whose parameter file names no other."""
        return os.path.join(self.root, "dirdsc", group + ".dsc")

    def checkpoint(self, group: str, kind: str) -> str:
        """Checkpoint file: `.cpe` of an Extract or pump, `.cpr` of a Replicat."""
        return os.path.join(self.root, "dirchk", f"{group}.cp{_SUFFIX[kind]}")

    def registration(self, group: str) -> str:
        """Where ADD keeps what it was told."""
        return os.path.join(self.root, "dirpcs", group + ".json")

    def obeyed(self, group: str) -> str:
        """Which ALTER an Extract obeyed last (obeyed.py)."""
        return os.path.join(self.root, "dirpcs", f"{group}.obeyed")

    def journal(self, group: str) -> str:
        """What the source of an Extract keeps of its own, and could do without."""
        return os.path.join(self.root, "dirpcs", f"{group}.journal")

    def pinned(self, group: str) -> str:
        """Which home takes a pump's trail (pump/pin.py)."""
        return os.path.join(self.root, "dirpcs", f"{group}.remote")

    def lock(self, group: str) -> str:
        """Held by the group's live process for its life."""
        return os.path.join(self.root, "dirpcs", f".{group}.lock")

    def control(self, group: str) -> str:
        """Control socket of the live process."""
        return os.path.join(self.root, "dirtmp", group + ".s")

    def status(self, group: str, kind: str) -> str:
        """Process file: pid, start and end of the last run. `.pce`, `.pcr`, of the Manager `.pcm`."""
        return os.path.join(self.root, "dirpcs", f"{group}.pc{_SUFFIX[kind]}")

    @property
    def ggserr(self) -> str:
        """The log of all processes of this home."""
        return os.path.join(self.root, "ggserr.log")

    @property
    def ggserr_json(self) -> str:
        """The same for programs, where GLOBALS asks for it by LOGFORMAT."""
        return os.path.join(self.root, "ggserr.json")

    @property
    def globals(self) -> str:
        """Settings of the whole home."""
        return os.path.join(self.root, "GLOBALS")

    def other_home_of(self, folder: str) -> str:
        """The root of another home that `folder` lies in, links followed; empty if it lies in none."""
        at, own = os.path.realpath(folder), os.path.realpath(self.root)
        while at not in (own, os.path.dirname(at)):
            if self.fs.exists(os.path.join(at, "dirpcs", "HOME")):
                return at
            at = os.path.dirname(at)
        return ""

    def shown(self, path: str) -> str:
        """`path` as people read it: `./dirdat/lt` if it lies in the home, else unchanged."""
        inside = path.startswith(self.root + os.sep)
        return "." + path[len(self.root) :] if inside else path


_CREATE_HINT = "Run CREATE SUBDIRS in ggsci"


def _check_folder(folder: str, root: str) -> None:
    try:
        mode = os.stat(folder).st_mode
    except FileNotFoundError:
        raise OperatorError(f"{root} is no home: {os.path.basename(folder)} is missing", hint=_CREATE_HINT) from None
    except OSError as error:
        raise OperatorError(f"{folder}: {error.strerror}", hint="Start it as the user who owns the home") from None
    if not stat.S_ISDIR(mode):
        raise OperatorError(f"{folder}: expected a folder", hint=_CREATE_HINT)
    if mode & 0o077:
        raise OperatorError(
            f"{folder}: expected mode 0700, found {stat.S_IMODE(mode):04o}; others could read row data",
            hint=f"chmod 700 {folder}",
        )
