"""`python -P -m pump --home DIR GROUP`: builds the pump from its parameter file and registration; no logic."""

from __future__ import annotations

import sys

from pump.build import build
from trails.runtime.process.startup import main

if __name__ == "__main__":
    sys.exit(main("PUMP", sys.argv[1:], build))
