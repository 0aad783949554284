"""A query's projections, evaluated in the driver's JVM: a few rows in, their results out, and no job of Spark.

It is Spark's own code, made from the plan that its optimizer made: the same results, the same errors. But the way to it
is Spark's inner one, which another release may not have. So whoever uses it compares it with a query first.
"""

from __future__ import annotations

import threading
from typing import Any

_MANY = 1 << 30
_PIECE = 4000
"""Bytes of results, about, that come at once: Java sends more than 8 kB in pieces, of which the last one waits for a
delayed acknowledgement (40 ms).
"""


class Projections:
    """Of one frame, made once and kept. One call at a time is under way: each projection fills one row again."""

    def __init__(self, session: Any, frame: Any) -> None:
        """`frame`: nothing but projections of what mapInArrow gives. Raises ValueError where there is more."""
        jvm = session.sparkContext._jvm  # noqa: SLF001  -- there is no other way
        sql = jvm.org.apache.spark.sql
        plan = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001
        self._schema = frame._jdf.schema()  # noqa: SLF001
        self._zone = session.conf.get("spark.sql.session.timeZone")
        self._converters = getattr(getattr(sql.execution.arrow, "ArrowConverters$"), "MODULE$")
        self._asking = threading.Lock()
        steps = []
        while (kind := str(plan.getClass().getSimpleName())) == "Project":
            child = plan.child()
            steps.append(sql.catalyst.expressions.UnsafeProjection.create(plan.projectList(), child.output()))
            plan = child
        if kind != "MapInArrow" or not steps:
            raise ValueError(f"expected projections of MapInArrow, found {kind}")
        self._steps = steps[::-1]

    def results(self, batch: Any) -> list[tuple[Any, ...]]:
        """Of a pyarrow RecordBatch, row by row. Raises what Spark raises where a row fails."""
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        found: list[tuple[Any, ...]] = []
        with self._asking:
            given = self._converters.fromIPCStream(sink.getvalue().to_pybytes())
            rows = given._1()  # noqa: SLF001  -- a pair of Scala
            for step in self._steps:
                rows = rows.map(step)
            out = self._converters.toBatchWithSchemaIterator(rows, self._schema, _MANY, _PIECE, self._zone, True, False)
            while out.hasNext():
                table = pa.ipc.open_stream(out.next()).read_all()
                found += zip(*(column.to_pylist() for column in table.columns), strict=True)
        return found
