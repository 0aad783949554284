"""ENCRYPTTRAIL, of who writes a trail, and DECRYPTTRAIL, of who reads one; trails/crypt.py is what comes of it."""

from __future__ import annotations

from trails.runtime.params import Keyword, Statement


def keyword(what: str) -> Keyword:
    """ENCRYPTTRAIL, with `what` it does for this program."""
    return Keyword(
        "ENCRYPTTRAIL",
        "[AES256]",
        f"{what}, with AES-256-GCM: a key for each file, sealed with the master key of the home that holds the trail "
        "(ADD MASTERKEY). Whoever reads the trail in that home decrypts it unasked.",
        "ENCRYPTTRAIL AES256",
        _algorithm,
    )


def only_encrypted() -> Keyword:
    """DECRYPTTRAIL, the same for pump and Replicat."""
    return Keyword(
        "DECRYPTTRAIL",
        "[AES256]",
        "The trail that is read is encrypted: a file of it that is not is refused. Without it encrypted files are "
        "decrypted and plain ones read; with it who can write to dirdat, and has no key, can put no rows there.",
        "DECRYPTTRAIL AES256",
        _algorithm,
    )


def _algorithm(statement: Statement) -> bool:
    if statement.words and [str(word).upper() for word in statement.words] != ["AES256"]:
        raise statement.error("AES256 or nothing")
    return True
