"""`python -P -m ggsci.manager --home DIR`: the Manager of a home; no logic."""

import sys

from ggsci.manager.manager import build
from trails.runtime.process.startup import main

if __name__ == "__main__":
    sys.exit(main("MANAGER", sys.argv[1:], build))
