"""TLS of the link: contexts made from a home's certificate files, and what a failed handshake means in plain words.

Rule: TLS 1.3 and nothing older; both ends show a certificate of the same private CA, and the pump checks that the
certificate is for the host that it asked for. A certificate names the home that it was made for, and a peer that says
to be another home is refused. What a peer says is its word only once its certificate was checked: all that fails before
can be anybody's doing on the way, so it is tried again (UntrustedError). Files are read anew for each connection, so a
renewal needs no restart. Nothing here waits or writes; GGSCI's CREATE and REVOKE CERTIFICATES make the files.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from trails.errors import SAME_RELEASE, AwayError, GateError, OperatorError, UntrustedError

CA: Final = "ca.crt"
CERTIFICATE: Final = "home.crt"
KEY: Final = "home.key"
REVOKED: Final = "ca.crl"
CODE_PLAIN, CODE_READABLE = "TG-01231", "TG-01522"
HOME_URN: Final = "urn:trailgate:home:"
CREATE_HINT: Final = (
    "Make certificates for both homes: CREATE CERTIFICATES, PEER folder, HOSTS 'names' in GGSCI of one of them; "
    "or give NOTLS in the pump's RMTHOST and in the remote mgr.prm"
)

# The first byte of every TLS connection; a plain request begins with `{`, a plain HELLO with 1.
FIRST_BYTE: Final = 0x16
# How often a running session looks for another list of revoked certificates.
LOOK_SECONDS: Final = 1.0


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


def answer(sock: socket.socket, folder: str) -> ssl.SSLSocket:
    """The listening end of TLS on a caller's connection; hands are shaken by its first reads.

    Raises OperatorError for what is wrong with the files, OSError or ValueError for a caller who is gone.
    """
    return server_context(folder).wrap_socket(sock, server_side=True, do_handshake_on_connect=False)


def _context(context: ssl.SSLContext, folder: str) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    ca, certificate, key, revoked = (os.path.join(folder, name) for name in (CA, CERTIFICATE, KEY, REVOKED))
    for path in (ca, certificate, key):
        if not os.path.exists(path):
            raise OperatorError(f"the link is TLS and {path} is missing", hint=CREATE_HINT)
    mode = stat.S_IMODE(os.stat(key).st_mode)
    if mode & 0o077:
        raise OperatorError(f"{key}: expected mode 0600, found {mode:04o}", hint=f"chmod 600 {key}")
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")
        context.load_verify_locations(ca)
        if os.path.exists(revoked):
            context.load_verify_locations(revoked)
            context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    except ssl.SSLError as error:
        what = "the key does not belong to the certificate" if error.reason == "KEY_VALUES_MISMATCH" else error.reason
        raise OperatorError(
            f"{folder}: certificate, key, CA or list of revoked certificates can't be used: {what or error}",
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


def cautions(host: str, what: str, *, secure: bool, encrypt: bool) -> list[tuple[str, str]]:
    """What START warns of, each with its code, where `what` is sent to a host. `encrypt`: ENCRYPTTRAIL is given."""
    found = []
    if not secure and not is_loopback(host):
        text = f"NOTLS: the link to {host} is plain TCP; whoever is on the way can read and change it."
        found.append((CODE_PLAIN, text))
    if encrypt and not secure:
        text = f"ENCRYPTTRAIL encrypts {what} where it lies; with NOTLS its rows travel to {host} readable for"
        found.append((CODE_READABLE, f"{text} whoever is on the way."))
    return found


# --- who the peer is --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shown:
    """What the peer's certificate says: its name (may be empty), and the ids of the homes that it was made for."""

    name: str
    homes: tuple[str, ...]


