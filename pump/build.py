"""From a group's parameter file and registration to its Pump; every mismatch between the two is refused here."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from pump.job import PumpJob
from pump.params import PumpParams
from pump.pump import Pump
from trails.errors import GateError, OperatorError
from trails.link import tls
from trails.position import TrailName
from trails.reader import last_header
from trails.runtime.home.registration import TrailReg
from trails.runtime.language import globals as globals_file
from trails.runtime.process import clockdiff
from trails.runtime.process.checking import is_asked, report_and_stop
from trails.runtime.process.loop import Process
from trails.runtime.process.startup import Context

CODE_PLAIN_COPY = "TG-01523"


def build(context: Context) -> Process:
    """The Pump of this run. Raises ParamError or OperatorError if it can't start."""
    reg = context.registration
    assert reg is not None
    params = PumpParams.from_statements(context.statements, context.parameter_file)
    if is_asked(context.statements):
        from pump.checking import check

        return report_and_stop(context, check(params, reg, context.home))
    for code, text in tls.cautions(params.remote.host, params.trail, secure=params.remote.tls, encrypt=params.encrypt):
        context.log.warning(code, text)
    root = context.home.root
    _warn_of_plain_copy(context, params, TrailName.parse(reg.trail, root))
    remote = _registered(reg.trails, params.trail, params.group)
    certificates = tls.folder_of(root) if params.remote.tls else ""
    if certificates:
        tls.check_own(certificates, context.home.id)  # what is wrong with it stops START, not the first try
    job = PumpJob(
        params=params, home_id=context.home.id, host=context.host,
        trail=replace(TrailName.parse(reg.trail, root), sealed=params.decrypt), title=reg.trail,
        megabytes=remote.megabytes, pinned=context.home.pinned(reg.name), tls=certificates,
        alter_no=reg.alter_no, alter=reg.alter,
        clock_diff_s=globals_file.read(context.home).one("CLOCKDIFFSECS", clockdiff.DEFAULT_SECONDS),
    )  # fmt: skip
    return Pump(job, context.fs, context.log, context.clock, context.previous)


def _warn_of_plain_copy(context: Context, params: PumpParams, trail: TrailName) -> None:
    """An encrypted trail's copy is encrypted only where the pump's own file says so."""
    header = None
    with contextlib.suppress(GateError):  # a damaged file is told by who reads it, at its place
        header = last_header(context.fs, trail)
    if header is not None and header.key_id and not params.encrypt:
        context.log.warning(
            CODE_PLAIN_COPY,
            f"{trail} is encrypted, its copy {params.trail} will not be: ENCRYPTTRAIL here asks for that.",
        )


def _registered(trails: tuple[TrailReg, ...], wanted: str, group: str) -> TrailReg:
    """The registration of the trail that RMTTRAIL names."""
    for trail in trails:
        if trail.type == "RMTTRAIL" and TrailName.parse(trail.path) == TrailName.parse(wanted):
            return trail
    known = ", ".join(trail.path for trail in trails) or "none"
    raise OperatorError(
        f"RMTTRAIL {wanted}: expected a remote trail added to {group}, found {known}",
        hint=f"ADD RMTTRAIL {wanted}, EXTRACT {group}",
    )
