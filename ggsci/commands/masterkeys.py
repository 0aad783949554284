"""ADD, RENEW, INFO and DELETE MASTERKEY: the home's wallet, as trails/runtime/secrets/masterkeys.py keeps it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ggsci.commands.session import OperatorSession
from ggsci.table.grammar import Parsed
from trails.clock import local_text
from trails.runtime.secrets import masterkeys


def add(session: OperatorSession, _command: Parsed) -> None:
    """The wallet, with version 1."""
    version = masterkeys.add(session.home, session.now_us())
    session.say(
        f"Master key version {version} created. Keep a copy of dirwlt elsewhere: without it no encrypted trail is read."
    )


def renew(session: OperatorSession, _command: Parsed) -> None:
    """A new version for new files."""
    version = masterkeys.renew(session.home, session.now_us())
    session.say(f"Master key renewed: trail files begun from now on are encrypted under version {version}.")


def info(session: OperatorSession, _command: Parsed) -> Any:
    """The versions; never a key."""
    wallet, versions = masterkeys.info(session.home)
    session.say(f"Wallet: {wallet}", "", f"{'Version':>7}  {'Created':26}  {'Status':9}  Trail files")
    for key in versions:
        status = "Current" if key.current else "Available"
        session.say(f"{key.version:>7}  {local_text(key.created_us):26}  {status:9}  {key.files}")
    session.say("")
    return {"wallet": wallet, "versions": [asdict(key) for key in versions]}


def delete(session: OperatorSession, command: Parsed) -> None:
    """Forget a version for good, after asking."""
    version = command.number("VERSION") or 0
    session.confirm(
        f"Trail files encrypted under master key version {version} that lie elsewhere can never be read again. "
        "Are you sure",
        command,
    )
    masterkeys.delete(session.home, version, session.now_us())
    session.say(f"Master key version {version} deleted.")
