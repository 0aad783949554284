"""Who must act after which error of which library: the table in docs/exit-codes.md, held to what processes do."""

from __future__ import annotations

import builtins
import errno
import inspect
import re
import socket
import sqlite3
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import lz4.block
import msgpack
import psycopg
import py4j.protocol
import pymysql
import pyspark.errors
import pytest
from psycopg import errors
from pymysql.constants import CR, ER

from extract.sources.mysql.link import refused as refused_by_mysql
from extract.sources.postgres import driver
from extract.sources.sqlite import link as sqlite_source
from replicat.batches import engine
from replicat.model.again import ShapeChangedError
from replicat.model.target import RefusedError
from replicat.targets.mysql import link as mysql_target
from replicat.targets.postgres import link as postgres_target
from replicat.targets.sqlite import link as sqlite_target
from trails import codec, watch
from trails.errors import EXIT_AWAY, EXIT_BUG, EXIT_OPERATOR, OperatorError
from trails.format import FLAG_LZ4
from trails.link import messages, tls
from trails.runtime.process.startup import exit_of

PAGE = Path(__file__).parents[2] / "docs" / "exit-codes.md"
EACH_OTHER = "every other"
OPEN = SimpleNamespace(closed=False, open=True)


def cells(beginning: str) -> dict[int, str]:
    """The row of the table that begins so: what it says by exit code."""
    text = PAGE.read_text()
    (row,) = re.findall(rf"^\| {re.escape(beginning)}.*$", text, re.MULTILINE)
    _, _, *found, _ = (cell.strip() for cell in row.split("|"))
    return dict(zip((EXIT_AWAY, EXIT_OPERATOR, EXIT_BUG), found, strict=True))


def words(cell: str) -> tuple[str, ...]:
    """The names or numbers in it."""
    return tuple(re.findall(r"`(\w+)`", cell) or re.findall(r"\d+", cell))


def code_of(error: BaseException) -> int:
    """The exit code that it ends a process with."""
    return exit_of(error)[0]


def code_under(manager: Any, error: Exception) -> int:
    """The same of a library's error that meets this context manager of ours."""
    with pytest.raises(Exception) as caught, manager:  # noqa: PT011  -- which one is what is asked
        raise error
    return code_of(caught.value)


def classes(*modules: ModuleType) -> Iterable[type[Exception]]:
    """All exceptions that these modules have."""
    for module in modules:
        for found in vars(module).values():
            if inspect.isclass(found) and issubclass(found, Exception):
                yield found


def test_the_system() -> None:
    """Each number that this system has, and each class; a name of a file makes it a person's."""
    said = cells("the system")
    heals, person = set(words(said[EXIT_AWAY])), set(words(said[EXIT_OPERATOR]))
    assert said[EXIT_BUG] == EACH_OTHER
    for number, name in errno.errorcode.items():
        error = OSError(number, "words")
        known = {name, *(base.__name__ for base in type(error).__mro__)}
        expected = EXIT_AWAY if known & heals else EXIT_OPERATOR if name in person else EXIT_BUG
        assert code_of(error) == expected, name
        assert code_of(OSError(number, "words", "dirdat/lt")) == (EXIT_AWAY if known & heals else EXIT_OPERATOR), name
    for error in (socket.gaierror(-2, "words"), socket.herror(1, "words"), MemoryError()):
        assert type(error).__name__ in heals
        assert code_of(error) == EXIT_AWAY
    assert "no new thread" in said[EXIT_AWAY]
    assert code_of(RuntimeError("can't start new thread")) == EXIT_AWAY
    assert code_of(RuntimeError("words")) == EXIT_BUG


def test_tls() -> None:
    """Also one that nobody caught: its numbers look like those of the system, and are not."""
    assert cells("TLS")[EXIT_AWAY] == EACH_OTHER
    for kind in {found for found in classes(ssl) if issubclass(found, ssl.SSLError)}:
        for number in range(1, 12):
            error = kind(number, "words")
            if issubclass(kind, ssl.SSLCertVerificationError):
                error.verify_code, error.verify_message = 10, "words"
            assert {code_of(error), code_of(tls.explain(error, "Manager"))} == {EXIT_AWAY}, (kind, number)
    alert = ssl.SSLError(1, "words")
    alert.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    assert [code_of(tls.explain(alert, "Manager", trusted=known)) for known in (True, False)] == [2, 3]


def test_postgresql() -> None:
    """Each SQLSTATE of the driver, at the source and at the target; the target's refusals and shapes go other ways."""
    said = cells("PostgreSQL")
    heals = words(said[EXIT_AWAY])
    assert said[EXIT_OPERATOR] == EACH_OTHER
    found = {kind for kind in classes(errors) if getattr(kind, "sqlstate", None)}
    assert len(found) > 200
    for kind in found:
        state = str(kind.sqlstate)
        expected = EXIT_AWAY if state.startswith(heals) else EXIT_OPERATOR
        assert (EXIT_AWAY if driver.heals(state) else EXIT_OPERATOR) == expected, state
        error = kind("words")
        ours = postgres_target.as_ours(error, OPEN)  # type: ignore[arg-type]
        if postgres_target.refusal(error) is None and not isinstance(ours, ShapeChangedError):
            assert code_of(ours) == expected, state
    for kind in (psycopg.OperationalError, psycopg.InterfaceError):
        assert code_of(postgres_target.as_ours(kind("words"), OPEN)) == EXIT_AWAY  # type: ignore[arg-type]
    assert code_under(driver.away(), driver.OperationalError("words")) == EXIT_AWAY


