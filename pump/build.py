"""From a group's parameter file and registration to its Pump; every mismatch between the two is refused here."""

from __future__ import annotations

from pump.params import PumpParams
from pump.pump import Job, Pump
from trails.errors import OperatorError
from trails.position import TrailName
from trails.runtime.process import Context
from trails.runtime.registration import TrailReg


def build(context: Context) -> Pump:
    """The Pump of this run. Raises ParamError or OperatorError if it can't start."""
    reg = context.registration
    assert reg is not None
    params = PumpParams.from_statements(context.statements, context.parameter_file)
    root = context.home.root
    remote = _registered(reg.trails, params.trail, params.group)
    job = Job(
        params=params,
        home_id=context.home.id,
        host=context.host,
        trail=TrailName.parse(reg.trail, root),
        title=reg.trail,
        megabytes=remote.megabytes,
        alter_no=reg.alter_no,
        alter=reg.alter,
    )
    return Pump(job, context.fs, context.log, context.clock, context.previous)


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
