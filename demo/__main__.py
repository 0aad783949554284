"""`python -m demo`: replicate between two database servers while every process is killed, then compare all rows.

The target is PostgreSQL, the source too, or MariaDB (`--source mariadb`).

Everything is done by commands that a user has; the watcher looks at the target all the while. Exit codes: 0 if every
table is equal and the target never looked wrong, 1 if not, 2 if the demo itself can't run here.
Nothing is left running. The homes and servers stay in a folder, and the last lines tell how to go on with them.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import tempfile
import threading
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from demo.embedded import ServerError, own
from demo.patience import WaitError, wait_for
from demo.pipeline import GROUPS, Host, Options, Pipeline, PipelineError
from demo.screen import Line, Screen
from demo.servers import PostgresServer
from demo.shops import MariaShop, PostgresShop, Shop, transfers
from demo.workload import Watcher, Workload

VICTIMS = ("extract", "pump", "collector", "replicat", "source manager", "target manager")
MARKER = ".trailgate-demo"
_VERSIONS = (16, 18)


@dataclass(frozen=True, slots=True)
class Stage:
    """What the demo plays on."""

    folder: Path
    screen: Screen
    shop: Shop
    target: PostgresServer
    pipeline: Pipeline


# --- making and removing ----------------------------------------------------------------------------------------------


def prepare(folder: Path) -> None:
    """An empty folder; what an earlier demo left in it is stopped and removed."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARKER).exists():
            raise ServerError(f"{folder} holds something that is not of the demo: name another with --folder")
        for home in (folder / "source", folder / "target"):
            if (home / "dirpcs").is_dir():
                Host(home.resolve(), 0, os.environ).run("STOP ER *", "STOP MANAGER!", check=False)
        for base in (*_bases(folder), *_bases(_elsewhere(folder))):
            if (note := base / "server.json").exists() and note.stat().st_uid == os.geteuid():
                PostgresServer.open(base).remove()
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).touch()


def _bases(folder: Path) -> list[Path]:
    return [folder / f"postgres{version}" for version in _VERSIONS]


def _elsewhere(folder: Path) -> Path:
    """Where servers go that can't live in `folder`: its path is too long, or closed to the server's account."""
    return Path(tempfile.gettempdir()) / f"trailgate-demo-{os.geteuid()}-{zlib.crc32(str(folder.resolve()).encode()):x}"


def make_servers(folder: Path) -> list[PostgresServer]:
    """Both servers, not started."""
    made: list[PostgresServer] = []
    for place in (folder, _elsewhere(folder)):
        try:
            if place != folder:
                own(place)  # /tmp is everybody's
            for base, version in zip(_bases(place), _VERSIONS, strict=True):
                made.append(PostgresServer(base, version=version, keep=True))
            return made
        except ServerError:
            if place != folder:
                raise
            while made:
                made.pop().remove()
    raise AssertionError("unreachable")


# --- the play ---------------------------------------------------------------------------------------------------------


def play(stage: Stage, rows: int) -> bool:
    """All phases but making and removing; whether all is as it must be."""
    set_up(stage)
    stage.shop.fill()  # before any writer: a transfer between no accounts would keep no fact
    watcher = Watcher(stage.pipeline.target_url)
    with watcher, stage.shop.work(60) as load:
        work_a_while(stage, load, watcher)
        large = threading.Thread(target=stage.shop.large_transaction, args=(rows,), daemon=True)
        large.start()
        for victim in VICTIMS:
            kill_and_see_it_back(stage, victim)
        large.join()
        look(stage)
        done = load.stop()
        catch_up(stage, done, rows)
    equal = compare_tables(stage)
    return report_watch(stage, watcher) and equal


def set_up(stage: Stage) -> None:
    """Servers, tables, homes, groups; then everything started."""
    screen, pipeline = stage.screen, stage.pipeline
    with screen.phase("Two servers") as line:
        line.update("starting")
        stage.target.start()
        stage.shop.start(stage.target.url())
        line.update(f"{stage.shop.title} (source) and PostgreSQL {_version(stage.target)} (target)")
    with screen.phase("Two homes") as line:
        line.update("ggsci: CREATE SUBDIRS, ADD EXTRACT, REGISTER, ADD TRANDATA, ADD REPLICAT, ...")
        pipeline.create()
        line.update("EXT1 and PMP1 in the source's home, REP1 in the target's")
    with screen.phase("Start") as line:
        line.update("ggsci: START MANAGER, START ER *")
        pipeline.start()
        line.update("both Managers and all groups run")


