"""What a process package imports to become a process: the loop (loop.py) and what surrounds it (startup.py)."""

from __future__ import annotations

from trails.runtime.process.group import GroupProcess, Request
from trails.runtime.process.loop import Process, Stop, Wait, run
from trails.runtime.process.startup import Context, main

__all__ = ["Context", "GroupProcess", "Process", "Request", "Stop", "Wait", "main", "run"]
