"""REPLAY DISCARDS: a discard file's changes applied again, by a sub-process of replicat."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from ggsci import admin
from ggsci.check import discard_path
from ggsci.commands.choose import registered
from ggsci.commands.session import OperatorSession
from ggsci.table.grammar import CommandError, Parsed

SHOWN_KEPT = 20


def replay_discards(session: OperatorSession, command: Parsed) -> Any:
    """Each record at most once, ever; what was kept and why is told, and makes the command fail."""
    home = session.home
    group = registered(home, command.operand, "REPLICAT")
    path = command.text("FILE")
    shown = os.path.join(home.root, path) if path else discard_path(home, group)
    if not os.path.exists(shown):
        raise CommandError(f"there is no discard file {home.shown(shown)}: nothing was discarded")
    dry = command.has("DRYRUN")
    session.say(f"{'Looking through' if dry else 'Replaying'} {home.shown(shown)} ...")
    reply = admin.follow(
        "replicat", "replay_discards", session.say,
        home=home.root, group=group.name, file=path, dry=dry, compare=not command.has("NOCOMPARE"),
    )  # fmt: skip
    counts, records = reply["counts"], reply["records"]
    kept = [record for record in records if record["outcome"] == "kept"]
    lines = [_line(list(some)) for _, some in groupby(kept, key=lambda record: (record["csn"], record["why"]))]
    for line in lines[:SHOWN_KEPT]:
        session.say(line)
    if len(lines) > SHOWN_KEPT:
        session.say(f"  and {len(lines) - SHOWN_KEPT} more lines; --json tells all")
    done = "would be applied" if dry else "applied"
    session.say(
        f"{len(records)} records: {counts.get('applied', 0)} {done}, {counts.get('applied before', 0)} were applied "
        f"before, {len(kept)} kept."
    )
    if kept and not dry:
        session.fail(f"{len(kept)} of {len(records)} records were not applied; they can be replayed again")
    return reply


def _line(some: Sequence[dict[str, Any]]) -> str:
    """Of one record, or of those of one transaction that are kept for the same reason."""
    first, last = some[0], some[-1]
    if len(some) > 1:
        return f"  records {first['record']} to {last['record']} (transaction CSN {first['csn']}): {first['why']}"
    what = f"{first['op']} of {first['table']}, " if first["op"] else ""
    return f"  record {first['record']} ({what}CSN {first['csn']}, change {first['change']}): {first['why']}"
