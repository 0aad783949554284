"""What a source of changes is, and how it resumes: the contracts between Extract and one database.

    SourceKind       all that others ask of a database; the table of them is kinds.py, one line a database
    CaptureMethod    one of its ways to capture: where the log is not to be had, there may be another
    SourceSettings   what a group's registration and parameter file tell a source
    Source           one capture method, which pushes into
    Sink             the assembler
    SourceFacts      what a source tells of itself

To add a database: a folder under `sources/` with a `kind.py` that has a SourceKind, and a Source, its line in
kinds.py, a page in docs/ and its place in tests/contract/sources/. Its Source inherits from LogSource (logs.py) where
the database sends its log, and from SegmentSource (segments.py) where it is asked. It imports from extract/ only what
stands on floors below it: these two, retention.py, this file, heartbeat.py and longtrans.py.

A source hands over committed transactions, whole and in commit order, by calling a sink. It never looks at the trail:
it is told where the trail ends and goes on just behind, and it is told what is durable and only then lets the database
forget.

The resume contract
- `identify(known)` connects, checks everything that capturing needs (each failure names the statement that mends it),
  and returns what names this source (kind, system, database, slot, ...) for the trail's headers. `known` is what the
  trail's last header says; if this is another source, MismatchError is raised before anything is read or written.
- `start(origin, state)` goes on with the first transaction that committed at or behind `origin`. Origins are borders
  between transactions: the origin of a commit is the place just behind it. Resuming there gives the next transaction:
  none twice, none left out. A source that has already let go of changes behind `origin` (another slot, a gap) raises
  MismatchError: it never starts behind a hole.
- Origin says what was handed over, `state` says where to read from: the oldest open transaction, a snapshot, a set of
  transaction ids. It is the source's own: ASCII of at most 4096 characters that nobody else reads, given beside the
  origin of each commit and place, and given back with that origin, whatever crashed (trails/FORMAT.md, State). It is
  empty for a new trail and after an ALTER: then the source finds it from the origin alone. It holds no row's values,
  as it stands plain in the header of an encrypted file. A source that needs none leaves the argument out.
- `poll` hands over what is ready, a bounded piece, and never waits for more than a moment.
- Lost connections are the source's own affair: it calls `sink.abandon()`, which drops the open transaction, and goes on
  at `sink.origin` and `sink.state` by the rules of `start`, as often as its parameters allow; then it raises AwayError.
- `release(origin)` says: everything before `origin` is synced. No other call, and no library, may let the database
  forget.
- `close` may never be called: a killed process resumes by the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from tempfile import gettempdir
from typing import Any, Protocol

from extract.heartbeat import Owner, Seed
from extract.longtrans import Outstanding
from trails.checkpoint import CSN, Place
from trails.ddl import DdlChange
from trails.errors import OperatorError
from trails.position import Position
from trails.record import Image, Record, TableDef
from trails.runtime.home.registration import Registered
from trails.runtime.language.ddlparams import DdlRules
from trails.runtime.language.heartbeattable import HeartbeatTable
from trails.runtime.language.params import Keyword
from trails.runtime.language.tableparams import Projector, TableRules
from trails.runtime.process.checking import Findings
from trails.runtime.report.stats import DdlCounts

RECONNECT_SECONDS = 3600
BLOCK_KIB = 1024

Say = Callable[[str], None]
Request = dict[str, Any]
Reply = dict[str, Any]
Verb = Callable[[Any, Request], Reply]
"""Does one thing in a database for ggsci: takes what `SourceKind.connect` gave and the request."""

VERBS = (
    "dblogin", "list_tables", "describe_tables", "register", "unregister",
    "add_trandata", "info_trandata", "delete_trandata", "add_ddlcapture", "info_ddlcapture", "delete_ddlcapture",
    "add_heartbeat", "info_heartbeat", "delete_heartbeat",
)  # fmt: skip
"""What every kind answers; `SourceKind.verbs` says what each takes and gives."""


class Sink(Protocol):
    """Where a source puts changes; `extract.assemble.Assembler` is the one there is.

    Two things are shared, as a call for each row would cost more than all else that is done with it. Both are the same
    objects for the sink's whole life, so a source may keep them, or `records.append`, from `start` on.

    The source appends a record right after it has the table's index, from `cache` or from `table`, and calls nothing
    of the sink between. The sink takes records out and empties `cache` inside its methods alone: any of them, but for
    `begin`, `keeps` and `reached`, and what its owner does between two polls. So no index outlives such a call unless
    `cache` still has it.
    """

    records: list[Record]
    """What is gathered. Between `begin` and `commit` the source appends that transaction's changes, in order.

    It never takes one out. Text stands here as text or as the UTF-8 that came; bytes as trails.codec.binary makes them.
    """
    cache: dict[Any, Any]
    """The source's own: by a key of its choice, whatever it must know of a table, the index with it.

    It may add and remove entries at any time, and empties it when it begins a session. The sink empties it whenever
    indexes begin anew.
    """

    @property
    def origin(self) -> Position:
        """Everything that committed before this place was handed over."""
        ...

    @property
    def state(self) -> str:
        """What the source said with that place."""
        ...

    def table(self, definition: TableDef) -> int:
        """The index by which records name this table, until `cache` is emptied. May itself empty it first."""
        ...

    def ddl(self, change: DdlChange) -> None:
        """Inside a transaction: a table changes its shape here. Empties `cache`."""
        ...

    def keeps(self, definition: TableDef, column: int) -> bool:
        """Whether the trail gets this column (by its index) of a table: if not, its value need not be known."""
        ...

    def begin(self, csn: str, xid: str, commit_us: int) -> None:
        """A transaction, known committed, begins."""
        ...

    def commit(self, origin: Position, csn: str, commit_us: int, state: str = "") -> None:
        """It ends; the next one begins at or behind `origin`."""
        ...

    def packs(self, records: Any) -> bool:
        """Asked before `start` is over: make these, which are `Packed`, its `records`; False where it can't.

        Then whoever appends to them may append whole transactions, and tell of them behind that: `gathered` of those
        that have ended, `opened` of the one that has not. While `is_full`, the next commit goes to `commit`.
        """
        ...

    @property
    def is_full(self) -> bool:
        """Whether the next commit puts out what was gathered."""
        ...

    def gathered(self, transactions: int, origin: Position, csn: str, commit_us: int) -> None:
        """So many whole transactions were appended, begins and commits with them; the last one ended so."""
        ...

    def opened(self, at: int, csn: str, xid: str, commit_us: int) -> None:
        """The record at `at` was appended as the begin of a transaction that is open."""
        ...

    def grew(self, size: int) -> None:
        """About so many bytes were appended since the last call; called at least every 256 KiB or single change."""
        ...

    def reached(self, origin: Position, time_us: int, state: str = "") -> None:
        """Outside a transaction: nothing that committed before `origin` is still to come, or the state is news."""
        ...

    def abandon(self) -> None:
        """The open transaction, if any, will be handed over again from its begin, or never."""
        ...


@dataclass(frozen=True, slots=True)
class ThreadPlaces:
    """Where one thread of a source's log is read. Threads have numbers from 1; 0 stands for a log without threads.

    `recovery`: reading would begin there again. `current`: the last record read.
    """

    recovery: Place
    current: Place


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What a source tells of itself, for STATUS, METRICS, SHOWCH and the report.

    `title`: how SHOWCH names the kind of log, such as `Redo Log`. `threads`: where it reads, thread by thread.
    `measures`, for METRICS: `backlog_bytes` of log that is not read yet, if known, and what only this source knows.
    `about`, for the report: the database's version and character set. `csn_label`: what the source calls its CSN.
    """

    title: str
    threads: Sequence[ThreadPlaces]
    measures: Mapping[str, Any] = field(default_factory=dict)
    about: Sequence[str] = ()
    csn_label: str = CSN

    @property
    def read(self) -> Place:
        """The last record read, in whichever thread."""
        return max((one.current for one in self.threads), key=lambda place: place.csn)


