"""Positions and trail file names: the only place that makes, prints or parses them.

A position is (seqno, RBA): a file of one trail and a byte offset in it. It names the next byte to read and is
always a block border. Positions of two trails never compare: a process keeps them in variables of their own.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from trails.errors import OperatorError

SEQNO_DIGITS = 9
DATA_FOLDER = "dirdat"
WALLET_FOLDER = "dirwlt"
MAX_SEQNO = 10**SEQNO_DIGITS - 1

_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9]\Z")
_FILE = re.compile(r"([A-Za-z][A-Za-z0-9])([0-9]{9})\Z")


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The next byte to read: file number `seqno`, byte offset `rba` in it."""

    seqno: int
    rba: int

    def __str__(self) -> str:
        return f"{self.seqno}/{self.rba}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Inverse of `str()`. Raises ValueError on anything else."""
        seqno, slash, rba = text.partition("/")
        if not (slash and seqno.isdecimal() and rba.isdecimal()):
            raise ValueError(f"position {text!r}: expected seqno/rba, such as 3/1024")
        return cls(int(seqno), int(rba))


START = Position(0, 0)


@dataclass(frozen=True, slots=True)
class TrailName:
    """A trail's place on disk: a folder and a two-character prefix, written `./dirdat/lt`.

    `wallet`: the folder of the keys that its files are encrypted with, where that is known; see `wallet_folder`.
    `sealed`: none of its files is read that is not encrypted (DECRYPTTRAIL).
    """

    folder: str
    prefix: str
    wallet: str = field(default="", compare=False)
    sealed: bool = field(default=False, compare=False)

    @classmethod
    def parse(cls, text: str, home: str = "") -> TrailName:
        """Read `dirdat/lt`, `./dirdat/lt` or an absolute path; relative ones lie in `home`.

        Raises OperatorError if the last part is not a two-character prefix.
        """
        folder, prefix = os.path.split(text)
        if not _PREFIX.match(prefix):
            raise OperatorError(
                f"trail {text!r}: expected a path that ends in a two-character prefix, a letter first",
                hint="Name it like ./dirdat/lt",
            )
        wallet = os.path.join(home, WALLET_FOLDER) if home else ""
        return cls(os.path.normpath(os.path.join(home, folder)), prefix, wallet)

    def __str__(self) -> str:
        return os.path.join(self.folder, self.prefix)

    @property
    def wallet_folder(self) -> str:
        """Where the keys are: `wallet`, or else the folder dirwlt beside the dirdat that the trail lies in."""
        if self.wallet:
            return self.wallet
        parts = os.path.abspath(self.folder).split(os.sep)
        while parts[-1] != DATA_FOLDER and DATA_FOLDER in parts:
            parts.pop()
        return os.path.join(os.sep.join(parts[:-1]) or os.sep, WALLET_FOLDER)

    def file_name(self, seqno: int) -> str:
        """Base name of file `seqno`; zero padded, so names sort as numbers do."""
        if not 0 <= seqno <= MAX_SEQNO:
            raise OperatorError(
                f"trail {self}: file number {seqno} is outside 0..{MAX_SEQNO}", hint="Start a new trail"
            )
        return f"{self.prefix}{seqno:0{SEQNO_DIGITS}d}"

    def path(self, seqno: int) -> str:
        """Full path of file `seqno`."""
        return os.path.join(self.folder, self.file_name(seqno))

    def temp_path(self, seqno: int) -> str:
        """Where file `seqno` is prepared before it gets its name; never taken for a trail file."""
        return self.path(seqno) + ".tmp"

    def lock_path(self) -> str:
        """The writer's lock, held for the writer's life."""
        return os.path.join(self.folder, f".{self.prefix}.lock")

    def last_path(self) -> str:
        """Where the writer notes which file was the last to be begun."""
        return os.path.join(self.folder, f".{self.prefix}.last")

    def seqnos(self, names: list[str]) -> list[int]:
        """The file numbers of this trail among the folder's `names`, ascending."""
        return sorted(found[1] for found in map(parse_file_name, names) if found and found[0] == self.prefix)


def parse_file_name(name: str) -> tuple[str, int] | None:
    """(prefix, seqno) of a trail file's base name, or None if it is no trail file's name."""
    match = _FILE.match(name)
    return (match[1], int(match[2])) if match else None
