"""Commands on secrets: certificates of the link, master keys, the credential store."""

from __future__ import annotations

from ggsci.table.grammar import Option, Takes
from ggsci.table.row import SECURITY, row

_PEER = (
    Option("PEER", Takes.FILE), Option("HOSTS", Takes.TEXT), Option("HOMEID", Takes.WORD), Option("DAYS", Takes.NUMBER),
)  # fmt: skip
_PEER_NOTE = (
    "- PEER is the folder of another home on this machine. For a home elsewhere it is any folder: take its files to "
    "dircrd/tls of that home.\n"
    "- HOSTS are the names and addresses that RMTHOST has for that home, or for this one without PEER. localhost, "
    "127.0.0.1 and ::1 are always among them, and for homes here also this machine's name.\n"
    "- HOMEID is the id of a home elsewhere, as INFO CERTIFICATES there shows it. A certificate is for one home only.\n"
    "- DAYS is how long the certificate is valid: 730 if not given.\n"
)

ROWS = (
    row(SECURITY, "CREATE CERTIFICATES", "certificates:create", None,
         "Make certificates for the link between pumps, Managers and Collectors: for this home, with PEER for another.",
         "CREATE CERTIFICATES, PEER /gate/target ; CREATE CERTIFICATES, PEER ./for-there, HOSTS 'there 10.0.0.2', "
         "HOMEID 0123456789abcdef0123456789abcdef ; "
         "CREATE CERTIFICATES, HOSTS 'here here.example'",
         *_PEER,
         notes=_PEER_NOTE + "The private CA is made with the first certificate. Its key stays in dircrd/tls/ca.key "
         "here."),
    row(SECURITY, "RENEW CERTIFICATES", "certificates:renew", None,
         "Make a certificate anew before it ends, for the same key and, unless HOSTS is given, the same names.",
         "RENEW CERTIFICATES ; RENEW CERTIFICATES, PEER /gate/target ; RENEW CERTIFICATES, PEER ./for-there, DAYS 365",
         *_PEER,
         notes=_PEER_NOTE + "The folder needs no key: home.crt of the peer is enough, as it says whose it is. Running "
         "processes take the new certificate at their next connection."),
    row(SECURITY, "REVOKE CERTIFICATES", "certificates:revoke", None,
         "Revoke all certificates of a home: it is refused wherever the new list is. Asks first, unless the command "
         "ends with `!`.",
         "REVOKE CERTIFICATES, HOMEID 0123456789abcdef0123456789abcdef! ; REVOKE CERTIFICATES, PEER ./from-there!",
         Option("HOMEID", Takes.WORD, choice="whose", needed=True), Option("PEER", Takes.FILE, choice="whose"),
         notes="Give it in the home that keeps the CA's key. PEER is the home to revoke, or a folder with its "
         "home.crt. The list is dircrd/tls/ca.crl: copy it into that folder of every other home of the CA. Once it is "
         "there, sessions end and have to come in anew. The list has no end date. CREATE CERTIFICATES can make the "
         "home a certificate for new keys."),
    row(SECURITY, "INFO CERTIFICATES", "certificates:info", None,
         "Show this home's id and certificates: subject, names, fingerprint and end. It warns in the last 30 days.",
         "INFO CERTIFICATES", lists=True),
    row(SECURITY, "ADD MASTERKEY", "masterkeys:add", None,
         "Make this home's wallet with its first master key, for trails with ENCRYPTTRAIL.", "ADD MASTERKEY",
         notes="The wallet is kept in dirwlt. Keep a copy of it elsewhere: without it encrypted trails can't be read."),
    row(SECURITY, "RENEW MASTERKEY", "masterkeys:renew", None,
         "Make a new version of the master key. Trail files begun from now on are encrypted under it.",
         "RENEW MASTERKEY",
         notes="Older versions stay for the files that need them. No group has to be started again."),
    row(SECURITY, "INFO MASTERKEY", "masterkeys:info", None,
         "Show the versions of the master key, and how many trail files in dirdat need each.", "INFO MASTERKEY",
         lists=True),
    row(SECURITY, "DELETE MASTERKEY", "masterkeys:delete", None,
         "Delete a version that no trail file in dirdat needs. Asks first, unless the command ends with `!`.",
         "DELETE MASTERKEY VERSION 1!", Option("VERSION", Takes.NUMBER, needed=True),
         notes="The current version can't be deleted, nor one that was replaced less than a minute ago."),
    row(SECURITY, "ADD CREDENTIALSTORE", "credentials:add", None,
         "Make an empty credential store, for USERIDALIAS.", "ADD CREDENTIALSTORE",
         notes="The store is kept encrypted in dircrd. Its key is in a file beside it that only this user can read."),
    row(SECURITY, "ALTER CREDENTIALSTORE", "credentials:alter", None,
         "Add an alias for a user and password to the credential store, replace it, or delete it.",
         "ALTER CREDENTIALSTORE ADD USER gate ALIAS capture ; "
         "ALTER CREDENTIALSTORE REPLACE USER gate PASSWORD 'secret' ALIAS capture DOMAIN prod ; "
         "ALTER CREDENTIALSTORE DELETE ALIAS capture",
         Option("ADD", choice="action", needed=True), Option("REPLACE", choice="action"),
         Option("DELETE", choice="action"), Option("USER", Takes.WORD), Option("PASSWORD", Takes.TEXT, secret=True),
         Option("ALIAS", Takes.WORD), Option("DOMAIN", Takes.WORD),
         notes="A missing password is asked for without an echo. Without ALIAS the alias is the user, and without "
         "DOMAIN the domain is Trailgate. The user may end with @host:port/database, for a USERIDALIAS without a "
         "URL. A running group takes a new password at its next START."),
    row(SECURITY, "INFO CREDENTIALSTORE", "credentials:info", None,
         "Show the aliases of the credential store and their users.",
         "INFO CREDENTIALSTORE ; INFO CREDENTIALSTORE, DOMAIN prod", Option("DOMAIN", Takes.WORD), lists=True),
    row(SECURITY, "DELETE CREDENTIALSTORE", "credentials:delete", None,
         "Delete the credential store and its key. Asks first, unless the command ends with `!`.",
         "DELETE CREDENTIALSTORE!"),
)  # fmt: skip