class Source(Protocol):
    """One capture method on one database; the module's docstring has the rules."""

    def identify(self, known: dict[str, str] | None) -> dict[str, str]:
        """Connect, check, and say who answers."""
        ...

    def first_origin(self) -> Position:
        """Where a new trail begins."""
        ...

    def origin_of(self, order: dict[str, Any]) -> Position:
        """The place an ALTER names. Raises OperatorError where the source can't go on from there."""
        ...

    def fits(self, origin: Position, state: str) -> None:
        """After `identify`: raise MismatchError if the trail holds what this source never had. `start` asks it too."""
        ...

    def start(self, origin: Position, state: str, sink: Sink) -> None:
        """Begin to capture just behind `origin`."""
        ...

    def poll(self) -> bool:
        """Hand over a bounded piece of what is ready; True if there is more at once."""
        ...

    def release(self, origin: Position) -> None:
        """Everything before `origin` is durable in the trail."""
        ...

    def waits(self) -> list[int]:
        """File descriptors that become readable when there is something to poll."""
        ...

    def idle_seconds(self) -> float:
        """The longest time until `poll` must be called again, readable or not."""
        ...

    @property
    def waits_for(self) -> str:
        """For what it waits, where that is more than the next change; else empty. Asked after each step."""
        ...

    def place(self, origin: Position, time_us: int | None) -> Place:
        """An origin in the source's own terms."""
        ...

    def facts(self, origin: Position, state: str, time_us: int | None) -> SourceFacts:
        """What there is to tell, after `start`; asks nobody.

        The trail ends at `origin`, with `state`, at `time_us`. The recovery place of a thread is that of its oldest
        transaction which was not handed over by `origin`: `origin` itself if none is open.
        """
        ...

    def outstanding(self) -> Outstanding:
        """Transactions that are open in the database, for SHOWTRANS. Asked by a thread of its own, whatever else runs.

        Raises AwayError or OperatorError.
        """
        ...

    def close(self) -> None:
        """Let go in order, so that the next start need not wait."""
        ...


