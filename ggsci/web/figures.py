"""Every figure that INFO, LAG and STATS show, for Prometheus: names, help and labels in one table; their collection.

Rule: a figure that is not known is left out, never a zero; `trailgate_lag_known` says that a lag is missing. Running
groups are asked all at once, a second each at most. Figures are of this home only: another home's page tells its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from ggsci import facts
from ggsci.facts import GroupFacts
from ggsci.flow.pipelines import Stage
from ggsci.web.watch import HomeView
from trails.errors import GateError
from trails.heartbeat import judged
from trails.runtime import registration as registrations
from trails.runtime.control import ask
from trails.runtime.diskguard import BYTES, FILES
from trails.runtime.home import MANAGER, Home

ASK_SECONDS = 1.0
GAUGE, COUNTER = "gauge", "counter"
_GROUP = ("home", "program", "group")
_MICRO = 1_000_000


@dataclass(frozen=True, slots=True)
class Family:
    """One name: its kind, its help, its labels."""

    kind: str
    help: str
    labels: tuple[str, ...] = _GROUP


FAMILIES: Mapping[str, Family] = {
    "trailgate_picture_age_seconds": Family(GAUGE, "Age of what the page shows.", ("home",)),
    "trailgate_manager_up": Family(GAUGE, "1 while the Manager runs.", ("home",)),
    "trailgate_restarts": Family(GAUGE, "Restarts in a row by AUTORESTART.", ("home", "group")),
    "trailgate_disk_free_bytes": Family(GAUGE, "Free space of a file system that the home uses.", ("home", "path")),
    "trailgate_disk_size_bytes": Family(GAUGE, "Size of that file system.", ("home", "path")),
    "trailgate_disk_warn_bytes": Family(GAUGE, "DISKWARN: less free space than this is warned of.", ("home", "path")),
    "trailgate_disk_free_files": Family(GAUGE, "Files that it still takes (inodes).", ("home", "path")),
    "trailgate_disk_stop_bytes": Family(GAUGE, "DISKSTOP: with less free space writers stop.", ("home", "path")),
    "trailgate_group_up": Family(GAUGE, "1 while the group's process runs."),
    "trailgate_group_status": Family(GAUGE, "1 for the group's present status.", (*_GROUP, "status")),
    "trailgate_started_timestamp_seconds": Family(GAUGE, "When the last run started."),
    "trailgate_exit_code": Family(GAUGE, "Exit code of the last run, once it has ended."),
    "trailgate_lag_known": Family(GAUGE, "1 if the lag is known now."),
    "trailgate_lag_seconds": Family(GAUGE, "How far the group is behind the source, as LAG tells it."),
    "trailgate_lag_age_seconds": Family(GAUGE, "How old the last known lag is."),
    "trailgate_heartbeat_lag_seconds": Family(
        GAUGE, "Lag of a path by its last heartbeat.", (*_GROUP, "from", "to", "path")
    ),
    "trailgate_heartbeat_age_seconds": Family(
        GAUGE, "Age of a path's last heartbeat.", (*_GROUP, "from", "to", "path")
    ),
    "trailgate_heartbeat_stage_seconds": Family(
        GAUGE, "What one stage of a path took of that.", (*_GROUP, "path", "stage")
    ),
    "trailgate_checkpoint_lag_seconds": Family(GAUGE, "Lag at the last checkpoint, as INFO tells it."),
    "trailgate_checkpoint_age_seconds": Family(GAUGE, "Time since the last checkpoint."),
    "trailgate_backlog_bytes": Family(GAUGE, "Bytes that wait to be read by the group."),
    "trailgate_backlog_seconds": Family(GAUGE, "The same in time of the source."),
    "trailgate_holds_back": Family(GAUGE, "1 for the stage that the others of its pipeline wait for."),
    "trailgate_changes_per_second": Family(GAUGE, "Changes a second, over ten seconds."),
    "trailgate_bytes_per_second": Family(GAUGE, "Bytes read a second, over ten seconds."),
    "trailgate_written_bytes_per_second": Family(GAUGE, "Bytes written a second, over ten seconds."),
    "trailgate_busy_ratio": Family(GAUGE, "Share of the last ten seconds in which the group did not wait."),
    "trailgate_turn_age_seconds": Family(GAUGE, "Time since the last turn of the process's main loop."),
    "trailgate_changes_total": Family(COUNTER, "Changes since the process started."),
    "trailgate_transactions_total": Family(COUNTER, "Transactions since the process started."),
    "trailgate_read_bytes_total": Family(COUNTER, "Bytes read since the process started."),
    "trailgate_written_bytes_total": Family(COUNTER, "Bytes written since the process started."),
    "trailgate_read_seqno": Family(GAUGE, "Read checkpoint: file number.", (*_GROUP, "source")),
    "trailgate_read_rba": Family(GAUGE, "Read checkpoint: RBA.", (*_GROUP, "source")),
    "trailgate_read_timestamp_seconds": Family(
        GAUGE, "Read checkpoint: when that change was made.", (*_GROUP, "source")
    ),
    "trailgate_recovery_seqno": Family(
        GAUGE, "Recovery checkpoint, the oldest place still needed: file number.", (*_GROUP, "source")
    ),
    "trailgate_recovery_rba": Family(GAUGE, "Recovery checkpoint: RBA.", (*_GROUP, "source")),
    "trailgate_recovery_timestamp_seconds": Family(
        GAUGE, "Recovery checkpoint: when that change was made.", (*_GROUP, "source")
    ),
    "trailgate_write_seqno": Family(GAUGE, "Write checkpoint: file number.", (*_GROUP, "trail")),
    "trailgate_write_rba": Family(GAUGE, "Write checkpoint: RBA.", (*_GROUP, "trail")),
    "trailgate_write_timestamp_seconds": Family(GAUGE, "Write checkpoint: when it was written.", (*_GROUP, "trail")),
    "trailgate_slot_status": Family(
        GAUGE, "1 for the replication slot's present status; lost needs a re-sync.", (*_GROUP, "status")
    ),
    "trailgate_wal_kept_bytes": Family(GAUGE, "Log that the source keeps for the group's slot."),
    "trailgate_wal_headroom_bytes": Family(GAUGE, "Log that the source may still keep before the slot is lost."),
    "trailgate_clock_offset_seconds": Family(GAUGE, "How far the next host's clock is ahead of this one."),
    "trailgate_figure": Family(GAUGE, "What only this kind of process counts, by name.", (*_GROUP, "figure")),
    "trailgate_stats_since_timestamp_seconds": Family(GAUGE, "STATS: when the totals began."),
    "trailgate_table_operations_total": Family(
        COUNTER, "STATS: operations of a table since the process started.", (*_GROUP, "table", "target", "operation")
    ),
}

_COUNTS = {
    "operations": "trailgate_changes_total",
    "transactions": "trailgate_transactions_total",
    "bytes_in": "trailgate_read_bytes_total",
    "bytes_out": "trailgate_written_bytes_total",
}

# What a stage's `extra` calls some families; everything else in it that is a number becomes trailgate_figure.
_EXTRA: Mapping[str, tuple[str, int]] = {
    "wal_kept_bytes": ("trailgate_wal_kept_bytes", 1),
    "wal_headroom_bytes": ("trailgate_wal_headroom_bytes", 1),
    "clock_offset_us": ("trailgate_clock_offset_seconds", _MICRO),
    "turn_age_us": ("trailgate_turn_age_seconds", _MICRO),
    **{name: (family, 1) for name, family in _COUNTS.items()},
}
_NO_COUNT = ("from", "to", "more", "operations")
_STATUSES = ("STARTING", "RUNNING", "STOPPED", "ABENDED")

Sample = tuple[str, tuple[str, ...], float]
"""Family, values of its labels, value."""


@dataclass(slots=True)
class Asked:
    """What the processes of a home answered just now."""

    stats: dict[str, dict[str, Any]] = field(default_factory=dict)
    lags: dict[str, dict[str, Any]] = field(default_factory=dict)
    manager: dict[str, Any] = field(default_factory=dict)


def collect(home: Home, view: HomeView, age_us: int, stages: Iterable[Stage], now_us: int) -> list[Sample]:
    """All samples of this home. What can't be read is left out; the page tells why."""
    groups = [facts.gather(home, group, now_us) for group in registrations.all(home)]
    asked = _ask_all(home, groups)
    samples = [*_home(view, age_us, asked)]
    known = {stage.name: stage for stage in stages}
    for group in groups:
        stage = known.get(group.name)
        labels = (view.name, stage.program if stage else program(group), group.name)
        samples += [
            *_of_files(group, labels),
            *_of_stage(stage, labels),
            *_of_answers(asked, group.name, labels, now_us, group.saved_heartbeats),
        ]
    return [(name, labels, value) for name, labels, value in samples if value is not None]


