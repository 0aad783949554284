"""ADD, ALTER, INFO and DELETE CREDENTIALSTORE: the aliases of USERIDALIAS, as trails/runtime/secrets keeps them."""

from __future__ import annotations

from typing import Any

from ggsci.commands.session import OperatorSession
from ggsci.table.grammar import CommandError, Parsed
from trails.runtime.secrets import credentials
from trails.runtime.secrets.credentials import DOMAIN, Credential


def add(session: OperatorSession, _command: Parsed) -> None:
    """An empty store."""
    credentials.create(session.home)
    session.say("Credential store created in ./dircrd/.")


def alter(session: OperatorSession, command: Parsed) -> None:
    """One alias: added, replaced or deleted."""
    domain, user = command.text("DOMAIN") or DOMAIN, command.text("USER")
    alias = command.text("ALIAS") or user.partition("@")[0]
    if not alias:
        raise CommandError("ALTER CREDENTIALSTORE: expected ALIAS alias", hint=f"Syntax: {command.command.syntax()}")
    if command.has("DELETE"):
        credentials.delete(session.home, alias, domain)
    else:
        credentials.load(session.home)  # a store that is missing is told before anybody types a password
        if not user:
            raise CommandError("ALTER CREDENTIALSTORE: expected USER user", hint=f"Syntax: {command.command.syntax()}")
        new = Credential(domain, alias, user, _password(session, command, user))
        credentials.add(session.home, new, replace=command.has("REPLACE"))
    session.say("Credential store altered.")


def _password(session: OperatorSession, command: Parsed, user: str) -> str:
    """As given, or asked for twice without an echo."""
    if command.has("PASSWORD"):
        return command.text("PASSWORD")
    if not session.may_ask:
        raise CommandError("ALTER CREDENTIALSTORE: expected PASSWORD, as nobody can be asked")
    password = session.ask_secret(f"Password for {user}: ")
    if password != session.ask_secret("Again: "):
        raise CommandError("ALTER CREDENTIALSTORE: the two passwords differ; nothing was changed")
    return password


def info(session: OperatorSession, command: Parsed) -> Any:
    """Domains, aliases and users; never a password."""
    wanted = command.text("DOMAIN")
    every = [one for one in credentials.load(session.home) if not wanted or one.domain.lower() == wanted.lower()]
    session.say("Reading from ./dircrd/:", "")
    last = None
    for one in every:
        if one.domain != last:
            session.say(f"{'Default domain' if one.domain == DOMAIN else 'Domain'}: {one.domain}", "")
        last = one.domain
        session.say(f"  Alias: {one.alias}", f"  Userid: {one.user}", "")
    if not every:
        session.say(f"No alias{f' in domain {wanted}' if wanted else ''}.", "")
    return [{"domain": one.domain, "alias": one.alias, "user": one.user} for one in every]


def delete(session: OperatorSession, command: Parsed) -> None:
    """The whole store, after asking."""
    session.confirm("Groups with USERIDALIAS won't start without the credential store. Are you sure", command)
    credentials.remove(session.home)
    session.say("Credential store deleted.")
