"""A whole pipeline between two databases, built and run as a user does it: parameter files, and commands for ggsci.

    with Pipeline(folder, source_url, target_url) as pipeline:
        pipeline.create()
        pipeline.start()
        ...
        pipeline.wait_until_equal(["shop"])

Rule: all is done by commands of ggsci, so what works here works by hand; those that only look and are given again and
again run in this very process (Host.look). Demo, end-to-end tests and benchmarks share it.
The homes stay in `folder`; every process is gone after close(), and after the death of whoever made the pipeline.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from demo.compare import Comparison, compare_all, digests, tables_of
from demo.guard import Guard, end_now
from demo.patience import PATIENCE, WaitError, wait_for
from demo.ports import free_ports
from ggsci.commands.session import OperatorSession

COMMAND_SECONDS = 180.0
_COLLECTOR_PORTS = 10


class PipelineError(RuntimeError):
    """A command failed, or something did not come about in time."""


def ggsci_process(command: Sequence[str], **how: Any) -> subprocess.CompletedProcess[str]:
    """A process of ggsci from its start to its end. Tests, which need thousands, put a quicker way in its place."""
    return subprocess.run(command, capture_output=True, text=True, check=False, **how)


@dataclass(frozen=True, slots=True)
class Result:
    """What ggsci said."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """All of it."""
        return self.out + self.err


@dataclass(frozen=True, slots=True)
class Host:
    """One side: a home, its Manager's port, and the environment of what runs there."""

    home: Path
    port: int
    environment: Mapping[str, str] = field(repr=False)
    prefix: tuple[str, ...] = ()

    def run(self, *lines: str, check: bool = True, timeout: float = COMMAND_SECONDS) -> Result:
        """Give a script to ggsci. Raises PipelineError if a command fails, unless `check` is False."""
        done = ggsci_process(
            [*self.prefix, sys.executable, "-P", "-m", "ggsci", "--home", str(self.home)],
            input="\n".join(lines) + "\n", timeout=timeout, env=dict(self.environment), cwd=self.home,
        )  # fmt: skip
        result = Result(done.returncode, done.stdout, done.stderr)
        if check and done.returncode != 0:
            raise PipelineError(f"ggsci in {self.home} failed ({done.returncode}):\n{result.text}")
        return result

    def look(self, line: str) -> Result:
        """One command that only looks: a shell of ggsci in this process takes a hundredth of what a process takes."""
        out, err = io.StringIO(), io.StringIO()
        good = OperatorSession(str(self.home), out=out, err=err).run(line)
        return Result(0 if good else 1, out.getvalue(), err.getvalue())

    def json(self, line: str) -> Any:
        """The answer of one list command."""
        found = self.look(f"{line} --json")
        if found.code != 0:
            raise PipelineError(f"ggsci in {self.home} failed: {line}\n{found.text}")
        return json.loads(found.out)

    def at_end(self, group: str) -> bool:
        """Whether a running group has handled all that waits for it (SEND ..., LOGEND)."""
        return "YES" in self.look(f"SEND {group}, LOGEND").out

    def info(self, group: str) -> dict[str, Any]:
        """INFO of one group, with its last checkpoint."""
        found: dict[str, Any] = self.json(f"INFO {group}")[0]
        return found

    def statuses(self) -> dict[str, dict[str, Any]]:
        """What INFO ALL tells, by group; the Manager's under MGR."""
        found = self.json("INFO ALL")
        return {"MGR": found["manager"], **{group["group"]: group for group in found["groups"]}}

    def params(self, name: str, *lines: str) -> None:
        """Write a parameter file."""
        folder = self.home / "dirprm"
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / f"{name.lower()}.prm"
        path.touch(mode=0o600)
        path.write_text("\n".join(lines) + "\n")

    def report(self, group: str) -> str:
        """VIEW REPORT."""
        return self.look(f"VIEW REPORT {group}").out


@dataclass(frozen=True, slots=True)
class Options:
    """What may differ between pipelines."""

    tables: Sequence[str] = ("shop.*",)
    megabytes: int = 100
    remote_host: str = "127.0.0.1"
    pump: Sequence[str] = ("PASSTHRU",)
    extract: Sequence[str] = ()
    replicat: Sequence[str] = ()
    restart_seconds: int | None = 1
    timeout: int = 5
    tls: bool = True
    checkpoint_seconds: int = 10
    purge_seconds: int = 0
    manager: Sequence[str] = ()
    checkpoint_table: str = "gate.checkpoint"
    prefixes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What a side's ggsci is run by, and so all that it starts: `source` or `target` to words such as ip netns exec."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What its processes have in their environment beside all else."""


