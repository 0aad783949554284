"""Every figure that INFO, LAG and STATS show, for Prometheus: names, help and labels in one table; their collection.

Rule: a figure that is not known is left out, never a zero; `trailgate_lag_known` says that a lag is missing. Running
groups are asked all at once, a second each at most. Figures are of this home only: another home's page tells its own.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from ggsci.facts import GroupFacts
from ggsci.flow.pipelines import Pipeline, Stage, facts_of
from ggsci.web.watch import HomeView, home_name
from trails.checkpoint import Place, WriteCheckpoint
from trails.errors import GateError
from trails.heartbeat import judged
from trails.runtime.home import registration as registrations
from trails.runtime.home.home import MANAGER, Home
from trails.runtime.process.control import ask
from trails.runtime.process.diskguard import BYTES, FILES
from trails.runtime.report.answers import LagAnswer, read_answer
from trails.runtime.report.report import release

ASK_SECONDS = 1.0
_RELEASE = release("unknown")
GAUGE, COUNTER = "gauge", "counter"
_GROUP = ("home", "program", "group")
_MICRO = 1_000_000


Value = Callable[[Any], float | None]


@dataclass(frozen=True, slots=True)
class Family:
    """One name: its kind, its help, its labels; `of` takes its value from a stage, a group or a pipeline."""

    kind: str
    help: str
    labels: tuple[str, ...] = _GROUP
    of: Value = lambda _: None


def seconds(length_us: int | None) -> float | None:
    """Microseconds as Prometheus wants them."""
    return None if length_us is None else length_us / _MICRO


def _extra(name: str, unit: int = 1) -> Value:
    """A figure of a stage's `extra`, of which `unit` are one of the family's."""

    def value(stage: Stage) -> float | None:
        found = stage.extra.get(name)
        return found / unit if isinstance(found, int | float) and not isinstance(found, bool) else None

    return value


def _told_as(name: str, unit: int = 1) -> Value:
    """A figure of a table that is loaded, of which `unit` are one of the family's."""
    return lambda table: None if table.get(name) is None else table[name] / unit


_PIPELINE = ("home", "pipeline")
_LOADED = (*_GROUP, "table", "target")
_PATH = (*_GROUP, "from", "to", "path")
_DISK = ("home", "path")

_OF_PIPELINE = {
    "trailgate_pipeline_lag_known": Family(
        GAUGE, "1 if the lag from end to end is known now.", _PIPELINE, lambda one: one.lag_us is not None
    ),
    "trailgate_pipeline_lag_seconds": Family(
        GAUGE, "Lag from end to end: that of the slowest stage.", _PIPELINE, lambda one: seconds(one.lag_us)
    ),
    "trailgate_pipeline_lag_age_seconds": Family(
        GAUGE, "How old the last truth about that lag is.", _PIPELINE, lambda one: seconds(one.lag_age_us)
    ),
}

_OF_GROUP = {
    name: Family(GAUGE, text, of=of)
    for name, text, of in (
        ("trailgate_group_up", "1 while the group's process runs.", lambda one: one.status == "RUNNING"),
        ("trailgate_started_timestamp_seconds", "When the last run started.", lambda one: seconds(one.started_us)),
        ("trailgate_exit_code", "Exit code of the last run, once it has ended.", lambda one: one.exit_code),
        ("trailgate_checkpoint_lag_seconds", "Lag at the last checkpoint, as INFO tells it.",
         lambda one: seconds(one.lag_us)),
        ("trailgate_checkpoint_age_seconds", "Time since the last checkpoint.", lambda one: seconds(one.since_us)),
    )
}  # fmt: skip

