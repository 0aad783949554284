"""`python -m demo.soak [--minutes 10]`: a pipeline that runs, is disturbed all the time, and must stay as it is.

Meanwhile: a workload with large transactions, trails of 1 MB that roll over and are purged, processes killed and
restarted, groups stopped and started, Managers killed, a link that is cut at random bytes, stalls and vanishes.
In the end source and target are equal row by row, the target never looked wrong, memory and file counts stayed flat.
Exit codes: 0 all of that holds, 1 something does not, 2 the soak can't run here.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from demo import workload
from demo.__main__ import VICTIMS, make_servers, prepare
from demo.embedded import ServerError
from demo.measure import Measures
from demo.patience import PATIENCE, WaitError
from demo.pipeline import Options, Pipeline, PipelineError
from demo.proxy import Cut, Proxy
from demo.screen import Screen
from demo.workload import SCHEMA, Watcher, Workload

SAMPLE_SECONDS = 3.0
EVENT_SECONDS = 12.0
REMOTE = "127.0.0.2"
"""Where the pump finds its target: the same ports as at 127.0.0.1, by way of proxies."""


@dataclass(slots=True)
class Link:
    """The bad network between pump and target host: one proxy a port."""

    chance: random.Random
    proxies: list[Proxy] = field(default_factory=list)
    flapping: bool = True

    def open(self, pipeline: Pipeline) -> None:
        """A proxy for the Manager's port and for each of the Collectors'."""
        first, last = pipeline.collector_ports
        for port in (pipeline.target.port, *range(first, last + 1)):
            self.proxies.append(Proxy(lambda port=port: ("127.0.0.1", port), self._limit, (REMOTE, port)))  # type: ignore[misc]

    def _limit(self) -> int | None:
        """Most connections are cut at a random byte, one way or another."""
        for proxy in self.proxies:
            proxy.cut = self.chance.choice((Cut.RESET, Cut.CLOSED, Cut.TOGETHER))
        return self.chance.randint(1, 2 << 20) if self.flapping and self.chance.random() < 0.8 else None

    def stall(self, seconds: float) -> None:
        """Nothing passes for a while; then what waited goes on, or the other end has given up."""
        for proxy in self.proxies:
            proxy.stall.set()
        time.sleep(seconds)
        for proxy in self.proxies:
            proxy.stall.clear()

    def close(self) -> None:
        """Give the ports back."""
        for proxy in self.proxies:
            proxy.close()

    @property
    def cuts(self) -> int:
        """How often a connection was cut."""
        return sum(proxy.cuts for proxy in self.proxies)


class Soak:
    """One run: the pipeline, what disturbs it, and what is measured."""

    def __init__(self, pipeline: Pipeline, link: Link, screen: Screen, seed: int) -> None:
        self.pipeline = pipeline
        self.link = link
        self.screen = screen
        self.chance = random.Random(seed)
        self.measures = Measures()
        self.events: Counter[str] = Counter()
        self.trouble: list[str] = []

    def run(self, seconds: float) -> None:
        """Disturb and measure until the time is over."""
        end = time.monotonic() + seconds
        next_event = time.monotonic() + EVENT_SECONDS
        with self.screen.phase("Soak") as line:
            while (now := time.monotonic()) < end:
                self.measures.take(self.pipeline.guard.pids(), [self.pipeline.source.home, self.pipeline.target.home])
                if now >= next_event:
                    self._event(calm=now > end - seconds / 2)
                    next_event = time.monotonic() + EVENT_SECONDS
                shown = ", ".join(f"{count} x {name}" for name, count in sorted(self.events.items()))
                line.update(f"{end - now:4.0f} s left; {self.link.cuts} cuts; {shown}")
                time.sleep(SAMPLE_SECONDS)

    def _event(self, *, calm: bool) -> None:
        """One disturbance. In the calm half Extract, Replicat and Managers are let live, so that growth would show."""
        choices: dict[str, Callable[[], None]] = {
            "kill": self._kill, "restart": self._restart, "rollover": self._rollover, "stall": self._stall,
            "large": self._large, "report": self._report,
        }  # fmt: skip
        name = self.chance.choice(["rollover", "stall", "large", "report"] if calm else list(choices))
        self.events[name] += 1
        try:
            choices[name]()
        except (PipelineError, WaitError) as error:
            self.trouble.append(f"{name}: {error}")

    def _kill(self) -> None:
        victim = self.chance.choice(VICTIMS)
        self.pipeline.kill(victim)
        if victim.endswith("manager"):
            self.pipeline.host_of(victim).run("START MANAGER")

    def _restart(self) -> None:
        host, group = self.chance.choice(
            [(self.pipeline.source, "EXT1"), (self.pipeline.source, "PMP1"), (self.pipeline.target, "REP1")]
        )
        # It may be down just now, waiting for AUTORESTART: what counts is that START brings it back.
        host.run(f"STOP {group}", check=False)
        host.run(f"START {group}", check=False)

    def _rollover(self) -> None:
        self.pipeline.source.run("SEND EXT1, ROLLOVER", check=False)

    def _report(self) -> None:
        for host in (self.pipeline.source, self.pipeline.target):
            host.run("SEND ER *, REPORT", "STATS ER *", "LAG ER *", "INFO ER *, SHOWCH", check=False)

    def _stall(self) -> None:
        self.link.stall(self.chance.choice([1.0, 4.0, 8.0]))

    def _large(self) -> None:
        workload.large_transaction(self.pipeline.source_url, 5_000)


def play(soak: Soak, seconds: float) -> list[str]:
    """All of it; what was wrong."""
    pipeline = soak.pipeline
    watcher = Watcher(pipeline.target_url, pause=0.5)
    workload.fill(pipeline.source_url)
    with watcher, Workload(pipeline.source_url, rate=60, ride_out=True) as load:
        soak.run(seconds)
        done = load.stop()
    soak.link.flapping = False
    with soak.screen.phase("Compare") as line:
        # Whatever has given up after its RETRIES is started by hand, as an operator would.
        for host in (pipeline.source, pipeline.target):
            host.run("START MANAGER", check=False)
            host.run("START ER *", check=False)
        found = pipeline.wait_until_equal([SCHEMA], timeout=PATIENCE)
        rows = sum(table.rows for table in found)
        line.update(f"{done} transactions, {rows} rows in {len(found)} tables, all equal; {watcher.looks} looks")
    return [*soak.trouble, *watcher.faults, *soak.measures.faults()]


def run(folder: Path, minutes: float, seed: int, screen: Screen) -> int:
    """Prepare, soak, stop everything, tell how it went."""
    prepare(folder)
    with ExitStack() as stack:
        servers = make_servers(folder)
        for server in servers:
            stack.callback(server.stop)
            server.start()
            workload.create_tables(server.url())
        urls = [server.url() for server in servers]
        options = Options(
            megabytes=1, checkpoint_seconds=2, purge_seconds=5, restart_seconds=1, remote_host=REMOTE,
            extract=("REPORTCOUNT EVERY 30 SECONDS",), replicat=("REPORTCOUNT EVERY 30 SECONDS",),
        )  # fmt: skip
        pipeline = Pipeline(folder, urls[0], urls[1], options, servers=[server.data for server in servers])
        stack.callback(pipeline.close)
        link = Link(random.Random(seed))
        stack.callback(link.close)
        link.open(pipeline)
        with screen.phase("Set up") as line:
            line.update(f"two servers, two homes; seed {seed}")
            pipeline.create()
            pipeline.start()
        soak = Soak(pipeline, link, screen, seed)
        faults = play(soak, minutes * 60)
    screen.say("\n" + "\n".join(soak.measures.table()))
    for fault in faults:
        screen.say(f"WRONG: {fault}")
    good = not faults
    screen.say(f"\n{'FLAT AND EQUAL' if good else 'NOT AS IT MUST BE'} after {minutes:g} minutes, {link.cuts} cuts.")
    return 0 if good else 1


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m demo.soak", description=__doc__.split("\n", 1)[0] if __doc__ else ""
    )
    parser.add_argument("--folder", type=Path, default=Path("soak-homes"), help="where homes and servers are kept")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), help="repeat a run's disturbances")
    given = parser.parse_args(argv)
    screen = Screen()
    try:
        return run(given.folder, given.minutes, given.seed, screen)
    except (PipelineError, WaitError) as error:
        screen.say(f"\nFAILED: {error}")
        return 1
    except ServerError as error:
        screen.say(f"\nThe soak can't run here: {error}")
        return 2


if __name__ == "__main__":
    sys.exit(main())
