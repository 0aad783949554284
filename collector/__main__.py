"""`python -P -m collector --home DIR --trail T --ports A-B --bind ADDRESS --ready-fd N`; no logic."""

from __future__ import annotations

import sys

from collector.server import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
