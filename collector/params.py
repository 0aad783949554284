"""The Collector's command line; the Manager writes it, so a mistake in it is told in one line.

python -P -m collector --home DIR --trail ./dirdat/rt --ports 7840-7850 --bind 127.0.0.1 --peer 10.0.0.1
    --pump HOME/PMP1 --ready-fd N
"""

from __future__ import annotations

import argparse
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from trails.errors import OperatorError
from trails.position import TrailName

DEFAULT_PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class CollectorParams:
    """One Collector: `trail` as the pump names it; `patience`: seconds to wait for a pump that greets.

    `peer` is the one address that is served, `pump` the one pump, as home id and group (empty: any); `notls` says that
    it is served in plain TCP.
    """

    home: str
    trail: str
    ports: tuple[int, ...]
    bind: str = "127.0.0.1"
    ready_fd: int = -1
    patience: float = DEFAULT_PATIENCE
    peer: str = ""
    pump: str = ""
    notls: bool = False

    @classmethod
    def from_arguments(cls, argv: Sequence[str]) -> CollectorParams:
        """Read a command line. Raises OperatorError."""
        parser = _CollectorArguments(prog="collector", add_help=False)
        parser.add_argument("--home", required=True)
        parser.add_argument("--trail", required=True)
        parser.add_argument("--ports", required=True, type=parse_ports)
        parser.add_argument("--bind", default="127.0.0.1")
        parser.add_argument("--ready-fd", type=int, default=-1)
        parser.add_argument("--patience", type=float, default=DEFAULT_PATIENCE)
        parser.add_argument("--peer", default="", type=_address)
        parser.add_argument("--pump", default="")
        parser.add_argument("--notls", action="store_true")
        return cls(**vars(parser.parse_args(list(argv))))

    def trail_name(self, root: str) -> TrailName:
        """The trail's place in the home `root`. Raises OperatorError unless it lies in dirdat."""
        name = TrailName.parse(self.trail, root)
        dirdat = os.path.join(os.path.realpath(root), "dirdat")
        folder = os.path.realpath(name.folder)
        if folder != dirdat and not folder.startswith(dirdat + os.sep):
            raise OperatorError(
                f"remote trail {self.trail!r}: expected a trail in dirdat of {root}, found {folder}",
                hint="Name it like ./dirdat/rt",
            )
        return name


def parse_ports(text: str) -> tuple[int, ...]:
    """`7840-7850,7900` as single numbers, in the order given."""
    ports: list[int] = []
    for part in text.replace(" ", "").split(","):
        first, dash, last = part.partition("-")
        if not (first.isdecimal() and (last if dash else first).isdecimal()):
            raise argparse.ArgumentTypeError(f"expected ports like 7840-7850, found {text!r}")
        ports += range(int(first), int(last or first) + 1)
    if not ports or not all(0 <= port < 65_536 for port in ports):
        raise argparse.ArgumentTypeError(f"expected ports from 0 to 65535, found {text!r}")
    return tuple(ports)


def _address(text: str) -> str:
    try:
        return text and str(ipaddress.ip_address(text.partition("%")[0]))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected an IP address, found {text!r}") from None


class _CollectorArguments(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OperatorError(
            f"collector: command line: {message}", hint="The Manager starts Collectors; see its ggserr.log"
        )
