"""The private CA and the homes' certificates as files: made, renewed, read, and watched for their end.

    dircrd/tls/ca.key     the CA's key, in one home only (0600)
    dircrd/tls/ca.crt     the CA, the same in every home that it serves
    dircrd/tls/home.key   this home's key (0600); made once, a renewal keeps it
    dircrd/tls/home.crt   this home's certificate, for server and client; it names the home's id
    ca.issued, ca.crl     what was made and what is revoked: ggsci/revoking.py

Rule: each file is replaced durably, a certificate after the key and the CA that it needs, so home.crt there means all
is there. A crash in between leaves files that the same command replaces. A renewal writes one file, home.crt, by the
public key in the old one: keys never travel twice. `cryptography` is imported where it is used.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import os
import re
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ggsci import revoking
from trails import tls
from trails.errors import DamageError, GateError, OperatorError
from trails.fs import read_bytes, replace_durably
from trails.runtime.home import Home
from trails.runtime.report import Log

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

CA_KEY = "ca.key"
CA_DAYS = 3650
HOME_DAYS = 730
WARN_DAYS = 30
CHECK_SECONDS = 24 * 3600.0
EXPIRES = "TG-01233"
ALWAYS = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_-]{1,63})*\.?\Z")


@dataclass(frozen=True, slots=True)
class Facts:
    """What INFO CERTIFICATES shows of one certificate; `home`: the id of the home that it is for."""

    path: str
    subject: str
    names: tuple[str, ...]
    fingerprint: str
    begins: dt.datetime
    ends: dt.datetime
    home: str = ""
    serial: int = 0

    def days_left(self, now: dt.datetime) -> int:
        """Whole days until it ends; negative afterwards."""
        return (self.ends - now) // dt.timedelta(days=1)

    def warning(self, now: dt.datetime) -> str:
        """What to say while it is about to end, or has; else empty."""
        if now >= self.ends:
            return f"{self.path} expired at {self.ends:%Y-%m-%d %H:%M} UTC: RENEW CERTIFICATES"
        if (left := self.days_left(now)) < WARN_DAYS:
            return f"{self.path} expires in {left} days, at {self.ends:%Y-%m-%d %H:%M} UTC: RENEW CERTIFICATES"
        return ""

    def warnings(self, now: dt.datetime, home_id: str) -> list[str]:
        """That, and what a peer will not like of the certificate of home `home_id`."""
        found = [warning] if (warning := self.warning(now)) else []
        if self.names and not self.home:
            found.append(f"{self.path} names no home, so peers refuse it: RENEW CERTIFICATES")
        elif self.names and self.home != home_id:
            found.append(
                f"{self.path} is home {self.home}'s, this is home {home_id}, so peers refuse it: remove home.crt and "
                "home.key and CREATE CERTIFICATES"
            )
        return found


def now_utc() -> dt.datetime:
    """Wall time, as certificates count it."""
    return dt.datetime.now(dt.UTC)


@contextlib.contextmanager
def alone(home: Home) -> Iterator[None]:
    """With no other command at the CA's files: what was made, or revoked, is read, added to and written anew."""
    lock = home.fs.lock(os.path.join(home.folder("dircrd"), ".lock"))
    try:
        yield
    finally:
        lock.release()


def hosts_of(text: str) -> list[str]:
    """`'there 10.0.0.1, ::2'` as names and addresses. Raises OperatorError for what is neither."""
    hosts = text.replace(",", " ").split()
    for host in hosts:
        if not _HOST.match(host) and not _is_address(host):
            raise OperatorError(f"HOSTS: expected host names and IP addresses, found {host!r}")
    return hosts


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def peer_folder(path: str) -> str:
    """Where a peer's files go: into dircrd/tls of a home, or into a plain folder that somebody takes there."""
    path = os.path.abspath(os.path.expanduser(path))
    return tls.folder_of(path) if _holds_home(path) else path


def is_home(folder: Folder) -> bool:
    """Whether these files lie in their home already, and not on their way to it."""
    root = os.path.dirname(os.path.dirname(folder.path))
    return folder.path == tls.folder_of(root) and _holds_home(root)


def _holds_home(path: str) -> bool:
    return os.path.isdir(os.path.join(path, "dircrd")) and os.path.isdir(os.path.join(path, "dirprm"))


