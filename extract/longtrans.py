"""Transactions that are open in the source: what SHOWTRANS shows, and the warnings of WARNLONGTRANS.

A database keeps its log from the begin of the oldest transaction that is still open: one that somebody forgot to end
keeps all log since then, until there is too much of it. So a long one is warned of, again each time it has been open
for as long once more, until it is gone.

Rule: a look never holds up capturing. Each is made on a thread of its own, one at a time; warnings come from the main
loop once it is over, and SHOWTRANS alone waits for it, ANSWER_SECONDS at most.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from threading import Thread
from typing import TYPE_CHECKING, Any

from trails.clock import Clock
from trails.errors import AwayError, OperatorError

if TYPE_CHECKING:
    from trails.runtime.language.params import Statement

ANSWER_SECONDS = 3.0
SHAPE = "duration [, CHECKINTERVAL duration]"
_DURATION = re.compile(r"(\d{1,9})(s(?:ec(?:ond)?s?)?|m(?:in(?:ute)?s?)?|h(?:ours?)?|d(?:ays?)?)\Z", re.IGNORECASE)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

RUNNING, PREPARED, COMMITTED = "Running", "Prepared", "Committed"


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """One that has changed something. `start_us`, `age_us`: None where the Extract's user may not see them.

    `items`: changes that the Extract has received; COMMITTED is the one that it is receiving. `mend`: the statement
    that ends it.
    """

    xid: str
    status: str = RUNNING
    start_us: int | None = None
    age_us: int | None = None
    user: str = ""
    database: str = ""
    client: str = ""
    pid: int | None = None
    state: str = ""
    name: str = ""
    items: int = 0
    csn: str = ""
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Outstanding:
    """What is open, the oldest first, and the log that is kept because of it.

    `holder`: what holds it back, such as `slot tg_1`. `restart`: where that log begins, such as `LSN 0/1A`. `unhide`:
    the statement that shows the Extract's user what it may not see, and `hidden`: whether that is whole transactions,
    and not only their times.
    """

    transactions: tuple[OpenTransaction, ...] = ()
    holder: str = ""
    restart: str = ""
    kept_bytes: int | None = None
    unhide: str = ""
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class LongSetting:
    """WARNLONGTRANS: warn of transactions open for `after` seconds (0: never), look each `every` seconds."""

    after: int = 3600
    every: int = 300


def seconds_of(text: str) -> int:
    """`30s`, `10m`, `2h`, `1d`, or GoldenGate's `2HOURS`, in seconds. Raises ValueError: what was expected."""
    match = _DURATION.match(text)
    if match is None:
        raise ValueError("a duration such as 30s, 10m, 2h or 1d")
    return int(match[1]) * _UNITS[match[2][0].lower()]


def long_setting(statement: Statement) -> LongSetting:
    """The value of WARNLONGTRANS."""
    words = [word if isinstance(word, str) else "" for word in statement.words]
    if len(words) not in (1, 3) or (len(words) == 3 and words[1].upper() != "CHECKINTERVAL"):
        raise statement.error(SHAPE)
    try:
        after = seconds_of(words[0])
        every = seconds_of(words[2]) if len(words) == 3 else LongSetting().every
    except ValueError as error:
        raise statement.error(str(error)) from None
    if every == 0:
        raise statement.error("a CHECKINTERVAL of a second or more")
    return LongSetting(after, every)


