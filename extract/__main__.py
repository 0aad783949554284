"""`python -P -m extract --home DIR GROUP`: one Extract group. Puts the parts together; no logic of its own."""

from __future__ import annotations

import gc
import sys

from extract.extract import Extract, Settings
from extract.heartbeat import Heart, Heartbeats, Owner, Seed
from extract.params import ExtractParams
from extract.source import Source
from trails.errors import OperatorError
from trails.position import TrailName
from trails.runtime import clockdiff
from trails.runtime import globals as globals_file
from trails.runtime.checking import is_asked, report_and_stop
from trails.runtime.heartbeattable import HeartbeatTable
from trails.runtime.process import Context, Process, main
from trails.runtime.registration import Registration
from trails.runtime.report import RESOLVED
from trails.runtime.tableparams import Projector, environment

PRODUCT = "EXTRACT"
TROUBLE, LOG_KEPT, LONG = "TG-01223", "TG-01755", "TG-01027"


def build(context: Context) -> Process:
    """The process, ready to run."""
    # Records hold no cycles; at the default thresholds the collector looks through every block's records ten times.
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    params = ExtractParams.from_statements(context.statements).resolved(context.home)
    registration = context.registration
    assert registration is not None
    if is_asked(context.statements):
        from extract.checking import check

        return report_and_stop(context, check(params, registration))
    database = source(context, params)
    made = Extract.start(
        context.fs, settings(context, params, registration), database, context.clock, heartbeats(context, params),
        lambda text, **fields: context.log.warning(LONG, text, **fields),
        lambda text: context.log.detail(RESOLVED, text),
    )  # fmt: skip
    context.report.lines(database.about())
    return made


def settings(context: Context, params: ExtractParams, registration: Registration) -> Settings:
    """What the registration and the parameters say together."""
    wanted = TrailName.parse(params.trail, context.home.root)
    for trail in registration.trails:
        if TrailName.parse(trail.path, context.home.root) == wanted:
            break
    else:
        raise OperatorError(
            f"EXTTRAIL {params.trail} is not a trail of group {params.group}",
            hint=f"ADD EXTTRAIL {params.trail}, EXTRACT {params.group}, or mend the parameter file",
        )
    return Settings(
        params.group,
        context.home.id,
        context.host,
        wanted,
        trail.path,
        trail.megabytes << 20,
        registration.alter_no,
        tuple(registration.alter.items()),
        params.flush_seconds,
        params.block_bytes,
        project(context, params),
        params.encrypt,
        params.long,
    )


def project(context: Context, params: ExtractParams) -> Projector | None:
    """What TABLE's options make of tables; None if there are none."""
    return params.tables.projector(environment(params.group, context.host))


def heartbeats(context: Context, params: ExtractParams) -> Heartbeats:
    """The thread that writes the seed row, not started yet, and what capture knows of heartbeats."""
    found = globals_file.read(context.home)
    table, owner = HeartbeatTable.of(found), Owner(context.home.id, params.group)
    publication = context.registration.slot.get("publication", "") if context.registration else ""

    def seed() -> Seed:
        from extract.sources.pgheart import PostgresSeed

        return PostgresSeed(params.url, table, owner, publication)

    limit = found.one("CLOCKDIFFSECS", clockdiff.DEFAULT_SECONDS)
    heart = Heart(seed, context.clock, limit, lambda text: context.log.warning(clockdiff.CODE, text))
    made = Heartbeats(table, owner, context.clock, heart)
    made.arrivals.load(context.previous[0].extra.get("heartbeats") if context.previous else None)
    return made


def source(context: Context, params: ExtractParams) -> Source:
    """The source that SOURCEDB names. The driver is imported here, and nowhere before."""
    from extract.sources.pgguard import WalLimits
    from extract.sources.postgres import PostgresSettings, PostgresSource

    slot = context.registration.slot if context.registration else {}
    if not slot.get("slot"):
        raise OperatorError(
            f"group {params.group} has no replication slot", hint=f"DBLOGIN, then REGISTER EXTRACT {params.group}"
        )
    return PostgresSource(
        PostgresSettings(
            params.url,
            params.group,
            slot["slot"],
            slot["publication"],
            slot["lsn"],
            {"system": str(slot.get("systemid", "")), "database": str(slot.get("dbname", ""))},
            params.reconnect_seconds,
            params.ddl,
            WalLimits.of(params.wal_warn, params.wal_critical),
            HeartbeatTable.of(globals_file.read(context.home)),
        ),
        params.captures,
        lambda text: context.log.warning(TROUBLE, text),
        project(context, params),
        params.tables.befores,
        lambda text: context.log.warning(LOG_KEPT, text),
    )


if __name__ == "__main__":
    sys.exit(main(PRODUCT, sys.argv[1:], build))
