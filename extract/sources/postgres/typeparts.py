"""The parts of types, told where DDL is not captured: ALTER TYPE ... RENAME VALUE (enum), ADD and DROP ATTRIBUTE
(composite) change what rows say that are there, and neither the log nor a queue has a word of it. A label keeps its oid
and an attribute its number through a rename, so two looks tell. An attribute's name stands in no value.

    look      at START and every few seconds: all parts as they are now, beside those that are known
    settle    what is different is told, and then it is what is known, in the group's file (home.journal)

A type that was dropped and made again has another oid: it is told which of its old parts are gone.

Rule: told before it is known. So a crash between has it told twice, and nothing that happens while no Extract runs is
missed. REGISTER EXTRACT makes the file. One that is deleted is made anew within seconds while Extract runs; else the
next start knows what it finds.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from extract.source import Say, SourceSettings
from extract.sources.postgres.driver import Session
from trails.errors import OperatorError
from trails.fs import Fs, RealFs, read_bytes, replace_durably

_VERSION: Final = 2
_SHOWN: Final = 3
LABEL: Final = "enum"
ATTRIBUTE: Final = "composite type"

_PARTS: Final = """
SELECT e.oid::text, t.oid, n.nspname || '.' || t.typname, e.enumlabel, 'enum', e.oid
FROM pg_enum e JOIN pg_type t ON t.oid = e.enumtypid JOIN pg_namespace n ON n.oid = t.typnamespace
UNION ALL
SELECT c.reltype || '.' || a.attnum, c.reltype, n.nspname || '.' || c.relname, a.attname, 'composite type', a.attnum
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'c' AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY 2, 6
"""

# Also in arrays, domains, composites and ranges, however deep; not in the row type of a table.
_COLUMNS: Final = """
WITH RECURSIVE holds AS (
    SELECT $1::bigint::oid AS oid
    UNION
    SELECT i.oid FROM holds h CROSS JOIN LATERAL (
        SELECT t.oid FROM pg_type t WHERE t.typbasetype = h.oid OR (t.typelem = h.oid AND t.typcategory = 'A')
        UNION ALL SELECT r.rngtypid FROM pg_range r WHERE r.rngsubtype = h.oid
        UNION ALL SELECT c.reltype FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        WHERE a.atttypid = h.oid AND c.relkind = 'c' AND NOT a.attisdropped
    ) i
)
SELECT n.nspname, c.relname, a.attname FROM holds h JOIN pg_attribute a ON a.atttypid = h.oid
JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 1, 2, a.attnum
"""


@dataclass(frozen=True, slots=True)
class TypePart:
    """A label or an attribute, and the type that it is of; `kind`: LABEL or ATTRIBUTE."""

    typid: int
    type: str
    text: str
    kind: str


Parts = dict[str, TypePart]
"""By the label's oid, or the type's oid and the attribute's number."""


@dataclass(frozen=True, slots=True)
class TypesLook:
    """What a look has found beside `known`, and what there is to tell of it."""

    known: Parts | None
    found: Parts
    news: tuple[str, ...]


