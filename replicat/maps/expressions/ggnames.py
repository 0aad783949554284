"""@GETENV: what GoldenGate knows of a change and of its process, by the names it has here."""

from __future__ import annotations

from collections.abc import Sequence

from replicat.maps.expressions.ggtext import Arg, SparkText
from trails.runtime.language.params import did_you_mean

_SEQNO = "CAST(split_part(change.position, '/', 1) AS BIGINT)"
_RBA = "CAST(split_part(change.position, '/', 2) AS BIGINT)"
_TABLE = "concat(change.schema, '.', change.table)"
_JULIAN_US = 210_866_760_000_000_000  # from Julian day 0 to 1970, as GoldenGate counts

ITEMS: dict[str, dict[str, str]] = {
    "TRANSACTION": {"TRANSACTIONID": "change.xid", "XID": "change.xid", "CSN": "change.csn"},
    "GGHEADER": {
        "OPTYPE": "change.operation",
        "COMMITTIMESTAMP": "date_format(change.commit_time, 'yyyy-MM-dd HH:mm:ss.SSSSSS')",
        "TABLENAME": _TABLE,
        "OBJECTNAME": _TABLE,
        "LOGRBA": _SEQNO,
        "LOGPOSITION": _RBA,
        "BEFOREAFTERINDICATOR": "IF(change.operation = 'DELETE', 'BEFORE', 'AFTER')",
    },
    "RECORD": {"FILESEQNO": _SEQNO, "FILERBA": _RBA},
    "GGENVIRONMENT": {
        name: f"gg_environment('{name}')" for name in ("GROUPNAME", "GROUPTYPE", "HOSTNAME", "OSUSERNAME", "PROCESSID")
    },
    "LASTERR": {name: f"lasterr.{name.lower()}" for name in ("DBERRNUM", "DBERRMSG", "OPTYPE", "ERRTYPE")},
    "JULIANTIMESTAMP": {"": f"(unix_micros(current_timestamp()) + {_JULIAN_US}L)"},
}
"""Group -> item -> Spark SQL. OSVARIABLE takes any name."""


def get_env(args: Sequence[Arg]) -> SparkText:
    """GETENV('group', 'item')."""
    group = args[0].name.upper()
    if group == "OSVARIABLE" and len(args) == 2:
        name = args[1].name.replace("'", "''").replace("\\", "\\\\")
        return SparkText(f"gg_environment('OSVARIABLE', '{name}')")
    items = ITEMS.get(group)
    if items is None:
        raise args[0].error(f"one of {', '.join(ITEMS)}, OSVARIABLE{did_you_mean(group, ITEMS)}")
    item = args[1].name.upper() if len(args) > 1 else ""
    if item not in items or len(args) > 2:
        expected = f"one of {', '.join(items)}{did_you_mean(item, items)}" if "" not in items else "no item"
        raise args[-1].error(f"{expected} of group {group}")
    return SparkText(items[item])
