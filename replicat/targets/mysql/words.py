"""How MySQL and MariaDB write what Replicat's own tables need. Plain data, no driver."""

from __future__ import annotations

from replicat.targets.contract import Words

EXACT_TEXT = (
    "CHARACTER SET utf8mb4 /*M!100202 COLLATE utf8mb4_nopad_bin */ "
    "/*!80000 COLLATE utf8mb4_bin */ /*!80017 COLLATE utf8mb4_0900_bin */"
)
"""For tables that we make: keys are equal where their text is, blanks at its end too. MySQL before 8.0.17 has no such
collation: there a key that differs from another in blanks at its end alone is refused. Each server reads its own
comments (MariaDB leaves out what is for versions from 50700 to 99999)."""


def _make_schema(name: str) -> list[str]:
    return [f"CREATE DATABASE IF NOT EXISTS `{name.replace('`', '``')}`"]


WORDS = Words(
    mark="%s",
    types={
        "clob": "longtext",
        "timestamptz": "datetime(6)",
        "numeric(20)": "decimal(20)",
        "numeric(18,6)": "decimal(18,6)",
    },
    now="utc_timestamp(6)",
    clock="utc_timestamp(6)",
    clock_us="SELECT timestampdiff(MICROSECOND, '1970-01-01 00:00:00', utc_timestamp(6))",
    age="timestampdiff(MICROSECOND, {}, utc_timestamp(6)) / 1000000",
    day="cast(date({}) AS char)",
    columns="SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
    options=f" ENGINE = InnoDB DEFAULT {EXACT_TEXT}",
    make_schema=_make_schema,
)
