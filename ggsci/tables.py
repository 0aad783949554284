"""LIST TABLES, and the names of tables for completion: asked of the database that DBLOGIN reached."""

from __future__ import annotations

from typing import Any

from ggsci import admin
from ggsci.grammar import Parsed
from ggsci.session import Login, Session


def list_tables(session: Session, command: Parsed) -> Any:
    """One line a table."""
    login = session.need_login("LIST TABLES")
    found = names(login, command.operand or "*.*")
    session.say("", *found, "", f"Found {len(found)} table{'' if len(found) == 1 else 's'}.", "")
    return found


def names(login: Login, pattern: str, *, seconds: float | None = None) -> list[str]:
    """`schema.table` of each table that the pattern matches."""
    reply = admin.ask(login.program, "list_tables", seconds=seconds, url=login.url, pattern=pattern)
    return [str(name) for name in reply["tables"]]
