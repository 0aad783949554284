"""Text for people's terminals and files: what a terminal would obey, hide or turn round is shown as an escape.

Rule: names, values and messages come from databases, peers and trails; whoever prints one, prints it through here.
"""

from __future__ import annotations

import json
from typing import Any


def tame(text: str, keep: str = "\n\t") -> str:
    """`text` with every character escaped that can't be printed, but those in `keep`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def tame_json(value: Any, **how: Any) -> str:
    """`value` as JSON that can be printed: letters of all languages as they are, all else in JSON's own escapes."""
    text = json.dumps(value, ensure_ascii=False, **how)
    if text.isprintable():
        return text
    # Outside of JSON's strings stands nothing that can't be printed, but what `indent` makes.
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
