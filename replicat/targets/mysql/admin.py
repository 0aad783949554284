"""What is done by hand in a MySQL or MariaDB target."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from replicat.targets.contract import RunStatement, Table
from replicat.targets.mysql.link import MysqlUrl, connect, mapped, query
from replicat.targets.sql.admin import SqlAdmin
from trails.runtime.process import checking


class MysqlAdmin(SqlAdmin):
    """Administration of this database: what is different from any other that speaks SQL."""

    who = "SELECT current_user(), database(), version()"
    catalog = (
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE' "
        "AND table_schema NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema') ORDER BY 1, 2"
    )
    remark = "SELECT table_comment FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
    as_text = "{}"  # as the driver reads it

    @contextlib.contextmanager
    def statements(self, url: str) -> Iterator[RunStatement]:
        link = connect(url)
        try:
            with mapped(link):
                yield lambda statement, params=(): query(link, statement, params)
        finally:
            if link.open:
                link.close()

    def unverified(self, url: str) -> str:
        where = MysqlUrl.parse(url)
        return "" if where.unix_socket or where.verifies else checking.unverified([where.host], "ssl_ca=/path/ca.crt")

    def make(self, url: str, table: Table, made: str, remark: str) -> list[str]:
        """The URL's own database is there."""
        own = table[0] == MysqlUrl.parse(url).database
        return [*([] if own else self.words.make_schema(table[0])), f"{made} COMMENT = '{remark}'"]
