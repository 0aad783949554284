"""A MySQL or MariaDB server of the test's own, whose settings it may change, and a group on it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from demo.embedded import ServerError
from demo.mariadb import MariaServer
from demo.mysql import MysqlServer
from extract.admin import answer
from extract.checking import check
from extract.params import ExtractParams
from extract.source import Durable, SourceSettings
from trails.runtime.home.registration import Registered, Registration
from trails.runtime.language.params import parse_text
from trails.runtime.process.checking import Findings

Server = MariaServer | MysqlServer
REQUEST: dict[str, Any] = {"group": "EXT1", "home_id": "0123456789abcdef"}
WELL = [
    ("binlog_format", "'ROW'"),
    ("binlog_row_image", "'FULL'"),
    ("binlog_row_metadata", "'FULL'"),
    ("sync_binlog", "1"),
    ("binlog_expire_logs_seconds", "2592000"),
    ("server_id", "1"),
]


@dataclass
class Place:
    """A server of our own, which a test may set as it likes, and a group on it."""

    server: Server
    url: str

    @property
    def is_maria(self) -> bool:
        """Or MySQL."""
        return isinstance(self.server, MariaServer)

    def ask(self, verb: str, **request: Any) -> dict[str, Any]:
        """One of ggsci's requests."""
        return answer({"verb": verb, "url": self.url, **REQUEST, **request})

    def look(self, *lines: str, url: str = "", tables: str = "TABLE shop.*;") -> Findings:
        """CHECK PARAMS of a registered group."""
        reply = self.ask("register")
        if not reply.pop("ok"):
            reply = {"kind": "", "made": {"reader": "tg_01234567_ext1"}, "place": {"seqno": 1, "rba": 4}}
        reg = Registration("EXT1", "EXTRACT", "TRANLOG", registered=Registered.of(reply))
        text = ["EXTRACT ext1", f"SOURCEDB {url or self.url}", "EXTTRAIL ./dirdat/lt", *lines, tables]
        return check(ExtractParams.from_statements(parse_text("\n".join(text), "ext1.prm")), reg)

    def well(self) -> Place:
        """Set as a source must be, whatever a test before has left."""
        for name, value in WELL:
            self.server.sql(f"SET GLOBAL {name} = {value}")
        return self

    def restart(self, **options: object) -> None:
        """With other settings."""
        self.server.stop()
        self.server.options = {**self.server.options, **{k.replace("_", "-"): v for k, v in options.items()}}
        self.server.start()


@contextlib.contextmanager
def made(kind: type[Server]) -> Iterator[Place]:
    try:
        kind.find_server()
    except ServerError as error:
        if kind is MariaServer:
            raise
        pytest.skip(f"NO MYSQL: {error}")
    with kind(options=kind.BINLOG | {"innodb-flush-method": "nosync", "sync-binlog": 1}) as server:
        server.sql("CREATE DATABASE shop")
        server.sql("CREATE TABLE shop.fit (id int PRIMARY KEY, v int)")
        yield Place(server, server.url("shop"))


def settings_of(place: Place, durable: Durable | None, *lines: str) -> SourceSettings:
    """Of a registered group whose trail ends there."""
    reply = place.ask("register")
    assert reply.pop("ok"), reply
    text = ["EXTRACT ext1", f"SOURCEDB {place.url}", "EXTTRAIL ./dirdat/lt", *lines, "TABLE shop.*;"]
    params = ExtractParams.from_statements(parse_text("\n".join(text), "ext1.prm"))
    return replace(params.settings(Registered.of(reply)), durable=lambda: durable)
