"""Trail encryption (ENCRYPTTRAIL): the wallet with a home's master keys, a key for each trail file, sealed payloads.

Rule: FORMAT.md's "Encryption" has the bytes. A payload is sealed with a nonce of its own each time it is written, so a
block that a crash made be written again at the same RBA uses no nonce twice; it is bound to its place and its header,
so it opens nowhere else. Every block is sealed, those without a payload too, and a file's key is bound to the file's
header: so a file can't be changed, only shortened at the trail's end. A master key seals file keys only. No key is in
any text, repr or error.
The wallet is found by the trail's place (TrailName.wallet_folder): whoever can open a trail file needs no more told.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from dataclasses import dataclass, field, replace
from typing import Any

from trails.errors import MEND, OF_ITS_RELEASE, AnewError, DamageError, KeyMissingError, OperatorError, VersionError
from trails.format import (
    FLAG_AES,
    NONCE_SIZE,
    SEAL_SIZE,
    WRAPPED_SIZE,
    BlockHeader,
    FileHeader,
    block_identity,
    header_identity,
)
from trails.fs import Fs, read_bytes, replace_durably
from trails.host import THIS_HOST, Host
from trails.position import TrailName

KEY_SIZE = 32
KEPT_BYTES = 16 << 20
WALLET_FILE = "masterkeys"
WALLET_VERSION = 1
_WRAP_HEADER = b"trailgate file header\n"


@dataclass(frozen=True, slots=True)
class MasterKey:
    """One version of a wallet's master key."""

    version: int
    created_us: int
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Wallet:
    """The master keys of a home, oldest first; the last one is current. `id` tells wallets apart."""

    id: str
    keys: tuple[MasterKey, ...]

    @property
    def current(self) -> MasterKey:
        """The version that new trail files are encrypted under."""
        return self.keys[-1]

    def key_id(self, key: MasterKey) -> str:
        """What a trail file's header names: wallet and version."""
        return f"{self.id}:{key.version}"


def wallet_path(folder: str) -> str:
    """The wallet in `folder` (a home's dirwlt)."""
    return os.path.join(folder, WALLET_FILE)


def load_wallet(fs: Fs, folder: str) -> Wallet | None:
    """The wallet in `folder`; None if there is none. Raises DamageError and VersionError."""
    path = wallet_path(folder)
    try:
        return _parse_wallet(read_bytes(fs, path), path)
    except FileNotFoundError:
        return None


def save_wallet(fs: Fs, folder: str, wallet: Wallet) -> None:
    """Put it in place durably, 0600: a crash leaves the old wallet or the new one."""
    body: dict[str, Any] = {
        "version": WALLET_VERSION,
        "id": wallet.id,
        "keys": [{"version": k.version, "created_us": k.created_us, "key": k.key.hex()} for k in wallet.keys],
    }
    text = json.dumps({**body, "check": _check(body)}, indent=1)
    replace_durably(fs, wallet_path(folder), text.encode() + b"\n")


def _parse_wallet(data: bytes, path: str) -> Wallet:
    try:
        body = json.loads(data)
        if body["version"] != WALLET_VERSION:
            raise VersionError(
                f"{path}: wallet version {body['version']!r}; this program reads {WALLET_VERSION}", hint=OF_ITS_RELEASE
            )
        if body.pop("check") != _check(body):
            raise ValueError("its checksum is wrong")
        keys = tuple(MasterKey(int(k["version"]), int(k["created_us"]), bytes.fromhex(k["key"])) for k in body["keys"])
        versions = [key.version for key in keys]
        if not keys or versions != sorted(set(versions)) or any(len(key.key) != KEY_SIZE for key in keys):
            raise ValueError("its keys are not in order")
        return Wallet(str(body["id"]), keys)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        # A decoder's own message would show a piece of the file, and so perhaps of a key.
        why = f"({error})" if type(error) is ValueError else f"({type(error).__name__})"
        raise DamageError(
            f"{path}: damaged: expected a wallet of master keys {why}", hint="Restore it from a copy of dirwlt"
        ) from None


