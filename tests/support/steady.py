"""All tests again and again on a machine that has other work to do: which of them fail by the moment?

    python -m tests.support.steady [--rounds N] [pytest's arguments]

Two endless loops share the processors with each round, and syncs of our processes take 20 ms more (slow_disk/).
Red (exit code 1) if any test failed in any round. Nothing is run once more: what fails here has a race or too short a
wait, also where it passes alone.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.suite import BUILD, run

ROUNDS = 3
LOOPS = 2
SLOWEST = 20
SLOW_DISK = Path(__file__).parent / "slow_disk"
LOOP = "import os\nwhile os.getppid() == {pid}: [None for _ in range(1_000_000)]"
"""It ends with us, however we end."""


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.steady", description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options, passed_on = parser.parse_known_args(arguments)
    failed: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    broken = 0
    with _busy(), _slow_disk():
        for number in range(1, options.rounds + 1):
            began = time.monotonic()
            code, what, took = run(passed_on, BUILD / f"steady-{number}.json")
            failed.update(what.keys())
            seconds.update(took)  # type: ignore[arg-type]  # seconds add up as counts do
            broken += code not in (0, 1)
            minutes = (time.monotonic() - began) / 60
            print(f"steady: round {number} of {options.rounds}: {len(what)} failed, {minutes:.1f} minutes", flush=True)
    _tell(failed, seconds, options.rounds)
    if broken:
        print(f"steady: {broken} rounds did not come to their end")
    return int(bool(failed or broken))


@contextlib.contextmanager
def _busy() -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", LOOP.format(pid=os.getpid())]) for _ in range(LOOPS)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextlib.contextmanager
def _slow_disk() -> Iterator[None]:
    """For all that is started in here, but what is given another PYTHONPATH."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(SLOW_DISK), before)))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _tell(failed: Counter[str], seconds: Counter[str], rounds: int) -> None:
    print(f"\nThe slowest tests of {rounds} rounds, each by its mean:")
    print("\n".join(f"{took / rounds:7.1f} s  {test}" for test, took in seconds.most_common(SLOWEST)))
    print(f"\nsteady: {len(failed)} of {len(seconds)} tests failed in {rounds} rounds")
    print("\n".join(f"{times:3} of {rounds}  {test}" for test, times in failed.most_common()), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
