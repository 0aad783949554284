"""A real MariaDB server for the tests and the benchmarks, from the binaries of Debian's mariadb-server package.

    with MariaServer() as server:
        server.sql("CREATE DATABASE shop")
        server.url("shop")                 # for TARGETDB, over TCP; url("shop", tcp=False) over the socket

It reads no settings of the machine (--no-defaults).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from demo.embedded import EmbeddedServer, ServerError, account, give, new_base, processes_in, run, template
from demo.ports import free_port

MISSING = "MariaDB is not installed: run make setup, or apt-get install mariadb-server (its service may stay stopped)"
_SERVERS = ("/usr/sbin/mariadbd", "/usr/local/sbin/mariadbd", "/usr/libexec/mariadbd")
_DEFAULTS: dict[str, object] = {
    "bind-address": "127.0.0.1",
    "skip-name-resolve": "1",
    "character-set-server": "utf8mb4",
    "innodb-buffer-pool-size": "96M",
    "innodb-log-file-size": "64M",
    "innodb-use-native-aio": "0",
    "innodb-flush-log-at-trx-commit": "1",
    "local-infile": "1",
    "max-allowed-packet": "16M",
}


def find_server() -> Path:
    """Where mariadbd is; ServerError says in one line what to do where it is not."""
    found = shutil.which("mariadbd") or next((path for path in _SERVERS if os.access(path, os.X_OK)), None)
    if found is None or shutil.which("mariadb-install-db") is None:
        raise ServerError(MISSING)
    return Path(found)


class MariaServer(EmbeddedServer):
    """See EmbeddedServer."""

    def __init__(self, *, options: Mapping[str, object] | None = None) -> None:
        """`options` are settings above the defaults here."""
        self.program = find_server()
        self.options = _DEFAULTS | dict(options or {})
        self.port = free_port()
        self.base = new_base(None)
        self._take_data(template(f"mariadb-{self.program.stat().st_size}", _install))
        for name in ("s", "tmp"):
            (self.base / name).mkdir(mode=0o700)
            give(self.base / name)

    @property
    def socket(self) -> Path:
        """The unix socket."""
        return self.base / "s" / "s"

    @property
    def running(self) -> bool:
        """Whether the server lives."""
        return self._process is not None and self._process.poll() is None

    def url(self, database: str, *, tcp: bool = True, user: str = "root", password: str = "") -> str:
        """A URL for TARGETDB."""
        login = quote(user, safe="") + (":" + quote(password, safe="") if password else "")
        if tcp:
            return f"mysql://{login}@127.0.0.1:{self.port}/{quote(database, safe='')}"
        return f"mysql:///{quote(database, safe='')}?unix_socket={quote(str(self.socket))}&user={quote(user)}"

    def connect(self, database: str | None = None, **more: Any) -> Any:
        """A driver's connection in autocommit: values as the server's text, strict SQL mode, UTC."""
        import pymysql
        from pymysql.converters import encoders

        options: dict[str, Any] = {
            "user": "root",
            "charset": "utf8mb4",
            "autocommit": True,
            "conv": dict(encoders),
            "ssl_disabled": True,
        } | more
        connection = pymysql.connect(unix_socket=str(self.socket), database=database, **options)
        with connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00', sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES,STRICT_ALL_TABLES')")
        return connection

    def sql(self, statement: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Run one statement in its own connection; every value is text, bytes or None."""
        connection = self.connect(database)
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall()) if cursor.description else []
        finally:
            connection.close()

    def start(self, timeout: float = 60.0) -> Self:
        """Start and wait until connections are accepted (crash recovery included)."""
        if self.running:
            return self
        fixed = {
            "datadir": self.data, "socket": self.socket, "port": self.port, "pid-file": self.base / "s" / "pid",
            "tmpdir": self.base / "tmp", "user": "nobody" if account() else None,
        }  # fmt: skip
        settings = [f"--{name}={value}" for name, value in (fixed | self.options).items() if value is not None]
        process = self._spawn(self.program, "--no-defaults", *settings)
        self._start_guard(process.pid)
        self._wait_ready(timeout)
        return self

    def kill(self) -> None:
        """SIGKILL: what was not synced is lost with the process, as far as a process can lose it."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop in order."""
        self._end(signal.SIGTERM)

    def close(self) -> None:
        """Stop and remove everything."""
        self.kill()
        shutil.rmtree(self.base, ignore_errors=True)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._dismiss_guard()
        assert not processes_in(self.data)

    def _wait_ready(self, timeout: float) -> None:
        import pymysql

        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and self.running:
            try:
                self.connect().close()
                return
            except pymysql.MySQLError:
                time.sleep(0.02)
        said = self._log_tail()
        self.kill()
        raise ServerError(f"MariaDB was not ready in time:\n{said}")


def _install(data: Path) -> None:
    user = ["--user=nobody"] if account() else []
    how = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
    run(["mariadb-install-db", "--no-defaults", f"--datadir={data}", *user, *how])
