"""A running Spark's parser and analyser, asked through py4j about one expression at a time.

Rule: nothing here runs a job. An expression is at fault only where Spark still lives behind its answer: what fails once
its JVM is gone fails because of that, so that is asked first (`asking`).
What Spark says is passed on in its own words, first line only: the lines below show the text that we made of the
expression, which the person who reads it did not write.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from replicat.maps.expressions.compiling import Name
from replicat.maps.expressions.exact import ExpressionError, SparkNode
from replicat.maps.expressions.ggtext import quoted
from replicat.maps.expressions.sparknames import OURS
from trails.errors import GateError

SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    # Digits behind the point are never given up in silence: what has no room fails its row.
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.legacy.decimal.retainFractionDigitsOnTruncate": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    "spark.sql.execution.pythonUDF.arrow.concurrency.level": "1",
}
_REFUSED = {
    "UnresolvedStar": "* stands for several columns; name one",
    "ScalarSubquery": "a subquery reads other rows; an expression has this one",
    "Exists": "a subquery reads other rows; an expression has this one",
    "InSubquery": "a subquery reads other rows; an expression has this one",
    "ListQuery": "a subquery reads other rows; an expression has this one",
    "WindowExpression": "a window function reads other rows; an expression has this one",
}
# SQLSTATE classes of what is wrong with Spark, a worker or a machine, and not with a row.
_NOT_OF_ROWS = ("XX", "08", "38", "39", "53", "57", "58", "HY")
_OF_ROWS = (
    "java.lang.ArithmeticException",
    "java.lang.IllegalArgumentException",
    "java.lang.NumberFormatException",
    "java.lang.IndexOutOfBoundsException",
    "java.lang.StringIndexOutOfBoundsException",
    "java.time.DateTimeException",
)
_NO_ADVICE = re.compile(
    r' If necessary set "spark[^"]*" to "[a-z]+" to bypass this error(, and return NULL instead)?\.'
)
"""What nobody can set here."""
_ONE_ROW = "SubqueryAlias", "LocalRelation", "Project"
_BEFORE = "SELECT ("
_KEPT = 10_000


class SparkSql:
    """Spark as compiling.Sql. Nothing of Spark SQL is loaded before the first question: it takes seconds."""

    def __init__(
        self, context: Any, made: Callable[[], None] = lambda: None, check: Callable[[], None] = lambda: None
    ) -> None:
        """`context`: the SparkContext; a session is made on it, then `made` called. `check`: raises AnewError if the
        JVM is gone.
        """
        self._context = context
        self._made = made
        self.check = check
        self._lock = threading.Lock()
        self._session: Any = None
        # Tables of one shape under one MAP ask the same.
        self._analysed: dict[tuple[str, tuple[tuple[str, str], ...]], SparkNode] = {}
        self._spans: dict[str, frozenset[tuple[int, int]]] = {}

    @property
    def session(self) -> Any:
        """The SparkSession."""
        with self._lock:
            if self._session is None:
                with self.asking():
                    self._session = _session_on(self._context)
                self._made()
            return self._session

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Around what asks Spark: whatever fails there, AnewError if Spark is gone."""
        try:
            yield
        except GateError:
            raise
        except Exception:  # py4j's and Spark's errors share no base
            self.check()
            raise

    @property
    def _parser(self) -> Any:
        return self.session._jsparkSession.sessionState().sqlParser()  # noqa: SLF001  -- there is no other way

    def _parsed(self, text: str) -> Any:
        try:
            return self._parser.parseExpression(text)
        except Exception as error:  # Spark's errors share no base
            raise ExpressionError(message_of(error)) from error

    def names(self, text: str) -> list[Name]:
        found: list[Name] = []
        with self.asking():
            _walk(self._parsed(text), found)
        return list(dict.fromkeys(found))  # CASE value WHEN ... names its value once, and the tree many times

    def spans(self, text: str) -> frozenset[tuple[int, int]]:
        if text not in self._spans:
            _bound(self._spans)
            with self.asking():
                self._spans[text] = frozenset(_spans(self._parsed(text)))
        return self._spans[text]

    def analysed(self, text: str, columns: Sequence[tuple[str, str]]) -> SparkNode:
        question = text, tuple(columns)
        if question not in self._analysed:
            _bound(self._analysed)
            with self.asking():
                self._analysed[question] = self._analyse(text, columns)
        return self._analysed[question]

    def _analyse(self, text: str, columns: Sequence[tuple[str, str]]) -> SparkNode:
        given = [*columns, ("gg_one", "INT")]
        nulls = ", ".join(f"CAST(NULL AS {type_})" for _, type_ in given)
        names = ", ".join(quoted(name) for name, _ in given)
        try:
            # The line break ends a comment in the expression.
            frame = self.session.sql(f"{_BEFORE}{text}\n) AS r FROM VALUES ({nulls}) AS one({names})")
            plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
            kinds = _kinds(plan)
        except Exception as error:
            raise ExpressionError(message_of(error)) from error
        if any(kind not in _ONE_ROW for kind in kinds):
            raise ExpressionError("it takes several rows together, or makes several of one; an expression has one row")
        cast = self._context._jvm.org.apache.spark.sql.catalyst.expressions.Cast  # noqa: SLF001
        return _node(plan.expressions().apply(0).child(), cast.USER_SPECIFIED_CAST())

    def is_timeless(self, frame: Any) -> bool:
        """Whether a DataFrame's plan is the same whenever it is made: nothing in it is drawn or asks for the time."""
        plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
        patterns = self._context._jvm.org.apache.spark.sql.catalyst.trees.TreePattern  # noqa: SLF001
        return bool(plan.deterministic()) and not plan.containsPattern(patterns.CURRENT_LIKE())