def shown(sock: ssl.SSLSocket | ssl.SSLObject, who: str) -> Shown:
    """What the peer showed: to be asked right after the handshake, and kept.

    With the first error of a link OpenSSL forgets that hands were shaken, and the end of a link may be read together
    with what was said before it. Raises AwayError on a link that broke.
    """
    try:
        found: Mapping[str, Any] = sock.getpeercert() or {}
    except (ValueError, OSError) as error:
        raise AwayError(f"{who}: the link is lost: {error}") from None
    names = [value for part in found.get("subject", ()) for key, value in part if key == "commonName"]
    homes = [
        value.removeprefix(HOME_URN)
        for kind, value in found.get("subjectAltName", ())
        if kind == "URI" and value.startswith(HOME_URN)
    ]
    return Shown(str(names[0]) if names else "", tuple(homes))


def home_of(found: Shown, who: str) -> str:
    """The id of the home that a certificate was made for. Raises OperatorError if it names none, or several."""
    if len(found.homes) != 1:
        raise OperatorError(f"{who}: its certificate names no home", hint=_NO_HOME)
    return found.homes[0]


def check_home(found: Shown | None, said: str, who: str) -> None:
    """Raise OperatorError unless the peer is the home that it says to be. A plain link (None) can't tell."""
    if found is not None and (home := home_of(found, who)) != said:
        hint = _OTHER if said else "An earlier build does not say it: bring both hosts to the same release"
        raise OperatorError(f"{who} says to be home {said or '(none)'}; its certificate is home {home}'s", hint=hint)


def check_own(folder: str, home_id: str) -> None:
    """Look at this home's certificate as a peer will: by a handshake with itself, in memory. Raises OperatorError."""
    client, server = client_context(folder), server_context(folder)
    client.check_hostname = False
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    near, far = client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True)
    path = os.path.join(folder, CERTIFICATE)
    for end in (near, far, near, far):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError as error:
            found = explain(error, path)
            raise OperatorError(found.message, hint=found.hint) from None
    if (found_id := home_of(shown(near, path), path)) != home_id:
        raise OperatorError(f"{path}: expected the certificate of home {home_id}, found home {found_id}'s", hint=_OTHER)