def _version(server: PostgresServer) -> str:
    return str(server.sql("SHOW server_version")[0][0])


def work_a_while(stage: Stage, load: Workload, watcher: Watcher, seconds: float = 4.0) -> None:
    """Changes of all kinds."""
    with stage.screen.phase("Workload") as line:
        end = time.monotonic() + seconds
        while time.monotonic() < end or not (watcher.last and watcher.last.transfers):
            arrived = watcher.last.transfers if watcher.last else 0
            line.update(f"{load.transactions} transactions at the source, {arrived} of its transfers at the target")
            time.sleep(0.1)
            if time.monotonic() > end + 60:
                raise PipelineError(f"nothing arrives at the target\n{stage.pipeline.state()}")


def kill_and_see_it_back(stage: Stage, victim: str) -> None:
    """SIGKILL one process; it must come back, and changes made after its death must reach the target."""
    pipeline = stage.pipeline
    with stage.screen.phase(f"SIGKILL {victim}") as line:
        killed = _kill(pipeline, victim)
        begin = time.monotonic()
        line.update(f"process {killed} is dead")
        if victim.endswith("manager"):
            # Groups go on without it; on a real host the init system starts it again.
            pipeline.host_of(victim).run("START MANAGER")
        back = _await_back(pipeline, victim, killed, line)
        seconds = time.monotonic() - begin
        line.update(f"process {killed} is dead; back as {back} after {seconds:.1f} s, waiting for changes to pass")
        _await_passage(stage)
        line.update(f"process {killed} killed, back as {back} after {seconds:.1f} s, changes pass")


def _kill(pipeline: Pipeline, victim: str) -> int:
    killed: list[int] = []

    def try_it() -> bool:
        killed.extend(pid for pid in [pipeline.kill(victim)] if pid)
        return bool(killed)

    wait_for(try_it, lambda: f"{victim} is not there to be killed:\n{pipeline.state()}")
    return killed[0]


def _await_back(pipeline: Pipeline, victim: str, killed: int, line: Line) -> int:
    back: list[int] = []

    def is_back() -> bool:
        line.update(f"process {killed} is dead; waiting for the next")
        pid = pipeline.pid(victim)
        if pid and pid != killed and (victim == "collector" or _runs(pipeline, victim)):
            back.append(pid)
        return bool(back)

    wait_for(is_back, lambda: f"{victim} does not come back:\n{pipeline.state()}")
    return back[0]


def _runs(pipeline: Pipeline, victim: str) -> bool:
    return bool(pipeline.host_of(victim).statuses()[GROUPS[victim]]["status"] == "RUNNING")


def _await_passage(stage: Stage) -> None:
    """What was committed until now must arrive."""
    wanted, pipeline = stage.shop.transfers(), stage.pipeline
    wait_for(lambda: transfers(pipeline.target_url) >= wanted, lambda: f"changes don't arrive:\n{pipeline.state()}")


def look(stage: Stage) -> None:
    """What an operator sees meanwhile."""
    commands = [
        ("source", "INFO ALL"),
        ("target", "INFO ALL"),
        ("source", "INFO EXT1, SHOWCH"),
        ("source", "LAG EXT1"),
        ("target", "LAG REP1"),
    ]
    for side, command in commands:
        host: Host = getattr(stage.pipeline, side)
        home = _shown(host.home)
        stage.screen.show(f"ggsci --home {home} {command}", host.run(command).out)
    stage.screen.say()


def catch_up(stage: Stage, transactions: int, rows: int) -> None:
    """The workload has ended; the target comes to where the source is."""
    pipeline = stage.pipeline
    begin = time.monotonic()
    with stage.screen.phase("Catch up") as line:
        load = f"{transactions} transactions, and one of {rows:,} rows inserted, changed and deleted"
        line.update(load)
        wait_for(
            lambda: stage.shop.caught_up(pipeline.target_url),
            lambda: f"the target does not become equal:\n{pipeline.state()}",
        )
        line.update(f"{load}: at the target after {time.monotonic() - begin:.1f} s")


def compare_tables(stage: Stage) -> bool:
    """Every table, row by row."""
    stage.screen.say("\nComparing every table, row by row:")
    all_equal = True
    for found, equal in stage.shop.compared(stage.pipeline.target_url):
        stage.screen.say(f"    {found}")
        all_equal = all_equal and equal
    return all_equal


