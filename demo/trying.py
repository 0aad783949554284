"""`python -m demo.trying`: a pipeline that stays, with its page, for those who want to look at one.

Two PostgreSQL servers and two homes below one folder, as the demo has them; the last lines say what to do with them.
`--down` stops and removes all of it. Exit codes: 0, or 2 with a line that says why it can't be done.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import sys
from pathlib import Path

from demo import workload
from demo.__main__ import make_servers, prepare
from demo.embedded import ServerError
from demo.patience import WaitError
from demo.pipeline import Options, Pipeline, PipelineError
from demo.ports import free_port
from demo.screen import Screen
from demo.servers import PostgresServer

FOLDER = Path("try-homes")
DATABASES = ("shop", "copy")
HEARTBEATS = "ADD HEARTBEATTABLE, FREQUENCY 2"


def up(folder: Path, screen: Screen) -> None:
    """Make it, start it, leave it, and tell about it. What is half made is removed again."""
    prepare(folder)
    servers = make_servers(folder)
    urls = [server.url(name) for server, name in zip(servers, DATABASES, strict=True)]
    options = Options(checkpoint_seconds=2)
    pipeline = Pipeline(folder, urls[0], urls[1], options, servers=[server.data for server in servers])
    try:
        with screen.phase("Two servers") as line:
            for server, name in zip(servers, DATABASES, strict=True):
                server.start()
                server.sql(f"CREATE DATABASE {name}")
                workload.create_tables(server.url(name))
            line.update("PostgreSQL, a database shop and a database copy")
        with screen.phase("Two homes") as line:
            _make(pipeline)
            line.update("EXT1 and PMP1 at the source, REP1 at the target")
        with screen.phase("Start") as line:
            pipeline.start()
            workload.fill(urls[0])
            pipeline.source.run("WAIT EXTRACT *")
            pipeline.target.run("WAIT REPLICAT *")
            line.update("everything runs, the first rows are at the target")
    except BaseException:
        pipeline.abandon()
        down(folder)
        raise
    pipeline.guard.dismiss()
    _tell(screen, folder, servers[0], pipeline)


def _make(pipeline: Pipeline) -> None:
    """Groups as the demo has them, heartbeats each two seconds, and the page at the source's home."""
    for host in (pipeline.source, pipeline.target):
        host.home.mkdir(exist_ok=True)
    pipeline.create()
    prm = pipeline.source.home / "dirprm" / "mgr.prm"
    prm.write_text(f"{prm.read_text()}WEBPORT {free_port()}\nWEBHOME target, DIR {pipeline.target.home}\n")
    pipeline.source.run(f"DBLOGIN SOURCEDB {pipeline.source_url}", HEARTBEATS)
    pipeline.target.run(f"DBLOGIN TARGETDB {pipeline.target_url}", f"{HEARTBEATS}, TARGETONLY")


def down(folder: Path) -> None:
    """Stop and remove all of it; whatever else is in the folder keeps it."""
    if folder.exists():
        prepare(folder)
        shutil.rmtree(folder)


def _tell(screen: Screen, folder: Path, source: PostgresServer, pipeline: Pipeline) -> None:
    token = pipeline.source.run("INFO WEBTOKEN").out
    (page,) = re.findall(r"https?://\S+\?token=\S+", token)[:1]
    psql = f"{shlex.quote(str(source.bindir / 'psql'))} {shlex.quote(pipeline.source_url)}"
    copy = f"{shlex.quote(str(source.bindir / 'psql'))} {shlex.quote(pipeline.target_url)}"
    home = shlex.quote(str(folder / "source"))
    screen.say(f"""
It runs, and goes on until you take it down.

The page, in a browser on this machine:
    {page}

Change something at the source, and look at the target:
    {psql} -c "UPDATE shop.accounts SET note = 'by hand' WHERE id = 1"
    {copy} -c "SELECT * FROM shop.accounts WHERE id = 1"

Ask it (HELP lists the commands, EXIT leaves):
    .venv/bin/ggsci --home {home} INFO ALL, DETAIL
    .venv/bin/ggsci --home {home}

Take it down:
    make try-down
""")


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m demo.trying", description="A pipeline to look at, which stays.")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where homes and servers are")
    parser.add_argument("--down", action="store_true", help="stop and remove all of it")
    given = parser.parse_args(argv)
    screen = Screen()
    try:
        if given.down:
            down(given.folder)
            screen.say("Everything is stopped and removed.")
        else:
            up(given.folder, screen)
    except (ServerError, PipelineError, WaitError) as error:
        screen.say(str(error))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
