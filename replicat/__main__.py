"""`python -P -m replicat --home DIR GROUP`: builds the process from its parameters and runs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from replicat.params import ReplicatParams, exact_table
from replicat.settings import End
from trails import kernels
from trails.checkpoint import load
from trails.errors import DamageError, OperatorError, VersionError
from trails.format import SNAPSHOT
from trails.fs import Fs
from trails.position import TrailName
from trails.reader import is_encrypted, last_header
from trails.runtime.home.registration import Registration
from trails.runtime.language import globals as globals_file
from trails.runtime.language.heartbeattable import HeartbeatTable
from trails.runtime.process import clockdiff
from trails.runtime.process.checking import Checked, report_and_stop
from trails.runtime.process.loop import Process
from trails.runtime.process.startup import Context, main
from trails.runtime.report.report import RESOLVED, Log

if TYPE_CHECKING:  # each costs time, in which Spark could be starting already
    from replicat.apply.discard import Discards
    from replicat.batches.engine import SparkEngine, SparkSettings
    from replicat.batches.scratch import Scratch
    from replicat.run.heartbeat import ReplicatHeartbeats
    from replicat.run.replicat import Replicat
    from replicat.targets.contract import Target, TargetSettings

MESSAGE = "TG-02243"
DISCARDED = "TG-01154"
LEFT_OUT = "TG-01811"
EACH_A_JOB = (
    "Each batch is a Spark job, as no tasks can stay with workers elsewhere: SPARKOPTIONS lacks "
    "spark.authenticate=true and spark.network.crypto.enabled=true"
)


def build(context: Context) -> Process:
    """Everything a Replicat needs.

    Spark's JVM takes a second or two until it answers, so it is launched as soon as it is known with what. All else is
    imported, and found to be right or wrong, meanwhile.
    """
    from replicat.batches.engine import SparkEngine
    from replicat.batches.jvm import StopAskedError
    from replicat.batches.scratch import Scratch

    kernels.switch(on=globals_file.read(context.home).one("KERNELS", True))
    params = ReplicatParams.from_statements(context.statements, context.parameter_file).resolved(context.home)
    registration = context.registration
    assert registration is not None
    if params.check_only:
        from replicat.run.checking import check

        return report_and_stop(context, check(params, registration, context.home, context.fs))
    trail = replace(TrailName.parse(registration.trail, context.home.root), sealed=params.decrypt)
    if registration.is_task:
        params = of_task(params, context.fs, trail, registration.trail)
    encrypted = is_encrypted(context.fs, trail)
    scratch = Scratch(context.home.root, context.home.folder("dirtmp"), context.group)
    spark = _spark(context, params, scratch, encrypted=encrypted)
    engine = SparkEngine(spark, scratch.release, lambda: context.stop.requested)
    with ExitStack() as undone:
        undone.callback(engine.close)
        try:
            engine.launch()
            target = _target(context, params)
            undone.callback(target.close)
            target.connect()
            context.report.lines(_about(target))
            private = spark.scratch if scratch.in_memory or not encrypted else ""
            process = _replicat(context, params, trail, target, engine, spark.local, private)
            if not process.finished():
                engine.start()  # what is found to be wrong, or done, does not wait for it
        except StopAskedError:  # nothing was begun
            return Checked()
        undone.pop_all()
        return process


def _replicat(
    context: Context,
    params: ReplicatParams,
    trail: TrailName,
    target: Target,
    engine: SparkEngine,
    local: bool,
    private: str,
) -> Replicat:
    """`private`: a folder for rows on their way; empty where they are encrypted, and it is on a disk."""
    from replicat.load.rounds import LoadSettings
    from replicat.run.replicat import Replicat

    registration = context.registration
    assert registration is not None
    return Replicat(
        params,
        registration,
        trail,
        fs=context.fs,
        clock=context.clock,
        target=target,
        engine=engine,
        spill=private if local else "",
        note=notes(context.log),
        warn=lambda text: context.log.warning(LEFT_OUT, text),
        tell=lambda text: context.log.detail(RESOLVED, text),
        seen=_seen(context, registration),
        discards=_discards(context, params),
        heartbeats=_heartbeats(context, params, target),
        load=LoadSettings(
            url=params.source_url,
            target=_target_settings(context, params),
            table=_checkpoint_table(context, params),
            tasks=params.load_tasks,
            rows=params.load_chunk,
            rate=params.load_rate,
            folder=private,
        ),
    )


def _spark(context: Context, params: ReplicatParams, scratch: Scratch, *, encrypted: bool) -> SparkSettings:
    from replicat.batches.classes import ClassArchive
    from replicat.batches.door import seals
    from replicat.batches.engine import JOBS, SparkSettings
    from replicat.batches.planning import asks_spark

    settings = SparkSettings(
        name=f"trailgate {context.group}",
        scratch=scratch.folder,
        lock=scratch.lock,
        log=os.path.join(context.home.folder("dirrpt"), f"{context.group}.spark.log"),
        master=params.spark_master,
        megabytes=params.spark_megabytes,
        options=params.spark_options,
        encrypted=encrypted,
        jobs=max(JOBS, params.load_tasks),
        classes=ClassArchive.of(context.home.folder("dirtmp"), context.group, sql=asks_spark(params.maps)),
    )
    if not settings.local and not seals(settings.options):
        notes(context.log)(EACH_A_JOB)
    return settings


def of_task(params: ReplicatParams, fs: Fs, file: TrailName, text: str) -> ReplicatParams:
    """The parameters with which a file of SOURCEISTABLE is applied to its end. Raises OperatorError for any other."""
    if params.end is not None and params.end != End():
        raise OperatorError("a task applies its whole file", hint="Remove END, or write END RUNTIME")
    header = last_header(fs, file)
    if header is None:
        raise OperatorError(f"EXTFILE {text}: {file.path(0)} is not there", hint="START its Extract, or copy it here")
    if SNAPSHOT not in header.source:
        raise OperatorError(
            f"EXTFILE {text}: expected a file of SOURCEISTABLE, found the trail of group {header.group}",
            hint="ADD REPLICAT ..., EXTTRAIL reads a trail",
        )
    return replace(params, end=End(whole=True))


def notes(log: Log) -> Callable[[str], None]:
    """Messages of the process; one that comes with each batch, all day long, is a line a minute."""
    return lambda text: log.info(MESSAGE, text, alike=text)


def _seen(context: Context, registration: Registration) -> int | None:
    """The ALTER number that the group's checkpoint row bore at the last save; None if no save tells of a row."""
    try:
        saves = load(context.fs, context.home.checkpoint(context.group, "REPLICAT"))
    except (DamageError, VersionError):
        return None  # it costs this one check, nothing else
    known = [save.extra for save in saves if save.extra.get("group_key") == registration.group_key]
    return int(known[0].get("alter_no", 0)) if known and known[0].get("trail_id") else None


