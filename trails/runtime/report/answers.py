"""What a process answers to STATUS, GETLAG and METRICS, and what a source keeps: made JSON and read back here alone.

Rule: the fields of a class are the keys of its JSON, in this order. SELDOM ones are left out where they are None. Who
asks may be of another release: `read_answer` passes over a key that it does not know, and one that is missing or null
has the default of its field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Final, TypeVar

from trails.checkpoint import Place, WriteCheckpoint
from trails.heartbeat import Entry

SELDOM: Final = {"seldom": True}


@dataclass(frozen=True, slots=True)
class PlaceAnswer:
    """Where a process reads; `thread` only where the checkpoint has one."""

    seqno: int = 0
    rba: int = 0
    time_us: int | None = None
    csn: str = ""
    file: str = ""
    thread: int | None = field(default=None, metadata=SELDOM)

    @classmethod
    def of(cls, place: Place, thread: int | None = None) -> PlaceAnswer:
        """A place of the checkpoint."""
        return cls(place.seqno, place.rba, place.time_us, place.csn, place.file, thread)


@dataclass(frozen=True, slots=True)
class WriteAnswer:
    """Where a process writes."""

    seqno: int = 0
    rba: int = 0
    time_us: int | None = None
    trail: str = ""

    @classmethod
    def of(cls, write: WriteCheckpoint) -> WriteAnswer:
        """A place of the checkpoint."""
        return cls(write.seqno, write.rba, write.time_us, write.trail)


@dataclass(frozen=True, slots=True)
class StatusAnswer:
    """STATUS. `clocks`: how far the Collector's clock is ahead. `unwritten`: why lines of log or report are missing.

    `to_copy`: tables of an initial load whose rows are not all copied. `not_copied`: those whose load has failed.
    `paused`: those whose changes are left out, as they are paused, or have failed since; `catching_up`: resumed.
    """

    status: str = ""
    pid: int | None = field(default=None, metadata=SELDOM)
    read: PlaceAnswer | None = field(default=None, metadata={"part": PlaceAnswer})
    write: tuple[WriteAnswer, ...] = field(default=(), metadata={"part": WriteAnswer})
    in_transaction: int | None = None
    clocks: dict[str, int] | None = field(default=None, metadata=SELDOM)
    unwritten: str | None = field(default=None, metadata=SELDOM)
    to_copy: list[str] | None = field(default=None, metadata=SELDOM)
    not_copied: list[str] | None = field(default=None, metadata=SELDOM)
    paused: list[str] | None = field(default=None, metadata=SELDOM)
    catching_up: list[str] | None = field(default=None, metadata=SELDOM)


@dataclass(frozen=True, slots=True)
class LagAnswer:
    """GETLAG. `lag_why`: why the lag is not known. `lag_at_us`: when it was known last, if that is not now."""

    lag_us: int | None = None
    lag_why: str = ""
    at_eof: bool = False
    heartbeats: list[Entry] = field(default_factory=list)
    lag_at_us: int | None = field(default=None, metadata=SELDOM)


@dataclass(frozen=True, slots=True)
class MetricsAnswer:
    """METRICS (metrics.py says what each figure is). `extra`: what only one kind of process knows."""

    program: str = ""
    group: str = ""
    at_us: int = 0
    lag_us: int | None = None
    lag_at_us: int | None = None
    lag_why: str = ""
    turn_age_us: int | None = None
    operations: int | None = None
    transactions: int | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    ops_s: float | None = None
    bytes_s: float | None = None
    bytes_out_s: float | None = None
    busy: float | None = None
    backlog_bytes: int | None = None
    backlog_us: int | None = None
    read: PlaceAnswer | None = field(default=None, metadata={"part": PlaceAnswer})
    write: WriteAnswer | None = field(default=None, metadata={"part": WriteAnswer})
    heartbeats: list[Entry] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """What a source keeps back for an Extract, as METRICS has it among `extra`; None where the database knows none.

    `log_status`: a word of the database's; `log_limit_name`: the setting that limits it. Of a group that does not run
    also `level` (0 to 2) with the warning's `text`, and `lost`: why nothing but a re-sync helps. `error`: why nothing
    of it is known. `heartbeat_error`: why a running Extract can't write its heartbeat.
    """

    holder: str = ""
    log_status: str = ""
    log_reason: str = ""
    log_kept_bytes: int | None = None
    log_headroom_bytes: int | None = None
    log_limit_bytes: int | None = None
    log_limit_name: str | None = field(default=None, metadata=SELDOM)
    log_checked_us: int | None = None
    level: int | None = field(default=None, metadata=SELDOM)
    text: str | None = field(default=None, metadata=SELDOM)
    lost: str | None = field(default=None, metadata=SELDOM)
    error: str | None = field(default=None, metadata=SELDOM)
    heartbeat_error: str | None = field(default=None, metadata=SELDOM)


def plain(answer: Any) -> dict[str, Any]:
    """An answer as JSON has it."""
    told = ((one, getattr(answer, one.name)) for one in fields(answer))
    return {one.name: _value(value) for one, value in told if value is not None or "seldom" not in one.metadata}


def _value(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_value(part) for part in value]
    return plain(value) if is_dataclass(value) else value


Told = TypeVar("Told", bound=PlaceAnswer | WriteAnswer | StatusAnswer | LagAnswer | MetricsAnswer | KeptAnswer)


def read_answer(kind: type[Told], reply: Mapping[str, Any]) -> Told:
    """The answer that `reply` is."""
    given = {}
    for one in fields(kind):
        value, part = reply.get(one.name), one.metadata.get("part")
        if part is not None and value is not None:
            many = isinstance(value, list)
            value = tuple(read_answer(part, item) for item in value) if many else read_answer(part, value)
        if value is not None:
            given[one.name] = value
    return kind(**given)
