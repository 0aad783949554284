"""All tests, and what failed once more with no neighbour: a fault fails twice, a race or too short a wait once.

    python -m tests.support.suite [pytest's arguments]

Red (exit code 1): a test that fails alone too, more than UNSTEADY_LIMIT that failed only beside others, and more than
REPEAT_LIMIT failures at all. What failed only beside others is a defect to be mended in the next change: it is listed
in the last lines under UNSTEADY, each with its first failure, and kept in build/unsteady.txt. What this machine can't
run is listed before them under SKIPPED: nothing of it is proved. Before that stands what was drawn anew for this run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

UNSTEADY_LIMIT = 3
REPEAT_LIMIT = 40  # beyond it something common to all is broken, and a second pass would only take time
SLOWEST = 25
BUILD = Path("build")
UNSTEADY = BUILD / "unsteady.txt"


def main(arguments: Sequence[str]) -> int:
    """The exit code: pytest's own, or 0 where all that failed has passed alone and is little."""
    began = time.monotonic()
    UNSTEADY.unlink(missing_ok=True)
    _compile()
    code, failed, seconds = run(arguments, BUILD / "tests.json")
    _tell_slowest(seconds)
    kept = _kept(BUILD / "tests.json")
    skipped = kept["skipped"]
    if code == 1 and 0 < len(failed) <= REPEAT_LIMIT:
        print(f"\n{_tests(len(failed))} failed: once more, with no neighbour", flush=True)
        code = _once_more(failed)
    print(f"tests: {(time.monotonic() - began) / 60:.1f} minutes", flush=True)
    print("\n".join(f"drawn anew: {what} ({test})" for test, what in kept["drawn"].items()), flush=True)
    if skipped:
        print(f"\nSKIPPED: {_tests(len(skipped))}")
        print("\n".join(f"{test}\n    {why}" for test, why in skipped.items()), flush=True)
    _tell(UNSTEADY)
    return code


def _compile() -> None:
    """Every worker loads all test files. In a fresh clone each would compile them all: two processes do it before."""
    files = sorted(map(str, Path("tests").glob("**/test_*.py")))
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only"]
    quiet = subprocess.DEVNULL  # what is wrong with them is told by the run
    halves = [
        subprocess.Popen([*command, *half], env=_keeping_bytecode(), stdout=quiet, stderr=quiet)
        for half in (files[::2], files[1::2])
        if half
    ]
    for half in halves:
        half.wait()


def _keeping_bytecode() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _once_more(failed: dict[str, str]) -> int:
    again, still, _ = run(["-n", "0", *failed], BUILD / "tests-alone.json")
    unsteady = {test: text for test, text in failed.items() if test not in still}
    if again not in (0, 1):
        return again
    if unsteady:
        UNSTEADY.write_text("".join(f"{test}\n{_indented(text)}\n" for test, text in unsteady.items()))
    return int(bool(still) or len(unsteady) > UNSTEADY_LIMIT)


def run(arguments: Sequence[str], kept: Path) -> tuple[int, dict[str, str], dict[str, float]]:
    """pytest's exit code, the first failure of each test that failed, and the seconds of each; `kept` as JSON too."""
    kept.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.recorder", "--record", str(kept), *arguments]
    code = subprocess.run(command, env=_keeping_bytecode(), check=False).returncode
    found = _kept(kept)
    return code, found["failed"], found["seconds"]


def _kept(path: Path) -> dict[str, dict[str, Any]]:
    return json.loads(path.read_text()) if path.exists() else {"failed": {}, "skipped": {}, "seconds": {}, "drawn": {}}


def _tell_slowest(seconds: dict[str, float]) -> None:
    """Seconds of one worker, of which there are several at once."""
    files: Counter[str] = Counter()
    for test, took in seconds.items():
        files[test.partition("::")[0]] += took  # type: ignore[assignment]
    for what, found in (("files", files), ("tests", Counter(seconds))):
        print(f"\nThe slowest {what} of {sum(seconds.values()):.0f} s of one worker:")
        print("\n".join(f"{took:7.1f} s  {name}" for name, took in found.most_common(SLOWEST)), flush=True)


def _tell(path: Path) -> None:
    if not path.exists():
        return
    text = path.read_text()
    count = sum(not line.startswith(" ") for line in text.splitlines() if line)
    limit = (
        f"more than {UNSTEADY_LIMIT}, so this run is red" if count > UNSTEADY_LIMIT else "mend them in the next change"
    )
    print(f"\nUNSTEADY: {_tests(count)} failed beside others and passed alone; {limit} ({path})\n{text}", flush=True)


def _indented(text: str) -> str:
    """Where and why it failed: pytest's lines of the error, else the last ones."""
    lines = text.splitlines()
    told = [line for line in lines if line.startswith("E  ")] or lines
    return "\n".join(f"    {line[:200]}" for line in [*told[:12], *lines[-1:]])


def _tests(count: int) -> str:
    return "1 test" if count == 1 else f"{count} tests"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
