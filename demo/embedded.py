"""What the embedded servers have in common: the account, the base directory, the cache, and the guard.

Rule: a server lives in one directory (its base) and dies with the process that started it, even by SIGKILL.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from demo.patience import PATIENCE

BASE_PREFIX = "tg-"
"""Private bases are named tg-<pid of the starter>-<random>: whoever looks for leftovers can tell whose they are."""

BASES = "TRAILGATE_BASES"
"""Names a folder for private bases, such as one in memory. By default they are in the temporary directory."""

_SOCKET_PATH_MAX = 107  # sun_path of Linux, without the closing zero
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
    """A server can't be found, made, started or stopped."""


# --- the account that runs the server -------------------------------------------------------------------------------


def account() -> tuple[int, int] | None:
    """(uid, gid) for the server when we are root: servers refuse to run as root, nobody is on every system."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("nobody")
    return entry.pw_uid, entry.pw_gid


def spawn_options() -> dict[str, Any]:
    """What every subprocess of ours needs: the account, a directory it may enter, no PG* of the caller."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_", "LANG", "LD_"))}
    options: dict[str, Any] = {"cwd": "/", "env": env | {"LC_ALL": "C"}}
    if owner := account():
        options |= {"user": owner[0], "group": owner[1], "extra_groups": []}
    return options


def run(args: list[str | Path], text: str = "") -> None:
    """Run a server's tool as the server's account; its output is the error."""
    done = subprocess.run(
        [str(a) for a in args], input=text, capture_output=True, text=True, check=False, **spawn_options()
    )
    if done.returncode != 0:
        raise ServerError(f"{Path(args[0]).name} failed ({done.returncode}): {(done.stderr or done.stdout).strip()}")


def give(path: Path) -> None:
    """Make the server's account the owner of a new directory."""
    if owner := account():
        os.chown(path, *owner)


def is_reachable(path: Path) -> bool:
    """Whether the server's account can enter a directory: all of the way must be open to others."""
    return account() is None or all(p.stat().st_mode & 0o001 for p in (path, *path.parents))


def temp_root() -> Path:
    """Where bases and caches go: the temporary directory, /tmp where that is too long for a socket or closed."""
    root = Path(tempfile.gettempdir())
    return root if len(str(root)) <= 40 and is_reachable(root) else Path("/tmp")


# --- what is made once per machine ----------------------------------------------------------------------------------


@contextmanager
def cache() -> Iterator[Path]:
    """The directory of what is made once per machine, locked. It must be ours: anybody could have made it."""
    root = temp_root() / f"trailgate-postgres-{os.geteuid()}"
    own(root)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield root


def own(folder: Path) -> None:
    """Make a folder where everybody may write, or find it made by us, open to others for reading."""
    folder.mkdir(mode=0o755, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        raise ServerError(f"{folder} belongs to somebody else: remove it")
    folder.chmod(0o755)


def template(name: str, make: Callable[[Path], None]) -> Path:
    """A fresh data directory to copy: making one takes seconds, a copy a tenth of one."""
    owner = account()
    with cache() as root:
        made = root / f"{name}-{os.geteuid() if owner is None else owner[0]}"
        if not made.exists():
            unfinished = Path(tempfile.mkdtemp(dir=root))
            give(unfinished)
            make(unfinished)
            unfinished.rename(made)
    return made


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


# --- a server ---------------------------------------------------------------------------------------------------------


def new_base(base: Path | str | None, *, on_disk: bool = False) -> Path:
    """The directory for a new server. One with anything in it is refused: close() will remove it whole.

    `on_disk`: whatever BASES says, a new one is in the temporary directory.
    """
    if base is None:
        folder = temp_root() if on_disk else os.environ.get(BASES) or temp_root()
        path = Path(tempfile.mkdtemp(prefix=f"{BASE_PREFIX}{os.getpid()}-", dir=folder))
    else:
        path = Path(base)
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise ServerError(f"{path} is not empty: name a new directory, or open() a kept server")
    path = path.resolve()
    path.chmod(0o711)
    if not is_reachable(path):
        raise ServerError(f"the account of the server (nobody) can't enter {path}: name a directory open to others")
    if len(f"{path}/s/.s.PGSQL.65535.lock") > _SOCKET_PATH_MAX:
        raise ServerError(f"{path} is too long for a unix socket: name a shorter directory")
    return path


def read_lines(path: Path) -> list[str]:
    """The lines of a file that may be missing."""
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


class EmbeddedServer:
    """One server of some kind, in its base: made at construction, started by start() or `with`, gone after close()."""

    base: Path
    _process: subprocess.Popen[bytes] | None = None
    _guard: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.base / "data"

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.base / "server.log"

    def start(self, timeout: float = PATIENCE) -> Self:
        """Start and wait until connections are accepted (crash recovery included)."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop and remove everything."""
        raise NotImplementedError

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

    # --- for those who say how a server of their kind runs ---

    def _take_data(self, template_: Path) -> None:
        """The data directory is a copy of the template's."""
        subprocess.run(["cp", "-a", str(template_), str(self.data)], check=True)

    def _spawn(self, *command: object) -> subprocess.Popen[bytes]:
        """Run the server's program; what it says goes into the log."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C at the terminal is for us, not for the server
                **spawn_options(),
            )
        return self._process

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

    def _log_tail(self) -> str:
        """The end of the log, for an error message."""
        return "\n".join(read_lines(self.log)[-8:])
