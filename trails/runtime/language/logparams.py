"""GGSERRLOG and LOGFORMAT of GLOBALS: when the event log is rolled, and in which forms it is written."""

from __future__ import annotations

from dataclasses import dataclass

from trails.runtime.language.params import Statement, whole

MOST_KEPT = 99

MEGABYTES = 20
KEEP = 10


@dataclass(frozen=True, slots=True)
class LogSize:
    """GGSERRLOG: roll at `megabytes`, keep so many older files."""

    megabytes: int = MEGABYTES
    keep: int = KEEP


@dataclass(frozen=True, slots=True)
class LogFormat:
    """LOGFORMAT: which files are written."""

    text: bool = True
    json: bool = False


SIZE_SHAPE = "[MEGABYTES n] [, KEEP n]"
FORMATS = {"TEXT": LogFormat(), "JSON": LogFormat(text=False, json=True), "BOTH": LogFormat(json=True)}


def log_size(statement: Statement) -> LogSize:
    """The value of GGSERRLOG."""
    words = [word.upper() if isinstance(word, str) else "" for word in statement.words]
    names = words[::2]
    if not words or len(words) % 2 or len(set(names)) != len(names) or set(names) - {"MEGABYTES", "KEEP"}:
        raise statement.error(SIZE_SHAPE)
    found = dict(zip(names, words[1::2], strict=True))
    defaults = LogSize()
    return LogSize(
        whole(statement, found.get("MEGABYTES", str(defaults.megabytes)), 1, 10_000),
        whole(statement, found.get("KEEP", str(defaults.keep)), 1, MOST_KEPT),
    )


def log_format(statement: Statement) -> LogFormat:
    """The value of LOGFORMAT."""
    word = statement.text.strip().upper()
    if word not in FORMATS:
        raise statement.error("TEXT, JSON or BOTH")
    return FORMATS[word]