def _heartbeats(context: Context, params: ReplicatParams, target: Target) -> ReplicatHeartbeats:
    """Where GLOBALS has them; the figures of the run before are kept with their age."""
    from replicat.run.heartbeat import HeartbeatEnd, ReplicatHeartbeats

    registration = context.registration
    assert registration is not None
    found = globals_file.read(context.home)
    database = os.path.basename(unquote(urlsplit(params.target_url).path))
    made = ReplicatHeartbeats(
        HeartbeatTable.of(found),
        HeartbeatEnd(context.group, registration.group_key, database),
        target,
        context.clock,
        found.one("CLOCKDIFFSECS", clockdiff.DEFAULT_SECONDS),
        lambda text: context.log.warning(clockdiff.CODE, text),
    )
    made.arrivals.load(context.previous[0].extra.get("heartbeats") if context.previous else None)
    return made


def _discards(context: Context, params: ReplicatParams) -> Discards:
    """What REPERROR says; the discard file is only there for who discards."""
    from replicat.apply.discard import Discards, needs_file
    from replicat.apply.discardfile import DiscardFile

    file = None
    if needs_file(params):
        file = DiscardFile(
            context.fs,
            params.discard_path(context.home),
            params.discard_file.megabytes,
            purge=params.discard_file.purge,
            title=f"Trailgate Delivery discard file, begun by group {context.group}",
        )
    return Discards(
        context.group,
        params.error_rules,
        file,
        clock=context.clock,
        warn=lambda text: context.log.warning(DISCARDED, text),
    )


def _about(target: Target) -> list[str]:
    """For the report: the target's version and character set."""
    version, characters = target.read(target.kind.about)[0]
    return ["Database Version:", f"{version}", "", "Database Language and Character Set:", f"{characters}", ""]


def _target(context: Context, params: ReplicatParams) -> Target:
    from replicat.targets.kinds import open_target

    return open_target(_target_settings(context, params))


def _target_settings(context: Context, params: ReplicatParams) -> TargetSettings:
    from replicat.targets.contract import TargetSettings

    registration = context.registration
    assert registration is not None
    return TargetSettings(
        url=params.target_url,
        checkpoint_table=_checkpoint_table(context, params),
        group=context.group,
        group_key=registration.group_key,
        home=context.home.root,
        commit_wait=params.commit_wait,
        suppress_triggers=params.db_options.suppress_triggers,
        defer_constraints=params.db_options.defer_ref_const,
        follow_sequences=params.db_options.follow_sequences,
    )


def _checkpoint_table(context: Context, params: ReplicatParams) -> tuple[str, str]:
    registration = context.registration
    assert registration is not None
    table = params.checkpoint_table
    if table is None and registration.checkpoint_table:
        table = exact_table(registration.checkpoint_table)
    if table is None:
        raise OperatorError(
            f"no checkpoint table for {context.group}: without one a crash could apply changes twice",
            hint="ADD CHECKPOINTTABLE schema.table, then name it by CHECKPOINTTABLE in the parameter file",
        )
    return table


if __name__ == "__main__":
    sys.exit(main("REPLICAT", sys.argv[1:], build))
