"""Names in SQL, as the standard quotes them."""

from __future__ import annotations


def ident(name: str) -> str:
    """A quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def dotted(schema: str, name: str) -> str:
    """A quoted schema.name."""
    return f"{ident(schema)}.{ident(name)}"
