"""What the machine is, and what its processes have used: read from /proc, so that asking costs next to nothing."""

from __future__ import annotations

import os
import platform
import sysconfig
import time
from pathlib import Path

from trails import kernels

_TICK = os.sysconf("SC_CLK_TCK")


def facts() -> dict[str, str]:
    """The machine's facts that a figure depends on."""
    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "processor": model.partition(":")[2].strip() or platform.machine(),
        "memory": f"{memory:.0f} GiB",
        "kernel": platform.release(),
        "Python": f"{platform.python_version()} {build()}",
        "kernels": " ".join(kernels.built()) or "none",
    }


def build() -> str:
    """How Python was built: with profiles (PGO) and link-time optimization (LTO) it decodes a fifth faster."""
    options = sysconfig.get_config_var("CONFIG_ARGS") or ""
    found = [name for option, name in (("--enable-optimizations", "PGO"), ("--with-lto", "LTO")) if option in options]
    return f"({' and '.join(found)})" if found else "(built without PGO)"


def cpu_seconds(*pids: int) -> float:
    """User and system time of processes so far; one that is gone counts nothing."""
    total = 0.0
    for pid in pids:
        if fields := _stat(pid):
            total += (int(fields[11]) + int(fields[12])) / _TICK
    return total


def server_seconds(pid: int) -> float:
    """What a server has used so far that has a process for each connection: those that are gone count too."""
    fields = _stat(pid)
    gone = (int(fields[13]) + int(fields[14])) / _TICK if fields else 0.0
    return cpu_seconds(*family(pid)) + gone


def started(pid: int) -> float | None:
    """When a process was made, on the monotonic clock; None if it is gone."""
    fields = _stat(pid)
    if not fields:
        return None
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / _TICK
    return time.monotonic() - age


def busy_seconds() -> float:
    """CPU time that the whole machine has spent, idle and waiting left out."""
    ticks = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / _TICK


def peak_megabytes(pid: int) -> float:
    """The most memory a process has had resident."""
    return _megabytes(pid, "VmHWM")


def resident_megabytes(pid: int) -> float:
    """The memory that a process has resident; what it shares with others is counted for each."""
    return _megabytes(pid, "VmRSS")


def arguments(pid: int) -> list[str]:
    """A process's command; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        if fields := _stat(int(entry.name)):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for member in found:
        found += children.get(member, [])
    return found


def _megabytes(pid: int, name: str) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(name)), 0.0)


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name (which may hold blanks): state, parent, ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