@dataclass(frozen=True, slots=True)
class Durable:
    """How far a group's trail is durable: the last place in it, what the source said there, and the source's time."""

    origin: Position
    state: str = ""
    time_us: int | None = None


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """What a group's registration and parameter file tell a source.

    `registered`: what REGISTER EXTRACT noted; None before it. `project`: what TABLE's options make of tables, None if
    there are none. `ddl`: which schema changes are captured, None for none. `heartbeat`: where heartbeats are. `own`:
    what the file says with the parameters of `SourceKind.keywords`, by keyword. `method`: the word of ADD EXTRACT.
    `scratch`: a folder for what outgrows memory, which no start looks into again. `journal`: a file of the group's own
    that a source may keep, and must be able to do without; empty where none may be written.
    `reshaped`: takes a line on a change of shape at the source; None where those are captured.
    `durable`: for `kept` and `captured` alone, looks how far the trail is durable; it gives None for a trail without a
    file.
    """

    group: str
    url: str
    registered: Registered | None
    tables: TableRules
    project: Projector | None = None
    ddl: DdlRules | None = None
    reconnect_seconds: float = RECONNECT_SECONDS
    heartbeat: HeartbeatTable = field(default_factory=HeartbeatTable)
    own: Mapping[str, Any] = field(default_factory=dict)
    method: str = ""
    scratch: str = field(default_factory=gettempdir)
    journal: str = ""
    reshaped: Say | None = None
    durable: Callable[[], Durable | None] = lambda: None

    @property
    def noted(self) -> Registered:
        """What REGISTER EXTRACT noted. Raises OperatorError where it was not called yet."""
        if self.registered is None:
            raise OperatorError(
                f"group {self.group} is not registered with its source database",
                hint=f"DBLOGIN, then REGISTER EXTRACT {self.group}",
            )
        return self.registered


class Connection(Protocol):
    """What a SourceKind connects with, as far as others use it."""

    def close(self) -> None:
        """Disconnect."""
        ...


class CaptureMethod(Protocol):
    """One way to capture a database. Errors and `connection` are as those of SourceKind."""

    @property
    def keywords(self) -> Mapping[str, Keyword]:
        """The parameters that mean something to it, of those that only this kind's Extracts have."""
        ...

    @property
    def keeps_csns(self) -> bool:
        """Whether a transaction that is read again has the CSN that it had: START by a CSN needs that."""
        ...

    def check(self, connection: Any, settings: SourceSettings, found: Findings) -> None:
        """CHECK PARAMS: add everything that START would refuse, with the statement that mends it. Change nothing."""
        ...

    def kept(self, connection: Any, settings: SourceSettings) -> Reply:
        """The retention guard of a group that does not run: what its source keeps for it.

        A KeptAnswer, so `SourceFacts.measures` has the same: `holder`, `log_status` (a word of the database's),
        `log_kept_bytes`, `log_headroom_bytes`, `log_limit_bytes` with the `log_limit_name` of the setting, `log_reason`
        and `log_checked_us`; None or left out where the database knows none. Here also `level` (0 to 2) with the
        warning's `text`, and `lost`: why nothing but a re-sync helps.
        """
        ...

    def captured(self, connection: Any, settings: SourceSettings, goal: str, seconds: float) -> Reply:
        """WAIT: `reached`, whether all that was committed up to `goal` is durable in the trail; asks `seconds` long.

        `goal` is a place in the source's own words. Without one it is the end of the log now, and given back.
        """
        ...

    def source(self, settings: SourceSettings, say: Say, warn: Say, counts: DdlCounts) -> Source:
        """The source itself, not connected yet.

        `say` takes a line on lost and regained connections, `warn` one on what the source keeps, `counts` counts schema
        changes.
        """
        ...

    def seed(self, settings: SourceSettings, owner: Owner) -> Seed:
        """The heartbeat's end, connected."""
        ...


