"""A real MariaDB server for the tests and the benchmarks, from the binaries of Debian's mariadb-server package.

    with MariaServer() as server:
        server.sql("CREATE DATABASE shop")
        server.url("shop")                 # for TARGETDB, over TCP; url("shop", tcp=False) over the socket

It reads no settings of the machine (--no-defaults), lives in one private directory, and dies with the process that
started it, even by SIGKILL: the same guard as that of the PostgreSQL servers watches it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from demo.servers import (
    _GUARD,
    ServerError,
    _account,
    _cache,
    _free_port,
    _give,
    _new_base,
    _run,
    _spawn_options,
    processes_in,
)

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


class MariaServer:
    """One server: made at construction, started by start() or `with`, gone after close()."""

    def __init__(self, *, options: Mapping[str, object] | None = None) -> None:
        """`options` are settings above the defaults here."""
        self.program = find_server()
        self.options = _DEFAULTS | dict(options or {})
        self.port = _free_port()
        self.base = _new_base(None)
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        subprocess.run(["cp", "-a", str(_template(self.program)), str(self.data)], check=True)
        for name in ("s", "tmp"):
            (self.base / name).mkdir(mode=0o700)
            _give(self.base / name)

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.base / "data"

    @property
    def socket(self) -> Path:
        """The unix socket."""
        return self.base / "s" / "s"

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.base / "server.log"

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
            "tmpdir": self.base / "tmp", "user": "nobody" if _account() else None,
        }  # fmt: skip
        settings = [f"--{name}={value}" for name, value in (fixed | self.options).items() if value is not None]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(self.program), "--no-defaults", *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **_spawn_options(),
            )
        self._start_guard(self._process.pid)
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

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.communicate(b"done\n", timeout=10)
        assert not processes_in(self.data)

    def _start_guard(self, pid: int) -> None:
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", str(pid), str(self.data), str(self.base)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )

    def _wait_ready(self, timeout: float) -> None:
        import pymysql

        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and self.running:
            try:
                self.connect().close()
                return
            except pymysql.MySQLError:
                time.sleep(0.02)
        said = self.log.read_text(errors="replace").splitlines()[-8:]
        self.kill()
        raise ServerError("MariaDB was not ready in time:\n" + "\n".join(said))


def _template(program: Path) -> Path:
    """A fresh data directory to copy; making one takes seconds."""
    account = _account()
    owner = os.geteuid() if account is None else account[0]
    with _cache() as root:
        template = root / f"mariadb-{program.stat().st_size}-{owner}"
        if not template.exists():
            unfinished = Path(tempfile.mkdtemp(dir=root))
            _give(unfinished)
            user = ["--user=nobody"] if account else []
            how = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
            _run(["mariadb-install-db", "--no-defaults", f"--datadir={unfinished}", *user, *how])
            unfinished.rename(template)
    return template
