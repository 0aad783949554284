"""What is known of a group, gathered from its registration, lock, status file and checkpoint file; and as JSON.

No process is asked: this works the same whether a group runs, is stopped or was killed. A figure is given only while
it is true: the lag at the last checkpoint is no news any more once that checkpoint is old.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from typing import Any

from ggsci.doubt import Doubt, believed
from trails import checkpoint as checkpoints_file
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint, Run, WriteCheckpoint
from trails.errors import GateError
from trails.heartbeat import judged
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registered, Registration
from trails.runtime.home.status import FOR_TRAIL, manager_status, status_of

# A running group saves a checkpoint each CHECKPOINTSECS (10 s). One that missed six is stuck, or its disk is.
STALE_AFTER_US = 60_000_000
STALE_INTERVALS = 6


@dataclass(frozen=True, slots=True)
class TrailFacts:
    """A registered trail and how far its writer is; None where no checkpoint tells."""

    path: str
    type: str
    megabytes: int
    group: str
    seqno: int | None = None
    rba: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "trail": self.path, "type": self.type, "group": self.group, "megabytes": self.megabytes,
            "seqno": self.seqno, "rba": self.rba,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """One group as it stands now."""

    registration: Registration
    status: str
    pid: int | None
    started_us: int | None
    exit_code: int | None
    message: str
    checkpoints: tuple[Checkpoint, ...]
    checkpoint_bytes: int
    damage: str
    now_us: int
    turned_us: int | None = None
    """When its main loop last came round, while it runs."""
    waiting: str = ""
    """For whom it waits: also for its trail's first file; while it is down, what its Manager waits for."""
    doubt: Doubt | None = None
    """Why its lag may not be believed, as the stages before it and its heartbeats say (flow/health.py)."""

    @property
    def name(self) -> str:
        """The group's name."""
        return self.registration.name

    @property
    def program(self) -> str:
        """EXTRACT (pumps too) or REPLICAT."""
        return self.registration.kind

    @property
    def is_down(self) -> bool:
        """Whether no process of it is there."""
        return self.status not in ("RUNNING", "STARTING")

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The last save."""
        return self.checkpoints[0] if self.checkpoints else None

    @property
    def shown(self) -> tuple[Checkpoint, ...]:
        """The saves as INFO and SHOWCH show them: before them what ADD or ALTER ordered, until a run has obeyed it."""
        newest = self.checkpoint
        if self.damage or (newest and (not self.registration.alter or self._has_obeyed(newest))):
            return self.checkpoints
        return (ordered(self.registration, newest), *self.checkpoints)

    def _has_obeyed(self, newest: Checkpoint) -> bool:
        if self.status in ("RUNNING", "STARTING"):
            return True
        return int(newest.extra.get("alter_no", 0)) >= self.registration.alter_no

    @property
    def since_us(self) -> int | None:
        """Age of the last checkpoint."""
        return max(0, self.now_us - self.checkpoint.saved_us) if self.checkpoint else None

    @property
    def turn_age_us(self) -> int | None:
        """For how long the main loop of a running group has not come round; None if it does not run."""
        return None if self.turned_us is None or self.status != "RUNNING" else max(0, self.now_us - self.turned_us)

    @property
    def stands_still(self) -> bool:
        """Whether a running group has not been seen at work for so long that it may hang."""
        return (self.turn_age_us or 0) > STALE_AFTER_US

    @property
    def stale(self) -> bool:
        """Is its last checkpoint too old, or its loop too still, to tell anything of now? It need not run for that."""
        if self.checkpoint is None or self.since_us is None:
            return False
        if self.stands_still:
            return True
        every = self.checkpoint.extra.get("checkpoint_every_s", 0)
        return self.since_us > max(STALE_AFTER_US, int(every * 1_000_000) * STALE_INTERVALS)

    @property
    def lag_us(self) -> int | None:
        """Lag at the last checkpoint; None if unknown, negative (clocks disagree), stale or contradicted."""
        if self.checkpoint is None or self.stale or (self.checkpoint.lag_us or 0) < 0:
            return None
        return believed(self.checkpoint.lag_us, self.doubt)

    @property
    def lag_why(self) -> str:
        """Why the lag is not known; empty if it is."""
        if self.lag_us is not None:
            return ""
        if self.checkpoint is None:
            return self.damage or "no checkpoint yet"
        if self.stale:
            return "its last checkpoint is old" if not self.stands_still else "its main loop stands still"
        if self.doubt is not None:
            return self.doubt.why
        return self.waits or "its process does not know it"

    @property
    def waits(self) -> str:
        """What keeps a group from its work: whom it waits for, and the last error; empty if nobody does."""
        return "" if self.waiting.startswith(FOR_TRAIL) else self.waiting

    @property
    def runs(self) -> list[Run]:
        """Its runs, newest first; those of a group of that name that was deleted are not its own."""
        found = checkpoints_file.runs(self.checkpoints)
        return [run for run in found if not 0 < run.saved_us < self.registration.added_us]

    @property
    def last_csn(self) -> str:
        """CSN of the last transaction it has read and saved; empty if not known."""
        reads = self.checkpoint.reads if self.checkpoint else ()
        return reads[0].current.csn if reads else ""

    @property
    def amiss(self) -> str:
        """Tables that it leaves out, as the last save tells them: paused, catching up or failed; empty for none."""
        return str(self.checkpoint.extra.get("tables_amiss") or "") if self.checkpoint else ""

    @property
    def key_number(self) -> int:
        """The group's key in the checkpoint table."""
        return self.registration.group_key

    @property
    def trails(self) -> list[TrailFacts]:
        """The trails this group writes."""
        saved = self.checkpoint.writes if self.checkpoint else ()
        written = {os.path.normpath(write.trail): write for write in saved}
        rows = []
        for trail in self.registration.trails:
            write = written.get(os.path.normpath(trail.path))
            place = (write.seqno, write.rba) if write else (None, None)
            rows.append(TrailFacts(trail.path, trail.type, trail.megabytes, self.name, *place))
        return rows

    @property
    def saved_heartbeats(self) -> list[dict[str, Any]]:
        """The last heartbeat of each path, as the last checkpoint has it."""
        found = self.checkpoint.extra.get("heartbeats") if self.checkpoint else None
        return found if isinstance(found, list) else []

    @property
    def heartbeats(self) -> list[dict[str, Any]]:
        """The same as it may be shown now: without a lag once that is no news any more."""
        return [judged(entry, self.now_us) for entry in self.saved_heartbeats]

    def brief(self) -> dict[str, Any]:
        """For INFO ALL and STATUS as JSON. `lag_us` is null when it is not known now."""
        return {
            "program": self.program, "group": self.name, "status": self.status, "pid": self.pid, "waits": self.waiting,
            "lag_us": self.lag_us, "lag_why": self.lag_why, "since_checkpoint_us": self.since_us, "stale": self.stale,
            "turn_age_us": self.turn_age_us, "heartbeats": self.heartbeats, "tables_amiss": self.amiss,
            "exit_code": self.exit_code, "message": self.message or self.damage,
        }  # fmt: skip

    def to_json(self, saves: int = 1) -> dict[str, Any]:
        """Everything, for INFO as JSON, with the last `saves` checkpoints."""
        registration = self.registration
        return {
            **self.brief(),
            "description": registration.desc, "source": registration.source, "source_trail": registration.trail,
            "added_us": registration.added_us, "started_us": self.started_us,
            "alter_no": registration.alter_no, "alter": registration.alter,
            "group_key": registration.group_key,
            "registered": asdict(registration.registered) if registration.registered else None,
            "trails": [trail.to_json() for trail in self.trails],
            "checkpoint_damage": self.damage,
            "checkpoints": [checkpoint_json(save) for save in self.shown[:saves]],
            "runs": [asdict(run) for run in self.runs],
        }  # fmt: skip


