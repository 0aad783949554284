"""What both ways to watch a folder say where it can't be watched."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

from trails.errors import OperatorError

_TOO_MANY: Final = frozenset((errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM))
_MORE: Final = "Raise fs.inotify.max_user_instances and fs.inotify.max_user_watches with sysctl, then START again"


def refused(folder: str, error: OSError, tell: Callable[[str], None]) -> None:
    """Tell it, where others of this account have taken all there is. Raises OperatorError for any other reason."""
    if error.errno not in _TOO_MANY:
        hint = "Make the folder, or name another trail"
        raise OperatorError(f"{folder} can't be watched: {error.strerror}", hint=hint) from None
    tell(f"{folder} can't be watched: {error.strerror}. It is looked at once a second instead. {_MORE}")
