"""Sets of global transaction identifiers (GTIDs) of both servers, as values that never change.

    MySQL     3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:9, ...   every transaction by its number, with tags:
              3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:tag:1-3
    MariaDB   0-1-26,7-1-1                                      a domain's last transaction: domain-server-sequence

A set's text is the server's own form, sorted and without blanks. A MariaDB set says where each domain stands, so it
holds all that its domains have up to there: a domain's sequence goes up, which gtid_strict_mode enforces.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple, Protocol, Self

from extract.sources.mysql.flavour import Flavour

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")
_TAG: Final = re.compile(r"[a-z_][a-z0-9_]{0,31}\Z")
_RANGE: Final = re.compile(r"(\d{1,19})(?:-(\d{1,19}))?\Z")
_DOMAIN_GTID: Final = re.compile(r"(\d{1,10})-(\d{1,10})-(\d{1,20})\Z")
_U64 = struct.Struct("<Q")
_INTERVAL = struct.Struct("<QQ")
_LIST_ENTRY = struct.Struct("<IIQ")
_TAGGED: Final = 1
"""The format of a set's bytes in which every source has a tag, perhaps an empty one (from MySQL 8.3 on)."""

Spans = tuple[tuple[int, int], ...]
"""First and last of each run of numbers, ascending, never touching."""


class UuidGtid(NamedTuple):
    """One transaction of MySQL. `source`: the server's uuid, with `:tag` behind it where there is one."""

    source: str
    number: int

    def __str__(self) -> str:
        return f"{self.source}:{self.number}"


class DomainGtid(NamedTuple):
    """One transaction of MariaDB."""

    domain: int
    server: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.domain}-{self.server}-{self.sequence}"


Gtid = UuidGtid | DomainGtid


class GtidSet(Protocol):
    """What both sets do. Only sets and GTIDs of one flavour meet."""

    def add(self, gtid: Gtid) -> Self:
        """With this transaction too."""
        ...

    def contains(self, gtid: Gtid) -> bool:
        """Whether a transaction is in it."""
        ...

    def contains_all(self, other: Self) -> bool:
        """Whether every transaction of the other set is."""
        ...

    def minus(self, other: Self) -> Self:
        """What is not in the other set, to show people."""
        ...


def parse(flavour: Flavour, text: str) -> GtidSet:
    """A set of its text, in any order and with blanks. Raises ValueError."""
    return DomainSet.parse(text) if flavour is Flavour.MARIADB else UuidSet.parse(text)


@lru_cache(maxsize=1024)
def source_text(uuid: bytes, tag: str = "") -> str:
    """The text of a source's 16 bytes and tag."""
    digits = uuid.hex()
    text = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    return f"{text}:{tag}" if tag else text


# --- MySQL ------------------------------------------------------------------------------------------------------------


