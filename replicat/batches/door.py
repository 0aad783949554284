"""Where a driver waits for the tasks of one job: at a unix socket in a private folder, or over TLS from other hosts.

Rule: who has connected is nobody until it has shown the job's secret. Over TLS it knows the driver by a certificate
that was made for this one job. Both travel in the job itself, so over a Spark that seals what it sends (`seals`).
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
import socket
import ssl
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from replicat.work.orders import Summons, kept_alive

LOOK_SECONDS: Final = 0.05
_BACKLOG: Final = 64
_AUTHENTICATED: Final = "spark.authenticate"
_SEALED: Final = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")


def seals(options: Iterable[tuple[str, str]]) -> bool:
    """Whether a Spark with these options lets only its own in, and nobody else read what it sends to its executors."""
    on = {name for name, value in options if value.strip().lower() == "true"}
    return _AUTHENTICATED in on and not on.isdisjoint(_SEALED)


@dataclass(frozen=True, slots=True)
class Door:
    """An open one, until close()."""

    call: Summons
    """What the tasks are told."""
    _socket: socket.socket
    _room: str
    _tls: ssl.SSLContext | None = None

    @classmethod
    def here(cls, folder: str) -> Door:
        """For tasks of this host. `folder`: private; an address in it is the job's own."""
        room = tempfile.mkdtemp(prefix="orders-", dir=folder)
        door = cls(Summons(os.path.join(room, "s")), socket.socket(socket.AF_UNIX), room)
        try:
            door._socket.bind(door.call.address)
            door._listen()
        except BaseException:
            door.close()
            raise
        return door

    @classmethod
    def abroad(cls, folder: str, host: str, bind: str) -> Door:
        """For tasks of any host, which find this one as `host`; at a free port of the address `bind`."""
        room = tempfile.mkdtemp(prefix="orders-", dir=folder)
        listener = None
        try:
            certificate, tls = _own_certificate(os.path.join(room, "k"))
            family = socket.AF_INET6 if ":" in bind else socket.AF_INET
            listener = socket.create_server((bind, 0), family=family)
            port = listener.getsockname()[1]
            door = cls(Summons(f"{host}:{port}", certificate=certificate), listener, room, tls)
            door._listen()
        except BaseException:
            if listener is not None:
                listener.close()
            shutil.rmtree(room, ignore_errors=True)
            raise
        return door

    def accept(self) -> socket.socket:
        """Whoever has connected. Raises TimeoutError where nobody has for a moment, and OSError."""
        end, _ = self._socket.accept()
        return end

    def welcome(self, end: socket.socket, seconds: float) -> socket.socket:
        """Its link, on which each part of a message may take so long. Raises OSError.

        TLS shakes hands with the first message: this comes back at once, with the socket that can be shut meanwhile.
        """
        end.settimeout(seconds)
        if self._tls is None:
            return end
        kept_alive(end)
        return self._tls.wrap_socket(end, server_side=True, do_handshake_on_connect=False)

    def close(self) -> None:
        """Nobody comes in any more."""
        self._socket.close()
        shutil.rmtree(self._room, ignore_errors=True)

    def _listen(self) -> None:
        self._socket.listen(_BACKLOG)
        self._socket.settimeout(LOOK_SECONDS)


def _own_certificate(path: str) -> tuple[str, ssl.SSLContext]:
    """A certificate of nobody's but this job's, and a server's end of TLS with it. Its key is in a private file for a
    moment, as Python reads it from nowhere else. It has no time in it that a host with another clock could miss.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Trailgate Replicat")])
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(dt.datetime(2000, 1, 1)).not_valid_after(dt.datetime(9999, 12, 31))  # noqa: DTZ001  -- UTC
        .sign(key, SHA256())
    )  # fmt: skip
    certificate = made.public_bytes(Encoding.PEM)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(certificate + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    try:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.minimum_version = ssl.TLSVersion.TLSv1_3
        tls.load_cert_chain(path)
    finally:
        os.unlink(path)
    return certificate.decode("ascii"), tls
