"""The source for MySQL and MariaDB: the server's binary log, read as a replica reads it.

Places. An origin is the end of a transaction's last event: file and position, counted by epochs (places.py). In the
trail's state stands which GTIDs were handed over (state.py).

Where reading begins, at START and after each loss of the connection:
- the server that was read before, and the file is there: at the place. On MariaDB the server must find those same GTIDs
  there, as nothing else shows that it is the same log.
- another server (a failover), or the file is gone: behind the GTIDs. The server must have all of them, and must have
  purged no other. A failover begins an epoch, in a process of its own: the trail's files name the server.

Acknowledging. The server waits for nobody and purges its log by its own rules, so `release` tells it something only
where it is semi-synchronous and SEMISYNC asks for that. The retention guard watches how long the log will last.
"""

from __future__ import annotations

from typing import Any

from extract.logs import LogSource
from extract.longtrans import Outstanding
from extract.retention import RetentionGuard
from extract.source import Say, Sink, SourceFacts, SourceSettings, ThreadPlaces
from extract.sources.mysql import check, server
from extract.sources.mysql import opened as open_transactions
from extract.sources.mysql.begin import ReadFrom, read_from
from extract.sources.mysql.capture import CaptureRules
from extract.sources.mysql.decoder import BinlogDecoder
from extract.sources.mysql.dump import SILENCE_SECONDS, BinlogStream, LogReader
from extract.sources.mysql.flavour import Flavour
from extract.sources.mysql.guard import LogWatch
from extract.sources.mysql.handed import Start
from extract.sources.mysql.link import MysqlSession
from extract.sources.mysql.ordered import ordered
from extract.sources.mysql.places import csn_of, file_name, origin_of, parts
from extract.sources.mysql.state import State
from extract.sources.mysql.walk import Walker
from extract.sources.mysql.words import READER, is_semisync, server_id
from trails.checkpoint import Place
from trails.errors import AnewError, AwayError, MismatchError
from trails.position import START, Position
from trails.runtime.report.stats import DdlCounts


