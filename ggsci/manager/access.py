"""ACCESSRULE: from which addresses a pump may ask the Manager for a Collector.

Rule: the first rule that matches decides, by priority (PRI 1 before PRI 99) and then in the order of the file. Without
any rule whoever reaches the port may ask: BIND decides who does. With rules, an address that none matches is denied;
this host's own loopback addresses stay allowed unless a rule denies them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from trails.runtime.language import params
from trails.runtime.language.params import Statement
from trails.runtime.report.limits import Address

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

DEFAULT_PRIORITY = 99
SHAPE = "PROG {COLLECTOR | *}, IPADDR {address | a.b.* | network/bits | *}, {ALLOW | DENY} [, PRI n]"
PROGRAMS = ("COLLECTOR", "SERVER", "*")


@dataclass(frozen=True, slots=True)
class AccessRule:
    """One ACCESSRULE; `network` None is every address."""

    network: Network | None
    allow: bool
    priority: int
    text: str

    def matches(self, address: Address) -> bool:
        """Whether the rule is for this address."""
        return self.network is None or (address.version == self.network.version and address in self.network)


def parse(statement: Statement) -> AccessRule:
    """The parser of the keyword table."""
    words = [str(word) for word in statement.words if isinstance(word, str)]
    options: dict[str, str] = {}
    at = 0
    while at < len(words):
        name = words[at].upper()
        takes = 0 if name in ("ALLOW", "DENY") else 1
        if name not in ("PROG", "IPADDR", "PRI", "ALLOW", "DENY") or name in options or at + takes >= len(words):
            raise statement.error(SHAPE, words[at])
        options[name] = words[at + takes]
        at += 1 + takes
    return _rule(statement, options)


def _rule(statement: Statement, options: dict[str, str]) -> AccessRule:
    if "IPADDR" not in options or ("ALLOW" in options) == ("DENY" in options):
        raise statement.error(SHAPE)
    program = options.get("PROG", "*").upper()
    if program not in PROGRAMS:
        raise statement.error("PROG COLLECTOR or PROG *: nothing else is asked for over the network", program)
    priority = params.whole(statement, options.get("PRI", str(DEFAULT_PRIORITY)), 1, DEFAULT_PRIORITY)
    shown = " ".join(statement.text.split())
    return AccessRule(_network(statement, options["IPADDR"]), "ALLOW" in options, priority, shown)


def _network(statement: Statement, text: str) -> Network | None:
    """`10.1.*` is 10.1.0.0/16."""
    if text == "*":
        return None
    parts = text.split(".")
    known = [part for part in parts if part != "*"]
    if "*" in parts:
        if len(parts) > 4 or parts[len(known) :] != ["*"] * (len(parts) - len(known)):
            raise statement.error("stars only at the end, such as 10.1.*", text)
        text = f"{'.'.join(known + ['0'] * (4 - len(known)))}/{8 * len(known)}"
    try:
        network = ipaddress.ip_network(text)
        mapped = network.network_address.ipv4_mapped if isinstance(network, ipaddress.IPv6Network) else None
        # Peers are seen without that wrapping: a rule that keeps it would match nobody.
        return network if mapped is None else ipaddress.IPv4Network((int(mapped), network.prefixlen - 96))
    except ValueError as error:
        raise statement.error(f"IPADDR address, 10.1.*, 10.1.0.0/16 or *: {error}", text) from None


def why_denied(rules: Sequence[AccessRule], address: Address) -> str:
    """Empty if the address may ask for a Collector, else what forbids it."""
    for rule in sorted(rules, key=lambda rule: rule.priority):
        if rule.matches(address):
            return "" if rule.allow else f"ACCESSRULE {rule.text} denies {address}"
    if not rules or address.is_loopback:
        return ""
    return f"no ACCESSRULE allows {address}"