class Folder:
    """One home's (or peer's) certificate files."""

    def __init__(self, home: Home, path: str) -> None:
        self._fs = home.fs
        self.path = path

    def file(self, name: str) -> str:
        """One of the files as a full path."""
        return os.path.join(self.path, name)

    def has(self, *names: str) -> bool:
        """Whether all of these files are there."""
        return all(os.path.exists(self.file(name)) for name in names)

    def write(self, name: str, data: bytes) -> None:
        """Replace one file durably, 0600 in a 0700 folder."""
        self._fs.makedirs(self.path)
        replace_durably(self._fs, self.file(name), data)

    def read(self, name: str) -> bytes:
        """One file. Raises OperatorError if it is not there."""
        try:
            return read_bytes(self._fs, self.file(name))
        except FileNotFoundError:
            raise OperatorError(f"{self.file(name)} is missing", hint="CREATE CERTIFICATES makes it") from None

    def certificate(self, name: str) -> x509.Certificate:
        """One certificate. Raises DamageError if it can't be read."""
        from cryptography import x509

        try:
            return x509.load_pem_x509_certificate(self.read(name))
        except ValueError as error:
            raise DamageError(f"{self.file(name)}: expected a PEM certificate: {error}", hint="Restore it") from None

    def key(self, name: str) -> EllipticCurvePrivateKey:
        """One private key. Raises DamageError if it can't be read."""
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            key = load_pem_private_key(self.read(name), None)
        except (ValueError, TypeError) as error:
            raise DamageError(f"{self.file(name)}: expected a PEM key: {error}", hint="Restore it") from None
        if not isinstance(key, EllipticCurvePrivateKey):
            raise DamageError(f"{self.file(name)}: expected an EC key", hint="Restore it")
        return key

    def facts(self, name: str) -> Facts:
        """What can be shown of one certificate."""
        from cryptography.hazmat.primitives.hashes import SHA256

        found = self.certificate(name)
        return Facts(
            self.file(name), common_name(found), names_of(found), found.fingerprint(SHA256()).hex(":").upper(),
            found.not_valid_before_utc, found.not_valid_after_utc, home_in(found), found.serial_number,
        )  # fmt: skip


def common_name(certificate: x509.Certificate) -> str:
    """The name that a person reads."""
    from cryptography.x509.oid import NameOID

    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else certificate.subject.rfc4514_string()


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """The host names and addresses it is for; none for a CA."""
    from cryptography import x509

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return (*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress)))


def home_in(certificate: x509.Certificate) -> str:
    """The id of the home that it is for; empty for a CA, and for one of an older release."""
    from cryptography import x509

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ""
    uris = found.get_values_for_type(x509.UniformResourceIdentifier)
    return next((uri.removeprefix(tls.HOME_URN) for uri in uris if uri.startswith(tls.HOME_URN)), "")


# --- making -----------------------------------------------------------------------------------------------------------


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _key_bytes(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization as s

    return key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())


