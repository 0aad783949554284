"""Commands that register trails."""

from __future__ import annotations

from ggsci.commands.row import TRAILS, row
from ggsci.grammar import Kind, Option

ROWS = tuple(
    each
    for kind, where, path in (("EXTTRAIL", "this host", "./dirdat/lt"), ("RMTTRAIL", "the target host", "./dirdat/rt"))
    for each in (
        row(TRAILS, f"ADD {kind}", "trailfiles:add", Kind.TRAIL,
             f"Register a trail on {where} that an Extract or pump writes.",
             f"ADD {kind} {path}, EXTRACT ext1, MEGABYTES 100",
             Option("EXTRACT", Kind.GROUP, needed=True), Option("MEGABYTES", Kind.NUMBER),
             notes="The path is the one in the parameter file; its last part is two characters. "
             "MEGABYTES is the size at which a new file begins: 1 to 2000, 100 if not given."),
        row(TRAILS, f"ALTER {kind}", "trailfiles:alter", Kind.TRAIL,
             "Give a trail of a stopped group files of another size, from its next START on.",
             f"ALTER {kind} {path}, EXTRACT ext1, MEGABYTES 500",
             Option("EXTRACT", Kind.GROUP), Option("MEGABYTES", Kind.NUMBER, needed=True)),
        row(TRAILS, f"DELETE {kind}", "trailfiles:delete", Kind.TRAIL,
             "Remove a trail's registration. Its files stay.", f"DELETE {kind} {path}",
             Option("EXTRACT", Kind.GROUP)),
        row(TRAILS, f"INFO {kind}", "trailfiles:info", Kind.TRAILS,
             "Show registered trails, and where their writers stand.", f"INFO {kind} * ; INFO {kind} {path}",
             optional=True, lists=True),
    )
)  # fmt: skip
