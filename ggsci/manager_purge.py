"""PURGEOLDEXTRACTS: removing trail files that no registered reader needs. What decides is trails.runtime.purge."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Sequence
from dataclasses import dataclass

from ggsci.manager_params import PurgeRule
from trails.position import TrailName, parse_file_name
from trails.runtime.home import Home
from trails.runtime.purge import FileFate, removable


@dataclass(frozen=True, slots=True)
class Verdict:
    """One trail file: does it go, and why or why not?"""

    path: str
    goes: bool
    reason: str


def trails_of(home: Home, rule: PurgeRule) -> list[TrailName]:
    """The trails on disk that a rule is for: the pattern's last part is held against their two characters."""
    folder, wanted = os.path.split(rule.pattern)
    folder = os.path.normpath(os.path.join(home.root, folder))
    names = {found[0] for found in map(parse_file_name, home.fs.listdir(folder)) if found}
    return [TrailName(folder, prefix) for prefix in sorted(names) if fnmatch.fnmatchcase(prefix, wanted)]


def verdicts(home: Home, rules: Sequence[PurgeRule]) -> list[Verdict]:
    """Every file that a rule is for, oldest first. The first rule for a trail counts."""
    found: dict[TrailName, list[Verdict]] = {}
    for rule in rules:
        for trail in trails_of(home, rule):
            if trail not in found:
                found[trail] = _judge(removable(home, home.fs, trail), rule)
    return [verdict for each in found.values() for verdict in each]


def _judge(fates: list[FileFate], rule: PurgeRule) -> list[Verdict]:
    kept_anyway = len(fates) - rule.min_files
    judged = []
    for number, fate in enumerate(fates):
        goes, reason = fate.removable, fate.reason
        if goes and number >= kept_anyway:
            goes, reason = False, f"MINKEEPFILES {rule.min_files}"
        judged.append(Verdict(fate.path, goes, reason))
    return judged


def purge(home: Home, rules: Sequence[PurgeRule]) -> list[Verdict]:
    """Remove what goes, oldest first and each synced: not even a power loss leaves a hole. Returns what went."""
    gone = [verdict for verdict in verdicts(home, rules) if verdict.goes]
    for verdict in gone:
        home.fs.remove(verdict.path)
        home.fs.sync_dir(os.path.dirname(verdict.path))
    return gone
