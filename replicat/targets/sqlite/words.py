"""How SQLite writes what Replicat's own tables need. Plain data, no driver."""

from __future__ import annotations

from replicat.targets.contract import Words

SCHEME = "sqlite:///"
SCHEMA = "main"

WORDS = Words(
    mark="?",
    schema=SCHEMA,
    types={"numeric(20)": "INTEGER", "bigint": "INTEGER", "integer": "INTEGER", "numeric(18,6)": "REAL"},
    text="TEXT",  # moments too: in UTC, as text
    now="strftime('%Y-%m-%d %H:%M:%f', 'now')",
    clock="strftime('%Y-%m-%d %H:%M:%f', 'now')",
    clock_us="",
    age="round((julianday('now') - julianday({})) * 86400.0, 3)",
    day="date({})",
    columns="SELECT name FROM pragma_table_info(?2, ?1)",
    for_update="",  # whoever has begun to write is alone
    makes_view="CREATE VIEW IF NOT EXISTS",
)
