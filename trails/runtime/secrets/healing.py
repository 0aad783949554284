"""Errors of database servers that pass by themselves: one list for sources and targets, so no two ends disagree.

docs/exit-codes.md has them for people, and a test holds the page to them.
"""

from __future__ import annotations

from typing import Final

STATES: Final = ("08", "25006", "40001", "40P01", "53", "55006", "55P03", "57", "58")
"""By SQLSTATE or class: the connection, a standby, a deadlock, resources (memory, disk, connections), in use, a lock,
cancelled or shut down, and what lies beneath the server."""

NUMBERS: Final = frozenset({
    # the connection; 0 is the driver's own
    0, 1042, 1043, 1152, 1158, 1159, 1160, 1161, 1927, 2002, 2003, 2006, 2013, 2014, 2055,
    # going down, offline, ended, or a node that has not joined its cluster again
    1047, 1053, 1077, 1078, 1079, 1080, 3032, 3169, 4031,
    # too many, or a disk or a memory that is full for now: those below 1000 come from beneath the server
    1, 2, 3, 5, 20, 1021, 1026, 1030, 1037, 1040, 1041, 1114, 1135, 1180, 1203, 1206, 1226, 1637,
    # read-only for now
    1290, 1836,
    # a lock that was not given, out of time, or what changed under a statement
    1205, 1213, 1317, 1412, 1615, 1969, 3024, 3101, 3572,
})  # fmt: skip
"""By number, for servers that number their errors."""
