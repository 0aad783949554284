"""A database server's URL with the options of TLS, and a socket to it: for drivers that take no URL themselves.

    scheme://user[:password]@host[:port]/database[?ssl_ca=file&ssl_mode=verify_ca]
    scheme:///database?unix_socket=/path&user=name

Rule: how a link is secured is read here, once for sources and targets, so the same URL never means two things.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from trails.errors import OperatorError
from trails.keepalive import keep_alive

DIAL_SECONDS: Final = 10.0
_OPTIONS: Final = ("unix_socket", "user", "password", "ssl_ca", "ssl_cert", "ssl_key", "ssl_mode")
# As the servers' own clients name them: off, TLS if the server has it, TLS to whoever answers, a server with the CA's
# certificate, and one for the host's name too.
_VERIFYING: Final = ("verify_ca", "verify_identity")
_MODES: Final = ("disabled", "preferred", "required", *_VERIFYING)


@dataclass(frozen=True, slots=True)
class ServerUrl:
    """Where and as whom. `keyword`: where the URL stands in a parameter file, for messages."""

    database: str
    host: str = "localhost"
    port: int = 0
    user: str = ""
    password: str = field(default="", repr=False)
    unix_socket: str = ""
    ssl_ca: str = ""
    ssl_cert: str = ""
    ssl_key: str = ""
    ssl_mode: str = ""
    keyword: str = field(default="", compare=False)

    @property
    def mode(self) -> str:
        """How the link is secured: by ssl_mode; without it the host is verified where ssl_ca says by what."""
        if self.unix_socket:
            return "disabled"
        return self.ssl_mode or ("verify_identity" if self.ssl_ca else "required" if self.ssl_cert else "preferred")

    @property
    def verifies(self) -> bool:
        """Whether the server must prove who it is."""
        return self.mode in _VERIFYING

    @property
    def insists(self) -> bool:
        """Whether a server without TLS is refused."""
        return self.mode not in ("disabled", "preferred")

    def context(self) -> ssl.SSLContext | None:
        """For TLS where the server has it; None where the link has none. Raises OperatorError for files of no use."""
        if self.mode == "disabled":
            return None
        try:
            if self.verifies or self.ssl_ca:  # a file that is named is read: if it is of no use, that is told
                made = ssl.create_default_context(cafile=self.ssl_ca or None)
            else:  # the machine's list of authorities, which takes 20 ms to read, would be asked nothing
                made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            made.verify_flags &= ~ssl.VERIFY_X509_STRICT  # certificates that the server made for itself don't pass that
            made.check_hostname = self.mode == "verify_identity"
            made.verify_mode = ssl.CERT_REQUIRED if self.verifies else ssl.CERT_NONE
            if self.ssl_cert:
                made.load_cert_chain(self.ssl_cert, self.ssl_key or None)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(filter(None, (self.ssl_ca, self.ssl_cert, self.ssl_key)))
            raise OperatorError(
                f"{self.keyword}: {files} can't be used for TLS: {error}",
                hint="Name PEM files that this user can read in ssl_ca, ssl_cert, ssl_key",
            ) from None
        return made

    @classmethod
    def of(cls, url: str, keyword: str, scheme: str, port: int, *, needs_database: bool = True) -> Self:
        """Of a URL that names one database, or perhaps none. Raises OperatorError for any other."""
        place = f"database, or {scheme}:///database"
        expected = f"{scheme}://user@host:port/{place}?unix_socket=/path&user=name"
        try:
            parts = urlsplit(url)
            port = parts.port or port
        except ValueError as error:
            raise OperatorError(f"{keyword}: {error}", hint=f"Expected {expected}") from None
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = [name for name in options if name not in _OPTIONS]
        database = unquote(parts.path[1:])
        if unknown or "/" in database or (needs_database and not database):
            what = f"unknown option {unknown[0]}" if unknown else "one database is needed"
            raise OperatorError(f"{keyword}: {what}", hint=f"Expected {expected}; options are {', '.join(_OPTIONS)}")
        return cls(
            database, unquote(parts.hostname or "localhost"), 0 if options.get("unix_socket") else port,
            unquote(parts.username or "") or options.get("user", ""),
            unquote(parts.password or "") or options.get("password", ""),
            options.get("unix_socket", ""), options.get("ssl_ca", ""), options.get("ssl_cert", ""),
            options.get("ssl_key", ""), _mode(options, keyword), keyword,
        )  # fmt: skip

    def dial(self) -> socket.socket:
        """A socket that finds out within a minute that the other host is gone without a word.

        Raises OSError; OperatorError for what is no host's name.
        """
        if self.unix_socket:
            local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                local.settimeout(DIAL_SECONDS)
                local.connect(self.unix_socket)
            except BaseException:
                local.close()
                raise
            return local
        try:
            sock = socket.create_connection((self.host, self.port), DIAL_SECONDS)
        except UnicodeError as error:
            raise OperatorError(
                f"{self.keyword}: {self.host!r:.80} is no host's name: {error}", hint="Mend the host in the URL"
            ) from None
        keep_alive(sock, idle=30, every=10)
        return sock


def _mode(options: Mapping[str, str], keyword: str) -> str:
    mode = options.get("ssl_mode", "").lower()
    if mode and mode not in _MODES:
        raise OperatorError(f"{keyword}: unknown ssl_mode {mode!r:.40}", hint=f"Expected one of {', '.join(_MODES)}")
    return mode
