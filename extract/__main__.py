"""`python -P -m extract --home DIR GROUP`: one Extract group. Puts the parts together; no logic of its own."""

from __future__ import annotations

import gc
import sys

from extract.extract import Extract, Settings
from extract.params import ExtractParams
from extract.source import Source
from trails.errors import OperatorError
from trails.position import TrailName
from trails.runtime.process import Context, main
from trails.runtime.registration import Registration
from trails.runtime.tableparams import Projector, environment

PRODUCT = "EXTRACT"
TROUBLE = "TG-01223"


def build(context: Context) -> Extract:
    """The process, ready to run."""
    # Records hold no cycles; at the default thresholds the collector looks through every block's records ten times.
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    params = ExtractParams.from_statements(context.statements)
    registration = context.registration
    assert registration is not None
    return Extract.start(context.fs, settings(context, params, registration), source(context, params), context.clock)


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
    )


def project(context: Context, params: ExtractParams) -> Projector | None:
    """What TABLE's options make of tables; None if there are none."""
    return params.tables.projector(environment(params.group, context.host))


def source(context: Context, params: ExtractParams) -> Source:
    """The source that SOURCEDB names. The driver is imported here, and nowhere before."""
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
        ),
        params.captures,
        lambda text: context.log.warning(TROUBLE, text),
        project(context, params),
        params.tables.befores,
    )


if __name__ == "__main__":
    sys.exit(main(PRODUCT, sys.argv[1:], build))