class MysqlSource(LogSource):
    """This database's source; extract.source.Source and extract.logs.LogSource say what each method does."""

    def __init__(
        self, settings: SourceSettings, say: Say, warn: Say | None = None, ddl_counts: DdlCounts | None = None
    ) -> None:
        """`warn`: takes a line on the log that is still needed; `say` takes it if there is none."""
        self._reader = LogReader(server_id(settings), settings.noted.made[READER])
        self._watch = LogWatch(settings, self._reader.name)
        super().__init__(settings.reconnect_seconds, say, RetentionGuard(self._watch.retained, warn or say))
        self._settings = settings
        self._say = say
        self._rules = CaptureRules(settings, ddl_counts or DdlCounts())
        self._session: MysqlSession | None = None
        self._stream: BinlogStream | None = None
        self._decoder: BinlogDecoder | None = None
        noted = settings.noted.identity["flavour"]
        self._flavour = Flavour(noted) if noted else Flavour.MARIADB  # then the one that answers
        self._known: dict[str, str] = {}
        self._server = ""
        self._epoch = 0
        self._version = self._characters = ""
        self._semisync = is_semisync(settings)
        self._told = START

    # --- before the start -------------------------------------------------------------------------------------------

    def identify(self, known: dict[str, str] | None) -> dict[str, str]:
        """Connect, check all prerequisites, compare with the registration and with `known`."""
        self._known = dict(known or {})
        session = self._identify()
        check.refuse(check.faults(session, self._settings))
        for text in check.cautions(session, self._settings):
            self._say(text)
        return self._found

    @property
    def _found(self) -> dict[str, str]:
        return {"kind": self._flavour.value, "server": self._server, "epoch": str(self._epoch)}

    def _identify(self) -> MysqlSession:
        """Who answers. Another server of the same flavour begins an epoch: `fits` says if it may."""
        session = self._open_session()
        noted = self._settings.noted.identity
        for who, expected in (("REGISTER EXTRACT", noted["flavour"]), ("the trail", self._known.get("kind", ""))):
            if expected and expected != session.flavour.value:
                raise MismatchError(
                    f"the source is {session.flavour.title} {session.version}, but {who} belongs to {expected}",
                    hint="Mend SOURCEDB; another database needs a group and a trail of its own",
                )
        self._flavour = session.flavour
        self._server = server.identity(session)
        before = self._known.get("server", noted["server"])
        self._epoch = int(self._known.get("epoch", 0)) + (self._server != before)
        self._version = f"{session.flavour.title} {session.version}"
        self._characters = str(session.one("SELECT CONCAT(@@character_set_server, ', ', @@collation_server)")[0])
        return session

    def first_origin(self) -> Position:
        """Where REGISTER EXTRACT found the log's end."""
        place = self._settings.noted.place
        return origin_of(0, place.seqno, place.rba)

    def origin_of(self, order: dict[str, Any]) -> Position:
        """The place of ALTER EXTRACT or ADD EXTRACT:

        {"begin": "now"}, {"begin_us": time}, {"seqno": n, "rba": pos}, {"csn": CSN} or {"gtid": set}.
        """
        return ordered(self._open_session(), self._walker, order, self._epoch)

    def fits(self, origin: Position, state: str) -> None:
        """Raise MismatchError where this server can't go on there."""
        self._read_from(origin, state)

    def _read_from(self, origin: Position, state: str) -> ReadFrom:
        text = state
        if not text and origin == self.first_origin():
            text = self._settings.noted.state
        parsed = State.parse(self._flavour, text) if text else None
        return read_from(self._open_session(), self._walker, origin, parsed, self._epoch)

    @property
    def _walker(self) -> Walker:
        return Walker(self._settings.url, self._reader.name, self._flavour)

    def _open_session(self) -> MysqlSession:
        if self._session is None:
            self._session = MysqlSession(self._settings.url, self._reader.name)
        return self._session

    def _close_session(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None

    # --- capturing --------------------------------------------------------------------------------------------------

    def start(self, origin: Position, state: str, sink: Sink) -> None:
        self._told = origin
        self._watch.begin(origin, state)
        super().start(origin, state, sink)

    def connect(self, sink: Sink, *, again: bool) -> None:
        if again:
            self._identify_again(sink)
        found = self._read_from(sink.origin, sink.state)
        origin = sink.origin
        if parts(origin)[0] != self._epoch:
            origin = origin_of(self._epoch, 0, 0)
        self._stream = BinlogStream(self._settings.url, self._reader, found.begin, semi_sync=self._semisync)
        self._decoder = self._rules.decoder(
            self._open_session(),
            self._server,
            sink,
            self._say,
            Start(origin, found.state, found.by_gtid),
            continues=bool(sink.state),
        )
        self._known = self._found

    def _identify_again(self, sink: Sink) -> None:
        """Who answers now. A failover is taken up by a process of its own: the trail's files name the server."""
        before = self._server
        session = self._identify()
        if self._server != before:
            self.fits(sink.origin, sink.state)
            raise AnewError(
                f"another server answers: it is {self._server}, and was {before}",
                hint="START goes on where the trail ends; AUTORESTART does it by itself",
            )
        check.refuse([*check.server(session), *check.cascades(session, self._settings)])

    def read(self, sink: Sink, now: float) -> bool:  # noqa: ARG002  -- the decoder feeds it
        assert self._stream is not None and self._decoder is not None
        size, full = self._stream.gulp(self._decoder.decode)
        if self._semisync and self.released > self._told:
            self._acknowledge(self._stream)
        if not size and now - self._stream.heard > SILENCE_SECONDS:
            raise AwayError(f"the source database has sent nothing for {SILENCE_SECONDS:g} s, not even a heartbeat")
        return full

    def _acknowledge(self, stream: BinlogStream) -> None:
        """Say what is durable, if it is of this server's log."""
        self._told = self.released
        epoch, number, pos = parts(self.released)
        if epoch == self._epoch and number:
            stream.acknowledge(self._file(number), pos)

    def hang_up(self) -> None:
        if self._stream is not None:
            self._stream.close()
        if self._decoder is not None:
            self._decoder.close()
        self._stream = self._decoder = None
        self._close_session()

    def fileno(self) -> int:
        assert self._stream is not None
        return self._stream.fileno()

    def due(self) -> float:
        assert self._stream is not None
        if self._semisync and self.released > self._told:
            return 0.0
        return self._stream.heard + SILENCE_SECONDS

    # --- telling ----------------------------------------------------------------------------------------------------

    def _file(self, number: int) -> str:
        return file_name(self._settings.noted.place.file, number)

    def place(self, origin: Position, time_us: int | None) -> Place:
        _, number, pos = parts(origin)
        return Place(number, pos, time_us, csn_of(origin), self._file(number))

    def facts(self, origin: Position, state: str, time_us: int | None) -> SourceFacts:
        self._watch.needs(origin, state, time_us)
        read = max(origin, self._decoder.place if self._decoder is not None else origin)
        current = self.place(read, time_us if read == origin else None)
        about = [
            "Database Version:", self._version, "",
            "Database Language and Character Set:", self._characters, "",
        ]  # fmt: skip
        threads = [ThreadPlaces(self._oldest(origin, state, time_us), current)]
        measures = self._watch.measures(read, connected=self.connected)
        return SourceFacts(server.TITLE, threads, measures, about, server.CSN_LABEL)

    def _oldest(self, origin: Position, state: str, time_us: int | None) -> Place:
        """Where reading would begin again: at the oldest XA transaction that is prepared."""
        again = State.parse(self._flavour, state).again if state else None
        return self.place(origin, time_us) if again is None else self.place(again.origin, None)

    def outstanding(self) -> Outstanding:
        if not self.connected:
            raise AwayError("the source database is away")
        session = MysqlSession(self._settings.url, f"{self._reader.name} looks")
        try:
            return open_transactions.outstanding(session)
        finally:
            session.close()

    def close(self) -> None:
        self._watch.close()
        super().close()
