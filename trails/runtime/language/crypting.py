"""ENCRYPTTRAIL, of who writes a trail, and DECRYPTTRAIL, of who reads one; trails/crypt.py is what comes of it."""

from __future__ import annotations

from trails.runtime.language.params import Keyword, Statement


def keyword(what: str) -> Keyword:
    """ENCRYPTTRAIL, with `what` it does for this program."""
    return Keyword(
        "ENCRYPTTRAIL",
        "[AES256]",
        f"{what} Files are encrypted with AES-256-GCM. Each file has its own key, sealed with the master key of the "
        "home that holds the trail (ADD MASTERKEY). Every reader of the trail in that home decrypts it without being "
        "told.",
        "ENCRYPTTRAIL AES256",
        _algorithm,
    )


def only_encrypted() -> Keyword:
    """DECRYPTTRAIL, the same for pump and Replicat."""
    return Keyword(
        "DECRYPTTRAIL",
        "[AES256]",
        "The trail that is read must be encrypted: a file of it that is not encrypted is refused. So nobody who can "
        "write to dirdat, but has no key, can put rows there. Without this parameter both encrypted and plain files "
        "are read.",
        "DECRYPTTRAIL AES256",
        _algorithm,
    )


def _algorithm(statement: Statement) -> bool:
    if statement.words and [str(word).upper() for word in statement.words] != ["AES256"]:
        raise statement.error("AES256 or nothing")
    return True