def program(group: GroupFacts) -> str:
    """EXTRACT, PUMP or REPLICAT."""
    return "PUMP" if group.program == "EXTRACT" and group.registration.trail else group.program


# --- asking -----------------------------------------------------------------------------------------------------------


def _ask_all(home: Home, groups: list[GroupFacts]) -> Asked:
    asked = Asked()
    running = [group.name for group in groups if group.status == "RUNNING"]
    jobs: list[tuple[dict[str, Any], str, str]] = [
        (answers, name, verb) for name in running for answers, verb in ((asked.stats, "STATS"), (asked.lags, "GETLAG"))
    ]

    def one(job: tuple[dict[str, Any], str, str]) -> None:
        answers, name, verb = job
        answer = _answer(home, name, verb)
        if answer:
            answers[name] = answer

    with ThreadPoolExecutor(max(1, min(16, len(jobs)))) as pool:
        manager = pool.submit(_answer, home, MANAGER, "CHILDSTATUS")
        list(pool.map(one, jobs))
        asked.manager = manager.result()
    return asked


def _answer(home: Home, name: str, verb: str) -> dict[str, Any]:
    """The process's answer; nothing if it has no time, or says no."""
    try:
        answer = ask(home, name, verb, timeout=ASK_SECONDS)
    except GateError:
        return {}
    return answer if answer.get("ok") else {}


