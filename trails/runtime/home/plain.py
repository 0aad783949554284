"""Frozen dataclasses from plain JSON, with every field's type looked at: what a file holds may be anything."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def of(cls: type[T], fields: Mapping[str, Any]) -> T:
    """An instance of `cls`. Raises TypeError for a field that is unknown, missing, or of another type."""
    for name, value in fields.items():
        allowed = _types(typing.cast("Any", cls)).get(name)
        if allowed is not None and not isinstance(value, allowed):
            raise TypeError(f"{name}: expected {' or '.join(t.__name__ for t in allowed)}, found {value!r:.40}")
    return cls(**fields)


@cache
def _types(cls: Any) -> dict[str, tuple[type, ...]]:
    return {name: _plain(hint) for name, hint in typing.get_type_hints(cls).items()}


def _plain(hint: Any) -> tuple[type, ...]:
    if isinstance(hint, types.UnionType):
        return tuple(each for arg in typing.get_args(hint) for each in _plain(arg))
    return (typing.get_origin(hint) or hint,)
