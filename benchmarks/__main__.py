"""`python -m benchmarks [name ...]`: measure, beside the peers, on servers of its own; prints the figures and the bars.

Exit codes: 0 all was measured (bars are reported, not enforced), 1 a benchmark failed, 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType

from benchmarks import (
    apply,
    backlog,
    binlogcapture,
    charts,
    comparing,
    decode,
    growing,
    latency,
    link,
    load,
    machine,
    prompt,
    quiet,
    sqlitequeue,
    triggerqueue,
)
from benchmarks.options import Run
from benchmarks.results import Results, aligned
from benchmarks.workloads import WORKLOADS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
NAMES = (
    "ggsci",
    "decode",
    "link",
    "apply",
    "capture",
    "binlog",
    "sqlite",
    "triggers",
    "e2e",
    "load",
    "compare",
    "latency",
    "quiet",
    "growing",
)
QUICK = {"rows_scale": 0.1, "runs": 1, "seconds": 10.0}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for."""
    given = _parse(arguments)
    options = {"rows-scale": given.rows_scale, "runs": given.runs, "seconds": given.seconds, "link": given.link}
    results = Results(machine.facts(), options)
    run = Run(
        results, given.runs, given.rows_scale, given.seconds, given.workload, given.link == "tcp", not given.no_peers
    )
    signal.signal(signal.SIGTERM, _leave)
    for work in _works(set(given.benchmark or NAMES), run):
        _attempt(work, results)
    _print(results)
    if given.json:
        Path(given.json).write_text(results.to_json())
    if given.write:
        results.write_markdown(PAGE)
        charts.draw([line for line in results.lines if line.benchmark == growing.NAME], PAGE.parent / "images")
    return 1 if results.failures else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure Trailgate beside its peers.")
    add = parser.add_argument
    add("benchmark", nargs="*", help=f"which to run: {', '.join(NAMES)}, pump (= link); all if none is named")
    add(
        "--workload", action="append", choices=[w.name for w in WORKLOADS], help="for capture and e2e; all if not given"
    )
    add("--rows-scale", type=float, default=1.0, help="part of the rows, such as 0.1")
    add("--runs", type=int, default=3, help="how often each is measured")
    add("--seconds", type=float, default=30.0, help="how long latency is measured, each time")
    add("--link", choices=["tcp", "unix"], default="tcp", help="how Extract, Replicat and the native peer connect")
    add("--quick", action="store_true", help="a tenth of the rows, one run, 10 seconds")
    add("--no-peers", action="store_true", help="measure Trailgate alone")
    add("--json", metavar="FILE", help="write everything there as JSON")
    add("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    given = parser.parse_args(arguments)
    given.benchmark = ["link" if name == "pump" else name for name in given.benchmark]
    unknown = sorted(set(given.benchmark) - set(NAMES))
    if unknown:
        parser.error(f"unknown benchmark {', '.join(unknown)}; expected {', '.join(NAMES)}")
    if given.quick:
        vars(given).update(QUICK)
    return given


def _works(names: set[str], run: Run) -> list[tuple[str, Callable[[], None]]]:
    """What is to be done, in order; capture and end to end share their backlogs."""
    single: dict[str, Callable[[Run], None]] = {
        "ggsci": prompt.measure,
        "decode": decode.measure,
        "link": link.measure,
        "apply": apply.measure,
        "binlog": binlogcapture.measure,
        "sqlite": sqlitequeue.measure,
        "triggers": triggerqueue.measure,
        "load": load.measure,
        "compare": comparing.measure,
    }
    works: list[tuple[str, Callable[[], None]]] = []
    works += [(name, partial(measure, run)) for name, measure in single.items() if name in names]
    if both := names & {"capture", "e2e"}:
        title = " and ".join(sorted(both))
        works += [(f"{title} {w.name}", partial(backlog.measure, run, w, both)) for w in run.workloads]
    if "latency" in names:
        works.append(("latency", partial(latency.measure, run)))
    if quiet.NAME in names:
        works.append((quiet.NAME, partial(quiet.measure, run)))
    if growing.NAME in names:
        works += [
            (f"growing {curve.name}", partial(growing.measure, run, curve)) for curve in growing.curves(run.scale)
        ]
        works.append(("growing Replicats", partial(growing.measure_shared, run)))
    return works


def _attempt(work: tuple[str, Callable[[], None]], results: Results) -> None:
    """One that fails is told at the end, and the others go on."""
    name, measure = work
    try:
        measure()
    except Exception as error:  # noqa: BLE001  -- whatever it is, the other figures are still wanted
        traceback.print_exc()
        results.failures.append(f"{name}: {error}")


def _print(results: Results) -> None:
    print("\n" + ", ".join(f"{name} {value}" for name, value in results.machine.items()))
    for benchmark in results.benchmarks:
        print(f"\n{benchmark}\n{aligned(results.table(benchmark))}")
    for failure in results.failures:
        print(f"\nFAILED: {failure}", file=sys.stderr)


def _leave(_number: int, _frame: FrameType | None) -> None:
    """Leave by the way of every error, so that servers and processes are stopped."""
    sys.exit(143)


if __name__ == "__main__":
    sys.exit(main())
