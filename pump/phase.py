"""Where the pump's link stands, as a table: in which phase what may happen, and which phase follows.

Rule: the table is the only place that says what follows. What has no entry can't happen there: a BYE of the Collector
is then a lost link, ROLLOVER is refused, and anything else is a bug.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class LinkPhase(Enum):
    """The text is what METRICS shows of a phase in which no block travels."""

    AWAY = "Waiting for the remote host"
    DIALLING = "Connecting"
    GREETING = "Waiting for the Collector"
    STREAMING = "Processing data"
    ROLLING = "Ending the remote file"
    CLOSING = "Ending the session"


class LinkEvent(Enum):
    """What changes the phase."""

    DIAL = "the time to try has come, and the local trail has a file"
    CONNECTED = "a Collector has taken the connection"
    WELCOME = "the Collector said where to go on"
    ROLLOVER = "the operator asks for a new remote file"
    GOODBYE = "our process ends, and has sent BYE"
    BYE = "the Collector ended the session"
    DROPPED = "the link is lost, or given up"


NEXT: Final[dict[tuple[LinkPhase, LinkEvent], LinkPhase]] = {
    # No link. Backoff says when to try again, and when to give up.
    (LinkPhase.AWAY, LinkEvent.DIAL): LinkPhase.DIALLING,
    # A thread asks the Manager for a Collector and connects to it.
    (LinkPhase.DIALLING, LinkEvent.CONNECTED): LinkPhase.GREETING,
    # HELLO is sent. A WELCOME that is refused ends the process, and the session is open by then.
    (LinkPhase.GREETING, LinkEvent.WELCOME): LinkPhase.STREAMING,
    (LinkPhase.GREETING, LinkEvent.GOODBYE): LinkPhase.CLOSING,
    # Blocks go out while the window has room for them.
    (LinkPhase.STREAMING, LinkEvent.ROLLOVER): LinkPhase.ROLLING,
    (LinkPhase.STREAMING, LinkEvent.GOODBYE): LinkPhase.CLOSING,
    # Nothing more is sent. Once all is acknowledged BYE goes out; the next session begins a new remote file.
    (LinkPhase.ROLLING, LinkEvent.ROLLOVER): LinkPhase.ROLLING,
    (LinkPhase.ROLLING, LinkEvent.GOODBYE): LinkPhase.CLOSING,
    (LinkPhase.ROLLING, LinkEvent.BYE): LinkPhase.AWAY,
    # The process ends and waits a moment for the Collector's BYE.
    (LinkPhase.CLOSING, LinkEvent.BYE): LinkPhase.AWAY,
    # A link may be lost at any time.
    **{(phase, LinkEvent.DROPPED): LinkPhase.AWAY for phase in LinkPhase},
}

LIVE: Final = frozenset({LinkPhase.STREAMING, LinkPhase.ROLLING, LinkPhase.CLOSING})
"""The phases in which blocks may be in flight and are acknowledged."""
