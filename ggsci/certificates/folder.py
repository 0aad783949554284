"""One folder of certificate files, read and written; and what can be shown of a certificate."""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trails.errors import DamageError, OperatorError
from trails.fs import read_bytes, replace_durably
from trails.link import tls
from trails.runtime.home.home import Home

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

WARN_DAYS = 30


@dataclass(frozen=True, slots=True)
class CertificateFacts:
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

    def facts(self, name: str) -> CertificateFacts:
        """What can be shown of one certificate."""
        from cryptography.hazmat.primitives.hashes import SHA256

        found = self.certificate(name)
        return CertificateFacts(
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

    found = _alternatives(certificate)
    return (*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress)))


def home_in(certificate: x509.Certificate) -> str:
    """The id of the home that it is for; empty for a CA, and for one of an older release."""
    from cryptography import x509

    uris = _alternatives(certificate).get_values_for_type(x509.UniformResourceIdentifier)
    return next((uri.removeprefix(tls.HOME_URN) for uri in uris if uri.startswith(tls.HOME_URN)), "")


def _alternatives(certificate: x509.Certificate) -> x509.SubjectAlternativeName:
    from cryptography import x509

    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return x509.SubjectAlternativeName([])
