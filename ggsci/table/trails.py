"""Commands that register trails."""

from __future__ import annotations

from ggsci.table.grammar import Option, Takes
from ggsci.table.row import TRAILS, row

ROWS = tuple(
    each
    for kind, where, who, path in (
        ("EXTTRAIL", "this host", "an Extract", "./dirdat/lt"),
        ("RMTTRAIL", "the host of RMTHOST", "a pump", "./dirdat/rt"),
    )
    for each in (
        row(TRAILS, f"ADD {kind}", "trailfiles:add", Takes.TRAIL,
             f"Register a trail on {where} that {who} writes.",
             f"ADD {kind} {path}, EXTRACT ext1, MEGABYTES 100",
             Option("EXTRACT", Takes.GROUP, needed=True), Option("MEGABYTES", Takes.NUMBER),
             notes="The path is the one in the parameter file; its last part is two characters. "
             "MEGABYTES is the size at which a new file begins: 1 to 2000, 100 if not given."),
        row(TRAILS, f"ALTER {kind}", "trailfiles:alter", Takes.TRAIL,
             "Give a trail of a stopped group files of another size, from its next START on.",
             f"ALTER {kind} {path}, EXTRACT ext1, MEGABYTES 500",
             Option("EXTRACT", Takes.GROUP), Option("MEGABYTES", Takes.NUMBER, needed=True)),
        row(TRAILS, f"DELETE {kind}", "trailfiles:delete", Takes.TRAIL,
             "Remove a trail's registration. Its files stay.", f"DELETE {kind} {path}",
             Option("EXTRACT", Takes.GROUP)),
        row(TRAILS, f"INFO {kind}", "trailfiles:info", Takes.TRAILS,
             "Show registered trails, and where their writers stand.", f"INFO {kind} * ; INFO {kind} {path}",
             optional=True, lists=True),
    )
)  # fmt: skip
