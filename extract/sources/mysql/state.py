"""What stands in the trail beside an origin (Sink, `state`): the GTIDs handed over, and where reading begins again.

    1 GTIDS                       reading begins at the origin
    1 GTIDS PLACE GTIDS           it begins at PLACE, before which the second GTIDS were handed over
    z ...                         one of these, packed, where it would not fit otherwise

Reading begins before the origin while XA transactions are prepared: their rows stand there, and not at their commit.
The GTIDs say after a failover what another server need not send, and what of it is passed over.

Rule: a state has at most 4096 characters (extract/source.py). A set that does not fit, even packed, is refused.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from dataclasses import dataclass
from typing import Final

from extract.sources.mysql import gtid
from extract.sources.mysql.flavour import Flavour
from extract.sources.mysql.gtid import GtidSet
from trails.errors import DamageError, OperatorError
from trails.position import Position

MOST: Final = 4096
_UNPACKED: Final = 1 << 18
_NONE: Final = "-"


@dataclass(frozen=True, slots=True)
class Again:
    """Where reading begins again, and the transactions that committed before it."""

    origin: Position
    gtids: GtidSet


@dataclass(frozen=True, slots=True)
class State:
    """`gtids`: all that was handed over. `again`: None where reading begins at the origin."""

    gtids: GtidSet
    again: Again | None = None

    def __str__(self) -> str:
        """The text. Raises OperatorError where it does not fit."""
        text = f"1 {self.gtids or _NONE}"
        if self.again is not None:
            text += f" {self.again.origin} {self.again.gtids or _NONE}"
        return text if len(text) <= MOST else _packed(text)

    @classmethod
    def parse(cls, flavour: Flavour, text: str) -> State:
        """Inverse of `str()`. Raises DamageError."""
        try:
            kind, *fields = (_unpacked(text) if text.startswith("z ") else text).split(" ")
            sets = [gtid.parse(flavour, "" if found == _NONE else found) for found in fields[::2]]
            if kind != "1" or len(fields) not in (1, 3):
                raise ValueError("expected `1`, a GTID set, and perhaps a place and another set")
            return cls(sets[0], Again(Position.parse(fields[1]), sets[1]) if len(fields) == 3 else None)
        except ValueError as error:
            raise DamageError(
                f"the trail's state {text!r:.100} is none of {flavour.title}'s: {error}",
                hint="ALTER EXTRACT to a place that is known, or begin a new trail",
            ) from None


def _packed(text: str) -> str:
    packed = "z " + base64.b85encode(zlib.compress(text.encode(), 9)).decode()
    if len(packed) > MOST:
        raise OperatorError(
            f"the set of GTIDs that was handed over has {len(packed)} characters, packed: a trail keeps {MOST} of it",
            hint="Capture from a server whose gtid_executed has fewer sources and gaps; empty transactions close gaps",
        )
    return packed


def _unpacked(text: str) -> str:
    """Raises ValueError."""
    try:
        unpacker = zlib.decompressobj()
        found = unpacker.decompress(base64.b85decode(text[2:]), _UNPACKED)
        if not unpacker.eof:
            raise ValueError(f"it ends too soon, or has more than {_UNPACKED} bytes")
        return found.decode("ascii")
    except (zlib.error, binascii.Error) as error:
        raise ValueError(str(error)) from None
