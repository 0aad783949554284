"""GLOBALS, the parameter file of a whole home: its keyword table, and how any process reads it.

Every process of the home reads it at its start, so what stands here needs no Manager. A file that is not there is
empty; one with mistakes stops whoever reads it, with all of them named.
"""

from __future__ import annotations

import os

from trails.runtime.home.home import Home
from trails.runtime.language import accepted, freespace, logparams, params
from trails.runtime.language.params import Keyword, Statement, Values


def _schema_table(statement: Statement) -> str:
    pattern = params.pattern(statement)
    if pattern.exact is None:
        raise statement.error("one schema.table, without wildcards")
    return pattern.text


def _schema(statement: Statement) -> str:
    pattern = params.table_pattern(statement, f"{params.word(statement)}.x")
    if pattern.exact is None:
        raise statement.error("one schema, without wildcards")
    return pattern.exact[0]


def _switch(statement: Statement) -> bool:
    word = params.word(statement).upper()
    if word not in ("ON", "OFF"):
        raise statement.error("ON or OFF")
    return word == "ON"


GLOBALS_KEYWORDS = params.table(
    *accepted.GLOBALS,
    Keyword("COMMENT", "text", "A comment.", "COMMENT production", params.text, repeatable=True),
    Keyword(
        "CHECKPOINTTABLE", "schema.table", "The checkpoint table of Replicats that are added without one.",
        "CHECKPOINTTABLE gg.checkpoint", _schema_table,
    ),
    Keyword(
        "DISKWARN", "{n[K | M | G | T] | n%}",
        "With less free space than this on the disk of dirdat, dirchk or dirtmp, each process of the home writes a "
        "WARNING, and the Manager purges at once. If not given it is 10%, at most 20G. 0 is never. Unless it is 0, "
        "few free inodes are warned of as well.",
        "DISKWARN 20%", freespace.parse_bound,
    ),
    Keyword(
        "DISKSTOP", "{n[K | M | G | T] | n%}",
        "With less free space than this, Extracts and Collectors end cleanly, as if the database or peer were away. "
        "Pumps and Replicats go on, as their progress lets files be purged. Once there is space, AUTORESTART starts "
        "first the groups that read a trail, and then its writer. If not given it is 2%, at most 4G. On a small disk "
        "it is 64M or a tenth of the disk, whichever is less. 0 is never. Unless it is 0, Extracts and Collectors also "
        "end when hardly any inode is free.",
        "DISKSTOP 5G", freespace.parse_bound,
    ),
    Keyword(
        "GGSERRLOG", logparams.SIZE_SHAPE,
        f"Roll ggserr.log when it has n megabytes ({logparams.MEGABYTES} if not given). KEEP says how many older files "
        f"are kept ({logparams.KEEP} if not given); ggserr.0.log is the youngest. The same holds for ggserr.json.",
        "GGSERRLOG MEGABYTES 50, KEEP 5", logparams.log_size,
    ),
    Keyword(
        "LOGFORMAT", "{TEXT | JSON | BOTH}",
        "Where messages go. TEXT, the default, is ggserr.log. JSON is ggserr.json, with one object in each line. BOTH "
        "is both files.",
        "LOGFORMAT BOTH", logparams.log_format,
    ),
    Keyword(
        "GGSCHEMA", "schema", "The schema of the heartbeat tables, in source and target; gg if not given.",
        "GGSCHEMA ggadmin", _schema,
    ),
    Keyword(
        "HEARTBEATTABLE", "schema.table",
        "The heartbeat table, if it is not gg_heartbeat of GGSCHEMA. The names of the other tables are made from it "
        "(_seed, _history, _settings). It must be the same in every home of a pipeline.",
        "HEARTBEATTABLE ggadmin.gg_heartbeat", _schema_table,
    ),
    Keyword(
        "CLOCKDIFFSECS", "n",
        "Warn when the clocks of two hosts, or of a host and its database, differ by more than n seconds; 2 if not "
        "given, 0 is never.",
        "CLOCKDIFFSECS 5", params.number(0, 86_400),
    ),
    Keyword(
        "KERNELS", "{ON | OFF}",
        "Whether processes use the compiled forms of their hottest parts, where those were built; ON if not given. "
        "What they write is the same without. VERSIONS shows which were built.",
        "KERNELS OFF", _switch,
    ),
)  # fmt: skip


def read(home: Home) -> Values:
    """What GLOBALS says. Raises ParamErrors if the file has mistakes."""
    if not os.path.exists(home.globals):
        return Values(home.globals)
    return params.check(params.parse_file(home.globals), GLOBALS_KEYWORDS, "GLOBALS")