class Pipeline:
    """EXT1, PMP1 and REP1 in two homes below one folder."""

    def __init__(
        self,
        folder: Path,
        source_url: str,
        target_url: str,
        options: Options = Options(),
        *,
        servers: Sequence[Path] = (),
    ) -> None:
        self.folder = folder
        self.source_url = source_url
        self.target_url = target_url
        self.options = options
        self.guard = Guard(servers)
        ports = free_ports(_COLLECTOR_PORTS + 2)
        self.source = self._host("source", ports[0])
        self.target = self._host("target", ports[1])
        self.collector_ports = (ports[2], ports[-1])

    def _host(self, name: str, port: int) -> Host:
        home = self.folder / name
        home.mkdir(parents=True, exist_ok=True)
        environment = self.guard.environment | dict(self.options.environment)
        return Host(home.resolve(), port, environment, self.options.prefixes.get(name, ()))

    # --- setting up ---

    def create(self) -> None:
        """Make both homes and their certificates, the parameter files, slot, checkpoint table, groups and trails."""
        self.make_homes()
        self.write_params()
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(self.create_source), pool.submit(self._create_target)]:
                done.result()

    def make_homes(self) -> None:
        """Both homes, and certificates for the link between them."""
        self.target.run("CREATE SUBDIRS")
        names = f"PEER '{self.target.home}', HOSTS '{self.options.remote_host}'"
        self.source.run("CREATE SUBDIRS", f"CREATE CERTIFICATES, {names}")

    def create_source(self) -> None:
        """The source's groups and trails, in a home that is made and has its parameter files."""
        megabytes = f"MEGABYTES {self.options.megabytes}"
        self.source.run(
            f"DBLOGIN SOURCEDB {self.source_url}",
            *[f"ADD TRANDATA {table}" for table in self.options.tables],
            "ADD EXTRACT EXT1, TRANLOG, BEGIN NOW",
            f"ADD EXTTRAIL ./dirdat/lt, EXTRACT EXT1, {megabytes}",
            "REGISTER EXTRACT EXT1, DATABASE",
            "ADD EXTRACT PMP1, EXTTRAILSOURCE ./dirdat/lt",
            f"ADD RMTTRAIL ./dirdat/rt, EXTRACT PMP1, {megabytes}",
        )

    def _create_target(self) -> None:
        self.target.run(
            f"DBLOGIN TARGETDB {self.target_url}", "ADD CHECKPOINTTABLE", "ADD REPLICAT REP1, EXTTRAIL ./dirdat/rt"
        )

    def write_params(self) -> None:
        """Write every parameter file; also to put them right again after a test of wrong ones."""
        options = self.options
        seconds = f"CHECKPOINTSECS {options.checkpoint_seconds}"
        tables = [f"TABLE {table};" for table in options.tables]
        maps = [f"MAP {table}, TARGET {table};" for table in options.tables]
        self.source.params("mgr", f"PORT {self.source.port}", *self._manager())
        self.source.params(
            "EXT1",
            "EXTRACT EXT1",
            f"SOURCEDB {self.source_url}",
            "EXTTRAIL ./dirdat/lt",
            seconds,
            *options.extract,
            *tables,
        )
        self.source.params(
            "PMP1",
            "EXTRACT PMP1",
            f"RMTHOST {options.remote_host}, MGRPORT {self.target.port}, TIMEOUT {options.timeout}"
            f"{'' if options.tls else ', NOTLS'}",
            "RETRYDELAY 1",
            "RMTTRAIL ./dirdat/rt",
            seconds,
            *options.pump,
        )
        first, last = self.collector_ports
        self.target.params("mgr", f"PORT {self.target.port}", f"DYNAMICPORTLIST {first}-{last}", *self._manager())
        self.target.params("REP1", "REPLICAT REP1", f"TARGETDB {self.target_url}", seconds, *options.replicat, *maps)
        (self.target.home / "GLOBALS").write_text(f"CHECKPOINTTABLE {options.checkpoint_table}\n")

    def _manager(self) -> list[str]:
        lines = [*self.options.manager, *([] if self.options.tls else ["NOTLS"])]
        if self.options.restart_seconds is not None:
            lines += [f"AUTORESTART ER *, RETRIES 1000, WAITSECONDS {self.options.restart_seconds}"]
        if self.options.purge_seconds:
            lines += ["PURGEOLDEXTRACTS ./dirdat/*, USECHECKPOINTS, MINKEEPFILES 1"]
            lines += [f"CHECKSECONDS {self.options.purge_seconds}"]
        return lines

    # --- running ---

    def start(self) -> None:
        """Start both Managers and all groups, unless all run; returns once each runs."""
        if self.all_run():
            return
        with ThreadPoolExecutor(2) as pool:
            started = [pool.submit(host.run, "START MANAGER", "START ER *") for host in (self.source, self.target)]
            for done in started:
                done.result()
        self.wait_running()

    def stop(self) -> None:
        """Stop all groups in order, then both Managers."""
        self.source.run("STOP ER *", "STOP MANAGER!")
        self.target.run("STOP ER *", "STOP MANAGER!")

    def close(self, *stops: Callable[[], None]) -> list[str]:
        """Stop what runs, then what `stops` stop; the guard goes last. Returns what had to be killed."""
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(_stop, (self.source, self.target)))
        try:
            left = self.guard.kill_rest(patience=60)
            for stop in stops:
                stop()
        finally:
            self.guard.dismiss()
        return left

    def abandon(self) -> None:
        """End everything at once, whatever it does just now."""
        self.guard.kill_rest(patience=0)
        self.guard.dismiss()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def host_of(self, process: str) -> Host:
        """The side on which a process runs."""
        return self.source if process in ("extract", "pump", "source manager") else self.target

    def pid(self, process: str) -> int | None:
        """The process id as ggsci tells it: extract, pump, collector, replicat, source manager, target manager."""
        host = self.host_of(process)
        if process == "collector":
            found = host.look("SEND MANAGER GETPORTINFO --json")
            rows = json.loads(found.out)["collectors"] if found.code == 0 else []
            return rows[-1]["pid"] if rows else None
        pid: int | None = host.statuses()[GROUPS[process]]["pid"]
        return pid

    def kill(self, process: str) -> int | None:
        """SIGKILL a process, and wait until it is dead. Its id, or None if it was down at this moment."""
        pid = self.pid(process)
        return pid if pid is not None and pid in self.guard.pids() and end_now(pid) else None

    def wait_running(self, timeout: float = PATIENCE) -> None:
        """Wait until every group and both Managers run."""
        wait_for(self.all_run, lambda: f"not everything runs:\n{self.state()}", seconds=timeout)

    def all_run(self) -> bool:
        """Whether every group and both Managers run."""
        return all(
            one["status"] == "RUNNING" for host in (self.target, self.source) for one in host.statuses().values()
        )

    def wait_status(self, host: Host, group: str, status: str, timeout: float = PATIENCE) -> dict[str, Any]:
        """Wait until a group shows this status; its row of INFO ALL."""
        row: dict[str, Any] = {}

        def shown() -> bool:
            row.update(host.statuses()[group])
            return bool(row["status"] == status)

        wait_for(shown, lambda: f"{group} does not become {status}:\n{self.state()}", seconds=timeout)
        return row

    def state(self) -> str:
        """INFO ALL of both homes and the ends of both logs, for an error message."""
        parts = []
        for host in (self.source, self.target):
            parts.append(f"--- {host.home.name}\n{host.run('INFO ALL', check=False).text}")
            log = host.home / "ggserr.log"
            lines = log.read_text().splitlines() if log.exists() else ["(no ggserr.log)"]
            parts += [line for line in lines if "GGSCI command" not in line][-12:]
        return "\n".join(parts)

    # --- comparing ---

    def wait_until_equal(self, schemas: Sequence[str], timeout: float = PATIENCE) -> list[Comparison]:
        """Wait until all tables are equal, then compare each row. Raises PipelineError with the differences."""
        tables = tables_of(self.source_url, schemas)

        def equal() -> bool:
            return digests(self.source_url, tables) == digests(self.target_url, tables)

        try:
            wait_for(equal, seconds=timeout)
        except WaitError:
            pass  # told below, row by row
        found = compare_all(self.source_url, self.target_url, schemas)
        if not found or not all(table.equal for table in found):
            differences = "\n".join(str(table) for table in found if not table.equal) or "no table found"
            raise PipelineError(f"source and target differ after {timeout:g} s:\n{differences}\n{self.state()}")
        return found


def _stop(host: Host) -> None:
    try:
        host.run("STOP ER *", "STOP MANAGER!", check=False)
    except (subprocess.TimeoutExpired, OSError):
        return  # the guard ends it


GROUPS = {"extract": "EXT1", "pump": "PMP1", "replicat": "REP1", "source manager": "MGR", "target manager": "MGR"}