class TypesWatch:
    """Of one group. `look` may be called on another thread than `settle`."""

    def __init__(self, fs: Fs, path: str, source: str, captures: Callable[[str, str], bool], say: Say) -> None:
        """`path`: its file, empty for none. `source`: names the database. `captures`: of which tables news are told."""
        self._fs, self._path, self._source = fs, path, source
        self._captures = captures
        self._say = say
        self._known = self._read()

    def look(self, session: Session) -> TypesLook | None:
        """What is different by now; None if nothing is, and the file stands there."""
        known, found = self._known, parts(session)
        if known == found and (not self._path or self._fs.exists(self._path)):
            return None
        return TypesLook(known, found, tuple(self._news(session, known, found)))

    def settle(self, look: TypesLook) -> None:
        """Tell it, and know it. A look that was made before the last one was settled says nothing new."""
        if look.known is not self._known:
            return
        for text in look.news:
            self._say(text)
        self._known = look.found
        if self._path:
            write(self._fs, self._path, self._source, look.found)

    def _news(self, session: Session, known: Parts | None, found: Parts) -> Iterator[str]:
        for (typid, name, kind), changes in _changes(known or {}, found).items():
            rows = session.query(_COLUMNS, typid)
            columns = [
                f"{schema}.{table}.{column}"
                for schema, table, column in rows
                if self._captures(schema or "", table or "")
            ]
            if columns:
                yield (
                    f"{kind} {name}: {_shown(changes)}. DDL is not captured: where {_shown(columns, ', ')} is text, "
                    f"older rows of the targets keep the old {_KEPT[kind]}; update them by hand"
                )

    def _read(self) -> Parts | None:
        """What was known last of this database; None if nothing was."""
        if not self._path:
            return None
        try:
            found = json.loads(read_bytes(self._fs, self._path))
            if found["source"] != self._source:
                return None
            if found["version"] != _VERSION:
                raise ValueError(f"version {found['version']}")
            return {key: TypePart(*one) for key, one in found["known"].items()}
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise OperatorError(
                f"{self._path}: expected the parts of the source's types, found something else ({error})",
                hint="Remove it, then START. Labels that were renamed since it was written must be looked for by hand",
            ) from None


def watch(settings: SourceSettings, captures: Callable[[str, str], bool]) -> TypesWatch:
    """Of a group. Where DDL is captured, which tells of types at their place, they are only known."""
    say = settings.reshaped or (lambda _text: None)
    return TypesWatch(RealFs(), settings.journal, named(settings.noted.identity), captures, say)


def named(identity: dict[str, str]) -> str:
    """A database, by what REGISTER EXTRACT has noted of it."""
    return f"{identity.get('system', '')}/{identity.get('database', '')}"


def parts(session: Session) -> Parts:
    """All of them, as they are now."""
    return {
        key or "": TypePart(int(typid or 0), name or "", text or "", kind or "")
        for key, typid, name, text, kind, _ in session.query(_PARTS)
    }


def begin(session: Session, path: str, identity: dict[str, str]) -> None:
    """REGISTER EXTRACT: what is there now is known."""
    if path:
        write(RealFs(), path, named(identity), parts(session))


def write(fs: Fs, path: str, source: str, known: Parts) -> None:
    """Have it known, durably."""
    wire = {key: [one.typid, one.type, one.text, one.kind] for key, one in known.items()}
    replace_durably(fs, path, json.dumps({"version": _VERSION, "source": source, "known": wire}).encode())


def _changes(known: Parts, found: Parts) -> dict[tuple[int, str, str], list[str]]:
    """By type as it is now: what became of its parts, in words."""
    types = {one.type: one.typid for one in found.values()}
    there = {(one.type, one.text) for one in found.values()}
    changes = defaultdict[tuple[int, str, str], list[str]](list)
    for key, old in known.items():
        new = found.get(key)
        if new is not None and new.typid == old.typid:
            if new.text != old.text and new.kind == LABEL:
                changes[new.typid, new.type, new.kind].append(f"'{old.text}' was renamed to '{new.text}'")
        elif types.get(old.type) == old.typid:
            changes[old.typid, old.type, old.kind].append(f"'{old.text}' was dropped")
        elif old.type in types and (old.type, old.text) not in there:
            told = f"'{old.text}' is gone, as the type was made anew"
            changes[types[old.type], old.type, old.kind].append(told)
    before = {one.typid for one in known.values()}
    for key, new in found.items():
        if new.kind == ATTRIBUTE and key not in known and new.typid in before:
            changes[new.typid, new.type, new.kind].append(f"'{new.text}' was added")
    return changes


_KEPT: Final = {LABEL: "label", ATTRIBUTE: "text"}


def _shown(some: list[str], between: str = "; ") -> str:
    more = f"{between}{len(some) - _SHOWN} more" if len(some) > _SHOWN else ""
    return between.join(some[:_SHOWN]) + more