class RevocationWatch:
    """Tells when another list of revoked certificates was put into `folder`: then sessions end and come in anew."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, REVOKED) if folder else ""
        self._seen = self._stamp()
        self._next = 0.0

    def changed(self, now: float) -> bool:
        """Whether it is another one than at first; the disk is asked once a second. `now` is monotonic."""
        if not self._path or now < self._next:
            return False
        self._next = now + LOOK_SECONDS
        return self._stamp() != self._seen

    def _stamp(self) -> tuple[int, ...]:
        try:
            found = os.stat(self._path)
        except OSError:
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns


# --- what went wrong --------------------------------------------------------------------------------------------------

_CLOCKS = "Compare the clocks of the two hosts"
_RENEW = "RENEW CERTIFICATES in the home that keeps the CA's key; INFO CERTIFICATES shows the dates"
_ONE_CA = "Both homes need certificates of one CA: CREATE CERTIFICATES, PEER folder in the home that keeps its key"
_NAMES = "RENEW CERTIFICATES, PEER folder, HOSTS 'names' for that home, or use a name of its certificate in RMTHOST"
_BOTH = "Give NOTLS at both ends (RMTHOST of the pump, mgr.prm of the remote home) or at none"
_NO_HOME = (
    "An older release made it: RENEW CERTIFICATES in the home that keeps the CA's key; for a home elsewhere with PEER "
    "folder, HOMEID id (as INFO CERTIFICATES there shows)"
)
_OTHER = (
    "A copied home needs a certificate of its own: remove home.crt and home.key of its dircrd/tls, and CREATE "
    "CERTIFICATES where the CA's key is"
)
_NEW_KEYS = (
    "To let that home in again, remove home.crt and home.key of its dircrd/tls, then CREATE CERTIFICATES for it where "
    "the CA's key is"
)
_LIST = f"Copy {REVOKED} of the home that keeps the CA's key into dircrd/tls, or remove it here if that home has none"

# OpenSSL's verify codes -> what they mean of the peer's certificate, and what to do.
_VERIFY: Final = {
    3: (f"can't be checked: {REVOKED} here is not of its CA", _LIST),
    8: (f"can't be checked: {REVOKED} here is not signed by its CA", _LIST),
    9: ("is not valid yet", _CLOCKS),
    10: ("has expired", _RENEW),
    11: (f"can't be checked: {REVOKED} here is not valid yet", _CLOCKS),
    12: (f"can't be checked: {REVOKED} here has ended", _LIST),
    18: ("is of another CA", _ONE_CA),
    19: ("is of another CA", _ONE_CA),
    20: ("is of another CA", _ONE_CA),
    21: ("is of another CA", _ONE_CA),
    23: (f"was revoked ({REVOKED} here says so)", _NEW_KEYS),
    62: ("is for other host names", _NAMES),
    64: ("is for other addresses", _NAMES),
}

# Parts of OpenSSL's reason when the peer sent an alert about ours.
_ALERTS: Final = {
    "CERTIFICATE_EXPIRED": ("it has expired", _RENEW),
    "UNKNOWN_CA": ("it is of another CA", _ONE_CA),
    "BAD_CERTIFICATE": ("it is not for the name that was asked for, or not valid yet", f"{_NAMES}. {_CLOCKS}"),
    "CERTIFICATE_REQUIRED": ("none was shown", CREATE_HINT),
    "CERTIFICATE_REVOKED": ("it was revoked", _NEW_KEYS),
    "CERTIFICATE_UNKNOWN": ("it can't be used", _ONE_CA),
}
_PLAIN: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "PACKET_LENGTH_TOO_LONG",
                 "RECORD_LAYER_FAILURE", "UNEXPECTED_MESSAGE")  # fmt: skip
_OLD: Final = ("UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE", "TLSV1_ALERT_PROTOCOL_VERSION")


def is_plain(error: ssl.SSLError) -> bool:
    """Whether what came in place of a handshake was no TLS, and may be a text to be read."""
    return _reason(error) in _PLAIN


def _reason(error: ssl.SSLError) -> str:
    """OpenSSL's word for it. An error that Python makes by itself, of a socket that is gone, has no such field."""
    return getattr(error, "reason", None) or ""


def explain(error: ssl.SSLError, who: str, *, trusted: bool = False) -> GateError:
    """The one clear message for a TLS error.

    `trusted`: the peer's certificate was checked before this, so its alert about ours is its own word: OperatorError.
    All else may come from anybody on the way: UntrustedError if it looks like a wrong set-up, AwayError for a cut link.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        what, hint = _VERIFY.get(error.verify_code, (f"is refused: {error.verify_message}", _ONE_CA))
        detail = f" ({error.verify_message})" if error.verify_code in (62, 64) else ""
        return UntrustedError(f"{who}: its certificate {what}{detail}", hint=hint)
    reason = _reason(error)
    for part, (what, hint) in _ALERTS.items():
        if "ALERT" in reason and reason.endswith(part):
            kind = OperatorError if trusted else UntrustedError
            return kind(f"{who} refused our certificate: {what}", hint=hint)
    if not trusted and (found := _no_handshake(reason, who)) is not None:
        return found
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return AwayError(f"{who} closed the link")
    return AwayError(f"{who}: the link is lost: TLS: {reason or error.strerror or error}")


def _no_handshake(reason: str, who: str) -> UntrustedError | None:
    """What stands in a handshake's way before any certificate was looked at."""
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return UntrustedError(f"{who} showed no certificate", hint=_ONE_CA)
    if reason in _OLD:
        return UntrustedError(f"{who} does not talk TLS 1.3", hint=SAME_RELEASE)
    if reason in _PLAIN:
        return UntrustedError(f"{who} does not talk TLS, and we do", hint=_BOTH)
    return None
