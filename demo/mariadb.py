"""A real MariaDB server for the tests and the benchmarks, from the binaries of Debian's mariadb-server package.

    with MariaServer() as server:
        server.sql("CREATE DATABASE shop")
        server.url("shop")                 # for TARGETDB, over TCP; url("shop", tcp=False) over the socket

With `options=MariaServer.BINLOG` it is a source.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from demo.embedded import ServerError, account, run
from demo.mysqld import Mysqld

MISSING = "MariaDB is not installed: run make setup, or apt-get install mariadb-server (its service may stay stopped)"
_SERVERS = ("/usr/sbin/mariadbd", "/usr/local/sbin/mariadbd", "/usr/libexec/mariadbd")


class MariaServer(Mysqld):
    """See EmbeddedServer."""

    NAME = "MariaDB"

    @classmethod
    def find_server(cls) -> Path:
        """Where mariadbd is; ServerError says in one line what to do where it is not."""
        found = shutil.which("mariadbd") or next((path for path in _SERVERS if os.access(path, os.X_OK)), None)
        if found is None or shutil.which("mariadb-install-db") is None:
            raise ServerError(MISSING)
        return Path(found)

    def _install(self, data: Path) -> None:
        user = ["--user=nobody"] if account() else []
        how = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        run(["mariadb-install-db", "--no-defaults", f"--datadir={data}", *user, *how])
