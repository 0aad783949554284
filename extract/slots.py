"""What ggsci asks of the slot of a group, whether or not the group runs: the verb `slot` of extract.admin."""

from __future__ import annotations

from typing import Any

from extract.params import ExtractParams
from extract.sources import pgguard
from extract.sources.pgdriver import Session
from extract.sources.pgguard import WalLimits
from trails.errors import OperatorError
from trails.runtime import params as language
from trails.runtime import registration
from trails.runtime.home import Home


def of_group(home: Home, group: str) -> dict[str, Any]:
    """The slot's facts as METRICS has them; `level` 0 to 2 and `text`, or `lost`, by the group's own limits.

    A slot that is not there any more is as lost as one that the server gave up.
    """
    slot = registration.load(home, group).slot.get("slot")
    if not slot:
        raise OperatorError(f"group {group} has no replication slot", hint=f"DBLOGIN, then REGISTER EXTRACT {group}")
    params = ExtractParams.from_statements(language.parse_file(home.prm(group))).resolved(home)
    limits = WalLimits.of(params.wal_warn, params.wal_critical)
    session = Session(params.url, f"trailgate {group} slot")
    try:
        facts = pgguard.look(session, slot)
    except pgguard.NoSlotError as error:
        return {"slot": slot, "wal_status": "missing", "level": 0, "text": "", "lost": str(error)}
    finally:
        session.close()
    at = 0 if facts.lost else pgguard.level(facts, limits)
    return {
        **facts.to_json(),
        "level": at,
        "text": pgguard.text(facts, limits, at) if at else "",
        "lost": str(pgguard.lost(facts)) if facts.lost else "",
    }