# --- samples ----------------------------------------------------------------------------------------------------------

_Maybe = Iterator[tuple[str, tuple[str, ...], Any]]


def _home(view: HomeView, age_us: int, asked: Asked) -> _Maybe:
    labels = (view.name,)
    yield "trailgate_picture_age_seconds", labels, age_us / _MICRO
    yield "trailgate_manager_up", labels, None if view.trouble else float(view.manager == "RUNNING")
    for child in asked.manager.get("children", []):
        yield "trailgate_restarts", (view.name, str(child["group"])), child.get("retries")
    for disk in disks(view):
        place = (view.name, str(disk.get("path")))
        for name in ("free", "size", "warn", "stop"):
            yield f"trailgate_disk_{name}_bytes", place, disk.get(name)
    for disk in disks(view, FILES):
        yield "trailgate_disk_free_files", (view.name, str(disk.get("path"))), disk.get("free")


def disks(view: HomeView, unit: str = BYTES) -> list[dict[str, Any]]:
    """The file systems that the Manager watches, counted in bytes or in files."""
    return [disk for disk in view.details.get("disks") or [] if disk.get("unit", BYTES) == unit]


def _of_files(group: GroupFacts, labels: tuple[str, ...]) -> _Maybe:
    """What INFO shows."""
    yield "trailgate_group_up", labels, float(group.status == "RUNNING")
    for status in _STATUSES:
        yield "trailgate_group_status", (*labels, status), float(group.status == status)
    yield "trailgate_started_timestamp_seconds", labels, seconds(group.started_us)
    yield "trailgate_exit_code", labels, group.exit_code
    yield "trailgate_checkpoint_lag_seconds", labels, seconds(group.lag_us)
    yield "trailgate_checkpoint_age_seconds", labels, seconds(group.since_us)
    checkpoint = group.checkpoint
    for read in checkpoint.reads if checkpoint else ():
        source = group.registration.trail or read.source
        for what, place in (("read", read.current), ("recovery", read.recovery)):
            if place is not None:
                yield f"trailgate_{what}_seqno", (*labels, source), place.seqno
                yield f"trailgate_{what}_rba", (*labels, source), place.rba
                yield f"trailgate_{what}_timestamp_seconds", (*labels, source), seconds(place.time_us or None)
    for write in checkpoint.writes if checkpoint else ():
        yield "trailgate_write_seqno", (*labels, write.trail), write.seqno
        yield "trailgate_write_rba", (*labels, write.trail), write.rba
        yield "trailgate_write_timestamp_seconds", (*labels, write.trail), seconds(write.time_us or None)