class UuidSet:
    """MySQL's. The text of each source is kept, as nearly all of them stay as they are while one goes on."""

    __slots__ = ("_spans", "_text", "_texts")

    def __init__(self, spans: Mapping[str, Spans] | None = None, texts: Mapping[str, str] | None = None) -> None:
        """`texts`: those of all spans, if known."""
        self._spans: Mapping[str, Spans] = spans or {}
        made = {source: _spans_text(found) for source, found in self._spans.items()} if texts is None else texts
        self._texts: Mapping[str, str] = made
        self._text: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Of the server's text. Raises ValueError."""
        given: dict[str, list[tuple[int, int]]] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            uuid, *rest = [word.strip().lower() for word in part.split(":")]
            if not _UUID.match(uuid) or not rest:
                raise ValueError(f"GTID set: expected uuid:n or uuid:n-m, found {part!r:.100}")
            source = uuid
            for word in rest:
                found = _RANGE.match(word)
                if found is None:
                    if not _TAG.match(word):
                        raise ValueError(f"GTID set: expected a number, a range or a tag, found {word!r:.40}")
                    source = f"{uuid}:{word}"
                    continue
                first, last = int(found[1]), int(found[2] or found[1])
                if not 0 < first <= last:
                    raise ValueError(f"GTID set: expected a range from 1 up, found {word!r}")
                given.setdefault(source, []).append((first, last))
        return cls({source: _joined(found) for source, found in given.items()})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Of the bytes of a Previous_gtids event. Raises ValueError."""
        spans: dict[str, Spans] = {}
        try:
            (head,) = _U64.unpack_from(data)
            tagged = head >> 56
            if tagged not in (0, _TAGGED):
                raise ValueError(f"a GTID set of format {tagged}: expected 0 or 1")
            count, at = (head >> 8 & (1 << 48) - 1) if tagged else head, 8
            for _ in range(count):
                uuid, tag = data[at : at + 16], ""
                at += 16
                if tagged:
                    size = data[at] >> 1
                    tag = data[at + 1 : at + 1 + size].decode("ascii")
                    at += 1 + size
                (runs,) = _U64.unpack_from(data, at)
                at += 8
                found = [_INTERVAL.unpack_from(data, at + 16 * i) for i in range(runs)]
                at += 16 * runs
                if not all(0 < first < end for first, end in found):
                    raise ValueError(f"a GTID set: expected runs of numbers from 1 up, found {found[:3]}")
                spans[source_text(uuid, tag)] = _joined((first, end - 1) for first, end in found)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise ValueError(f"a GTID set of {len(data)} bytes is cut off: {error}") from None
        if at != len(data):
            raise ValueError(f"a GTID set: expected {at} bytes, found {len(data)}")
        return cls(spans)

    def encode(self) -> bytes:
        """The bytes of COM_BINLOG_DUMP_GTID."""
        tagged = any(":" in source for source in self._spans)
        head = _TAGGED << 56 | len(self._spans) << 8 | _TAGGED if tagged else len(self._spans)
        pieces = [_U64.pack(head)]
        for source, spans in sorted(self._spans.items()):
            uuid, _, tag = source.partition(":")
            pieces.append(bytes.fromhex(uuid.replace("-", "")))
            if tagged:
                pieces.append(bytes([len(tag) << 1]) + tag.encode("ascii"))
            pieces.append(_U64.pack(len(spans)))
            pieces += [_INTERVAL.pack(first, last + 1) for first, last in spans]
        return b"".join(pieces)

    def add(self, gtid: Gtid) -> Self:
        assert isinstance(gtid, UuidGtid)
        source, number = gtid
        held = self._spans.get(source, ())
        if held and held[-1][1] == number - 1:  # as nearly always: the next one
            held = (*held[:-1], (held[-1][0], number))
        elif self.contains(gtid):
            return self
        else:
            held = _joined((*held, (number, number)))
        return type(self)({**self._spans, source: held}, {**self._texts, source: _spans_text(held)})

    def contains(self, gtid: Gtid) -> bool:
        assert isinstance(gtid, UuidGtid)
        return any(first <= gtid.number <= last for first, last in self._spans.get(gtid.source, ()))

    def contains_all(self, other: Self) -> bool:
        return all(
            any(first <= a and b <= last for first, last in self._spans.get(source, ()))
            for source, spans in other._spans.items()
            for a, b in spans
        )

    def minus(self, other: Self) -> Self:
        left = {source: _without(spans, other._spans.get(source, ())) for source, spans in self._spans.items()}
        return type(self)({source: spans for source, spans in left.items() if spans})

    def __str__(self) -> str:
        if self._text is None:
            self._text = self._made_text()
        return self._text

    def _made_text(self) -> str:
        pieces: list[str] = []
        before = ""
        for source in sorted(self._spans):
            uuid, _, tag = source.partition(":")
            lead = f":{tag}" if uuid == before else f"{',' if pieces else ''}{source}"
            pieces.append(f"{lead}:{self._texts[source]}")
            before = uuid
        return "".join(pieces)

    def __bool__(self) -> bool:
        return bool(self._spans)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UuidSet) and self._spans == other._spans

    def __hash__(self) -> int:
        return hash(str(self))

    def __repr__(self) -> str:
        return f"<UuidSet {self}>"


def _joined(given: Iterable[tuple[int, int]]) -> Spans:
    """Runs in any order, as they must stand."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(given):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return tuple(found)


