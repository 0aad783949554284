"""Every error that people read, sorted by who must act. What only code catches is the other tree: controlflow.py.

    GateError
    ├── OperatorError        exit 2: somebody must mend something, then START again
    │   ├── ParamError       a parameter file is wrong: file, line, what was expected
    │   ├── DamageError      bytes below the durable end are incomplete or wrong
    │   ├── VersionError     bytes of a newer (or unknown) format version: not damage
    │   ├── KeyMissingError  a trail file's master key is not here
    │   ├── MismatchError    output and source don't fit together (other slot, other database, other trail)
    │   ├── LockedError      another live process holds the lock
    │   └── DiskFullError    exit 3: no space; purging or a person makes some, and then going on is right
    ├── AwayError            exit 3: the peer or the database is away; waiting can mend it
    │   └── UntrustedError   the peer has not shown who it is: it may be set up wrongly, or be somebody else
    ├── ProtocolError        exit 3: the peer sent bytes that the protocol doesn't allow
    ├── AnewError            exit 3: this process can't go on, and a new one can
    └── RefusedError         the target refuses rows: REPERROR says what becomes of them (replicat/model/target.py)

Any other exception that leaves a process is by definition a bug (exit 1).
A message names the thing, where it is, what was expected and found; `hint` says what to do.
"""

from __future__ import annotations

EXIT_STOPPED = 0
EXIT_BUG = 1
EXIT_OPERATOR = 2
EXIT_AWAY = 3

# What to do about a version that this program does not know.
OF_ITS_RELEASE = "Read it with the release that wrote it, or a newer one"
SAME_RELEASE = "Bring both hosts to the same release"
# What to do about a trail file that is damaged.
MEND = "Put back a copy of the file; else see docs/recovery.md#truncated-trail-file"


class GateError(Exception):
    """Base of all expected errors; `hint` tells the reader what to do about it."""

    exit_code = EXIT_OPERATOR

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        if not self.hint:
            return self.message
        return f"{self.message}{'' if self.message.endswith(('.', '?', '!')) else '.'} {self.hint}"


class OperatorError(GateError):
    """Nothing goes on before a person has mended the named thing."""


class ParamError(OperatorError):
    """A parameter file can't be obeyed; the message starts with `file:line:`."""


class DamageError(OperatorError):
    """Bytes that must be there and right are not: the file, RBA, expected and found are in the message."""


class VersionError(OperatorError):
    """A file or a peer speaks a format version that this program doesn't know."""


class KeyMissingError(OperatorError):
    """The master key that a trail file needs is not in the wallet, or there is no wallet."""


class MismatchError(OperatorError):
    """Output and source don't belong together; going on would lose or double changes."""


class LockedError(OperatorError):
    """Another live process holds this lock."""


class DiskFullError(OperatorError):
    """No space, or less than DISKSTOP: like any failed write, but waiting can mend it, as purging makes space."""

    exit_code = EXIT_AWAY


class ScarceError(OperatorError):
    """The system has no descriptor, process or memory left just now: who else uses them up may end."""

    exit_code = EXIT_AWAY


class AwayError(GateError):
    """A peer or a database can't be reached, or went away; trying again later can help."""

    exit_code = EXIT_AWAY


class UntrustedError(AwayError):
    """No peer was met that shows who it is. Anybody on the way can cause that, so it ends nobody: it is tried again."""


class ProtocolError(GateError):
    """The peer broke the wire protocol; the session is dead, a new one may be tried."""

    exit_code = EXIT_AWAY


class AnewError(GateError):
    """This process can't go on, and trying again in it is of no use; a new one finds everything anew."""

    exit_code = EXIT_AWAY
