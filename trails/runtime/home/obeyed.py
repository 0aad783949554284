"""The last ALTER that an Extract obeyed, noted apart from its trail: `dirpcs/<GROUP>.obeyed`.

Rule: the trail says which ALTER is spent. Only where the whole trail is gone, with everything that said so, this note
keeps an old order from being obeyed a second time: BEGIN NOW would then leave out what was committed since, unseen.
It is written when the trail's header is durable, and before anything is captured behind it.
"""

from __future__ import annotations

from trails.errors import DamageError
from trails.fs import read_bytes, replace_durably
from trails.runtime.home.home import Home


def read(home: Home, group: str) -> int:
    """The number; 0 if none was obeyed. Raises DamageError."""
    path = home.obeyed(group)
    try:
        text = read_bytes(home.fs, path).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return 0
    if not text.isdecimal():
        raise DamageError(
            f"{path}: expected the number of an ALTER, found {text[:20]!r}",
            hint="Remove it; if the trail is gone too, ALTER EXTRACT says where to begin",
        )
    return int(text)


def note(home: Home, group: str, number: int) -> None:
    """Write it durably."""
    replace_durably(home.fs, home.obeyed(group), f"{number}\n".encode())