def _without(spans: Spans, taken: Spans) -> Spans:
    left = list(spans)
    for a, b in taken:
        left = [
            piece
            for first, last in left
            for piece in ((first, min(last, a - 1)), (max(first, b + 1), last))
            if piece[0] <= piece[1]
        ] if any(first <= b and a <= last for first, last in left) else left  # fmt: skip
    return tuple(left)


def _spans_text(spans: Spans) -> str:
    return ":".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


# --- MariaDB ----------------------------------------------------------------------------------------------------------


class DomainSet:
    """MariaDB's: where each domain stands."""

    __slots__ = ("_last", "_text")

    def __init__(self, last: Mapping[int, DomainGtid] | None = None) -> None:
        """`last`: of each domain."""
        self._last: Mapping[int, DomainGtid] = last or {}
        self._text: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Of a list of GTIDs; of a domain's several, as in gtid_binlog_state, the last one. Raises ValueError."""
        return cls({gtid.domain: gtid for gtid in domain_gtids(text)})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Of the bytes of a GTID_LIST event. Raises ValueError."""
        if len(data) < 4:
            raise ValueError(f"a GTID list of {len(data)} bytes is cut off")
        count = int.from_bytes(data[:4], "little") & (1 << 28) - 1
        if not count and not any(data[4:]):
            return cls()  # servers fill up an empty list
        if len(data) != 4 + count * _LIST_ENTRY.size:
            raise ValueError(
                f"a GTID list of {count}: expected {4 + count * _LIST_ENTRY.size} bytes, found {len(data)}"
            )
        given = (DomainGtid(*entry) for entry in _LIST_ENTRY.iter_unpack(data[4:]))
        return cls({gtid.domain: gtid for gtid in given})  # a domain's last one comes last

    def missing_in(self, binlog_state: str) -> Self:
        """What of it a server's gtid_binlog_state does not have: it knows the last one of each domain and server."""
        there = {(gtid.domain, gtid.server): gtid.sequence for gtid in domain_gtids(binlog_state)}
        return type(self)(
            {
                domain: gtid
                for domain, gtid in self._last.items()
                if there.get((domain, gtid.server), -1) < gtid.sequence
            }
        )

    def add(self, gtid: Gtid) -> Self:
        assert isinstance(gtid, DomainGtid)
        return type(self)({**self._last, gtid.domain: gtid})

    def contains(self, gtid: Gtid) -> bool:
        assert isinstance(gtid, DomainGtid)
        held = self._last.get(gtid.domain)
        return held is not None and gtid.sequence <= held.sequence

    def contains_all(self, other: Self) -> bool:
        return all(self.contains(gtid) for gtid in other._last.values())

    def is_within(self, other: Self) -> bool:
        """Whether each domain stands where it does in the other set, or has a lower number."""
        there = other._last
        return all(
            domain in there and (gtid == there[domain] or gtid.sequence < there[domain].sequence)
            for domain, gtid in self._last.items()
        )

    def minus(self, other: Self) -> Self:
        return type(self)({domain: gtid for domain, gtid in self._last.items() if not other.contains(gtid)})

    def __str__(self) -> str:
        if self._text is None:
            self._text = ",".join(str(self._last[domain]) for domain in sorted(self._last))
        return self._text

    def __bool__(self) -> bool:
        return bool(self._last)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DomainSet) and self._last == other._last

    def __hash__(self) -> int:
        return hash(str(self))

    def __repr__(self) -> str:
        return f"<DomainSet {self}>"


def domain_gtids(text: str) -> list[DomainGtid]:
    """The GTIDs of a list, as they stand there. Raises ValueError."""
    given = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        found = _DOMAIN_GTID.match(part)
        if found is None:
            raise ValueError(f"GTID set: expected domain-server-sequence, such as 0-1-26, found {part!r:.60}")
        given.append(DomainGtid(int(found[1]), int(found[2]), int(found[3])))
    return given
