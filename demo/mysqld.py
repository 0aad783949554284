"""What the embedded servers of MariaDB and MySQL have in common: one program, one client protocol.

Rule: a server reads no settings of the machine (--no-defaults), listens on loopback and a unix socket in its base, and
says who it is by its class alone: the program, how data is made, and what differs in its settings.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import quote

from demo.embedded import EmbeddedServer, ServerError, account, give, new_base, processes_in, template
from demo.patience import PATIENCE
from demo.ports import free_port

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
_BINLOG: dict[str, object] = {
    "log-bin": "binlog",
    "server-id": 1,
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
}


class Mysqld(EmbeddedServer):
    """A server that speaks the protocol of MySQL; its subclasses say which it is."""

    NAME: ClassVar[str]
    SETTINGS: ClassVar[dict[str, object]] = {}
    """What this server has above the settings that both have."""
    BINLOG: ClassVar[dict[str, object]] = _BINLOG
    """Options for a server that is a source: a binary log as Trailgate wants it."""

    def __init__(self, *, options: Mapping[str, object] | None = None) -> None:
        """`options` are settings above the defaults; None takes one away."""
        self.program = self.find_server()
        self.options: dict[str, object] = _DEFAULTS | self.SETTINGS | dict(options or {})
        self.port = free_port()
        # In memory InnoDB would map its log, as if that memory were lasting: then no kill loses a commit.
        self.base = new_base(None, on_disk=True)
        self._take_data(template(f"{self.NAME.lower()}-{self.program.stat().st_size}", self._install))
        for name in ("s", "tmp"):
            (self.base / name).mkdir(mode=0o700)
            give(self.base / name)

    @classmethod
    def find_server(cls) -> Path:
        """Where the program is; ServerError says in one line what to do where it is not."""
        raise NotImplementedError

    def _install(self, data: Path) -> None:
        """Make a data directory whose root needs no password."""
        raise NotImplementedError

    @property
    def socket(self) -> Path:
        """The unix socket."""
        return self.base / "s" / "s"

    @property
    def running(self) -> bool:
        """Whether the server lives."""
        return self._process is not None and self._process.poll() is None

    def url(self, database: str, *, tcp: bool = True, user: str = "root", password: str = "") -> str:
        """A URL for SOURCEDB and TARGETDB."""
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

    def end_sessions(self, where: str) -> None:
        """KILL the sessions of the process list that `where` chooses, again and again, until all of them are gone.

        One connection does all of it: the last one's own end would be a session of the next.
        """
        import pymysql

        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            chosen = f"SELECT id FROM information_schema.processlist WHERE id <> connection_id() AND {where}"
            while cursor.execute(chosen):
                for (number,) in cursor.fetchall():
                    with contextlib.suppress(pymysql.MySQLError):  # it may be gone by now
                        cursor.execute(f"KILL {number}")
                time.sleep(0.01)

    def start(self, timeout: float = PATIENCE) -> Self:
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
        raise ServerError(f"{self.NAME} was not ready in time:\n{said}")
