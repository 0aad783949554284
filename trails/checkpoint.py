"""Checkpoint files: where a group stands, durably, with a short history. For SHOWCH and purging; never the truth.

The truth about progress is in a process's output (its trail, the Collector's trail, the target's row). A stale,
restored or lost checkpoint file costs work, never a change.

The newest save also carries the history of runs (`extra["runs"]`, newest first): a run's last save goes there when
the next run saves for the first time, in the same durable replacement, so no crash loses or doubles one.

Layout: 8 bytes of magic, version (u16), reserved (u16), body length (u32), CRC-32 of all before it and of the body
(u32), body: a msgpack list of checkpoints, newest first. The file is replaced whole and durably.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgpack

from trails.errors import OF_ITS_RELEASE, DamageError, DiskFullError, VersionError
from trails.fs import Fs, overwrite, read_bytes, replace_durably

MAGIC = b"TRLGCKP\n"
VERSION = 1
HISTORY = 10
RUNS = 50
PAGE = 4096

_FIXED = struct.Struct(">8sHHI")
_CRC = struct.Struct(">I")


CSN = "CSN"
"""What a commit sequence number is called where the source has no word of its own for it."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a source or a trail, as SHOWCH prints it. `file` is a log's name or a trail's path."""

    seqno: int
    rba: int
    time_us: int | None = None
    csn: str = ""
    file: str = ""
    thread: int = 0


@dataclass(frozen=True, slots=True)
class ReadCheckpoint:
    """Where a group reads.

    Startup: where this run began; recovery: the oldest place still needed; current: last read. `csn_label`: what the
    source calls its CSN.
    """

    source: str
    startup: Place
    current: Place
    recovery: Place | None = None
    csn_label: str = CSN

    @property
    def needed(self) -> Place:
        """Everything before it may be purged."""
        return self.recovery or self.current


@dataclass(frozen=True, slots=True)
class WriteCheckpoint:
    """Where a group writes; `type` is EXTTRAIL or RMTTRAIL."""

    seqno: int
    rba: int
    time_us: int | None
    trail: str
    type: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One save.

    `stop_status`: A while the run is not ended gracefully, G after; `record_source`: U by a command, A by the process.
    """

    group: str
    kind: str
    reads: tuple[ReadCheckpoint, ...] = ()
    writes: tuple[WriteCheckpoint, ...] = ()
    started_us: int = 0
    saved_us: int = 0
    stop_status: str = "A"
    record_source: str = "A"
    lag_us: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a group that saved at least once: where it began to read, and how far it came."""

    started_us: int
    saved_us: int
    stop_status: str
    source: str
    begin: Place
    end: Place


def load(fs: Fs, path: str) -> list[Checkpoint]:
    """The saves at `path`, newest first; empty if there is no file. DamageError or VersionError if it can't be read."""
    try:
        data = read_bytes(fs, path)
    except FileNotFoundError:
        return []
    return parse(data, path)