@dataclass(frozen=True, slots=True)
class TablesSnapshot:
    """All tables of one moment. `csn`: the last that it sees, as the trail of the same source has it.

    `label`: what the source calls that; `tables`: those that TABLE takes; `time_us`: of the source's clock.
    """

    csn: str
    label: str
    tables: tuple[TableDef, ...]
    time_us: int


class TableReader(Protocol):
    """The rows of tables for SOURCEISTABLE: all by one snapshot, whose CSN is exact.

    Rule: the snapshot sees the transactions up to `csn` whole, and nothing else. Values are byte for byte those that
    capture of the same source writes. Nothing here waits for longer than a moment. Raises AwayError or OperatorError.
    """

    def identity(self) -> dict[str, str]:
        """What the header of the file says of the source."""
        ...

    def poll(self) -> TablesSnapshot | None:
        """Begin to take the snapshot, or go on with it; None: it is not there yet."""
        ...

    def rows(self, table: TableDef) -> Iterator[tuple[list[Image], int]]:
        """Pieces of the rows with their bytes, in any order; an empty piece: none has come meanwhile."""
        ...

    def waits(self) -> list[int]:
        """Readable when there may be something."""
        ...

    def close(self) -> None:
        """Let the snapshot go; never raises."""
        ...


class SourceKind(Protocol):
    """All that others ask of a source database.

    Every method may raise OperatorError, and those that ask the database AwayError too. `connection` is what `connect`
    of the same kind gave.
    """

    @property
    def name(self) -> str:
        """What people call the database."""
        ...

    @property
    def example(self) -> str:
        """A URL of it, for messages."""
        ...

    @property
    def is_file(self) -> bool:
        """Whether the database is a file of this host: its URL is `scheme:///path`, and nobody logs in."""
        ...

    @property
    def untyped(self) -> bool:
        """Whether one column may hold values of several types. Only then TABLE may have ANY."""
        ...

    @property
    def places(self) -> Collection[str]:
        """By what its log is found beside its end, a CSN, and a file with an offset: keys of PLACES (methods.py)."""
        ...

    @property
    def keywords(self) -> Mapping[str, Keyword]:
        """The parameters that only its Extracts have. With another database they are refused by name."""
        ...

    @property
    def methods(self) -> Mapping[str, CaptureMethod]:
        """The ways to capture it, by the word of ADD EXTRACT; the first is the usual one, which needs no word."""
        ...

    def unverified(self, url: str) -> str:
        """What to say of a link that leaves this host to a server that proves nothing; else nothing."""
        ...

    def connect(self, url: str, application: str) -> Connection:
        """A connection for the verbs and checks below."""
        ...

    def verbs(self) -> Mapping[str, Verb]:
        """What ggsci's commands have done in the database: all of VERBS, the requests of extract.admin.

        dblogin           {} -> user, database, server
        list_tables       pattern -> tables: names
        describe_tables   pattern [, trail: what its headers say of the source] -> tables: the wire form of a
                          DescribedTable (trails/described.py) each
        register          group, home_id [, journal] [, tables: patterns] -> the fields of Registered
        unregister        made (of Registered) -> {}
        add_trandata, info_trandata, delete_trandata   pattern [, allcols] -> tables: {table, message} each
        add_ddlcapture, info_ddlcapture   {} -> installed, enabled, version, expected_version, tables [, renewed]
        delete_ddlcapture {} -> deleted
        add_heartbeat     heartbeat, made: that of each registered group -> made: what was made, in words
        info_heartbeat    heartbeat, made -> exists, seeds: {extract, database, age_us} each, unpublished: names
        delete_heartbeat  heartbeat -> deleted: what was dropped, in words

        Where `places` is not empty, also:
        find_place        order (of extract.kinds.placed), server (of Registered.identity, or "") -> place, in words

        What concerns a group or its tables also has the `method`; empty is the usual one.
        A database that has no need of one says so in an OperatorError, and what to do instead.
        """
        ...

    def tables(self, connection: Any) -> list[tuple[str, str]]:
        """Schema and name of every table that could be captured today."""
        ...

    def table_reader(self, settings: SourceSettings) -> TableReader:
        """For SOURCEISTABLE, connected. Raises OperatorError where no snapshot's CSN is known."""
        ...
