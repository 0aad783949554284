"""CREATE, RENEW, REVOKE and INFO CERTIFICATES: who may talk to whom, kept in dircrd/tls (see ggsci/certificates).

One command makes one certificate: this home's, or with PEER that of another home, from the CA that stays here. CREATE
refuses what is there already and RENEW what is not, so neither can cut a link by a typing error. A certificate names
the home that it is for: of a home on this machine that is known, of one elsewhere it is told by HOMEID.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from ggsci.certificates import files, revoking
from ggsci.certificates.folder import Folder, names_of
from ggsci.commands.session import OperatorSession
from ggsci.table.grammar import CommandError, Parsed
from trails.link import tls
from trails.runtime.home.home import HOME_ID, Home

MAX_DAYS = 3650


def create(session: OperatorSession, command: Parsed) -> None:
    """Make the CA if there is none, and a certificate for this home or a peer."""
    own, peer = _folders(session, command)
    if (peer or own).has(tls.CERTIFICATE):
        raise CommandError(
            f"{(peer or own).file(tls.CERTIFICATE)} exists already",
            hint="RENEW CERTIFICATES makes it anew; for new keys, remove the folder's files first",
        )
    days, hosts = _days(command), _hosts(command)
    home_id = _home_id(session, command, peer)
    with session.home.alone("dircrd"):
        files.ensure_ca(own, session.home.id, days)
        if not own.has(tls.CERTIFICATE):
            # A CA without a certificate of its own home would leave one end without: both are needed for a link.
            _issue(session, command, own, own, [] if peer else hosts, session.home.id)
        if peer:
            _issue(session, command, own, peer, hosts, home_id)


def renew(session: OperatorSession, command: Parsed) -> None:
    """Make the certificate anew, for the same key; for the same names unless HOSTS gives others."""
    own, peer = _folders(session, command)
    target = peer or own
    if not target.has(tls.CERTIFICATE):
        raise CommandError(f"{target.file(tls.CERTIFICATE)} is missing", hint="CREATE CERTIFICATES makes it")
    if not own.has(tls.CA):
        raise CommandError(f"{own.file(tls.CA)} is missing", hint="CREATE CERTIFICATES makes a CA")
    given = _hosts(command)
    files.refuse_foreign(own, target)
    named = target.facts(tls.CERTIFICATE).home
    home_id = _home_id(session, command, peer, named)
    if named not in ("", home_id):
        raise CommandError(
            f"{target.file(tls.CERTIFICATE)} is home {named}'s, not home {home_id}'s",
            hint="Two homes share no key: remove home.crt and home.key there, and CREATE CERTIFICATES",
        )
    hosts = given or list(names_of(target.certificate(tls.CERTIFICATE)))
    with session.home.alone("dircrd"):
        files.ensure_ca(own, session.home.id, _days(command))
        _issue(session, command, own, target, hosts, home_id)


def revoke(session: OperatorSession, command: Parsed) -> None:
    """Put every certificate of a home on the list of revoked ones, after asking."""
    own, peer = _folders(session, command)
    if not own.has(files.CA_KEY):
        raise CommandError(f"{own.file(files.CA_KEY)} is missing", hint="Give this command in the home that keeps it")
    home_id, serials = _given_id(command), set()
    if peer:
        files.refuse_foreign(own, peer)
        facts = peer.facts(tls.CERTIFICATE)
        home_id, serials = facts.home, {facts.serial}
    if home_id == session.home.id or (command.has("PEER") and not peer):
        raise CommandError(
            "this home's own certificate: who has its key has the CA's key too",
            hint="Remove dircrd/tls in all homes of this CA, and CREATE CERTIFICATES anew",
        )
    serials |= {one.number for one in revoking.issued(own) if home_id and one.home == home_id}
    if not serials:
        raise CommandError(
            f"no certificate of home {home_id} was made here", hint="Give PEER, the folder with its home.crt"
        )
    whose = home_id or facts.subject
    session.confirm(f"Every home with the new list will refuse home {whose}. Are you sure", command)
    with session.home.alone("dircrd"):
        count = revoking.revoke(own, files.CA_KEY, serials)
    session.say(
        f"{count} certificates of home {whose} revoked: {own.file(tls.REVOKED)}",
        f"Copy {tls.REVOKED} into dircrd/tls of every other home of this CA: each goes by its own copy.",
    )


def _given_id(command: Parsed) -> str:
    given = command.text("HOMEID").lower() if command.has("HOMEID") else ""
    if given and not HOME_ID.match(given):
        raise CommandError(f"HOMEID: expected 32 hex digits, found {given}", hint="INFO CERTIFICATES there shows it")
    return given


def _home_id(session: OperatorSession, command: Parsed, peer: Folder | None, named: str = "") -> str:
    """The home of a certificate: this one, one on this machine, or as HOMEID or the old certificate (`named`) says."""
    given = _given_id(command)
    if peer is None or files.is_home(peer):
        known = session.home.id if peer is None else Home(os.path.dirname(os.path.dirname(peer.path))).id
        if given not in ("", known):
            raise CommandError(f"HOMEID: that home's id is {known}, found {given}")
        return known
    if not (given or named):
        raise CommandError(
            f"{peer.path} is no home: expected HOMEID, the id of the home that the certificate is for",
            hint="INFO CERTIFICATES in that home shows its id",
        )
    return given or named


def _folders(session: OperatorSession, command: Parsed) -> tuple[Folder, Folder | None]:
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


def _issue(
    session: OperatorSession, command: Parsed, own: Folder, target: Folder, hosts: list[str], home_id: str
) -> None:
    is_home = files.is_home(target)
    names = files.names_for(hosts, here=is_home)
    subject = (hosts[0] if hosts else socket.gethostname() if is_home else os.path.basename(target.path))[:64]
    files.issue(own, target, subject, names, _days(command), home_id)
    facts = target.facts(tls.CERTIFICATE)
    session.say(
        f"Certificate {facts.path}", f"  of home {home_id}",
        f"  for {', '.join(facts.names)}", f"  valid until {facts.ends:%Y-%m-%d}",
        f"  fingerprint {facts.fingerprint}",
    )  # fmt: skip
    if not is_home:
        made = ", ".join(name for name in (tls.CA, tls.REVOKED, tls.CERTIFICATE) if target.has(name))
        session.say(
            f"Copy {made} and, the first time, {tls.KEY} into dircrd/tls of the peer's home "
            f"(0600), then remove {target.path}."
        )
    if not is_home and not hosts:
        session.say("It is for loopback only; with HOSTS 'names' pumps of other hosts can reach the peer.")


def info(session: OperatorSession, _command: Parsed) -> Any:
    """The certificates of this home; what ends soon is said."""
    folder = Folder(session.home, tls.folder_of(session.home.root))
    now = files.now_utc()
    rows = [(name, folder.facts(name)) for name in (tls.CA, tls.CERTIFICATE) if folder.has(name)]
    session.say(f"Home id: {session.home.id}")
    if not rows:
        session.say("This home has no certificates: pumps need CREATE CERTIFICATES, or NOTLS.")
    for name, facts in rows:
        kept = " (its key is kept here)" if name == tls.CA and folder.has(files.CA_KEY) else ""
        session.say(
            "", f"{'CA' if name == tls.CA else 'This home'}: {facts.subject}{kept}",
            f"  File         {facts.path}", f"  Fingerprint  SHA-256 {facts.fingerprint}",
            *([f"  Names        {', '.join(facts.names)}"] if facts.names else []),
            *([f"  Home         {facts.home}"] if facts.home else []),
            f"  Valid        {facts.begins:%Y-%m-%d %H:%M} to {facts.ends:%Y-%m-%d %H:%M} UTC, "
            f"{max(0, facts.days_left(now))} days left",
        )  # fmt: skip
        for warning in facts.warnings(now, session.home.id):
            session.say(f"  WARNING      {warning}")
    revoked = revoking.revoked(folder)
    if folder.has(tls.REVOKED):
        whose = {one.number: one.home for one in revoking.issued(folder)}
        session.say("", f"Revoked: {len(revoked)} certificates, {folder.file(tls.REVOKED)}")
        for serial, date in revoked.items():
            session.say(f"  {date:%Y-%m-%d}   {serial:x} {whose.get(serial, '')}".rstrip())
    session.say("")
    return [
        {
            "file": facts.path, "subject": facts.subject, "names": list(facts.names), "sha256": facts.fingerprint,
            "begins": facts.begins.isoformat(), "ends": facts.ends.isoformat(), "days_left": facts.days_left(now),
            "ca": name == tls.CA, "has_ca_key": name == tls.CA and folder.has(files.CA_KEY),
            "home": facts.home, "warning": "; ".join(facts.warnings(now, session.home.id)),
            "revoked": [f"{serial:x}" for serial in revoked],
        }
        for name, facts in rows
    ]  # fmt: skip