def test_mysql_and_mariadb() -> None:
    """Each number that the driver knows, and those in between, at the source and at the target."""
    said = cells("MySQL")
    heals = {int(number) for number in words(said[EXIT_AWAY])}
    assert said[EXIT_OPERATOR] == EACH_OTHER
    known = {n for module in (ER, CR) for n in vars(module).values() if isinstance(n, int)}
    assert heals < set(range(4100))
    for number in {*known, *range(4100)}:
        expected = EXIT_AWAY if number in heals else EXIT_OPERATOR
        assert code_of(refused_by_mysql(number, "words")) == expected, number
        ours = mysql_target.as_ours(pymysql.err.OperationalError(number, "words"), OPEN)  # type: ignore[arg-type]
        if mysql_target.refusal(number, "words", "t") is None and not isinstance(ours, ShapeChangedError):
            assert code_of(ours) == expected, number
    for kind in classes(pymysql.err):
        if issubclass(kind, pymysql.err.Error):  # without a number it is the driver's own
            assert code_under(mysql_target.mapped(OPEN), kind("words")) == EXIT_AWAY, kind  # type: ignore[arg-type]


def test_sqlite() -> None:
    """Each error that it has a name for."""
    said = cells("SQLite")
    heals = words(said[EXIT_AWAY])
    assert said[EXIT_OPERATOR] == EACH_OTHER
    not_errors = {"SQLITE_OK", "SQLITE_ROW", "SQLITE_DONE", "SQLITE_DENY", "SQLITE_IGNORE"}
    names = {name for name, value in vars(sqlite3).items() if name.startswith("SQLITE_") and isinstance(value, int)}
    for name in names - not_errors:
        error = sqlite3.OperationalError("words")
        error.sqlite_errorname = name
        expected = EXIT_AWAY if name.startswith(heals) else EXIT_OPERATOR
        assert code_under(sqlite_source.mapped(), error) == expected, name
        ours = sqlite_target.as_ours(error)
        if not isinstance(ours, RefusedError | ShapeChangedError):
            assert code_of(ours) == expected, name


def _of_bytes(library: ModuleType) -> list[type[Exception]]:
    if library is lz4.block:
        return [lz4.block.LZ4BlockError]
    return [kind for kind in classes(msgpack.exceptions) if issubclass(kind, msgpack.UnpackException | ValueError)]


@pytest.mark.parametrize("library", [msgpack, lz4.block])
def test_bytes(library: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a library says of them: a file's are damage, a peer's are a session that is begun anew."""
    cells("bytes")

    def raising(error: Exception) -> Callable[..., Any]:
        def call(*_: Any, **__: Any) -> Any:
            raise error

        return call

    for kind in _of_bytes(library):
        error = kind(1, b"") if kind is msgpack.ExtraData else kind("words")
        with monkeypatch.context() as patch:
            patch.setattr(msgpack, "unpackb", raising(error))
            patch.setattr(lz4.block, "decompress", raising(error))
            header = SimpleNamespace(flags=FLAG_LZ4 if library is lz4.block else 0, raw_len=10, has_state=False)
            with pytest.raises(Exception) as of_file:  # noqa: PT011  -- which one is what is asked
                codec._unpack(header, bytes(10), "here", 100, 100)  # type: ignore[arg-type]
            assert code_of(of_file.value) == EXIT_OPERATOR, kind
            if library is msgpack:
                with pytest.raises(Exception) as of_peer:  # noqa: PT011  -- the same
                    messages._unpack_map(messages.Hello, b"")
                assert code_of(of_peer.value) == EXIT_AWAY, kind


def test_watchdog(tmp_path: Path) -> None:
    """It says what to raise, or to make."""
    cells("`watchdog`")
    with pytest.raises(OperatorError, match="can't be watched"):
        watch.FolderWatch(str(tmp_path / "none"), print)


def test_spark() -> None:
    """Of a job whose JVM lives; of one whose JVM is gone test_replicat_jvm.py tells."""
    said = cells("Spark")
    heals = set(words(said[EXIT_AWAY].partition("lives")[2]))
    assert said[EXIT_BUG] == EACH_OTHER
    builtin = [kind for kind in vars(builtins).values() if inspect.isclass(kind) and issubclass(kind, Exception)]
    found = {*classes(py4j.protocol, pyspark.errors), *builtin} - {ExceptionGroup}
    assert len(found) > 80
    for kind in found:
        names = {base.__name__ for base in kind.__mro__}
        assert engine._is_of_spark(kind.__new__(kind)) == bool(names & heals), kind
