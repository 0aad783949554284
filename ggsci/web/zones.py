"""The time zone of this host, which all times on the pages are in unless a reader chooses another."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

_LINK = "/etc/localtime"
_FOLDER = "/zoneinfo/"


@dataclass(frozen=True, slots=True)
class Zone:
    """`label` for people, such as `CET, UTC+01:00`; `name` for a browser: of the zone database, or an offset."""

    label: str
    name: str


def own() -> Zone:
    """As it is now. A host that does not name its zone has its present offset."""
    now = time.localtime()
    minutes = now.tm_gmtoff // 60
    offset = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
    label = now.tm_zone if now.tm_zone == "UTC" else f"{now.tm_zone}, UTC{offset}"
    return Zone(label, _name() or ("UTC" if not minutes else offset))


def _name() -> str:
    """`Europe/Berlin`, where the system tells it."""
    if given := os.environ.get("TZ", "").removeprefix(":"):
        return given if "/" in given and not given.startswith("/") else ""
    try:
        return os.path.realpath(_LINK).partition(_FOLDER)[2]
    except OSError:
        return ""