_STAGE_GAUGES: Sequence[tuple[str, str, Value]] = (
    ("lag_known", "1 if the lag is known now.", lambda one: one.lag_us is not None),
    ("lag_seconds", "How far the group is behind the source, as LAG tells it.", lambda one: seconds(one.lag_us)),
    ("lag_age_seconds", "How old the last known lag is.", lambda one: seconds(one.lag_age_us)),
    ("backlog_bytes", "Bytes that wait to be read by the group.", lambda one: one.backlog_bytes),
    ("backlog_seconds", "The same in time of the source.", lambda one: seconds(one.backlog_us)),
    ("holds_back", "1 for the stage that the others of its pipeline wait for.", lambda one: one.holds_back),
    ("busy_ratio", "Share of the last ten seconds in which the group did not wait.", lambda one: one.busy),
    ("turn_age_seconds", "Time since the last turn of the process's main loop.", _extra("turn_age_us", _MICRO)),
    ("log_kept_bytes", "Log that the source keeps for the group.", _extra("log_kept_bytes")),
    ("log_headroom_bytes", "Log that the source may still keep before it gives it up.", _extra("log_headroom_bytes")),
    ("log_limit_bytes", "Log that the source keeps for a group at most, if it has a limit.", _extra("log_limit_bytes")),
    ("log_checked_timestamp_seconds", "When the log that the source keeps was looked at last.",
     _extra("log_checked_us", _MICRO)),
    ("clock_offset_seconds", "How far the next host's clock is ahead of this one.", _extra("clock_offset_us", _MICRO)),
    ("clock_error_seconds", "How far the clock offset may be off.", _extra("clock_error_us", _MICRO)),
    ("newest_timestamp_seconds", "Commit time of the newest change that the group passed on.",
     _extra("newest_us", _MICRO)),
    ("input_timestamp_seconds", "When the trail that the group reads was last written.", _extra("input_us", _MICRO)),
    ("blocked_ratio", "Pump: share of the last ten seconds in which nothing more could be sent.", _extra("blocked")),
    ("target_ratio", "Replicat: share of the last ten seconds that the target took.", _extra("output_share")),
    ("inflight_bytes", "Pump: bytes sent and not yet acknowledged.", _extra("inflight_bytes")),
    ("window_bytes", "Pump: so many may be in flight.", _extra("window_bytes")),
)  # fmt: skip
_STAGE_COUNTERS = (
    ("changes_total", "Changes since the process started.", "operations"),
    ("transactions_total", "Transactions since the process started.", "transactions"),
    ("read_bytes_total", "Bytes read since the process started.", "bytes_in"),
    ("written_bytes_total", "Bytes written since the process started.", "bytes_out"),
    ("batches_total", "Replicat: batches committed since the process started.", "batches"),
    ("discarded_rows_total", "Replicat: rows discarded since the process started.", "rows_discarded"),
    ("collisions_total", "Replicat: collisions handled since the process started.", "collisions"),
    ("converted_values_total", "Replicat: values converted by a declared rule since the process started.",
     "values_converted"),
)  # fmt: skip
_OF_STAGE = {f"trailgate_{name}": Family(GAUGE, text, of=of) for name, text, of in _STAGE_GAUGES} | {
    f"trailgate_{name}": Family(COUNTER, text, of=_extra(key)) for name, text, key in _STAGE_COUNTERS
}

_OF_PLACE = {
    f"trailgate_{what}_{name}": Family(GAUGE, text, (*_GROUP, label))
    for what, label, seqno, rba, when in (
        ("read", "source", "Read checkpoint: file number.", "Read checkpoint: RBA.",
         "Read checkpoint: when that change was made."),
        ("recovery", "source", "Recovery checkpoint, the oldest place still needed: file number.",
         "Recovery checkpoint: RBA.", "Recovery checkpoint: when that change was made."),
        ("write", "trail", "Write checkpoint: file number.", "Write checkpoint: RBA.",
         "Write checkpoint: when it was written."),
    )
    for name, text in (("seqno", seqno), ("rba_bytes", rba), ("timestamp_seconds", when))
}  # fmt: skip

_OF_LOAD = {
    f"trailgate_load_{name}": Family(GAUGE, f"Initial load of a table that is not live: {text}", _LOADED, of)
    for name, text, of in (
        ("chunks", "its chunks, once they are planned.", _told_as("chunks")),
        ("copied_chunks", "chunks that are copied.", _told_as("chunks_done")),
        ("rows", "rows of those.", _told_as("rows")),
        ("bytes", "bytes of those.", _told_as("bytes")),
        ("rows_per_second", "rows copied a second, of late.", _told_as("rows_s")),
        ("left_seconds", "time until the last chunk is copied, at that rate.", _told_as("left_us", _MICRO)),
    )
}

