"""What a process package imports to become a process: the loop (loop.py) and what surrounds it (startup.py)."""

from __future__ import annotations

from trails.runtime.loop import Process, Stop, Wait, run
from trails.runtime.startup import Context, main

__all__ = ["Context", "Process", "Stop", "Wait", "main", "run"]
