"""CREATE, RENEW and INFO CERTIFICATES: who may talk to whom on the link, kept in dircrd/tls (see certificate_files).

One command makes one certificate: this home's, or with PEER that of another home, from the CA that stays here. CREATE
refuses what is there already and RENEW what is not, so neither can cut a link by a typing error.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from ggsci import certificate_files as files
from ggsci.certificate_files import Folder
from ggsci.grammar import CommandError, Parsed
from ggsci.session import Session
from trails import tls

MAX_DAYS = 3650


def create(session: Session, command: Parsed) -> None:
    """Make the CA if there is none, and a certificate for this home or a peer."""
    own, peer = _folders(session, command)
    if (peer or own).has(tls.CERTIFICATE):
        raise CommandError(
            f"{(peer or own).file(tls.CERTIFICATE)} exists already",
            hint="RENEW CERTIFICATES makes it anew; for new keys, remove the folder's files first",
        )
    days, hosts = _days(command), _hosts(command)
    files.ensure_ca(own, session.home.id, days)
    if not own.has(tls.CERTIFICATE):
        # A CA without a certificate of its own home would leave one end without: both are needed for a link.
        _issue(session, command, own, own, [] if peer else hosts)
    if peer:
        _issue(session, command, own, peer, hosts)


def renew(session: Session, command: Parsed) -> None:
    """Make the certificate anew, for the same key; for the same names unless HOSTS gives others."""
    own, peer = _folders(session, command)
    target = peer or own
    if not target.has(tls.CERTIFICATE):
        raise CommandError(f"{target.file(tls.CERTIFICATE)} is missing", hint="CREATE CERTIFICATES makes it")
    if not own.has(tls.CA):
        raise CommandError(f"{own.file(tls.CA)} is missing", hint="CREATE CERTIFICATES makes a CA")
    given = _hosts(command)
    files.refuse_foreign(own, target)
    files.ensure_ca(own, session.home.id, _days(command))
    hosts = given or list(files.names_of(target.certificate(tls.CERTIFICATE)))
    _issue(session, command, own, target, hosts)


def _folders(session: Session, command: Parsed) -> tuple[Folder, Folder | None]:
    home = session.home
    own = Folder(home, tls.folder_of(home.root))
    path = files.peer_folder(command.text("PEER")) if command.has("PEER") else own.path
    if os.path.realpath(path) == os.path.realpath(own.path):
        return own, None
    return own, Folder(home, path)


def _hosts(command: Parsed) -> list[str]:
    return files.hosts_of(command.text("HOSTS"))


def _days(command: Parsed) -> int:
    days = command.number("DAYS")
    if days is not None and not 1 <= days <= MAX_DAYS:
        raise CommandError(f"DAYS: expected 1 to {MAX_DAYS}, found {days}")
    return files.HOME_DAYS if days is None else days


def _issue(session: Session, command: Parsed, own: Folder, target: Folder, hosts: list[str]) -> None:
    is_home = os.path.basename(target.path) == "tls"
    names = files.names_for(hosts, here=is_home)
    subject = (hosts[0] if hosts else socket.gethostname() if is_home else os.path.basename(target.path))[:64]
    files.issue(own, target, subject, names, _days(command))
    facts = target.facts(tls.CERTIFICATE)
    session.say(
        f"Certificate {facts.path}", f"  for {', '.join(facts.names)}", f"  valid until {facts.ends:%Y-%m-%d}",
        f"  fingerprint {facts.fingerprint}",
    )  # fmt: skip
    if not is_home:
        session.say(
            f"Copy {tls.CA}, {tls.CERTIFICATE} and, the first time, {tls.KEY} into dircrd/tls of the peer's home "
            f"(0600), then remove {target.path}."
        )
    if not is_home and not hosts:
        session.say("It is for loopback only; with HOSTS 'names' pumps of other hosts can reach the peer.")


def info(session: Session, _command: Parsed) -> Any:
    """The certificates of this home; what ends soon is said."""
    folder = Folder(session.home, tls.folder_of(session.home.root))
    now = files.now_utc()
    rows = [(name, folder.facts(name)) for name in (tls.CA, tls.CERTIFICATE) if folder.has(name)]
    if not rows:
        session.say("This home has no certificates: pumps need CREATE CERTIFICATES, or NOTLS.")
    for name, facts in rows:
        kept = " (its key is kept here)" if name == tls.CA and folder.has(files.CA_KEY) else ""
        session.say(
            "", f"{'CA' if name == tls.CA else 'This home'}: {facts.subject}{kept}",
            f"  File         {facts.path}", f"  Fingerprint  SHA-256 {facts.fingerprint}",
            *([f"  Names        {', '.join(facts.names)}"] if facts.names else []),
            f"  Valid        {facts.begins:%Y-%m-%d %H:%M} to {facts.ends:%Y-%m-%d %H:%M} UTC, "
            f"{max(0, facts.days_left(now))} days left",
        )  # fmt: skip
        if warning := facts.warning(now):
            session.say(f"  WARNING      {warning}")
    session.say("")
    return [
        {
            "file": facts.path, "subject": facts.subject, "names": list(facts.names), "sha256": facts.fingerprint,
            "begins": facts.begins.isoformat(), "ends": facts.ends.isoformat(), "days_left": facts.days_left(now),
            "ca": name == tls.CA, "has_ca_key": name == tls.CA and folder.has(files.CA_KEY),
            "warning": facts.warning(now),
        }
        for name, facts in rows
    ]  # fmt: skip