def report_watch(stage: Stage, watcher: Watcher) -> bool:
    """What the watcher saw."""
    if watcher.faults:
        stage.screen.say(f"In {watcher.looks} looks the target was wrong {len(watcher.faults)} times:")
        stage.screen.say("\n".join(f"    {fault}" for fault in watcher.faults[:10]))
        return False
    stage.screen.say(
        f"    The target was looked at {watcher.looks} times meanwhile: never a transaction torn, doubled or missing."
    )
    return watcher.looks > 0


def farewell(stage: Stage, source_server: PostgresServer) -> None:
    """How to go on by hand."""
    python, ggsci = ".venv/bin/python", ".venv/bin/ggsci"
    bases = [shlex.quote(_shown(server.base)) for server in (source_server, stage.target)]
    source, target = (shlex.quote(_shown(host.home)) for host in (stage.pipeline.source, stage.pipeline.target))
    psql = shlex.quote(_shown(source_server.bindir / "psql"))
    stage.screen.say(
        f"\nNothing is left running. The homes and servers are kept in {_shown(stage.folder)}; to go on by hand:\n"
    )
    change = "UPDATE shop.accounts SET note = 'by hand' WHERE id = 1"
    for line in (
        *[f"{python} -m demo.servers start {base}" for base in bases],
        f"printf 'START MANAGER\\nSTART ER *\\n' | {ggsci} --home {target}",
        f"printf 'START MANAGER\\nSTART ER *\\n' | {ggsci} --home {source}",
        f'{psql} "$({python} -m demo.servers url {bases[0]})" -c "{change}"',
        f"{ggsci} --home {source} INFO ALL",
        f"{ggsci} --home {target} STATS REP1",
        f"printf 'STOP ER *\\nSTOP MANAGER!\\n' | {ggsci} --home {source}",
        f"printf 'STOP ER *\\nSTOP MANAGER!\\n' | {ggsci} --home {target}",
        *[f"{python} -m demo.servers stop {base}" for base in bases],
    ):
        stage.screen.say(f"    {line}")
    stage.screen.say()


def _shown(path: Path) -> str:
    """Relative to the current folder where that is shorter to type."""
    return os.path.relpath(path) if path.resolve().is_relative_to(Path.cwd().resolve()) else str(path)


# --- the whole --------------------------------------------------------------------------------------------------------


def run(folder: Path, rows: int, screen: Screen, source: str = "postgresql") -> int:
    """Prepare, play, stop everything, tell how it went."""
    begin = time.monotonic()
    prepare(folder)
    servers = make_servers(folder)
    shop: Shop = MariaShop() if source == "mariadb" else PostgresShop(servers[0])
    options = Options(checkpoint_seconds=2, purge_seconds=5, megabytes=5)
    pipeline = Pipeline(folder, shop.url, servers[1].url(), options, servers=[server.data for server in servers])
    stage = Stage(folder, screen, shop, servers[1], pipeline)
    good = False
    try:
        good = play(stage, rows)
    finally:
        with screen.phase("Stop") as line:
            line.update("ggsci: STOP ER *, STOP MANAGER!")
            left = pipeline.close(shop.stop, servers[1].stop)
            line.update("everything stopped" if not left else f"had to be killed: {', '.join(left)}")
    screen.say(f"\n{'EQUAL' if good else 'NOT EQUAL'} after {time.monotonic() - begin:.0f} s.")
    if source == "postgresql":
        farewell(stage, servers[0])
    else:
        screen.say(f"Nothing is left running. The homes are kept in {_shown(folder)}; MariaDB and its data are gone.")
    return 0 if good and not left else 1


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, default=Path("demo-homes"), help="where homes and servers are kept")
    parser.add_argument("--rows", type=int, default=60_000, help="rows of the large transaction")
    parser.add_argument("--source", choices=("postgresql", "mariadb"), default="postgresql", help="the source's kind")
    given = parser.parse_args(argv)
    screen = Screen()
    try:
        return run(given.folder, given.rows, screen, given.source)
    except (PipelineError, WaitError) as error:
        screen.say(f"\nFAILED: {error}")
        return 1
    except ServerError as error:
        screen.say(f"\nThe demo can't run here: {error}")
        return 2
    except KeyboardInterrupt:
        screen.say("\nInterrupted; everything was stopped.")
        return 130


if __name__ == "__main__":
    sys.exit(main())
