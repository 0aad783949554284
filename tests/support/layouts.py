"""What ggsci prints of live groups, with times, places and numbers replaced by words, to be held as a whole."""

from __future__ import annotations

import re
from collections.abc import Mapping

_RULES = (
    (r"\d{4}-\d\d-\d\d[ :]\d\d:\d\d:\d\d\.\d{6}", "<moment>"),
    (r"\d{4}-\d\d-\d\d[ :]\d\d:\d\d:\d\d", "<second>"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d", "<minute>"),
    (r"\b\d\d+:\d\d:\d\d\b", "<span>"),
    (r"\b[0-9A-F]{8}/[0-9A-F]{8}\b", "<lsn>"),
    (r"\b[0-9A-F]{24}\b", "<walfile>"),
    (r"\(PID \d+\)", "(PID <n>)"),
    (r"(Process ID +)\d+", r"\1<n>"),
    (r"(Seqno |Sequence #: |RBA:? |Block Size = |Record Length = |Key = )\d+", r"\1<n>"),
    (r"\(0x[0-9a-f]+\)", "(<hex>)"),
    (r"tg_[0-9a-f]{8}_", "tg_<home>_"),
    (r"(Kept Back +)[\d.]+ \w+", r"\1<n>"),
    (r"(Log Headroom +).*", r"\1<room>"),
    (r"(\./dirdat/[a-z]t +)\d+ +\d+ ", r"\1<n> <n> "),
    (r"(\./dirdat/[a-z]t)\d{9}", r"\1<seqno>"),
    (r"^(\d+ +[A-Z]+1 +)\d+ +", r"\1<n> "),
    (r"-?\d+\.\d{3} s (behind|ahead of) this one, give or take \d+\.\d{3} s", "<clock>"),
)


def normal(text: str, names: Mapping[str, str]) -> str:
    """The text with figures as words; `names` replaces what belongs to this run, such as a home's path."""
    for name, word in sorted(names.items(), key=lambda pair: -len(pair[0])):
        text = text.replace(name, word)
    for pattern, word in _RULES:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip("\n")


def blocks(text: str) -> dict[str, dict[str, str]]:
    """SHOWCH's checkpoints by their titles' first words (Startup, Recovery, Current, ...) with label and value."""
    found: dict[str, dict[str, str]] = {}
    part, block = "", {}
    for line in text.splitlines():
        if match := re.match(r"(Read|Write) Checkpoint", line):
            part = match[1]
        elif match := re.match(r"  (Startup|Recovery|Current) Checkpoint", line):
            block = found.setdefault(f"{part} {match[1]}", {})
        elif match := re.match(r"    ([^:]+): (.*)", line):
            block[match[1]] = match[2]
        elif match := re.match(r"(\w[\w ]+):$", line):
            block = found.setdefault(match[1], {})
        elif match := re.match(r"  ([^=]+) = (.*)", line):
            block[match[1]] = match[2]
    return found