def save(fs: Fs, path: str, checkpoint: Checkpoint) -> None:
    """Put `checkpoint` before the saves at `path`, durably.

    A damaged file is replaced: its history is lost, nothing else. On a full disk the old file is overwritten by as
    much as it has room for, which takes no space: by reading on, and saying so here, others can make some. A crash in
    there leaves a damaged file. Raises DiskFullError where not even that can be done.
    """
    try:
        history = load(fs, path)
    except (DamageError, VersionError):
        history = []
    past = [run for run in runs(history) if run.started_us != checkpoint.started_us]
    saves = [_with_runs(checkpoint, past), *map(_without_runs, history)][:HISTORY]
    try:
        replace_durably(fs, path, make(saves))
    except DiskFullError:
        room = -(-len(read_bytes(fs, path)) // PAGE) * PAGE if fs.exists(path) else 0
        fits = [data for kept in range(len(saves), 0, -1) if len(data := make(saves[:kept])) <= room]
        if not fits:
            raise
        overwrite(fs, path, fits[0])


def reserve(fs: Fs, path: str) -> None:
    """Make a file without a save, unless there is one: where the disk is full later, the first save has its room."""
    if not fs.exists(path):
        replace_durably(fs, path, make([]))


_RUNS = "runs"


def runs(history: Sequence[Checkpoint]) -> list[Run]:
    """The runs that these saves know, newest first: those of the saves themselves, then those noted."""
    found: dict[int, Run] = {}
    for save in history:
        if save.reads:
            read = save.reads[0]
            run = Run(save.started_us, save.saved_us, save.stop_status, read.source, read.startup, read.current)
            found.setdefault(save.started_us, run)
    noted = history[0].extra.get(_RUNS, []) if history else []
    for started, saved, stop, source, begin, end in noted:
        found.setdefault(started, Run(started, saved, stop, source, Place(*begin), Place(*end)))
    return sorted(found.values(), key=lambda run: run.started_us, reverse=True)


def forget_runs(fs: Fs, path: str, keep: int) -> tuple[int, int]:
    """Drop all runs but the last one and `keep` before it. Returns (dropped, kept).

    The newest save stays as it is, and so does what SHOWCH and purging read; only for a group whose lock is held.
    """
    history = load(fs, path)
    all_runs = runs(history)
    if len(all_runs) <= keep + 1:
        return 0, len(all_runs)
    left = all_runs[: keep + 1]
    oldest = left[-1].started_us
    older = [c for c in history[1:] if c.started_us >= oldest]
    replace_durably(fs, path, make([_with_runs(_without_runs(history[0]), left[1:]), *older]))
    return len(all_runs) - len(left), len(left)


def _with_runs(checkpoint: Checkpoint, past: Sequence[Run]) -> Checkpoint:
    noted = [
        [r.started_us, r.saved_us, r.stop_status, r.source, _place(r.begin), _place(r.end)] for r in past[: RUNS - 1]
    ]
    return replace(checkpoint, extra={**checkpoint.extra, _RUNS: noted}) if noted else checkpoint


def _without_runs(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, extra={k: v for k, v in checkpoint.extra.items() if k != _RUNS})


def make(history: list[Checkpoint]) -> bytes:
    """The file's bytes."""
    body: bytes = msgpack.packb([_to_wire(c) for c in history])
    start = _FIXED.pack(MAGIC, VERSION, 0, len(body))
    return start + _CRC.pack(zlib.crc32(body, zlib.crc32(start))) + body


def parse(data: bytes, where: str) -> list[Checkpoint]:
    """Inverse of make."""
    head = _FIXED.size + _CRC.size
    if len(data) < head:
        raise _damage(where, f"at least {head} bytes", f"{len(data)}")
    magic, version, _, length = _FIXED.unpack_from(data)
    if magic != MAGIC:
        raise _damage(where, f"magic {MAGIC!r}", repr(magic))
    if version != VERSION:
        raise VersionError(
            f"{where}: checkpoint format version {version}; this program reads version {VERSION}", hint=OF_ITS_RELEASE
        )
    (crc,) = _CRC.unpack_from(data, _FIXED.size)
    body = data[head:]
    if len(body) != length:
        raise _damage(where, f"{length} bytes of body", f"{len(body)}")
    computed = zlib.crc32(body, zlib.crc32(data[: _FIXED.size]))
    if computed != crc:
        raise _damage(where, f"CRC {computed:08x} (computed)", f"{crc:08x} (stored)")
    try:
        return [_from_wire(wire) for wire in msgpack.unpackb(body)]
    except (TypeError, ValueError, KeyError, AttributeError, msgpack.exceptions.UnpackException) as error:
        raise _damage(where, "a list of checkpoints", repr(error)) from error


def _to_wire(c: Checkpoint) -> dict[str, Any]:
    return {
        "group": c.group,
        "kind": c.kind,
        "reads": [[r.source, *(_place(p) for p in (r.startup, r.current, r.recovery)), r.csn_label] for r in c.reads],
        "writes": [[w.seqno, w.rba, w.time_us, w.trail, w.type] for w in c.writes],
        "started": c.started_us,
        "saved": c.saved_us,
        "stop": c.stop_status,
        "by": c.record_source,
        "lag": c.lag_us,
        "extra": c.extra,
    }


def _from_wire(wire: dict[str, Any]) -> Checkpoint:
    reads = []
    for source, startup, current, recovery, *label in wire["reads"]:
        needed = Place(*recovery) if recovery else None
        reads.append(ReadCheckpoint(source, Place(*startup), Place(*current), needed, *label))
    return Checkpoint(
        wire["group"], wire["kind"], tuple(reads), tuple(WriteCheckpoint(*w) for w in wire["writes"]),
        wire["started"], wire["saved"], wire["stop"], wire["by"], wire["lag"], dict(wire["extra"]),
    )  # fmt: skip


def _place(place: Place | None) -> list[Any] | None:
    return [place.seqno, place.rba, place.time_us, place.csn, place.file, place.thread] if place else None


def _damage(where: str, expected: str, found: str) -> DamageError:
    return DamageError(
        f"{where}: damaged checkpoint file: expected {expected}, found {found}",
        hint="Remove the file: the group finds its place in its output",
    )
