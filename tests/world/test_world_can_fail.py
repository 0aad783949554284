"""Each planted fault (plants.py) is found: the world can fail."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.world.plan import draw
from tests.world.plants import PLANTS, Plant
from tests.world.shrink import broken_by, shrink
from tests.world.story import PAGE, page

SEEDS = {
    "no_sync": 1,
    "durable_end_before_data": 2,
    "no_folder_sync": 1,
    "end_not_twice": 1,
    "new_file_not_synced": 1,
    "failed_sync_tried_again": 3,
    "sync_covers_what_came_later": 8,
    "tail_not_rewritten": 138,
    "torn_tail_kept": 9,
    "place_of_the_header": 1,
    "lock_not_taken": 625,
    "reads_past_durable": 11,
    "next_file_too_soon": 27,
    "restart_passed_over": 6,
    "early_release": 2,
    "no_restart": 40,
    "nothing_abandoned": 6,
    "place_taken_back": 1,
    "checkpoint_before_its_data": 10,
    "early_ack": 1,
    "farewell_without_sync": 10,
    "begin_for_an_end": 4,
    "open_part_dropped": 7,
    "pump_counts_what_is_under_way": 6,
    "one_ack_for_all": 44,
    "goes_on_where_it_was": 11,
    "open_transaction_not_needed": 17,
    "no_compare": 2,
    "row_from_memory": 15,
    "unflushed_checkpoint": 2,
    "row_not_flushed": 2,
    "lost_answer_is_a_yes": 2,
    "purge_too_far": 1,
    "purge_without_a_checkpoint": 18,
    "discards_not_synced": 1,
    "discards_written_again": 2,
    "ddl_beside_the_row": 13,
    "certificate_asked_late": 411,
    "copy_is_plain": 7,
    "newest_key_for_all": 8,
    "comes_again_and_is_refused": 388,
    "shape_that_comes_again_is_refused": 89,
    "any_pump_is_served": 9,
    "noise_ends_a_collector": 53,
    "asked_in_anothers_name": 152,
    "window_not_looked_at": 1,
    "large_transaction_gathered_whole": 1,
    "nobody_is_started_again": 6,
    "nobody_is_adopted": 42,
    "gives_up_for_good": 21,
    "a_held_group_is_started": 2,
    "a_number_is_trusted": 155,
    "running_by_its_word": 1,
    "status_of_what_was_not_acknowledged": 1,
}
"""The life in which each was found; what is changed since may have moved it to another."""
MOST_LIVES = 1000


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_a_planted_fault_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the life that is noted, or in one of the first ones."""
    plant.do(monkeypatch)
    for seed in (SEEDS.get(plant.name, 1), *range(1, MOST_LIVES)):
        text, _ = broken_by(draw(seed))
        if text:
            print(f"{plant.name}: life {seed}: {text}")
            return
    pytest.fail(f"{plant.name}: {plant.do.__doc__} Not found in {MOST_LIVES} lives")


def test_each_invariant_of_the_design_has_plants() -> None:
    """Two at least."""
    count = Counter(name for plant in PLANTS for name in plant.breaks.split())
    assert all(count[f"I{number}"] >= 2 for number in range(1, 13)), count
    assert len(PLANTS) >= 30


def test_a_violation_is_told_on_one_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the few faults that it needs, and the number that brings it back."""
    name = "tail_not_rewritten"
    next(plant for plant in PLANTS if plant.name == name).do(monkeypatch)
    seed = next(seed for seed in (SEEDS[name], *range(1, MOST_LIVES)) if broken_by(draw(seed))[0])
    plan, world = shrink(draw(seed))
    told = page(plan, world)
    assert len(plan.faults) < len(draw(seed).faults)
    assert f"--seed {seed}" in told
    assert "VIOLATION" in told.splitlines()[-1]
    assert len(told.splitlines()) <= PAGE + 4
