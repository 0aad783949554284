"""REPLAY DISCARDS: a discard file's changes applied again, by a sub-process of replicat."""

from __future__ import annotations

import os
from typing import Any

from ggsci import admin
from ggsci.check import discard_path
from ggsci.choose import registered
from ggsci.grammar import CommandError, Parsed
from ggsci.session import Session

SHOWN_KEPT = 20


def replay_discards(session: Session, command: Parsed) -> Any:
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
    for record in kept[:SHOWN_KEPT]:
        session.say(_line(record))
    if len(kept) > SHOWN_KEPT:
        session.say(f"  and {len(kept) - SHOWN_KEPT} more; --json tells all")
    done = "would be applied" if dry else "applied"
    session.say(
        f"{len(records)} records: {counts.get('applied', 0)} {done}, {counts.get('applied before', 0)} were applied "
        f"before, {len(kept)} kept."
    )
    if kept and not dry:
        session.fail(f"{len(kept)} of {len(records)} records were not applied; they can be replayed again")
    return {key: value for key, value in reply.items() if key != "ok"}


def _line(record: dict[str, Any]) -> str:
    what = f"{record['op']} of {record['table']}, " if record["op"] else ""
    return f"  record {record['record']} ({what}CSN {record['csn']}, change {record['change']}): {record['why']}"
