"""How often one key (an address, a kind of message) may do something.

Rule: memory is bounded by the number of keys, whoever knocks. Times are monotonic seconds, given by the caller.
"""

from __future__ import annotations

import errno
import ipaddress
from dataclasses import dataclass

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_KEYS = 1024

# accept() failed for want of something of our own: the next try must wait, or the loop spins on a readable listener.
EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
PAUSE_SECONDS = 1.0


def address_of(text: str) -> Address:
    """A peer's address as rules see it: without a zone, and IPv4 where IPv6 only wraps it."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def crowd_of(address: Address) -> str:
    """Whom limits count an address to: a host of IPv6 has a whole /64, and could be another in each connection."""
    if isinstance(address, ipaddress.IPv4Address) or address.is_loopback:
        return str(address)
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))


@dataclass(slots=True)
class _Bucket:
    left: float
    since: float


class Rates:
    """A token bucket a key: `burst` at once, `per_second` in the long run."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._buckets: dict[str, _Bucket] = {}

    def take(self, key: str, now: float) -> bool:
        """Whether it may be done now, and is counted; False: too often."""
        bucket = self._buckets.pop(key, None)
        if bucket is None:
            bucket = _Bucket(float(self._burst), now)
            if len(self._buckets) >= MAX_KEYS:
                del self._buckets[next(iter(self._buckets))]  # the one not seen for longest
        self._buckets[key] = bucket
        bucket.left = min(float(self._burst), bucket.left + (now - bucket.since) * self._per_second)
        bucket.since = now
        if bucket.left < 1:
            return False
        bucket.left -= 1
        return True
