"""TLS of the link: contexts made from a home's certificate files, and what a failed handshake means in plain words.

Rule: TLS 1.3 and nothing older; both ends show a certificate of the same private CA, and the pump checks that the
certificate is for the host that it asked for. Files are read anew for each connection, so a renewal needs no restart.
Nothing here waits or writes; GGSCI's CREATE CERTIFICATES makes the files.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import stat
from typing import Final

from trails.errors import AwayError, GateError, OperatorError

CA: Final = "ca.crt"
CERTIFICATE: Final = "home.crt"
KEY: Final = "home.key"
CREATE_HINT: Final = (
    "Make certificates for both homes: CREATE CERTIFICATES, PEER folder, HOSTS 'names' in GGSCI of one of them; "
    "or give NOTLS in the pump's RMTHOST and in the remote mgr.prm"
)

# The first byte of every TLS connection; a plain request begins with `{`, a plain HELLO with 1.
FIRST_BYTE: Final = 0x16


def folder_of(root: str) -> str:
    """Where the home `root` keeps its certificates."""
    return os.path.join(root, "dircrd", "tls")


def client_context(folder: str) -> ssl.SSLContext:
    """For the end that connects. Raises OperatorError with what mends it."""
    return _context(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), folder)


def server_context(folder: str) -> ssl.SSLContext:
    """For the end that listens: a peer without a certificate is refused. Raises OperatorError."""
    context = _context(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), folder)
    context.num_tickets = 0  # sessions are never resumed; unread tickets would turn a close into a reset
    return context


def _context(context: ssl.SSLContext, folder: str) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    ca, certificate, key = (os.path.join(folder, name) for name in (CA, CERTIFICATE, KEY))
    for path in (ca, certificate, key):
        if not os.path.exists(path):
            raise OperatorError(f"the link is TLS and {path} is missing", hint=CREATE_HINT)
    mode = stat.S_IMODE(os.stat(key).st_mode)
    if mode & 0o077:
        raise OperatorError(f"{key}: expected mode 0600, found {mode:04o}", hint=f"chmod 600 {key}")
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")
        context.load_verify_locations(ca)
    except ssl.SSLError as error:
        what = "the key does not belong to the certificate" if error.reason == "KEY_VALUES_MISMATCH" else error.reason
        raise OperatorError(
            f"{folder}: certificate, key or CA can't be used: {what or error}",
            hint="Restore these files, or remove them and CREATE CERTIFICATES again",
        ) from None
    except OSError as error:
        raise OperatorError(f"{folder}: {error.strerror}", hint="Give this user access to the home") from None
    return context


def is_loopback(host: str) -> bool:
    """Whether a host as an operator names it is this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def peer_name(sock: object) -> str:
    """The name in the certificate that the peer showed; empty on a plain link."""
    found = sock.getpeercert() if isinstance(sock, ssl.SSLSocket) else None
    subject: object = (found or {}).get("subject", ())
    names = [value for part in subject for key, value in part if key == "commonName"] if subject else []  # type: ignore[attr-defined]
    return str(names[0]) if names else ""


# --- what went wrong --------------------------------------------------------------------------------------------------

_CLOCKS = "Compare the clocks of the two hosts"
_RENEW = "RENEW CERTIFICATES in the home that keeps the CA's key; INFO CERTIFICATES shows the dates"
_ONE_CA = "Both homes need certificates of one CA: CREATE CERTIFICATES, PEER folder in the home that keeps its key"
_NAMES = "RENEW CERTIFICATES, PEER folder, HOSTS 'names' for that home, or use a name of its certificate in RMTHOST"
_BOTH = "Give NOTLS at both ends (RMTHOST of the pump, mgr.prm of the remote home) or at none"

# OpenSSL's verify codes -> what they mean of the peer's certificate, and what to do.
_VERIFY: Final = {
    9: ("is not valid yet", _CLOCKS),
    10: ("has expired", _RENEW),
    18: ("is of another CA", _ONE_CA),
    19: ("is of another CA", _ONE_CA),
    20: ("is of another CA", _ONE_CA),
    21: ("is of another CA", _ONE_CA),
    62: ("is for other host names", _NAMES),
    64: ("is for other addresses", _NAMES),
}

# Parts of OpenSSL's reason when the peer sent an alert about ours.
_ALERTS: Final = {
    "CERTIFICATE_EXPIRED": ("it has expired", _RENEW),
    "UNKNOWN_CA": ("it is of another CA", _ONE_CA),
    "BAD_CERTIFICATE": ("it is not for the name that was asked for, or not valid yet", f"{_NAMES}. {_CLOCKS}"),
    "CERTIFICATE_REQUIRED": ("none was shown", CREATE_HINT),
    "CERTIFICATE_REVOKED": ("it was revoked", _ONE_CA),
    "CERTIFICATE_UNKNOWN": ("it can't be used", _ONE_CA),
}
_PLAIN: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "PACKET_LENGTH_TOO_LONG",
                 "RECORD_LAYER_FAILURE", "UNEXPECTED_MESSAGE")  # fmt: skip
_OLD: Final = ("UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE", "TLSV1_ALERT_PROTOCOL_VERSION")


def explain(error: ssl.SSLError, who: str) -> GateError:
    """The one clear message for a TLS error: OperatorError where a person must act, AwayError for a cut link."""
    if isinstance(error, ssl.SSLCertVerificationError):
        what, hint = _VERIFY.get(error.verify_code, (f"is refused: {error.verify_message}", _ONE_CA))
        detail = f" ({error.verify_message})" if error.verify_code in (62, 64) else ""
        return OperatorError(f"{who}: its certificate {what}{detail}", hint=hint)
    reason = error.reason or ""
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return OperatorError(f"{who} showed no certificate", hint=_ONE_CA)
    for part, (what, hint) in _ALERTS.items():
        if "ALERT" in reason and reason.endswith(part):
            return OperatorError(f"{who} refused our certificate: {what}", hint=hint)
    if reason in _OLD:
        return OperatorError(f"{who} does not talk TLS 1.3", hint="Bring both hosts to the same release")
    if reason in _PLAIN:
        return OperatorError(f"{who} does not talk TLS, and we do", hint=_BOTH)
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return AwayError(f"{who} closed the link")
    return AwayError(f"{who}: the link is lost: TLS: {reason or error.strerror or error}")
