"""GLOBALS, the parameter file of a whole home: its keyword table, and how any process reads it.

Every process of the home reads it at its start, so what stands here needs no Manager. A file that is not there is
empty; one with mistakes stops whoever reads it, with all of them named.
"""

from __future__ import annotations

import os

from trails.runtime import params
from trails.runtime.home import Home
from trails.runtime.params import Keyword, Statement, Values


def _schema_table(statement: Statement) -> str:
    pattern = params.pattern(statement)
    if pattern.exact is None:
        raise statement.error("one schema.table, without wildcards")
    return pattern.text


GLOBALS_KEYWORDS = params.table(
    Keyword("COMMENT", "text", "A comment.", "COMMENT production", params.text, repeatable=True),
    Keyword(
        "CHECKPOINTTABLE", "schema.table", "The checkpoint table of Replicats that are added without one.",
        "CHECKPOINTTABLE gg.checkpoint", _schema_table,
    ),
)  # fmt: skip


def read(home: Home) -> Values:
    """What GLOBALS says. Raises ParamErrors if the file has mistakes."""
    if not os.path.exists(home.globals):
        return Values(home.globals)
    return params.check(params.parse_file(home.globals), GLOBALS_KEYWORDS, "GLOBALS")
