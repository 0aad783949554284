"""The credential store: user names and passwords under aliases, so that no parameter file has to hold a password.

logins.py reads what a parameter file says of it.

Rule: dircrd/credentials is encrypted (AES-256-GCM) with the key in dircrd/credentials.key, both 0600 and replaced
durably, the key first: a crash leaves the old store or the new one. A password leaves this module only inside a
database's URL, in memory, and from then on `masking` hides it in whatever this process says.

dircrd/credentials is "TGCRED1" and a newline, a nonce of 12 bytes, and the sealed JSON
{domain: {alias: {"user", "password"}}}. Domains and aliases are compared without case.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from trails.errors import OF_ITS_RELEASE, DamageError, OperatorError, VersionError
from trails.fs import read_bytes, replace_durably
from trails.runtime.home.home import Home
from trails.runtime.language import prmtext
from trails.runtime.masking import hide

DOMAIN = "Trailgate"
_MAGIC = b"TGCRED1\n"
_NONCE = 12
NAME = re.compile(r"[A-Za-z][\w.$#-]{0,127}\Z", re.ASCII)
"""Of an alias or a domain."""
_HINT = "ADD CREDENTIALSTORE, then ALTER CREDENTIALSTORE ADD USER ..."


@dataclass(frozen=True, slots=True)
class Credential:
    """One alias of the store. `user` may go on `@host:port/database`, for a USERIDALIAS without a URL."""

    domain: str
    alias: str
    user: str
    password: str = field(repr=False)

    @property
    def name(self) -> str:
        """The user alone."""
        return self.user.partition("@")[0]

    @property
    def where(self) -> str:
        """What stands behind the user's @, or nothing."""
        return self.user.partition("@")[2]


def with_login(url: str, credential: Credential) -> str:
    """The URL with this user and password; from now on this process says neither form of the password."""
    hide(credential.password)
    password = quote(credential.password, safe="")
    hide(password)
    parts = urlsplit(url)
    login = quote(credential.name, safe="") + (f":{password}" if password else "")
    return urlunsplit(parts._replace(netloc=f"{login}@{parts.netloc.rpartition('@')[2]}"))


def hide_url(url: str) -> None:
    """Have this process never say the password that a URL holds."""
    with contextlib.suppress(ValueError):  # no URL: then nothing can be reached with it either
        parts = urlsplit(url)
        for secret in (parts.password, *re.findall(r"(?:^|&)password=([^&]+)", parts.query)):
            if secret:
                hide(secret)
                hide(unquote(secret))


def hide_file(path: str) -> None:
    """Have this process never say the passwords of a parameter file's URLs and USERIDs, wherever they stand in it.

    By its place a password in a URL is known; not so in a SETENV or a macro's argument that a ?variable there takes.
    """
    with contextlib.suppress(OperatorError):  # what can't be read shows no URL
        for line in prmtext.read(path).lines:
            for url in _URLS.findall(line.text):
                hide_url(url)
            for password in _PASSWORDS.findall(line.text):
                hide(password.strip("'\""))


_PASSWORDS = re.compile(r"(?i)\bPASSWORD\s+('[^']*'|\"[^\"]*\"|[^\s,;]+)")
_URLS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,40}://[^\s'\"]+")


# --- the store --------------------------------------------------------------------------------------------------------


def create(home: Home) -> None:
    """Make an empty store. Raises OperatorError if there is one."""
    with home.alone("dircrd"):
        if home.fs.exists(_store(home)):
            raise OperatorError(f"{_store(home)}: there is a credential store already", hint=_HINT)
        replace_durably(home.fs, _key_file(home), os.urandom(32).hex().encode() + b"\n")
        _save(home, [])


def remove(home: Home) -> None:
    """Delete the store and its key."""
    with home.alone("dircrd"):
        _need(home)
        home.fs.remove(_store(home))
        home.fs.remove(_key_file(home))
        home.fs.sync_dir(home.folder("dircrd"))