def _of_stage(stage: Stage | None, labels: tuple[str, ...]) -> _Maybe:
    """What the pipeline's picture shows."""
    if stage is None:
        return
    yield "trailgate_lag_known", labels, float(stage.lag_us is not None)
    yield "trailgate_lag_seconds", labels, seconds(stage.lag_us)
    yield "trailgate_lag_age_seconds", labels, seconds(stage.lag_age_us)
    yield "trailgate_backlog_bytes", labels, stage.backlog_bytes
    yield "trailgate_backlog_seconds", labels, seconds(stage.backlog_us)
    yield "trailgate_holds_back", labels, float(stage.holds_back)
    yield "trailgate_changes_per_second", labels, stage.ops_s
    yield "trailgate_bytes_per_second", labels, stage.bytes_s
    yield "trailgate_written_bytes_per_second", labels, stage.bytes_out_s
    yield "trailgate_busy_ratio", labels, stage.busy
    if slot_status := stage.extra.get("wal_status"):
        yield "trailgate_slot_status", (*labels, str(slot_status)), 1.0
    for name, value in sorted(stage.extra.items()):
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if name in _EXTRA:
            family, unit = _EXTRA[name]
            yield family, labels, value / unit
        elif name.endswith("_us"):
            yield "trailgate_figure", (*labels, f"{name.removesuffix('_us')}_seconds"), value / _MICRO
        else:
            yield "trailgate_figure", (*labels, name), value


def _of_answers(
    asked: Asked, name: str, labels: tuple[str, ...], now_us: int, saved: Sequence[Mapping[str, Any]] = ()
) -> _Maybe:
    """What the process itself says: STATS, and the heartbeats of LAG; `saved` are those of one that does not answer."""
    stats = asked.stats.get(name, {})
    yield "trailgate_stats_since_timestamp_seconds", labels, seconds(stats.get("since_us"))
    for table in stats.get("tables", []):
        place = (*labels, str(table["from"]), str(table["to"]))
        counts = {key: value for key, value in table.items() if key not in _NO_COUNT} | (table.get("more") or {})
        for operation, value in counts.items():
            yield "trailgate_table_operations_total", (*place, operation), value
    for entry in asked.lags.get(name, {}).get("heartbeats", saved):
        beat = judged(dict(entry), now_us)
        place = (*labels, str(beat.get("from", "")), str(beat.get("to", "")), str(beat.get("path", "")))
        yield "trailgate_heartbeat_lag_seconds", place, seconds(beat.get("lag_us"))
        yield "trailgate_heartbeat_age_seconds", place, seconds(beat.get("age_us"))
        for stage in beat.get("stages", []) if beat.get("lag_us") is not None else []:
            named = (*labels, str(beat.get("path", "")), f"{stage['from']} to {stage['to']}")
            yield "trailgate_heartbeat_stage_seconds", named, seconds(stage["us"])


def seconds(length_us: int | None) -> float | None:
    """Microseconds as Prometheus wants them."""
    return None if length_us is None else length_us / _MICRO


def exposition(samples: Iterable[Sample]) -> tuple[bytes, str]:
    """(body, content type) as Prometheus reads it."""
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

    by_name: dict[str, dict[tuple[str, ...], float]] = {}
    for name, labels, value in samples:
        by_name.setdefault(name, {})[labels] = value

    class _Samples:
        """One scrape's figures; prometheus_client asks it for them."""

        def collect(self) -> Iterator[Metric]:
            for name, family in FAMILIES.items():
                if name not in by_name:
                    continue
                made = CounterMetricFamily if family.kind == COUNTER else GaugeMetricFamily
                metric = made(name, family.help, labels=family.labels)
                for labels, value in by_name[name].items():
                    metric.add_metric(list(labels), value)
                yield metric

    registry = CollectorRegistry()
    registry.register(_Samples())
    return generate_latest(registry), CONTENT_TYPE_LATEST