def _certificate_bytes(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def ensure_ca(folder: Folder, home_id: str, days: int) -> None:
    """A CA that outlives a certificate of so many days: made if there is none, anew by its old key if it ends.

    Raises OperatorError if the CA belongs to another home.
    """
    if folder.has(tls.CA) and not folder.has(CA_KEY):
        raise OperatorError(
            f"{folder.file(CA_KEY)} is missing: the CA's key is kept in the home where the certificates were made",
            hint="Give this command there, with PEER for this home",
        )
    needed = now_utc() + dt.timedelta(days=days + 1)
    if folder.has(tls.CA) and folder.facts(tls.CA).ends > needed:
        return
    if not folder.has(CA_KEY):
        folder.write(CA_KEY, _key_bytes(_new_key()))
    key = folder.key(CA_KEY)
    name = common_name(folder.certificate(tls.CA)) if folder.has(tls.CA) else f"Trailgate CA {home_id[:8]}"
    folder.write(tls.CA, _certificate_bytes(_sign(name, key.public_key(), name, key, max(CA_DAYS, days + 2), None)))


def issue(ca: Folder, target: Folder, subject: str, names: Sequence[str], days: int, home_id: str) -> None:
    """Key, CA and certificate for `target`, in this order; a certificate that is there is made anew for its key.

    `home_id`: of the home that is to be known by it. The list of revoked certificates goes with the CA.
    """
    if target.has(tls.CERTIFICATE):
        public: Any = target.certificate(tls.CERTIFICATE).public_key()
    else:
        key = _new_key()
        target.write(tls.KEY, _key_bytes(key))
        public = key.public_key()
    if target.path != ca.path:
        target.write(tls.CA, ca.read(tls.CA))
        if ca.has(tls.REVOKED):
            target.write(tls.REVOKED, ca.read(tls.REVOKED))
    issuer = common_name(ca.certificate(tls.CA))
    made = _sign(subject, public, issuer, ca.key(CA_KEY), days, names, home_id)
    revoking.note(ca, made, home_id)
    target.write(tls.CERTIFICATE, _certificate_bytes(made))


def refuse_foreign(ca: Folder, target: Folder) -> None:
    """Raise OperatorError unless the CA made the certificate and has not revoked it.

    A renewal takes key and names from it, unseen.
    """
    from cryptography.exceptions import InvalidSignature

    found = target.certificate(tls.CERTIFICATE)
    try:
        found.verify_directly_issued_by(ca.certificate(tls.CA))
    except (InvalidSignature, ValueError, TypeError):
        raise OperatorError(
            f"{target.file(tls.CERTIFICATE)} is not of the CA in {ca.path}",
            hint="Renew it where it was made; for a certificate of this CA, remove the folder's files and CREATE one",
        ) from None
    if found.serial_number in revoking.revoked(ca):
        raise OperatorError(
            f"{target.file(tls.CERTIFICATE)} was revoked, and with it the key that it is for",
            hint="Remove home.crt and home.key there, and CREATE CERTIFICATES",
        )


def _sign(
    subject: str,
    public: Any,
    issuer: str,
    key: EllipticCurvePrivateKey,
    days: int,
    names: Sequence[str] | None,
    home_id: str = "",
) -> x509.Certificate:
    """A certificate from a day ago (clocks differ) until `days` from now; a CA if `names` is None."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    day, now = dt.timedelta(days=1), now_utc()
    is_ca = names is None
    builder = (
        x509.CertificateBuilder().subject_name(named(subject)).issuer_name(named(issuer)).public_key(public)
        .serial_number(x509.random_serial_number()).not_valid_before(now - day).not_valid_after(now + days * day)
        .add_extension(x509.BasicConstraints(is_ca, 0 if is_ca else None), critical=True)
        .add_extension(_usage(is_ca), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )  # fmt: skip
    if names is not None:
        both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        alternatives = [x509.IPAddress(ipaddress.ip_address(n)) if _is_address(n) else x509.DNSName(n) for n in names]
        home = [x509.UniformResourceIdentifier(tls.HOME_URN + home_id)] if home_id else []
        builder = builder.add_extension(both, critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName([*alternatives, *home]), critical=False)
    return builder.sign(key, SHA256())


def _usage(is_ca: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not is_ca, key_cert_sign=is_ca, crl_sign=is_ca, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def names_for(hosts: Sequence[str], *, here: bool) -> list[str]:
    """The names of a certificate: those given, this machine's if its home lies here, and loopback always."""
    own = [socket.gethostname()] if here and _HOST.match(socket.gethostname()) else []
    return list(dict.fromkeys((*hosts, *own, *ALWAYS)))


# --- the Manager's watch ----------------------------------------------------------------------------------------------


class Expiry:
    """Warns in ggserr.log, at the Manager's start and each day, of certificates that end within 30 days."""

    def __init__(self, home: Home, log: Log) -> None:
        self._home = home
        self._folder = Folder(home, tls.folder_of(home.root))
        self._log = log
        self._next = float("-inf")

    def look(self, now: float) -> None:
        """Look if it is time; `now` is monotonic."""
        if now < self._next:
            return
        self._next = now + CHECK_SECONDS
        for name in (tls.CA, tls.CERTIFICATE):
            if self._folder.has(name):
                try:
                    texts = self._folder.facts(name).warnings(now_utc(), self._home.id)
                except (GateError, OSError) as error:
                    texts = [str(error)]
                for text in texts:
                    self._log.warning(EXPIRES, f"{text}.")
