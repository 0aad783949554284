"""Connections to PostgreSQL, and psycopg's errors as ours, by who must act."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from replicat.model.again import ShapeChangedError
from replicat.model.target import RefusedError
from replicat.targets.postgres.bounded import BoundLink
from trails.errors import AwayError, OperatorError
from trails.runtime.secrets import healing
from trails.runtime.secrets.attempts import refused_for_good

_REFUSED = (
    errors.IntegrityError, errors.DataError, errors.NotSupportedError, errors.RaiseException,
    # psycopg files these under its classes for a lost connection and for a wrong statement.
    errors.ProgramLimitExceeded, errors.CardinalityViolation, errors.WithCheckOptionViolation,
)  # fmt: skip
_SHAPE = (
    errors.UndefinedTable, errors.UndefinedColumn, errors.DatatypeMismatch, errors.UndefinedObject,
    errors.InvalidColumnReference, errors.GeneratedAlways, errors.WrongObjectType, errors.InvalidSchemaName,
)  # fmt: skip
_COLUMN = re.compile(r"COPY .*, line \d+, column (.+?): ")
"""Of an error's context, where a value does not fit its column; the value comes behind it."""
_BAD_TIMES = ("22007", "22008", "22009")
_DURATION = re.compile(r'^(?!.* type (?:date|timestamp)).*"-?\d+:\d\d:\d\d(?:\.\d+)?"$')
"""The server's message of a value without a date that its type does not take."""
_OF_ENCODINGS = (errors.CharacterNotInRepertoire, errors.UntranslatableCharacter)
"""The one kind of class 22 whose quotes hold names alone: those of encodings, which are what such an error says."""


def connect(url: str, application: str, side: str = "target") -> BoundLink:
    """A connection in autocommit; AwayError if the server can't be reached, OperatorError if it refuses us.

    `side`: target or source, as messages name it. No name in our statements is ever found in a schema where somebody
    else may have put one.
    """
    hosts: list[str] = []
    try:
        options = _alive(url)
        hosts = [host for host in str(options.get("host", "")).split(",") if host]
        return BoundLink.open(options, application)
    except psycopg.Error as error:
        raise not_in(error, hosts, side) from None
    except UnicodeError as error:
        raise no_host(error, side) from None


def not_in(error: psycopg.Error, hosts: Sequence[str] = (), side: str = "target") -> OperatorError | AwayError:
    """Why there is no connection: a person must act only if the server, or each one of several, has said so."""
    text = " ".join(str(error).split())
    if refused_for_good(str(error), hosts) or isinstance(error, psycopg.ProgrammingError):
        return OperatorError(f"the {side} database refuses the connection: {text}", hint=f"Mend {side.upper()}DB")
    return AwayError(f"the {side} database can't be reached: {text}")


def no_host(error: UnicodeError, side: str) -> OperatorError:
    """A host name that none can be, such as a..b: it is found where names are looked up."""
    return OperatorError(f"{side.upper()}DB: this is no host's name: {error}", hint="Mend the host in the URL")


def _alive(url: str) -> dict[str, Any]:
    """The URL's own options, and what finds out within a minute that the other host is gone without a word."""
    ours = {
        "connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3,
        "tcp_user_timeout": 60_000,
    }  # fmt: skip
    return ours | conninfo_to_dict(url)


@contextlib.contextmanager
def mapped(conn: psycopg.Connection[Any], side: str = "target") -> Iterator[None]:
    """Psycopg's errors as ours."""
    try:
        yield
    except psycopg.Error as error:
        raise as_ours(error, conn, side) from error


def as_ours(error: psycopg.Error, conn: psycopg.Connection[Any], side: str = "target") -> Exception:
    """One error of the driver as ours, by who must act."""
    text = without_values(error)
    if isinstance(error, _SHAPE):
        return ShapeChangedError(f"the {side} database's tables are not what they were: {text}")
    if isinstance(error, errors.LockNotAvailable):
        what = f"a table of the {side} database was waited for too long, as another transaction has locked it: {text}"
        return AwayError(what, hint="End that transaction: pg_locks has it")
    # A read-only server is a standby, or has just become one: waiting, or the URL's other host, helps.
    if heals(error, conn):
        return AwayError(f"the {side} database went away: {text}")
    return OperatorError(f"the {side} database refused a statement: {text}", hint="Mend that, then try again")


def heals(error: psycopg.Error, conn: psycopg.Connection[Any]) -> bool:
    """Whether the same statement can succeed later: nothing is wrong with it."""
    if error.sqlstate is None:  # the driver's own: it has no connection, or can't make sense of what came
        return conn.closed or isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return conn.closed or error.sqlstate.startswith(healing.STATES)


def refusal(error: Exception) -> RefusedError | None:
    """The error as a refusal of rows; None if it is something else."""
    if not isinstance(error, psycopg.Error) or not isinstance(error, _REFUSED) or isinstance(error, _SHAPE):
        return None
    diag = error.diag
    table = f"{diag.schema_name}.{diag.table_name}" if diag.table_name else "target"
    parts = [diag.message_primary, diag.message_detail, (diag.context or "").split("\n")[0]]
    text = "; ".join(" ".join(part.split()) for part in parts if part) + _advice(error)
    return RefusedError(table, text, error.sqlstate or "", error.sqlstate or "", shown=without_values(error))


def without_values(error: psycopg.Error) -> str:
    """The server's message with names only: no CONTEXT, no DETAIL that could quote a row, nothing of unfit values."""
    text = " ".join((error.diag.message_primary or str(error)).split())
    if isinstance(error, errors.RaiseException):
        return f"a trigger or function refuses it (SQLSTATE {error.sqlstate})"  # its text can be anything
    if isinstance(error, errors.FeatureNotSupported) and error.diag.message_detail:
        return f"{text}; {' '.join(error.diag.message_detail.split())}"  # of tables: which one stands in the way
    # Errors of class 22 quote the value, and no name; those of class 23 and the others names, and no value.
    if not isinstance(error, errors.DataError) or isinstance(error, _OF_ENCODINGS):
        return text
    column = _COLUMN.match(error.diag.context or "")
    return (f"column {column[1]}: " if column else "") + re.sub(r'".*"', '"..."', text) + _advice(error)


def _advice(error: psycopg.Error) -> str:
    """For a duration of another database in a column that takes times of a day."""
    is_duration = error.sqlstate in _BAD_TIMES and _DURATION.search(error.diag.message_primary or "")
    return "; the type time lasts from 00:00 to 24:00, interval takes longer and negative times" if is_duration else ""
