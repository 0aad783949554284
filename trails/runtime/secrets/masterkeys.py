"""The home's master keys: ADD, RENEW, INFO and DELETE MASTERKEY, on the wallet in dirwlt.

Rule: a version stays as long as a trail file of the home is encrypted under it: in dirdat, or wherever else a group
writes or reads a trail. New files take the current one only, so once a version was replaced a minute ago (a writer may
just have been beginning a file, and looks again before it names it) no more can come to need it.
trails/crypt.py has the wallet itself, and what trail files do with it; FORMAT.md what crashes leave.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace

from trails.crypt import KEY_SIZE, MasterKey, Wallet, load_wallet, save_wallet, wallet_path
from trails.errors import DamageError, OperatorError, VersionError
from trails.format import BODY_OFFSET, FileHeader, parse_file_header, parse_header_length
from trails.fs import Fs
from trails.position import DATA_FOLDER, WALLET_FOLDER, TrailName, parse_file_name
from trails.runtime.home import registration as registrations
from trails.runtime.home.home import Home

GRACE_US = 60_000_000


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """What INFO MASTERKEY shows of one version: never the key."""

    version: int
    created_us: int
    current: bool
    files: int


def add(home: Home, now_us: int) -> int:
    """Make the wallet with a first master key; its version. Raises OperatorError if there is one."""
    with home.alone(WALLET_FOLDER):
        if load_wallet(home.fs, _folder(home)) is not None:
            raise OperatorError(
                f"{wallet_path(_folder(home))} holds a master key already", hint="RENEW MASTERKEY makes a new version"
            )
        save_wallet(home.fs, _folder(home), Wallet(home.fs.host.random_bytes(16).hex(), (_new(home, 1, now_us),)))
    return 1


def renew(home: Home, now_us: int) -> int:
    """A new version, for all files begun from now on; its number."""
    with home.alone(WALLET_FOLDER):
        wallet = load(home)
        # Not a number that a trail file knows for another key: the wallet may have been restored from an older copy.
        version = 1 + max([wallet.current.version, *_versions_named(home, wallet.id)])
        save_wallet(home.fs, _folder(home), replace(wallet, keys=(*wallet.keys, _new(home, version, now_us))))
    return version


def info(home: Home) -> tuple[str, list[KeyInfo]]:
    """(the wallet's id, its versions with the number of trail files that need each)."""
    wallet = load(home)
    needed = files_by_key(home)
    return wallet.id, [
        KeyInfo(key.version, key.created_us, key is wallet.current, len(needed.get(wallet.key_id(key), ())))
        for key in wallet.keys
    ]


def delete(home: Home, version: int, now_us: int) -> None:
    """Forget one version for good. Raises OperatorError for the current one, and one that may still be needed."""
    with home.alone(WALLET_FOLDER):
        wallet = load(home)
        place = next((n for n, key in enumerate(wallet.keys) if key.version == version), None)
        if place is None:
            known = ", ".join(str(key.version) for key in wallet.keys)
            raise OperatorError(f"master key version {version}: expected one of {known}")
        if wallet.keys[place] is wallet.current:
            raise OperatorError(
                f"master key version {version} is the current one: new trail files need it",
                hint="RENEW MASTERKEY first",
            )
        if now_us - wallet.keys[place + 1].created_us < GRACE_US:
            raise OperatorError(
                f"master key version {version} was replaced less than a minute ago: a trail file may just be begun "
                "with it",
                hint="Try again in a minute",
            )
        _refuse_needed(home, wallet.key_id(wallet.keys[place]), version)
        left = tuple(key for key in wallet.keys if key.version != version)
        save_wallet(home.fs, _folder(home), replace(wallet, keys=left))


def load(home: Home) -> Wallet:
    """The home's wallet. Raises OperatorError if there is none, DamageError if it can't be read."""
    wallet = load_wallet(home.fs, _folder(home))
    if wallet is None:
        raise OperatorError(f"{wallet_path(_folder(home))}: there is no master key", hint="ADD MASTERKEY")
    return wallet


def files_by_key(home: Home) -> dict[str, list[str]]:
    """The home's trail files by the key id in their headers. Raises DamageError for one whose header can't be read."""
    found: dict[str, list[str]] = {}
    for path in _trail_files(home):
        header = _header(home.fs, path)
        if header is not None and header.key_id:
            found.setdefault(header.key_id, []).append(path)
    return found


def _trail_files(home: Home) -> list[str]:
    """All in dirdat and its folders, and those of groups' trails that lie elsewhere."""
    listed = [(folder, names) for folder, _, names in os.walk(home.folder(DATA_FOLDER), followlinks=True)]
    for group in registrations.all(home):
        for path in (group.trail, *group.writes):
            folder = TrailName.parse(path, home.root).folder if path else ""
            if folder and folder not in (known for known, _ in listed):
                listed.append((folder, home.fs.listdir(folder)))
    return [os.path.join(folder, name) for folder, names in listed for name in sorted(names) if parse_file_name(name)]


def _versions_named(home: Home, wallet_id: str) -> list[int]:
    """Every version of this wallet that a trail file's header names; what can't be read names none."""
    named = []
    for path in _trail_files(home):
        with contextlib.suppress(DamageError, VersionError):
            header = _header(home.fs, path)
            wallet, _, version = (header.key_id if header else "").partition(":")
            named += [int(version)] if wallet == wallet_id and version.isdecimal() else []
    return named


def _refuse_needed(home: Home, key_id: str, version: int) -> None:
    files = files_by_key(home).get(key_id, [])
    if files:
        shown = ", ".join(home.shown(path) for path in files[:3]) + (", ..." if len(files) > 3 else "")
        raise OperatorError(
            f"master key version {version} is needed by {len(files)} trail files: {shown}",
            hint="Wait until they are purged (INFO MASTERKEY counts them)",
        )


def _header(fs: Fs, path: str) -> FileHeader | None:
    """A trail file's header; None if the file was purged meanwhile."""
    try:
        file = fs.open(path)
    except FileNotFoundError:
        return None
    try:
        start = file.read_at(0, BODY_OFFSET)
        return parse_file_header(file.read_at(0, parse_header_length(start, path)), path)[0]
    finally:
        file.close()


def _new(home: Home, version: int, now_us: int) -> MasterKey:
    return MasterKey(version, now_us, home.fs.host.random_bytes(KEY_SIZE))


def _folder(home: Home) -> str:
    return home.folder(WALLET_FOLDER)
