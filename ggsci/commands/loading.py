"""INSTANTIATE REPLICAT and INFO TABLES: asked of source and target by sub-processes, as both sides are databases.

Rule: where the Replicat is down, its lock is held from the first look to the last write, so that no START comes
between. Where it runs, the target's side decides whether that is safe, and the process is asked to look.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ggsci import admin
from ggsci.commands.choose import facts_of, registered
from ggsci.commands.session import OperatorSession
from ggsci.table.grammar import CommandError, Parsed
from ggsci.views import loadview, view
from trails.errors import GateError, LockedError
from trails.position import TrailName
from trails.reader import last_header
from trails.runtime.home.home import Home
from trails.runtime.home.registration import Registration
from trails.runtime.language import params
from trails.runtime.language.params import Pattern
from trails.runtime.process.control import ask
from trails.runtime.report.answers import MetricsAnswer, read_answer

if TYPE_CHECKING:
    from replicat.params import ReplicatParams

SECONDS = 600.0
"""Every table of a large database is described, and a table with many rows is emptied."""
ASK_SECONDS = 1.0
_ALL = "*.*"


def instantiate(session: OperatorSession, command: Parsed) -> Any:
    """Ask the source what its tables are, then the target's side to note them; one line a table."""
    group = registered(session.home, command.operand, "REPLICAT")
    return _instantiate(session, command, group, pattern_of(command))


def add_table(session: OperatorSession, command: Parsed) -> Any:
    """INSTANTIATE, of the tables that are named."""
    group = registered(session.home, command.text("REPLICAT"), "REPLICAT")
    return _instantiate(session, command, group, named(command))


def reload_table(session: OperatorSession, command: Parsed) -> Any:
    """Ask the source what its tables are, then the target's side to empty their targets and note them."""
    home, group = session.home, registered(session.home, command.text("REPLICAT"), "REPLICAT")
    name, pattern = group.name, str(named(command))
    found = source_params(home, name, command.command.name)
    session.confirm(f"This empties the target of {pattern}, and has it loaded anew. Are you sure", command)
    with held(home, name) as running:
        asked = {"home": home.root, "group": name, "pattern": pattern}
        shapes = admin.ask("replicat", "table_shapes", seconds=SECONDS, **asked)["shapes"]
        reply = admin.ask(
            "extract", "describe_tables", seconds=SECONDS, url=found.source_url, pattern=pattern,
            trail=trail_source(home, group),
        )  # fmt: skip
        done = admin.follow("replicat", "reload", session.say, tables=reply["tables"], shapes=shapes, **asked)
    return _told_of(session, name, done, running=running)


def _instantiate(session: OperatorSession, command: Parsed, group: Registration, pattern: Pattern | None) -> Any:
    if group.is_task:
        raise CommandError(f"REPLICAT {group.name} is a task, which applies a file: INSTANTIATE one with EXTTRAIL")
    home, name = session.home, group.name
    found = source_params(home, name, command.command.name)
    if command.has("TRUNCATE"):
        which = f"that {pattern} goes to" if pattern else f"of {name}'s MAPs"
        session.confirm(f"This empties every target table {which}, but those loaded already. Are you sure", command)
    wanted = asked_pattern(pattern, found)
    with held(home, name) as running:
        trail = trail_source(home, group)
        reply = admin.ask(
            "extract", "describe_tables", seconds=SECONDS, url=found.source_url, pattern=wanted, trail=trail
        )
        done = admin.ask(
            "replicat", "instantiate", seconds=SECONDS, home=home.root, group=name, tables=reply["tables"],
            create=command.has("CREATE"), truncate=command.has("TRUNCATE"), pattern=str(pattern or ""),
            running=running,
        )  # fmt: skip
    return _told_of(session, name, done, running=running)


def _told_of(session: OperatorSession, name: str, done: dict[str, Any], *, running: bool) -> Any:
    """What becomes of each table; a Replicat that runs is asked to look."""
    session.say_lines(loadview.instantiated(done["tables"]))
    todo = sum(table["done"] != "left alone" for table in done["tables"])
    if running and todo:
        _look(session, name)
    what = "1 table is" if todo == 1 else f"{todo} tables are"
    how = "by the Replicat that runs" if running else f"once you START REPLICAT {name}"
    session.say(f"{what} to be loaded, {how}. INFO TABLES {name} shows how far it is." if todo else "Nothing is to do.")
    return {**done, "running": running}


