"""The way of one inserted row from the walsender to the target: how many of our functions it passes, and which."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.rowpath import path_in_the_page
from tests.support.rowway import Way

pytestmark = pytest.mark.e2e
MOST = 156
MOST_PLAIN = 180
"""Without kernels, each of which takes the place of some functions."""


def test_an_insert_passes_few_functions(tmp_path: Path, source_db: str, target_db: str):
    """At most so many between the server's bytes and the commit in the target (rowpath.py says what is counted)."""
    passed(Way(tmp_path, source_db, target_db), MOST)


def test_the_plain_forms_are_those_of_the_page(
    tmp_path: Path, source_db: str, target_db: str, monkeypatch: pytest.MonkeyPatch
):
    """ARCHITECTURE.md leads along the same way: each function that it names is called, and in its order."""
    monkeypatch.setattr("extract.sources.postgres.source.PackedRecords", None)
    monkeypatch.setattr("replicat.work.kernel.Taker", None)
    found = passed(Way(tmp_path, source_db, target_db), MOST_PLAIN)
    for stage, named in path_in_the_page().items():
        places = {one: place for place, one in enumerate(found[stage])}
        assert [one for one in named if one not in places] == [], f"{stage}: not on the way"
        assert sorted(named, key=places.__getitem__) == named, f"{stage}: another order"


def passed(way: Way, most: int) -> dict[str, list[tuple[str, str]]]:
    """By stage, in order; not more than so many different ones."""
    found = way.passed()
    assert way.arrived()
    lines = [f"{stage:8}{file} {name}" for stage, some in found.items() for file, name in some]
    sums = {stage: len(some) for stage, some in found.items()}
    different = len({one for some in found.values() for one in some})
    print(*lines, f"{sums}, {different} different ones", sep="\n")
    assert different <= most, "\n".join([*lines, f"{different} functions, by stage {sums}; expected at most {most}"])
    return found
