"""Which home takes a pump's trail: `dirpcs/<GROUP>.remote`, apart from the checkpoint, which may be lost or restored.

Rule: the pump alone writes it, durably, and before the first block goes out to that home (on a full disk: before that
of a later session). From then on another home that answers in its place gets none. The operator's own words lead
elsewhere: ALTER EXTRACT ..., ETROLLOVER, whose number is then kept here, so that it is obeyed once; another RMTHOST or
RMTTRAIL; and DELETE EXTRACT, which removes the file. ALTER rewrites the registration only, and is refused while the
pump runs.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict

from pump.job import PumpJob
from trails.errors import DiskFullError, MismatchError
from trails.fs import Fs, replace_durably
from trails.runtime.home import pinned
from trails.runtime.home.pinned import Pin


def check(fs: Fs, job: PumpJob, home: str, peer: str) -> None:
    """Refuse `home` unless it is the one that took this trail before, or the operator has asked for another."""
    remote, group = job.params.remote, job.params.group
    place = f"{remote.host}:{remote.port} {job.params.trail}"
    known = pinned.read(fs, job.pinned)
    if known is not None and known.place == place and known.home != home and not _asked_for_another(job, known):
        raise MismatchError(
            f"{peer} is of home {home or '(none)'}; {group} has sent this trail to home {known.home}",
            hint=f"If the remote home was made anew: {_anew(job)}, and START it again",
        )
    pin = Pin(place, home, job.alter_no)
    if pin != known or not fs.exists(job.pinned):
        # On a full disk it sends all the same: what it has sent may be purged. The next session keeps the home.
        with suppress(DiskFullError):
            replace_durably(fs, job.pinned, json.dumps(asdict(pin)).encode())


def _anew(job: PumpJob) -> str:
    group = job.params.group
    if job.whole is not None:
        return f"DELETE EXTRACT {group}, ADD EXTRACT {group}, SOURCEISTABLE"
    return f"ALTER EXTRACT {group}, ETROLLOVER"


def _asked_for_another(job: PumpJob, known: Pin) -> bool:
    return bool(job.alter.get("etrollover")) and job.alter_no > known.alter_no