def source_params(home: Home, name: str, verb: str = "INSTANTIATE") -> ReplicatParams:
    """A Replicat's parameter file, which must name the source. `verb`: the command's."""
    from replicat.params import ReplicatParams

    path = home.prm(name)
    found = ReplicatParams.from_statements(params.parse_file(path), path).resolved(home)
    if not found.source_url:
        raise CommandError(
            f"{verb}: {path} has no SOURCEDB, so the source can't be asked",
            hint="Write it as in the Extract's file: SOURCEDB url, USERIDALIAS alias",
        )
    return found


def trail_source(home: Home, group: Registration) -> dict[str, str]:
    """What the trail says of its source, so of how that is captured; nothing as long as there is no trail."""
    header = last_header(home.fs, TrailName.parse(group.trail, home.root))
    return header.source if header else {}


def pattern_of(command: Parsed, verb: str = "INSTANTIATE") -> Pattern | None:
    """Which tables TABLE names; None for all."""
    if not command.has("TABLE"):
        return None
    try:
        return Pattern(command.text("TABLE"))
    except ValueError as error:
        raise CommandError(f"{verb}: TABLE: expected {error}") from None


def named(command: Parsed) -> Pattern:
    """The tables that a command on tables names."""
    try:
        return Pattern(command.operand)
    except ValueError as error:
        raise CommandError(f"{command.command.name}: {command.operand}: expected {error}") from None


def asked_pattern(pattern: Pattern | None, found: ReplicatParams) -> str:
    """What the source is asked for: the pattern, or one that takes all that the MAPs take."""
    if pattern is not None:
        return str(pattern)
    sources = list(dict.fromkeys(rule.source for rule in found.maps))
    schemas = {source.parts[0] for source in sources}
    if len(sources) == 1 or len(schemas) > 1:
        return str(sources[0]) if len(sources) == 1 else _ALL
    ((schema, quoted),) = schemas
    return f'"{schema.replace(chr(34), chr(34) * 2)}".*' if quoted else f"{schema}.*"


@contextlib.contextmanager
def held(home: Home, name: str) -> Iterator[bool]:
    """Whether the group runs; where it does not, it can't be started meanwhile."""
    try:
        lock = home.fs.lock(home.lock(name))
    except LockedError:
        yield True
        return
    try:
        yield False
    finally:
        lock.release()


def _look(session: OperatorSession, name: str) -> None:
    try:
        reply = ask(session.home, name, "LOAD")
    except GateError as error:
        session.say(
            f"{name} could not be told, and sees it by itself within CHECKPOINTSECS, or when it starts: {error}"
        )
        return
    if not reply.get("ok"):
        session.fail(f"{name} did not take it: {reply.get('error')}")


# --- INFO TABLES ------------------------------------------------------------------------------------------------------


def info_tables(session: OperatorSession, command: Parsed) -> Any:
    """How far the load of each table is, below what INFO REPLICAT says of the group."""
    group = registered(session.home, command.operand, "REPLICAT")
    reply = admin.ask("replicat", "info_tables", home=session.home.root, group=group.name)
    told = _told(session.home, group.name)
    found = [loadview.paced(one, told.get((one["source"], one["target"]))) for one in reply["tables"]]
    (facts,) = facts_of(session, [group])
    session.say_lines(view.info(facts))
    session.say_lines(loadview.tables(found, session.now_us()))
    return found


def _told(home: Home, name: str) -> dict[tuple[str, str], dict[str, Any]]:
    """What the process says of the tables that it loads; nothing where it does not run or answer."""
    try:
        answer = read_answer(MetricsAnswer, ask(home, name, "METRICS", timeout=ASK_SECONDS))
    except GateError:
        return {}
    return {(one["source"], one["target"]): one for one in answer.extra.get("loading") or []}
