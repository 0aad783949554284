"""The private CA and the homes' certificates as files: made, renewed, read, and watched for their end.

    dircrd/tls/ca.key     the CA's key, in one home only (0600)
    dircrd/tls/ca.crt     the CA, the same in every home that it serves
    dircrd/tls/home.key   this home's key (0600); made once, a renewal keeps it
    dircrd/tls/home.crt   this home's certificate, for server and client; it names the home's id
    ca.issued, ca.crl     what was made and what is revoked: ggsci/certificates/revoking.py

Rule: each file is replaced durably, a certificate after the key and the CA that it needs, so home.crt there means all
is there. A crash in between leaves files that the same command replaces. A renewal writes one file, home.crt, by the
public key in the old one: keys never travel twice. `cryptography` is imported where it is used.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import re
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ggsci.certificates import revoking
from ggsci.certificates.folder import Folder, common_name
from trails.errors import GateError, OperatorError
from trails.link import tls
from trails.runtime.home.home import Home
from trails.runtime.report.report import Log

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

CA_KEY = "ca.key"
CA_DAYS = 3650
HOME_DAYS = 730
CHECK_SECONDS = 24 * 3600.0
EXPIRES = "TG-01233"
ALWAYS = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_-]{1,63})*\.?\Z")


def now_utc() -> dt.datetime:
    """Wall time, as certificates count it."""
    return dt.datetime.now(dt.UTC)


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


def endings(home: Home) -> list[str]:
    """What is to be said of the home's certificates: that one ends within 30 days, or can't be read."""
    folder, found = Folder(home, tls.folder_of(home.root)), []
    for name in (tls.CA, tls.CERTIFICATE):
        if folder.has(name):
            try:
                found += folder.facts(name).warnings(now_utc(), home.id)
            except (GateError, OSError) as error:
                found.append(str(error))
    return found


class Expiry:
    """Warns in ggserr.log, at the Manager's start and each day, of certificates that end within 30 days."""

    def __init__(self, home: Home, log: Log) -> None:
        self._home = home
        self._log = log
        self._next = float("-inf")

    def look(self, now: float) -> None:
        """Look if it is time; `now` is monotonic."""
        if now < self._next:
            return
        self._next = now + CHECK_SECONDS
        for text in endings(self._home):
            self._log.warning(EXPIRES, f"{text}.")
