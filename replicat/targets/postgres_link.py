"""Connections to PostgreSQL, and psycopg's errors as ours, by who must act."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from replicat.target import RefusedError, ShapeChangedError
from trails.errors import AwayError, OperatorError

_REFUSED = (
    errors.IntegrityError, errors.DataError, errors.NotSupportedError, errors.RaiseException,
    # psycopg files these under its classes for a lost connection and for a wrong statement.
    errors.ProgramLimitExceeded, errors.CardinalityViolation, errors.WithCheckOptionViolation,
)  # fmt: skip
_SHAPE = (
    errors.UndefinedTable, errors.UndefinedColumn, errors.DatatypeMismatch, errors.UndefinedObject,
    errors.InvalidColumnReference, errors.GeneratedAlways, errors.WrongObjectType, errors.InvalidSchemaName,
)  # fmt: skip
_AWAY = (psycopg.OperationalError, psycopg.InterfaceError, errors.ReadOnlySqlTransaction)
_COLUMN = re.compile(r"COPY .*, line \d+, column (.+?): ")
"""Of an error's context, where a value does not fit its column; the value comes behind it."""
_OURS_TO_MEND = (
    "authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied", "permission denied",
    "invalid connection option", "Name or service not known",
)  # fmt: skip


def connect(url: str, application: str) -> psycopg.Connection[Any]:
    """A connection in autocommit; AwayError if the server can't be reached, OperatorError if it refuses us."""
    try:
        return psycopg.connect(**_alive(url), autocommit=True, application_name=application)
    except psycopg.Error as error:
        text = " ".join(str(error).split())
        if isinstance(error, psycopg.ProgrammingError) or any(mark in text for mark in _OURS_TO_MEND):
            raise OperatorError(f"the target database refuses the connection: {text}", hint="Mend TARGETDB") from None
        raise AwayError(f"the target database can't be reached: {text}") from None


def _alive(url: str) -> dict[str, Any]:
    """The URL's own options, and what finds out within a minute that the other host is gone without a word."""
    ours = {
        "connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3,
        "tcp_user_timeout": 60_000,
    }  # fmt: skip
    return ours | conninfo_to_dict(url)


@contextlib.contextmanager
def mapped(conn: psycopg.Connection[Any] | None) -> Iterator[None]:
    """Psycopg's errors as ours."""
    try:
        yield
    except psycopg.Error as error:
        text = without_values(error)
        if isinstance(error, _SHAPE):
            raise ShapeChangedError(f"the target database's tables are not what they were: {text}") from error
        # A read-only server is a standby, or has just become one: waiting, or the URL's other host, helps.
        if conn is None or conn.closed or isinstance(error, _AWAY):
            raise AwayError(f"the target database went away: {text}") from error
        raise OperatorError(f"the target database refused a statement: {text}") from error


def refusal(error: Exception) -> RefusedError | None:
    """The error as a refusal of rows; None if it is something else."""
    if not isinstance(error, psycopg.Error) or not isinstance(error, _REFUSED) or isinstance(error, _SHAPE):
        return None
    diag = error.diag
    table = f"{diag.schema_name}.{diag.table_name}" if diag.table_name else "target"
    parts = [diag.message_primary, diag.message_detail, (diag.context or "").split("\n")[0]]
    text = "; ".join(" ".join(part.split()) for part in parts if part)
    return RefusedError(table, text, error.sqlstate or "", error.sqlstate or "", shown=without_values(error))


def without_values(error: psycopg.Error) -> str:
    """The server's message with names only: no CONTEXT, no DETAIL that could quote a row, nothing of unfit values."""
    text = " ".join((error.diag.message_primary or str(error)).split())
    if isinstance(error, errors.RaiseException):
        return f"a trigger or function refuses it (SQLSTATE {error.sqlstate})"  # its text can be anything
    if isinstance(error, errors.FeatureNotSupported) and error.diag.message_detail:
        return f"{text}; {' '.join(error.diag.message_detail.split())}"  # of tables: which one stands in the way
    # Errors of class 22 quote the value, and no name; those of class 23 and the others names, and no value.
    if not isinstance(error, errors.DataError):
        return text
    column = _COLUMN.match(error.diag.context or "")
    return (f"column {column[1]}: " if column else "") + re.sub(r'".*"', '"..."', text)
