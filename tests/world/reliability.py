"""The part of docs/reliability.md that is figures: `python -m tests.world --minutes 60 --page docs/reliability.md`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tests.world.lives import Sum
from tests.world.windows import HERE

MEANS: Mapping[str, str] = MappingProxyType({
    "kill": "SIGKILL between any two calls of a process, also in the middle of a write",
    "freeze": "a process stands still, for up to four seconds, and goes on",
    "zombie": "a process stands still, its lock files are deleted, another begins, and the first wakes beside it",
    "power": "a host loses power: names and bytes that were not synced are kept, lost or torn",
    "disk": "the disk is full, or fails, in some or all calls for a while",
    "sync fails": "one sync fails, and the pages look clean afterwards",
    "cut": "a connection is cut at any byte",
    "silence": "a connection is half open: nothing arrives, and nobody is told",
    "unreachable": "the remote host can't be reached",
    "source lost": "the connection to the source breaks inside a transaction",
    "answer lost": "the target's answer to COMMIT is lost; it commits later, or not",
    "target crash": "the target crashes and forgets what it had committed and not flushed",
    "target away": "the target closes all connections",
    "checkpoints lost": "all checkpoint files of a host are deleted",
    "checkpoints restored": "all checkpoint files of a host are replaced by older copies",
    "byte flipped": "a bit flips in a trail file, below its durable end",
    "trail file removed": "somebody deletes a trail file, maybe the one that is written",
    "trail restored": "an older copy of a whole trail is put back",
    "trail file replaced": "a trail file is replaced by an older state of itself, or by another file",
    "connected twice": "all that a pump has said comes a second time, by a connection of its own",
    "strangers": "up to ten others come to a Collector's door, with noise or another's greeting; some ask a Manager",
    "kill by name": "an operator has a group killed by its Manager, which leaves it down",
    "delete and add": "an operator deletes a group, and adds it again",
    "info": "an operator asks a group for its status, and the answer is held against the world",
    "alter": "an operator stops a group, has it begin a new file by ALTER, and starts it",
    "locks lost": "all lock files of a host are deleted",
    "clock jumps": "a host's clock jumps by up to an hour",
    "manager killed": "a Manager is killed",
    "notes lost": "what a Manager notes for the next one is removed",
    "space low": "free space falls below DISKWARN or DISKSTOP",
    "rollover": "an operator has a trail file ended",
    "stop": "an operator stops a process",
    "renew master key": "an operator renews the master key of a home whose trail is encrypted",
})  # fmt: skip
"""By kind; a kind has its line here or the page is not written."""


HOW = (
    "`make soak` lives these lives, and writes this part. A life in which a rule was broken is mended before the page "
    "is kept, and is a test from then on (`tests/world/test_world.py`)."
)
BEGIN, END = "## What was lived\n", "## It can fail\n"


def with_figures(page: str, total: Sum, date: str) -> str:
    """The page with another part between these two headings."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{_figures(total, date)}\n\n{END}{after}"


def _figures(total: Sum, date: str) -> str:
    assert not (unknown := total.faults.keys() - MEANS.keys()), f"no line for {unknown}"
    told = [
        ("date", date),
        ("lives", f"{total.lives:,}, from number {total.first} on"),
        ("lives in which a rule was broken", ", ".join(map(str, total.violated)) or "none"),
        ("faults that met somebody", f"{total.faults_a_life:.1f} in each life"),
        ("different calls at which a process was killed", f"{len(total.deaths)}"),
        ("looks at what a loss of power would leave", f"{total.counts['looks behind a loss of power']:,}"),
        ("calls of disk, network, source and target", f"{total.counts['calls']:,}"),
        ("states of the target held against the source", f"{total.counts['states held against the source']:,}"),
        ("not held, as they were ahead of their row", f"{total.counts['states that were ahead of their row']:,}"),
        ("with TLS, with encrypted trails", f"{total.counts['with TLS']:,}, {total.counts['encrypted']:,}"),
        ("trail files purged", f"{total.counts['files purged']:,}"),
    ]
    told += [(f"met {window}", f"{total.counts[window]:,}") for window in HERE]
    faults = [(kind, f"{total.faults[kind]:,}", MEANS[kind]) for kind in sorted(MEANS)]
    return "\n".join([
        HOW, "",
        "| | |", "| --- | --- |", *(f"| {what} | {figure} |" for what, figure in told), "",
        "| fault | times | what it is |", "| --- | --- | --- |", *(f"| {' | '.join(row)} |" for row in faults),
    ])  # fmt: skip
