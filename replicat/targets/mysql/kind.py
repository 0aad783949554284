"""MySQL and MariaDB as a kind of target."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from replicat.targets.contract import Capabilities, Kind
from replicat.targets.mysql.words import WORDS


def _url_fault(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "expected mysql://user@host:port/database, found a URL that can't be read"
    if not parts.path.strip("/") or "/" in parts.path.strip("/"):
        return "expected one database behind the host, as in mysql://user@host:port/database"
    if not parts.hostname and "unix_socket=" not in parts.query:
        return "expected a host, or mysql:///database?unix_socket=/path"
    return "expected a port from 1 to 65535, found 0" if port == 0 else ""


MYSQL: Final = Kind(
    title="MySQL",
    url="mysql://user@host:port/database",
    url_fault=_url_fault,
    about="SELECT concat(@@version_comment, ' ', version()), @@character_set_database",
    words=WORDS,
    can=Capabilities(ddl_in_transaction=False),
    target="replicat.targets.mysql.target:mysql_target",
    admins="replicat.targets.mysql.admin:MysqlAdmin",
    changes="replicat.targets.mysql.ddl:MysqlDialect",
    reads="replicat.targets.mysql.grammar:GRAMMAR",
)
