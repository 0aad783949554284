"""Two hosts: each home in a network namespace of its own, with nothing between them but a link that goes down and up.

Needs root and iproute2, as on the machines that run these tests; elsewhere it is skipped, with the reason. Replicat
runs without Spark, which has no part in it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from demo.guard import end_now
from demo.patience import wait_for
from demo.pipeline import Options
from demo.servers import PostgresServer
from tests.support import sparkless
from tests.support.pipelines import Rig, rig

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.xdist_group("pipeline-hosts")]

NAMES = {side: f"tg{os.getpid()}{side[0]}" for side in ("source", "target")}
ADDRESSES = {"source": "10.77.7.1", "target": "10.77.7.2"}


def ip(*words: str, inside: str = "") -> None:
    """Run an `ip` command, in a namespace if one is named."""
    subprocess.run(["ip", *(("-n", inside) if inside else ()), *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def hosts() -> Iterator[dict[str, str]]:
    """Two namespaces and the link between them."""
    try:
        ip("netns", "add", NAMES["source"])
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"network namespaces can't be made here ({error}): two hosts are not tested")
    try:
        ip("netns", "add", NAMES["target"])
        ends = {side: f"{name}v" for side, name in NAMES.items()}
        ip("link", "add", ends["source"], "type", "veth", "peer", "name", ends["target"])
        for side, name in NAMES.items():
            ip("link", "set", ends[side], "netns", name)
            ip("addr", "add", f"{ADDRESSES[side]}/24", "dev", ends[side], inside=name)
            ip("link", "set", ends[side], "up", inside=name)
            ip("link", "set", "lo", "up", inside=name)
        yield ends
    finally:
        for name in NAMES.values():
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.fixture(scope="module")
def running(hosts: dict[str, str], postgres16: PostgresServer, postgres18: PostgresServer) -> Iterator[Rig]:
    """A pipeline from one host to the other."""
    options = Options(
        remote_host=ADDRESSES["target"],
        manager=["BIND 0.0.0.0"],
        prefixes={side: ("ip", "netns", "exec", name) for side, name in NAMES.items()},
        checkpoint_seconds=1,
        timeout=2,
        environment=sparkless.ENVIRONMENT,
    )
    with rig(postgres16, postgres18, options) as made:
        made.pipeline.start()
        yield made


@pytest.mark.soak
def test_the_link_goes_down_and_up(running: Rig, hosts: dict[str, str]) -> None:
    """A cable is pulled for longer than the heartbeat allows, under load: nothing is lost, doubled or torn."""
    with running.watched() as watcher, running.workload() as work:
        wait_for(lambda: watcher.last is not None and watcher.last.transfers > 0, running.pipeline.state)
        ip("link", "set", hosts["source"], "down", inside=NAMES["source"])
        wait_for(lambda: not running.is_linked(), running.pipeline.state)
        ip("link", "set", hosts["source"], "up", inside=NAMES["source"])
        wait_for(running.is_linked, running.pipeline.state)
        work.stop()
        running.ends_equal()


def test_CW_23_the_pumps_host_loses_power(running: Rig, hosts: dict[str, str]) -> None:
    """CW-23: the pump dies with its link, so the Collector's socket stays open; the new pump takes over."""
    with running.workload() as work:
        wait_for(lambda: work.transactions > 50)
        pump, collector = running.pipeline.pid("pump"), running.pipeline.pid("collector")
        assert pump and collector
        ip("link", "set", hosts["source"], "down", inside=NAMES["source"])
        assert end_now(pump)
        ip("link", "set", hosts["source"], "up", inside=NAMES["source"])
        wait_for(lambda: running.pipeline.pid("collector") not in (None, collector))
    running.ends_equal()
