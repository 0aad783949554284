"""`python -P -m replicat --home DIR GROUP`: builds the process from its parameters and runs it."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile

from replicat.params import ReplicatParams, exact_table
from replicat.target import Target
from trails.errors import OperatorError
from trails.position import TrailName
from trails.runtime.process import Context, Process, main

MESSAGE = "TG-02243"
MEMORY_NEEDED = 512 << 20
LONGEST_FOLDER = 60


def build(context: Context) -> Process:
    """Everything a Replicat needs, in the order in which it is cheapest to find out what is wrong."""
    from replicat.engine import SparkEngine, SparkSettings
    from replicat.replicat import Replicat

    params = ReplicatParams.from_statements(context.statements, context.parameter_file)
    registration = context.registration
    assert registration is not None
    trail = TrailName.parse(registration.trail, context.home.root)
    target = _target(context, params)
    target.connect()  # a wrong password should not cost the seconds that Spark takes to start
    settings = SparkSettings(
        name=f"trailgate {context.group}",
        scratch=scratch_folder(context.home.root, context.home.folder("dirtmp"), context.group),
        log=os.path.join(context.home.folder("dirrpt"), f"{context.group}.spark.log"),
        master=params.spark_master,
        megabytes=params.spark_megabytes,
        options=params.spark_options,
    )
    engine = SparkEngine(settings)
    try:
        return Replicat(
            params,
            registration,
            trail,
            fs=context.fs,
            clock=context.clock,
            target=target,
            engine=engine,
            spill=settings.scratch if settings.local else "",
            note=lambda text: context.log.info(MESSAGE, text),
        )
    except BaseException:
        target.close()
        engine.close()
        raise


def scratch_folder(root: str, dirtmp: str, group: str) -> str:
    """Spark's own private folder: in memory where the machine offers enough of it, else in the home.

    Spark puts unix sockets there, whose paths are short by nature.
    """
    home = hashlib.blake2b(root.encode(), digest_size=8).hexdigest()
    private = f"trailgate-{os.geteuid()}-{home}-{group}"
    if os.access("/dev/shm", os.W_OK | os.X_OK) and shutil.disk_usage("/dev/shm").free >= MEMORY_NEEDED:
        return f"/dev/shm/{private}"
    folder = os.path.join(dirtmp, f"spark-{group}")
    return folder if len(folder) <= LONGEST_FOLDER else os.path.join(tempfile.gettempdir(), private)


def _target(context: Context, params: ReplicatParams) -> Target:
    from replicat.targets.postgres import PostgresSettings, PostgresTarget

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
    return PostgresTarget(
        PostgresSettings(
            url=params.target_url,
            checkpoint_table=table,
            group=context.group,
            group_key=registration.group_key,
            home=context.home.root,
            commit_wait=params.commit_wait,
        )
    )


if __name__ == "__main__":
    sys.exit(main("REPLICAT", sys.argv[1:], build))
