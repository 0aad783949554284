"""The way of one inserted row from the walsender to the target: how many of our functions it passes, and which."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.rowpath import path_in_the_page
from tests.support.rowway import Way

pytestmark = pytest.mark.e2e
MOST = 178


def test_an_insert_passes_few_functions_and_those_of_the_page(
    tmp_path: Path, source_db: str, target_db: str, monkeypatch: pytest.MonkeyPatch
):
    """At most so many between the server's bytes and the commit in the target (rowpath.py says what is counted).

    Those of the plain forms, which are the reference: a kernel takes the place of some of them.

    ARCHITECTURE.md leads along the same way: each function that it names is called, and in its order.
    """
    monkeypatch.setattr("extract.sources.postgres.source.PackedRecords", None)
    way = Way(tmp_path, source_db, target_db)
    passed = way.passed()
    assert way.arrived()
    lines = [f"{stage:8}{file} {name}" for stage, found in passed.items() for file, name in found]
    sums = {stage: len(found) for stage, found in passed.items()}
    different = len({one for found in passed.values() for one in found})
    print(*lines, f"{sums}, {different} different ones", sep="\n")
    assert different <= MOST, "\n".join([*lines, f"{different} functions, by stage {sums}; expected at most {MOST}"])
    for stage, named in path_in_the_page().items():
        places = {one: place for place, one in enumerate(passed[stage])}
        assert [one for one in named if one not in places] == [], f"{stage}: not on the way"
        assert sorted(named, key=places.__getitem__) == named, f"{stage}: another order"
