"""What a process would say again and again, and how much of it is said. `report.Log` asks here before each line.

    the message before, once more    within a minute not written; `The previous message, ..., repeated n times.`
                                     (TG-01971) stands before the next other one, after each minute of repeating, and
                                     at the process's end
    messages of a kind (`alike`)     five at once and then one a minute, and no text twice within a minute; each tells
                                     how many were left out before it. A text that is a kind of its own may come five
                                     times: that the target is away again, say, is news though it was so a moment ago

The second is for what a stranger, a damaged file or each batch can cause in turns with other messages. Memory is
bounded; a SIGKILL loses a count, never a message that was not written before.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from trails.runtime.report.limits import MAX_KEYS, Rates

REPEATED = "TG-01971"
EVERY_SECONDS = 60.0
BURST = 5


@dataclass(frozen=True, slots=True)
class Message:
    """One line of the event log, before it has a time."""

    severity: str
    code: str
    text: str
    fields: dict[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class _Kind:
    """The last message of a kind that was written, and how many were not since."""

    text: str = ""
    told: float = 0.0
    left_out: int = 0


class Repeats:
    """What one process has said lately. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._last: Message | None = None
        self._times = 0
        self._told = 0.0
        self._kinds: dict[str, _Kind] = {}
        self._rates = Rates(1 / EVERY_SECONDS, BURST)

    def to_write(self, message: Message, alike: str, now: float) -> list[Message]:
        """The messages to write for this one: none, itself, or a count of the one before and itself."""
        if alike:
            return self._of_a_kind(message, alike, now)
        same, late = message == self._last, now - self._told >= EVERY_SECONDS
        if same and (self._times or not late):
            self._times += 1
            if not late:
                return []
            self._told = now
            return self.rest()
        made = [*self.rest(), message]
        self._last, self._told = message, now
        return made

    def rest(self) -> list[Message]:
        """The count that is still to be told."""
        times, self._times = self._times, 0
        last = self._last
        if last is None or not times:
            return []
        text = f"The previous message, {last.severity} {last.code}, repeated {times} time{'s' * (times > 1)}."
        return [Message(last.severity, REPEATED, text, {"code": last.code, "repeated": times})]

    def _of_a_kind(self, message: Message, alike: str, now: float) -> list[Message]:
        key = f"{message.code} {alike}"
        kind = self._kinds.pop(key, None) or _Kind()
        if len(self._kinds) >= MAX_KEYS:
            del self._kinds[next(iter(self._kinds))]  # the one not heard of for longest
        self._kinds[key] = kind
        same = message.text == kind.text != alike and now - kind.told < EVERY_SECONDS
        if same or not self._rates.take(key, now):
            kind.left_out += 1
            return []
        made, self._last = self.rest(), None
        left_out, kind.text, kind.told, kind.left_out = kind.left_out, message.text, now, 0
        told = f"{message.text} ({left_out} alike before it were not logged)" if left_out else message.text
        return [*made, replace(message, text=told)]
