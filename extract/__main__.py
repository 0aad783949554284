"""`python -P -m extract --home DIR GROUP`: one Extract group. Puts the parts together; no logic of its own."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, closing
from dataclasses import replace

from extract import kinds
from extract.carrier import Carrier
from extract.extract import Ears, Extract, Settings
from extract.heartbeat import Heart, Heartbeats, Owner
from extract.params import ExtractParams, check_start
from extract.source import CaptureMethod, SourceSettings
from extract.tabletask import TableTask, TaskSettings
from trails import kernels
from trails.errors import OperatorError
from trails.link import tls
from trails.position import TrailName
from trails.runtime.home import obeyed, purge
from trails.runtime.home.registration import Registration
from trails.runtime.language import globals as globals_file
from trails.runtime.language.heartbeattable import HeartbeatTable
from trails.runtime.language.remotehost import CarryOrder, RemoteHost
from trails.runtime.language.tableparams import environment
from trails.runtime.process import clockdiff
from trails.runtime.process.checking import is_asked, report_and_stop
from trails.runtime.process.loop import Process
from trails.runtime.process.startup import Context, main
from trails.runtime.report.report import RESOLVED
from trails.runtime.report.stats import DdlCounts

PRODUCT = "EXTRACT"
TROUBLE, LOG_KEPT, LONG = "TG-01223", "TG-01755", "TG-01027"
HOLE, NOTHING, SHAPE = "TG-01811", "TG-01812", "TG-01813"
LOADS = "TG-02243"


def build(context: Context) -> Process:
    """The process, ready to run."""
    from extract.checking import check, unmatched

    params = ExtractParams.from_statements(context.statements).resolved(context.home)
    registration = context.registration
    assert registration is not None
    if is_asked(context.statements):
        return report_and_stop(context, check(params, registration))
    if registration.is_task:
        return table_task(context, params)
    counts = DdlCounts(turned_away=lambda text: context.log.warning(SHAPE, f"{text}."))
    kind = kinds.of(params.url)
    method = kinds.method(kind, registration.method)
    of_home = globals_file.read(context.home)
    kernels.switch(on=of_home.one("KERNELS", True))
    told = replace(
        params.settings(registration.registered, HeartbeatTable.of(of_home), context.host, registration.method),
        scratch=context.home.folder("dirtmp"),
        journal=context.home.journal(params.group),
        reshaped=None if params.ddl else lambda text: context.log.warning(SHAPE, f"{text}."),
    )
    database = method.source(
        told, lambda text: context.log.warning(TROUBLE, text), lambda text: context.log.warning(LOG_KEPT, text), counts
    )
    made = Extract.start(
        context.fs, settings(context, params, registration), database, context.clock, heartbeats(context, method, told),
        Ears(
            long=lambda text, **fields: context.log.warning(LONG, text, **fields),
            detail=lambda text: context.log.detail(RESOLVED, text),
            hole=lambda hole: context.log.warning(HOLE, f"A hole begins here: {hole}."),
            obeyed=lambda number: obeyed.note(context.home, params.group, number), shape=told.reshaped,
        ),
    )  # fmt: skip
    made.stats.ddl = counts if params.ddl else None
    context.report.lines(made.about)
    with closing(kind.connect(params.url, f"trailgate {params.group}")) as connection:
        for text in unmatched(params, kind.tables(connection)):
            context.log.warning(NOTHING, f"{text}.")
    if made.lost:
        trail = TrailName.parse(params.trail, context.home.root)
        context.log.warning(purge.GONE, purge.gone(context.home, context.fs, trail, made.lost))
    return made


def table_task(context: Context, params: ExtractParams) -> Process:
    """The process of SOURCEISTABLE."""
    told = params.settings(None, HeartbeatTable.of(globals_file.read(context.home)), context.host)
    if not params.file:
        raise OperatorError(
            f"{params.group} reads tables: its parameter file must name EXTFILE, RMTFILE or RMTTASK, and no EXTTRAIL",
            hint="Mend it, then START",
        )
    name = TrailName.parse(params.file, context.home.root)
    if params.remote is not None:  # until it is sent it lies hidden in our dirdat, whatever folder it will be in
        name = TrailName.parse(os.path.join("dirdat", name.prefix), context.home.root)
    settings = TaskSettings(
        params.group, context.home.id, context.host, name, params.file, params.block_bytes, told.project,
        params.encrypt, params.task,
    )  # fmt: skip
    with ExitStack() as undo:
        reader = kinds.of(params.url).table_reader(told)
        undo.callback(reader.close)
        sending = carrier(context, params, params.remote) if params.remote is not None else None
        if sending is not None:
            undo.callback(sending.close)
        say = lambda text: context.log.info(LOADS, text)  # noqa: E731
        task = TableTask(context.fs, settings, reader, context.clock, say, sending)
        undo.pop_all()
    return task


def carrier(context: Context, params: ExtractParams, remote: RemoteHost) -> Carrier:
    """What sends the file to RMTHOST; what is wrong with the certificates stops START."""
    home = context.home
    for code, text in tls.cautions(remote.host, params.file, secure=remote.tls, encrypt=params.encrypt):
        context.log.warning(code, text)
    if remote.tls:
        tls.check_own(tls.folder_of(home.root), home.id)
    order = CarryOrder(home.root, params.group, context.host, remote, params.file, params.encrypt, params.task)
    return Carrier(order)


def settings(context: Context, params: ExtractParams, registration: Registration) -> Settings:
    """What the registration and the parameters say together."""
    if not params.trail:
        raise OperatorError(
            f"{params.group} captures changes: its parameter file must name EXTTRAIL, and no EXTFILE",
            hint="Mend it, then START",
        )
    wanted = TrailName.parse(params.trail, context.home.root)
    for trail in registration.trails:
        if TrailName.parse(trail.path, context.home.root) == wanted:
            break
    else:
        raise OperatorError(
            f"EXTTRAIL {params.trail} is not a trail of group {params.group}",
            hint=f"ADD EXTTRAIL {params.trail}, EXTRACT {params.group}, or mend the parameter file",
        )
    ordered = registration.start_no > registration.alter_no  # an ALTER behind it takes its place
    if ordered:
        check_start(params.url, registration.method, params.group)
    return Settings(
        params.group,
        context.home.id,
        context.host,
        wanted,
        trail.path,
        trail.megabytes << 20,
        registration.alter_no,
        tuple(kinds.placed(kinds.of(params.url), registration.alter).items()),
        obeyed.read(context.home, params.group),
        registration.start_no if ordered else 0,
        tuple(registration.start.items()) if ordered else (),
        params.flush_seconds,
        params.block_bytes,
        params.tables.projector(environment(params.group, context.host)),
        params.encrypt,
        params.long,
        registration.registered.place.time_us if registration.registered else None,
        saved_times(context),
    )


def saved_times(context: Context) -> tuple[tuple[str, int], ...]:
    """The time of each place that earlier runs saved, by CSN: this one begins at one of them, if it was stopped."""
    places = [
        place for save in context.previous for read in save.reads for place in (read.current, read.recovery) if place
    ]
    return tuple((place.csn, place.time_us) for place in places if place.time_us is not None)


def heartbeats(context: Context, method: CaptureMethod, told: SourceSettings) -> Heartbeats:
    """The thread that writes the seed row, not started yet, and what capture knows of heartbeats."""
    owner = Owner(context.home.id, told.group)
    limit = globals_file.read(context.home).one("CLOCKDIFFSECS", clockdiff.DEFAULT_SECONDS)
    heart = Heart(
        lambda: method.seed(told, owner), context.clock, limit, lambda text: context.log.warning(clockdiff.CODE, text)
    )
    made = Heartbeats(told.heartbeat, owner, context.clock, heart)
    made.arrivals.load(context.previous[0].extra.get("heartbeats") if context.previous else None)
    return made


if __name__ == "__main__":
    sys.exit(main(PRODUCT, sys.argv[1:], build))