class LongTransactions:
    """Looks now and then; `outstanding` asks the source, `warn` tells the operator a text with its fields."""

    def __init__(
        self, outstanding: Callable[[], Outstanding], warn: Callable[..., None], clock: Clock, setting: LongSetting
    ) -> None:
        self._outstanding = outstanding
        self._warn = warn
        self._clock = clock
        self._setting = setting
        self._due = clock.monotonic() + setting.every
        self.under_way: Future[Outstanding] | None = None
        """The look that is being made, or has not been judged yet."""
        self._told: dict[str, int] = {}  # by xid, how long it was open when last warned of
        self._blind = False
        self._masked = False  # times or transactions are hidden from us, and that was told

    def set(self, args: dict[str, Any]) -> dict[str, Any]:
        """SEND ..., WARNLONGTRANS: other bounds until the process ends."""
        now = self._setting
        try:
            after = seconds_of(str(args["after"])) if "after" in args else now.after
            every = seconds_of(str(args["every"])) if "every" in args else now.every
        except ValueError as error:
            raise OperatorError(f"WARNLONGTRANS: expected {error}") from None
        self._setting = LongSetting(after, max(1, every))
        self._due = self._clock.monotonic()
        self._told.clear()
        return asdict(self._setting)

    def look(self, now: float) -> None:
        """Begin a look if it is time; warn of what one that is over has found open for too long."""
        if self._setting.after and now >= self._due:
            self._due = now + self._setting.every
            self._begin()
        self._take()

    def _take(self) -> None:
        """Judge a look that is over."""
        if self.under_way is not None and self.under_way.done():
            done, self.under_way = self.under_way, None
            if self._setting.after:
                self._judge_all(done)

    def _begin(self) -> Future[Outstanding]:
        """The look that is under way, or a new one."""
        self._take()
        if self.under_way is None:
            self.under_way = Future()
            Thread(target=_ask, args=(self.under_way, self._outstanding), name="open transactions", daemon=True).start()
        return self.under_way

    def _judge_all(self, done: Future[Outstanding]) -> None:
        if error := done.exception():
            if not self._blind:  # a lost connection is told, and waited for, where changes are read
                self._warn(f"Open transactions of the source can't be looked at: {error}")
            self._blind = True
            return
        self._blind, found = False, done.result()
        if (found.hidden or any(t.age_us is None for t in found.transactions)) and not self._masked:
            self._masked = True
            what = "they" if found.hidden else "their times"
            self._warn(
                f"WARNLONGTRANS can't judge open transactions of other users: {what} are not shown to this "
                f"Extract's user. {found.unhide} TO that user"
            )
        self._told = {t.xid: self._told[t.xid] for t in found.transactions if t.xid in self._told}
        for transaction in found.transactions:
            self._judge(transaction, found)

    def _judge(self, transaction: OpenTransaction, found: Outstanding) -> None:
        age = (transaction.age_us or 0) // 1_000_000
        if age < self._setting.after + self._told.get(transaction.xid, 0):
            return
        self._told[transaction.xid] = age
        self._warn(
            f"Long Running Transaction: {_described(transaction, age)}.{_consequence(transaction, found)}",
            holder=found.holder, kept_bytes=found.kept_bytes, **asdict(transaction),
        )  # fmt: skip

    def reply(self, args: dict[str, Any], own: OpenTransaction | None) -> dict[str, Any]:
        """SHOWTRANS: `count`, `seconds` and `xid` choose; `own` is the one that is being received."""
        try:
            found = self._begin().result(ANSWER_SECONDS)
        except TimeoutError:
            raise AwayError(
                f"the source database did not say within {ANSWER_SECONDS:g} seconds what is open", hint="Try again"
            ) from None
        finally:
            self._take()
        chosen = [*([own] if own else []), *found.transactions]
        if xid := str(args.get("xid") or ""):
            chosen = [t for t in chosen if t.xid == xid]
        if seconds := int(args.get("seconds") or 0):
            chosen = [t for t in chosen if (t.age_us or 0) >= seconds * 1_000_000]
        if count := int(args.get("count") or 0):
            chosen = chosen[:count]
        known = {key: value for key, value in asdict(found).items() if key != "transactions"}
        return {**known, "transactions": [asdict(t) for t in chosen]}


def _ask(answer: Future[Outstanding], outstanding: Callable[[], Outstanding]) -> None:
    try:
        answer.set_result(outstanding())
    except Exception as error:  # noqa: BLE001  -- whoever takes the answer gets it; it must not end the capture
        answer.set_exception(error)


def _described(transaction: OpenTransaction, age: int) -> str:
    who = f"user {transaction.user} in database {transaction.database}"
    where = f", prepared as {transaction.name!r}" if transaction.name else f", {transaction.client}"
    state = f", {transaction.state}" if transaction.state else ""
    return f"XID {transaction.xid}, open for {age // 3600:02d}:{age // 60 % 60:02d}:{age % 60:02d}, {who}{where}{state}"


def _consequence(transaction: OpenTransaction, found: Outstanding) -> str:
    if not found.transactions or transaction is not found.transactions[0]:
        return ""
    kept = "" if found.kept_bytes is None else f", which keeps {found.kept_bytes >> 20} MB of log"
    mend = f", or {transaction.mend}" if transaction.mend else ""
    return f" It is the oldest, and holds back {found.holder}{kept}. Have its owner end it{mend}"