def add(home: Home, new: Credential, *, replace: bool = False) -> None:
    """Add a credential, or replace the one of its alias. Raises OperatorError if the alias is there, or is not."""
    for what, name in (("alias", new.alias), ("domain", new.domain)):
        if not NAME.match(name):
            raise OperatorError(f"{what} {name!r}: expected letters, digits and _ . $ # -, a letter first")
    with home.alone("dircrd"):
        every = load(home)
        others = [one for one in every if not _is(one, new.alias, new.domain)]
        if replace and len(others) == len(every):
            raise _unknown(new.alias, new.domain)
        if not replace and len(others) < len(every):
            raise OperatorError(
                f"alias {new.alias} is in domain {new.domain} already", hint="ALTER CREDENTIALSTORE REPLACE changes it"
            )
        _save(home, [*others, new])


def delete(home: Home, alias: str, domain: str) -> None:
    """Forget an alias. Raises OperatorError if there is none."""
    with home.alone("dircrd"):
        every = load(home)
        others = [one for one in every if not _is(one, alias, domain)]
        if len(others) == len(every):
            raise _unknown(alias, domain)
        _save(home, others)


def find(home: Home, alias: str, domain: str = DOMAIN) -> Credential:
    """The credential of an alias. Raises OperatorError if there is none."""
    for one in load(home):
        if _is(one, alias, domain):
            return one
    raise _unknown(alias, domain)


def load(home: Home) -> list[Credential]:
    """All credentials by domain and alias. Raises OperatorError without a store, DamageError for one that is broken."""
    path = _need(home)
    try:
        key = bytes.fromhex(read_bytes(home.fs, _key_file(home)).decode("ascii").strip())
        if len(key) != 32:
            raise ValueError("its length is wrong")
    except FileNotFoundError:
        raise OperatorError(
            f"{_key_file(home)}: the credential store's key is missing",
            hint="Restore it from a copy, or DELETE CREDENTIALSTORE and make it anew",
        ) from None
    except ValueError:
        raise DamageError(
            f"{_key_file(home)}: damaged: expected 64 hex digits", hint="Restore it from a copy"
        ) from None
    return _opened(read_bytes(home.fs, path), key, path)


def _opened(data: bytes, key: bytes, path: str) -> list[Credential]:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    start = len(_MAGIC)
    if data[:6] == _MAGIC[:6] and data[:start] != _MAGIC:
        raise VersionError(
            f"{path}: a credential store of another version; this program reads version 1", hint=OF_ITS_RELEASE
        )
    try:
        plain = AESGCM(key).decrypt(data[start : start + _NONCE], data[start + _NONCE :], data[:start])
        every = [
            Credential(domain, alias, str(one["user"]), str(one["password"]))
            for domain, aliases in json.loads(plain).items()
            for alias, one in aliases.items()
        ]
    except (InvalidTag, ValueError, TypeError, KeyError, AttributeError):
        raise DamageError(
            f"{path}: damaged, or made with another key than {os.path.basename(path)}.key",
            hint="Restore both files from one copy, or DELETE CREDENTIALSTORE and make it anew",
        ) from None
    return sorted(every, key=lambda one: (one.domain.lower(), one.alias.lower()))


def _save(home: Home, every: list[Credential]) -> None:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    domains: dict[str, dict[str, dict[str, str]]] = {}
    for one in every:
        domains.setdefault(one.domain, {})[one.alias] = {"user": one.user, "password": one.password}
    key = bytes.fromhex(read_bytes(home.fs, _key_file(home)).decode("ascii").strip())
    nonce = os.urandom(_NONCE)
    sealed = AESGCM(key).encrypt(nonce, json.dumps(domains).encode(), _MAGIC)
    replace_durably(home.fs, _store(home), _MAGIC + nonce + sealed)


def _need(home: Home) -> str:
    if not home.fs.exists(_store(home)):
        raise OperatorError(f"{_store(home)}: there is no credential store", hint=_HINT)
    return _store(home)


def _is(one: Credential, alias: str, domain: str) -> bool:
    return (one.alias.lower(), one.domain.lower()) == (alias.lower(), domain.lower())


def _unknown(alias: str, domain: str) -> OperatorError:
    return OperatorError(
        f"the credential store has no alias {alias} in domain {domain}", hint="INFO CREDENTIALSTORE shows all"
    )


def _store(home: Home) -> str:
    return os.path.join(home.folder("dircrd"), "credentials")


def _key_file(home: Home) -> str:
    return _store(home) + ".key"