FAMILIES: Mapping[str, Family] = {
    "trailgate_build_info": Family(GAUGE, "1, with the release and its Python.", ("home", "version", "python")),
    "trailgate_picture_age_seconds": Family(GAUGE, "Age of what the page shows.", ("home",)),
    "trailgate_manager_up": Family(GAUGE, "1 while the Manager runs.", ("home",)),
    "trailgate_restarts": Family(GAUGE, "Restarts in a row by AUTORESTART.", ("home", "group")),
    "trailgate_disk_free_bytes": Family(GAUGE, "Free space of a file system that the home uses.", _DISK),
    "trailgate_disk_size_bytes": Family(GAUGE, "Size of that file system.", _DISK),
    "trailgate_disk_warn_bytes": Family(GAUGE, "DISKWARN: less free space than this is warned of.", _DISK),
    "trailgate_disk_free_files": Family(GAUGE, "Files that it still takes (inodes).", _DISK),
    "trailgate_disk_stop_bytes": Family(GAUGE, "DISKSTOP: with less free space writers stop.", _DISK),
    "trailgate_pipeline_status": Family(
        GAUGE, "1 for the pipeline's present status; RUNNING only while it is seen to work.", (*_PIPELINE, "status")
    ),
    **_OF_PIPELINE,
    "trailgate_group_status": Family(GAUGE, "1 for the group's present status.", (*_GROUP, "status")),
    **_OF_GROUP,
    "trailgate_heartbeat_lag_seconds": Family(GAUGE, "Lag of a path by its last heartbeat.", _PATH),
    "trailgate_heartbeat_age_seconds": Family(GAUGE, "Age of a path's last heartbeat.", _PATH),
    "trailgate_heartbeat_overdue": Family(GAUGE, "1 if a heartbeat was due on this path and has not come.", _PATH),
    "trailgate_heartbeat_stage_seconds": Family(
        GAUGE, "What one stage of a path took of that.", (*_GROUP, "path", "stage")
    ),
    **_OF_STAGE,
    **_OF_PLACE,
    "trailgate_load_tables": Family(GAUGE, "Initial load: tables in this state.", (*_GROUP, "state")),
    **_OF_LOAD,
    "trailgate_log_status": Family(
        GAUGE, "1 for the present status of the log that the source keeps; lost needs a re-sync.", (*_GROUP, "status")
    ),
    "trailgate_stats_since_timestamp_seconds": Family(GAUGE, "STATS: when the totals began."),
    "trailgate_table_operations_total": Family(
        COUNTER, "STATS: operations of a table since the process started.", (*_GROUP, "table", "target", "operation")
    ),
}

_NO_COUNT = ("from", "to", "more", "operations")
_STATUSES = ("STARTING", "RUNNING", "STOPPED", "ABENDED")
_PIPELINE_STATUSES = (*_STATUSES, "UNKNOWN")

Sample = tuple[str, tuple[str, ...], float]
"""Family, values of its labels, value."""


@dataclass(slots=True)
class Asked:
    """What the processes of a home answered just now."""

    stats: dict[str, dict[str, Any]] = field(default_factory=dict)
    lags: dict[str, LagAnswer] = field(default_factory=dict)
    manager: dict[str, Any] = field(default_factory=dict)


def collect(home: Home, view: HomeView, age_us: int, found: Iterable[Pipeline], now_us: int) -> list[Sample]:
    """All samples of this home. What can't be read is left out; the page tells why."""
    groups = facts_of(home, registrations.lasting(home), now_us)
    asked = _ask_all(home, groups)
    ours = [pipeline for pipeline in found if any(home_name(stage) == view.name for stage in pipeline.stages)]
    samples = [*_home(view, age_us, asked)]
    for pipeline in ours:
        samples += _of_pipeline(pipeline, (view.name, pipeline.name))
    known = {s.name: s for pipeline in ours for s in pipeline.stages if home_name(s) == view.name}
    for group in groups:
        stage = known.get(group.name)
        labels = (view.name, group.registration.package.upper(), group.name)
        samples += [
            *_of_files(group, labels),
            *_of_stage(stage, labels),
            *_of_load(stage.extra if stage is not None else {}, labels),
            *_of_answers(asked, group.name, labels, now_us, group.saved_heartbeats),
        ]
    return [(name, labels, value) for name, labels, value in samples if value is not None]


# --- asking -----------------------------------------------------------------------------------------------------------


