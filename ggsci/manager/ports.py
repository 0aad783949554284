"""The pool of ports for Collectors (DYNAMICPORTLIST): in which order they are offered, and who uses which.

Rule: the Collector itself binds, so a port that somebody else took is simply passed over. A port whose Collector ended
less than DYNAMICPORTREASSIGNDELAY ago is offered last: a late packet or a stale pump then meets nobody, and yet a pool
of one port still works.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ggsci.manager.rules import Ranges

LISTENING = "0A"
"""State of a listening socket in /proc/net/tcp."""
IN_USE = 98
"""What GETPORTINFO shows as error for a port that another program took (EADDRINUSE)."""


def text(ranges: Ranges) -> str:
    """`7840-7850,7900`, as the Collector's command line has it."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def numbers(ranges: Ranges) -> list[int]:
    """The single ports, in the order given, each once."""
    return list(dict.fromkeys(port for first, last in ranges for port in range(first, last + 1)))


def without(ranges: Ranges, port: int) -> Ranges:
    """The list less a port that is somebody else's."""
    mine = numbers(ranges)
    return _gathered([one for one in mine if one != port]) if port in mine else ranges


@dataclass(slots=True)
class Pool:
    """Which ports rest, since when. Lost with the Manager, which costs a delay of seconds and nothing else."""

    _ended: dict[int, float] = field(default_factory=dict)

    def ended(self, port: int, now: float) -> None:
        """A Collector on this port has ended."""
        self._ended[port] = now

    def resting(self, now: float, delay: float) -> list[int]:
        """Ports that ended within the delay, the one that rests longest first."""
        self._ended = {port: at for port, at in self._ended.items() if now - at < delay}
        return sorted(self._ended, key=lambda port: self._ended[port])

    def offer(self, ranges: Ranges, now: float, delay: float) -> Ranges:
        """The ports of the list with those that rest moved to the end."""
        mine = set(numbers(ranges))
        last = [port for port in self.resting(now, delay) if port in mine]
        if not last:
            return ranges
        return (*_gathered([port for port in numbers(ranges) if port not in last]), *((port, port) for port in last))

    def rows(self, ranges: Ranges, assigned: set[int], now: float, delay: float) -> list[dict[str, Any]]:
        """Every port of the pool for GETPORTINFO DETAIL, neighbours in one state together."""
        rest, taken = set(self.resting(now, delay)), listening()
        rows: list[dict[str, Any]] = []
        for port in numbers(ranges):
            state = _state(port, assigned, rest, taken)
            if rows and rows[-1]["state"] == state and rows[-1]["last"] == port - 1:
                rows[-1]["last"] = port
            else:
                rows.append({"first": port, "last": port, "state": state, "error": IN_USE if state == "taken" else 0})
        return rows


def _state(port: int, assigned: set[int], rest: set[int], taken: set[int]) -> str:
    if port in assigned:
        return "assigned"
    if port in taken:
        return "taken"
    return "resting" if port in rest else "free"


def _gathered(ports: list[int]) -> Ranges:
    found: list[tuple[int, int]] = []
    for port in ports:
        if found and found[-1][1] == port - 1:
            found[-1] = (found[-1][0], port)
        else:
            found.append((port, port))
    return tuple(found)


def listening(files: tuple[str, ...] = ("/proc/net/tcp", "/proc/net/tcp6")) -> set[int]:
    """Every TCP port that somebody on this machine listens on; empty where the system does not tell."""
    found: set[int] = set()
    for path in files:
        try:
            with open(path, encoding="ascii", errors="replace") as lines:
                rows = [line.split() for line in lines]
        except OSError:
            continue
        found |= {int(row[1].rpartition(":")[2], 16) for row in rows if len(row) > 3 and row[3] == LISTENING}
    return found
