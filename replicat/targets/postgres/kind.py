"""PostgreSQL as a kind of target."""

from __future__ import annotations

from typing import Final

from replicat.targets.contract import Capabilities, Kind
from replicat.targets.postgres.words import WORDS

POSTGRES: Final = Kind(
    title="PostgreSQL",
    url="postgresql://user@host:port/database",
    url_fault=lambda _url: "",
    about="SELECT version(), current_setting('server_encoding')",
    words=WORDS,
    can=Capabilities(holds_triggers=True, defers_constraints=True, follows_sequences=True),
    target="replicat.targets.postgres.target:postgres_target",
    admins="replicat.targets.postgres.admin:PostgresAdmin",
    changes="replicat.targets.postgres.ddl:PostgresDialect",
    pours=True,
    reads="replicat.targets.postgres.ddl:GRAMMAR",
    without_triggers="ENABLE triggers plainly, not as REPLICA or ALWAYS, and let the target user SET "
    "session_replication_role",
)