def _ask_all(home: Home, groups: list[GroupFacts]) -> Asked:
    asked = Asked()
    running = [group.name for group in groups if group.status == "RUNNING"]
    jobs = [(name, verb) for name in running for verb in ("STATS", "GETLAG")]

    def one(job: tuple[str, str]) -> None:
        name, verb = job
        answer = _answer(home, name, verb)
        if answer and verb == "STATS":
            asked.stats[name] = answer
        elif "heartbeats" in answer:
            asked.lags[name] = read_answer(LagAnswer, answer)

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
    yield "trailgate_build_info", (view.name, _RELEASE, platform.python_version()), 1.0
    yield "trailgate_picture_age_seconds", labels, age_us / _MICRO
    yield "trailgate_manager_up", labels, None if view.trouble else float(view.manager == "RUNNING")
    for child in asked.manager.get("children", []):
        yield "trailgate_restarts", (view.name, str(child["group"])), child.get("retries")
    for disk in disks(view):
        place = (view.name, str(disk.get("path")))
        for name in ("free", "size", "warn", "stop"):
            is_bound = name in ("warn", "stop")  # of 0 is none
            yield f"trailgate_disk_{name}_bytes", place, (disk.get(name) or None) if is_bound else disk.get(name)
    for disk in disks(view, FILES):
        yield "trailgate_disk_free_files", (view.name, str(disk.get("path"))), disk.get("free")


def disks(view: HomeView, unit: str = BYTES) -> list[dict[str, Any]]:
    """The file systems that the Manager watches, counted in bytes or in files."""
    return [disk for disk in view.details.get("disks") or [] if disk.get("unit", BYTES) == unit]


def _of_pipeline(pipeline: Pipeline, labels: tuple[str, ...]) -> _Maybe:
    for status in _PIPELINE_STATUSES:
        yield "trailgate_pipeline_status", (*labels, status), float(pipeline.state == status)
    yield from _told(_OF_PIPELINE, pipeline, labels)


def _of_files(group: GroupFacts, labels: tuple[str, ...]) -> _Maybe:
    """What INFO shows."""
    for status in _STATUSES:
        yield "trailgate_group_status", (*labels, status), float(group.status == status)
    yield from _told(_OF_GROUP, group, labels)
    checkpoint = group.checkpoint
    for read in checkpoint.reads if checkpoint else ():
        thread = f" thread {read.current.thread}" if read.current.thread else ""
        source = group.registration.trail or read.source + thread
        yield from _of_place("read", read.current, (*labels, source))
        if read.recovery is not None:
            yield from _of_place("recovery", read.recovery, (*labels, source))
    for write in checkpoint.writes if checkpoint else ():
        yield from _of_place("write", write, (*labels, write.trail))


def _of_place(what: str, place: Place | WriteCheckpoint, labels: tuple[str, ...]) -> _Maybe:
    yield f"trailgate_{what}_seqno", labels, place.seqno
    yield f"trailgate_{what}_rba_bytes", labels, place.rba
    yield f"trailgate_{what}_timestamp_seconds", labels, seconds(place.time_us or None)


def _of_stage(stage: Stage | None, labels: tuple[str, ...]) -> _Maybe:
    """What the pipeline's picture shows."""
    if stage is not None:
        yield from _told(_OF_STAGE, stage, labels)
        if log_status := stage.extra.get("log_status"):
            yield "trailgate_log_status", (*labels, str(log_status)), 1.0


def _of_load(extra: Mapping[str, Any], labels: tuple[str, ...]) -> _Maybe:
    """What a Replicat that runs tells of the tables that it loads."""
    for state, count in (extra.get("load_states") or {}).items():
        yield "trailgate_load_tables", (*labels, state), count
    for table in extra.get("loading") or []:
        yield from _told(_OF_LOAD, table, (*labels, table["source"], table["target"]))


def _told(families: Mapping[str, Family], of: Any, labels: tuple[str, ...]) -> _Maybe:
    """What a table takes from one pipeline, group or stage."""
    return ((name, labels, family.of(of)) for name, family in families.items())


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
    for entry in asked.lags[name].heartbeats if name in asked.lags else saved:
        beat = judged(dict(entry), now_us)
        place = (*labels, str(beat.get("from", "")), str(beat.get("to", "")), str(beat.get("path", "")))
        yield "trailgate_heartbeat_lag_seconds", place, seconds(beat.get("lag_us"))
        yield "trailgate_heartbeat_age_seconds", place, seconds(beat.get("age_us"))
        yield "trailgate_heartbeat_overdue", place, float(beat["late"])
        for stage in beat.get("stages", []) if beat.get("lag_us") is not None else []:
            named = (*labels, str(beat.get("path", "")), f"{stage['from']} to {stage['to']}")
            yield "trailgate_heartbeat_stage_seconds", named, seconds(stage["us"])


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
