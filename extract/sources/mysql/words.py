"""The parameters that only these Extracts have, and what they mean. No driver is imported here, as in kind.py."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from extract.source import SourceSettings
from trails.runtime.language.params import Keyword, Statement, nothing, number, table

WARN_PERCENT: Final = 50
CRITICAL_PERCENT: Final = 80
READER: Final = "reader"
"""What REGISTER EXTRACT notes: the name by which the server knows who reads its log."""


def _percent(statement: Statement) -> int:
    text = statement.text.strip()
    digits = text[:-1].rstrip()
    if not text.endswith("%") or not digits.isascii() or not digits.isdecimal() or int(digits) > 100:
        raise statement.error("a percentage from 0% to 100%", statement.text)
    return int(digits)


KEYWORDS: Final = table(
    Keyword(
        "SERVERID", "n",
        "The server id by which an Extract reads a binary log, 1 to 4294967295. No other server or reader of that log "
        "may have it. If not given, it is derived from the home's id and the group's name, so that no two readers "
        "share one.",
        "SERVERID 3000000001", number(1, (1 << 32) - 1),
    ),
    Keyword(
        "SEMISYNC", "",
        "Acknowledge to the server what is synced in the trail, as a semi-synchronous replica does: a server that is "
        "set to wait for one lets its applications wait for the Extract. Without it, nothing is acknowledged, and "
        "nobody waits.",
        "SEMISYNC", nothing,
    ),
    Keyword(
        "ALLOWCASCADES", "",
        "Capture tables although a foreign key changes their rows with CASCADE, SET NULL or SET DEFAULT, and the "
        "server does not log it. Such rows are then not changed at the target. With it, the Extract warns of each such "
        "key; without it, it stops there.",
        "ALLOWCASCADES", nothing,
    ),
    Keyword(
        "BINLOGWARN", "n%",
        "Warn once the oldest file of the binary log that is still needed has used up so much of its time. That is how "
        "long the server keeps a file: binlog_expire_logs_seconds or expire_logs_days. Where max_binlog_total_size "
        f"bounds the room for all files, the same holds for that. 0% is never. If not given it is {WARN_PERCENT}%.",
        "BINLOGWARN 30%", _percent,
    ),
    Keyword(
        "BINLOGCRITICAL", "n%",
        f"As BINLOGWARN, but for when somebody must act. If not given it is {CRITICAL_PERCENT}%.",
        "BINLOGCRITICAL 90%", _percent,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogLimits:
    """BINLOGWARN and BINLOGCRITICAL, in percent; 0 is never."""

    warn: int = WARN_PERCENT
    critical: int = CRITICAL_PERCENT

    @classmethod
    def of(cls, settings: SourceSettings) -> LogLimits:
        """As the parameter file says."""
        own = settings.own
        return cls(own.get("BINLOGWARN", WARN_PERCENT), own.get("BINLOGCRITICAL", CRITICAL_PERCENT))


def reader_name(home_id: str, group: str) -> str:
    """By which the server's list of replicas names a group."""
    return f"tg_{home_id[:8]}_{group}".lower()


def server_id(settings: SourceSettings) -> int:
    """By which a group reads: what SERVERID says, else a number that only its reader's name gives.

    It lies in the upper half of what there is, where people who count servers don't come.
    """
    given = settings.own.get("SERVERID")
    if given is not None:
        return int(given)
    digest = hashlib.blake2b(settings.noted.made[READER].encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") | 1 << 31


def allows_cascades(settings: SourceSettings) -> bool:
    """Whether the operator takes care of what foreign keys change."""
    return "ALLOWCASCADES" in settings.own


def is_semisync(settings: SourceSettings) -> bool:
    """Whether what is durable is acknowledged to the server."""
    return "SEMISYNC" in settings.own
