"""Which certificates the CA made, and which of them are revoked: two files beside its key.

    dircrd/tls/ca.issued    number and home of each certificate that was made; only where the CA's key is
    dircrd/tls/ca.crl       the list of revoked ones, signed by the CA; the same in every home that it serves

Rule: a certificate is noted before it is written, so none is made that can't be revoked. A home is revoked as a whole:
a renewal keeps its key, so who has the key may have any older certificate for it too, and one that has ended could be
renewed: nothing is forgotten. The list has no end, it is valid until the next one takes its place: it comes by a
person's hand, and a link must not fail because nobody lent one.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ggsci.certificates.folder import Folder
from trails.errors import DamageError
from trails.link import tls

if TYPE_CHECKING:
    from cryptography import x509

ISSUED = "ca.issued"
_NEVER = dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class Issued:
    """One certificate that the CA made: its serial number, and the home that it was made for."""

    number: int
    home: str


def note(ca: Folder, certificate: x509.Certificate, home_id: str) -> None:
    """Remember a certificate about to be written."""
    noted = (*issued(ca), Issued(certificate.serial_number, home_id))
    every = [{"number": f"{one.number:x}", "home": one.home} for one in noted]
    ca.write(ISSUED, json.dumps(every, indent=1).encode() + b"\n")


def issued(ca: Folder) -> list[Issued]:
    """What the CA made, oldest first. Raises DamageError."""
    if not ca.has(ISSUED):
        return []
    try:
        return [Issued(int(one["number"], 16), str(one["home"])) for one in json.loads(ca.read(ISSUED))]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise DamageError(
            f"{ca.file(ISSUED)}: expected a list of certificates", hint="Restore it, or remove it and RENEW all"
        ) from None


def revoked(folder: Folder) -> dict[int, dt.datetime]:
    """Serial number and date of all on the list; empty if there is none. Raises DamageError."""
    found = _list(folder)
    return {one.serial_number: one.revocation_date_utc for one in found} if found is not None else {}


def _list(folder: Folder) -> x509.CertificateRevocationList | None:
    from cryptography import x509

    if not folder.has(tls.REVOKED):
        return None
    try:
        return x509.load_pem_x509_crl(folder.read(tls.REVOKED))
    except ValueError as error:
        raise DamageError(
            f"{folder.file(tls.REVOKED)}: expected a PEM list of revoked certificates: {error}", hint="Restore it"
        ) from None


def revoke(ca: Folder, ca_key: str, serials: Collection[int]) -> int:
    """Put these on the list and write it anew; how many were not on it yet."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    known, now, key = revoked(ca), dt.datetime.now(dt.UTC), ca.key(ca_key)
    every = dict.fromkeys(serials, now) | known
    old = _list(ca)
    number = 1 + (old.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number if old is not None else 0)
    builder = (
        x509.CertificateRevocationListBuilder().issuer_name(ca.certificate(tls.CA).subject)
        .last_update(now - dt.timedelta(days=1)).next_update(_NEVER)  # from a day ago: clocks differ
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )  # fmt: skip
    for serial, date in every.items():
        one = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(date).build()
        builder = builder.add_revoked_certificate(one)
    from cryptography.hazmat.primitives.serialization import Encoding

    ca.write(tls.REVOKED, builder.sign(key, SHA256()).public_bytes(Encoding.PEM))
    return len(every) - len(known)
