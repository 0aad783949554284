"""What the parameter file makes of a server's log: which tables and statements are captured, and their decoder."""

from __future__ import annotations

from collections.abc import Callable

from extract.source import Say, Sink, SourceSettings
from extract.sources.mysql import server
from extract.sources.mysql.cascading import CascadeWatch
from extract.sources.mysql.columns import definition, known_columns
from extract.sources.mysql.ddl.asking import ask_server
from extract.sources.mysql.ddl.shapes import ShapeRules, Shapes
from extract.sources.mysql.decoder import BinlogDecoder
from extract.sources.mysql.handed import Start
from extract.sources.mysql.link import MysqlSession
from extract.sources.mysql.places import file_name, file_number, origin_of, parts
from extract.sources.mysql.rowcode import compile_rows
from extract.sources.mysql.rows import RowShape
from extract.sources.mysql.tablemap import TableMap
from trails.ddl import DdlChange
from trails.fs import RealFs
from trails.position import Position
from trails.runtime.report.stats import DdlCounts


class CaptureRules:
    """What is wanted; `counts` counts schema changes."""

    def __init__(self, settings: SourceSettings, counts: DdlCounts) -> None:
        self._settings = settings
        self._counts = counts

    def captures(self, schema: str, name: str) -> bool:
        """Whether a table's rows are captured; those of heartbeats and of the server's own never are."""
        own = schema in server.SYSTEM or self._settings.heartbeat.owns(schema, name)
        return not own and self._settings.tables.wants(schema, name)

    def hands_over(self, schema: str, name: str) -> bool:
        """Whether rows go to the sink: those that are captured, and the heartbeat's, whatever TABLE says."""
        beats = self._settings.heartbeat
        return (schema, name) == (beats.schema, beats.seed) or self.captures(schema, name)

    def befores(self, schema: str, name: str) -> bool:
        """Whether updates carry their whole old rows; of the heartbeat's nobody wants them, whatever TABLE says."""
        return self.captures(schema, name) and bool(self._settings.tables.befores(schema, name))

    def passes(self, change: DdlChange) -> bool:
        """Whether a schema change goes into the trail. A renamed table counts by both of its names."""
        rules = self._settings.ddl
        if rules is None or any(self._settings.heartbeat.owns(*name) for name in change.names):
            return False
        mapped = any(self.captures(*name) for name in change.names)
        passes = rules.passes(change, mapped)
        self._counts.seen(change, mapped=mapped, passes=passes)
        return passes

    def decoder(
        self, session: MysqlSession, source: str, sink: Sink, say: Say, start: Start, *, continues: bool
    ) -> BinlogDecoder:
        """For one session of reading. `source`: names the server. `say`: takes warnings.

        `continues`: as Shapes.resume has it.
        """
        flavour = session.flavour
        asked = ask_server(session, flavour, source)
        file = self._settings.noted.place.file
        passes = None if self._settings.ddl is None else self.passes
        watch = None if server.logs_cascades(session) else CascadeWatch(session, self._settings, say)
        shapes = Shapes(RealFs(), self._settings.journal, asked, ShapeRules(self.captures, passes, watch))
        shapes.resume(sink.origin, session, _end(session, parts(start.origin)[0]), continues=continues)

        def describe(table: TableMap) -> RowShape:
            _, number, pos = parts(decoder.place)
            shape = shapes.agrees(table, f"{file_name(file, number)}, position {pos}")
            made = definition(table, shape, flavour)
            wants = self.befores(table.schema, table.name)
            rows = compile_rows(table, flavour, known_columns(table, shape), made.key, befores=wants)
            return RowShape(made, rows)

        decoder = BinlogDecoder(sink, flavour, start, self.hands_over, describe, shapes, self._settings.scratch)
        return decoder


def _end(session: MysqlSession, epoch: int) -> Callable[[], Position]:
    def end() -> Position:
        found = server.log_end(session)
        assert found is not None, "the checks have found a log"
        return origin_of(epoch, file_number(found.file), found.pos)

    return end