def ordered(group: Registration, newest: Checkpoint | None) -> Checkpoint:
    """The place that ADD or ALTER ordered, as the command's own save (record source U): nothing was read there yet."""
    noted = group.registered or Registered()  # an Extract begins where REGISTER EXTRACT was called
    title, place = ("GGS Log Trail", Place(0, 0)) if group.trail else (noted.title, noted.place)
    order = group.alter
    if "seqno" in order:
        place = Place(int(order["seqno"]), int(order.get("rba") or 0))
    elif "csn" in order:
        place = Place(0, 0, csn=str(order["csn"]))
    elif isinstance(order.get("begin_us"), int):
        place = Place(0, 0, order["begin_us"])
    read = ReadCheckpoint(title or "Database Log", place, place, None if group.trail else place, noted.csn_label)
    writes = tuple(WriteCheckpoint(0, 0, None, trail.path, trail.type) for trail in group.trails)
    if newest is None:
        return Checkpoint(
            group.name, group.kind, (read,), writes, saved_us=group.added_us, stop_status="G", record_source="U"
        )
    return replace(newest, reads=(read,), record_source="U")


def checkpoint_json(save: Checkpoint) -> dict[str, Any]:
    """One save as plain values."""
    return {
        "saved_us": save.saved_us, "started_us": save.started_us, "stop_status": save.stop_status,
        "record_source": save.record_source, "lag_us": save.lag_us,
        "reads": [asdict(read) for read in save.reads], "writes": [asdict(write) for write in save.writes],
    }  # fmt: skip


def gather(home: Home, registration: Registration, now_us: int) -> GroupFacts:
    """The facts of one group. A checkpoint file that can't be read is a fact too, not a failure."""
    status = status_of(home, registration)
    path = home.checkpoint(registration.name, registration.kind)
    saves: list[Checkpoint] = []
    damage = ""
    try:
        saves = checkpoints_file.load(home.fs, path)
    except GateError as error:
        damage = str(error)
    size = os.path.getsize(path) if saves else 0
    return GroupFacts(
        registration, status.status.value, status.pid, status.started_us, status.exit_code, status.message,
        tuple(saves), size, damage, now_us, status.turned_us, status.waits,
    )  # fmt: skip


def manager(home: Home) -> tuple[str, int | None]:
    """(RUNNING or STOPPED, process id) of this home's Manager. It holds no data, so how it ended doesn't matter."""
    found = manager_status(home)
    return ("RUNNING", found.pid) if found.status.is_alive else ("STOPPED", None)