def _session_on(context: Any) -> Any:
    from pyspark.sql import SparkSession

    # Spark's Python side would write every error that we catch to the terminal too.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    session = SparkSession(context)
    for name, value in SETTINGS.items():
        with contextlib.suppress(Exception):  # another Spark may not know it
            session.conf.set(name, value)
    return session


def message_of(error: BaseException) -> str:
    """What Spark says, in one line."""
    text = str(error).strip() or type(error).__name__
    return _NO_ADVICE.sub("", text.split("\n", 1)[0]).removesuffix(";").strip()


def _kinds(plan: Any) -> list[str]:
    children = plan.children()
    below = [kind for i in range(children.size()) for kind in _kinds(children.apply(i))]
    return [str(plan.getClass().getSimpleName()), *below]


def _walk(node: Any, found: list[Name], bound: frozenset[str] = frozenset()) -> None:
    """`bound`: arguments of the lambdas around; Spark takes every name inside a lambda for one of them at first."""
    kind = str(node.getClass().getSimpleName())
    if kind in _REFUSED:
        raise ExpressionError(_REFUSED[kind])
    if kind in ("UnresolvedAttribute", "UnresolvedNamedLambdaVariable"):
        parts = _list(node.nameParts())
        if parts[0].lower() not in bound:
            found.append(_spanned(node, parts=parts))
        return
    if kind == "LambdaFunction":
        arguments = {_list(argument.nameParts())[0].lower() for argument in _list_of(node.arguments())}
        _walk(node.function(), found, bound | arguments)
        return
    children = _list_of(node.children())
    if kind == "UnresolvedFunction":
        parts = _list(node.nameParts())
        if parts[-1].lower() in OURS:
            found.append(_spanned(node, function=parts[-1].lower(), arguments=tuple(map(_argument, children))))
            return
    for child in children:
        _walk(child, found, bound)


def _bound(kept: dict[Any, Any]) -> None:
    if len(kept) >= _KEPT:
        kept.clear()


def _place(node: Any, before: int = 0) -> tuple[int, int]:
    start, stop = node.origin().startIndex(), node.origin().stopIndex()
    return (int(start.get()) - before, int(stop.get()) + 1 - before) if start.isDefined() else (-1, -1)


def _spans(node: Any) -> Iterator[tuple[int, int]]:
    yield _place(node)
    for child in _list_of(node.children()):
        yield from _spans(child)


def _node(node: Any, written: Any) -> SparkNode:
    """`written`: the tag of a CAST that stands in the text."""
    kind = str(node.getClass().getSimpleName())
    try:
        type_ = str(node.dataType().simpleString())
    except Exception:  # noqa: BLE001  -- Spark's errors share no base; some parts of a lambda have no type
        type_ = ""
    return SparkNode(
        kind,
        type_,
        str(node.name()) if kind == "AttributeReference" else "",
        *_place(node, len(_BEFORE)),
        user=kind == "Cast" and node.getTagValue(written).isDefined(),
        children=tuple(_node(child, written) for child in _list_of(node.children())),
    )


def _argument(node: Any) -> tuple[str, ...] | str:
    if node.getClass().getSimpleName() == "UnresolvedAttribute":
        return _list(node.nameParts())
    return str(node.toString())


def _spanned(node: Any, **what: Any) -> Name:
    origin = node.origin()
    return Name(int(origin.startIndex().get()), int(origin.stopIndex().get()) + 1, **what)


def _list_of(sequence: Any) -> list[Any]:
    return [sequence.apply(i) for i in range(sequence.size())]


def _list(sequence: Any) -> tuple[str, ...]:
    return tuple(str(item) for item in _list_of(sequence))


def failure_of(error: BaseException) -> tuple[str, str] | None:
    """(SQLSTATE, message) where an expression failed on a row; None where something else did."""
    origin = getattr(error, "_origin", None)
    cause = getattr(origin if isinstance(origin, Exception) else error, "java_exception", None) or origin
    found = None
    while cause is not None:
        name = str(cause.getClass().getName())
        if "PythonException" in name:
            return None
        found = _of_row(cause, name) or found
        cause = cause.getCause()
    return found


def _of_row(cause: Any, name: str) -> tuple[str, str] | None:
    state = None
    with contextlib.suppress(Exception):  # no exception of Spark's own kind
        state = cause.getSqlState()
    message = message_of(Exception(cause.getMessage()))
    if state:
        return None if state.startswith(_NOT_OF_ROWS) else (str(state), message)
    return ("22000", f"{name.rpartition('.')[2]}: {message}") if name in _OF_ROWS else None