def _check(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


# --- the key of one trail file ----------------------------------------------------------------------------------------


class FileKey:
    """Seals and opens the payloads of one trail file."""

    def __init__(self, key: bytes, trail_id: bytes, seqno: int, host: Host = THIS_HOST) -> None:
        self._aead = _aead(key)
        self._host = host
        self._trail_id = trail_id
        self._seqno = seqno
        self._buffer = bytearray()

    def seal(self, header: BlockHeader, payload: bytes | memoryview, rba: int) -> tuple[BlockHeader, memoryview]:
        """The block as it is stored at `rba`. The payload is good until the next call."""
        size = len(payload) + SEAL_SIZE
        header = replace(header, flags=header.flags | FLAG_AES, payload_len=size)
        nonce = self._host.random_bytes(NONCE_SIZE)
        sealed = self._room(size)
        sealed[:NONCE_SIZE] = nonce
        self._aead.encrypt_into(nonce, payload, self._bound_to(header, rba), sealed[NONCE_SIZE:])
        return replace(header, payload_crc=zlib.crc32(sealed)), sealed

    def _room(self, size: int) -> memoryview:
        # Fresh memory for each block costs the kernel four times what encrypting costs; that for a huge one is let go.
        if size > KEPT_BYTES:
            return memoryview(bytearray(size))
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        return memoryview(self._buffer)[:size]

    def open(self, header: BlockHeader, payload: bytes, rba: int, where: str) -> tuple[BlockHeader, bytes]:
        """Inverse of seal(), for a payload whose CRC was checked. Raises DamageError if it was not sealed for here."""
        from cryptography.exceptions import InvalidTag

        view = memoryview(payload)
        try:
            plain: bytes = self._aead.decrypt(view[:NONCE_SIZE], view[NONCE_SIZE:], self._bound_to(header, rba))
        except (InvalidTag, ValueError):
            raise DamageError(
                f"{where}, RBA {rba}: expected a payload that this file's key opens, found another: block or header "
                "were changed after they were written",
                hint=MEND,
            ) from None
        crc = zlib.crc32(plain)
        return replace(header, flags=header.flags & ~FLAG_AES, payload_len=len(plain), payload_crc=crc), plain

    def _bound_to(self, header: BlockHeader, rba: int) -> bytes:
        return block_identity(header, self._trail_id, self._seqno, rba)


def new_file_key(fs: Fs, trail: TrailName, header: FileHeader) -> tuple[FileHeader, FileKey]:
    """A fresh key for a new file: its header with the key wrapped in it, and the key. Raises KeyMissingError."""
    folder = trail.wallet_folder
    wallet = load_wallet(fs, folder)
    if wallet is None:
        raise KeyMissingError(
            f"trail {trail} is to be encrypted and {folder} holds no master key", hint="ADD MASTERKEY in that home"
        )
    # A key just added may not have reached the disk's folder yet, and after this a file depends on it.
    fs.sync_dir(folder)
    key, nonce = fs.host.random_bytes(KEY_SIZE), fs.host.random_bytes(NONCE_SIZE)
    header = replace(header, key_id=wallet.key_id(wallet.current), wrapped=bytes(WRAPPED_SIZE))
    bound_to = _WRAP_HEADER + header_identity(header)
    wrapped = nonce + _aead(wallet.current.key).encrypt(nonce, key, bound_to)
    return replace(header, wrapped=wrapped), FileKey(key, header.trail_id, header.seqno, fs.host)


def file_key(fs: Fs, trail: TrailName, header: FileHeader, where: str) -> FileKey:
    """The key of the file with this header. Raises KeyMissingError, or DamageError if header or key were changed."""
    from cryptography.exceptions import InvalidTag

    master = _master_key(fs, trail.wallet_folder, header.key_id, where)
    nonce, sealed = header.wrapped[:NONCE_SIZE], header.wrapped[NONCE_SIZE:]
    try:
        key = _aead(master.key).decrypt(nonce, sealed, _WRAP_HEADER + header.identity)
    except InvalidTag:
        raise DamageError(
            f"{where}: expected a file key that master key version {master.version} opens, found another: the header "
            "or the wallet was changed",
            hint="Restore the file, and dirwlt, from a copy",
        ) from None
    return FileKey(key, header.trail_id, header.seqno, fs.host)


def need_master_key(fs: Fs, trail: TrailName, header: FileHeader, where: str) -> None:
    """Raise AnewError unless the wallet still holds the key that a file about to get its name was begun with."""
    wallet = load_wallet(fs, trail.wallet_folder) if header.key_id else None
    if header.key_id and (wallet is None or header.key_id not in map(wallet.key_id, wallet.keys)):
        raise AnewError(f"{where}: its master key {header.key_id} was deleted while it was begun", hint="START again")


def _master_key(fs: Fs, folder: str, key_id: str, where: str) -> MasterKey:
    wallet_id, _, version = key_id.partition(":")
    hint = "Restore dirwlt of the home that wrote the file, or name that home (logdump --home)"
    if not key_id:
        raise DamageError(f"{where}: an encrypted block in a file whose header names no key", hint=MEND)
    wallet = load_wallet(fs, folder)
    if wallet is None:
        found = f"{wallet_path(folder)} is not there"
    elif wallet.id != wallet_id:
        found = f"{wallet_path(folder)} is wallet {wallet.id}, of another home or made anew"
    else:
        for key in wallet.keys:
            if str(key.version) == version:
                return key
        found = f"{wallet_path(folder)} has no such version"
    raise KeyMissingError(
        f"{where} is encrypted under master key version {version} of wallet {wallet_id}; {found}", hint=hint
    )


def _aead(key: bytes) -> Any:
    # Imported where a key is used: trails without encryption, and ggsci's prompt, never load it.
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise OperatorError(f"the package cryptography can't be loaded: {error}", hint="Install it") from None
    return AESGCM(key)
