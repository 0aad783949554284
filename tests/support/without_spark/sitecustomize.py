"""With this folder in PYTHONPATH `-m replicat` runs without Spark (tests/support/sparkless.py), whoever starts it."""

import sys

if ("-m", "replicat") in zip(sys.orig_argv, sys.orig_argv[1:], strict=False):
    from tests.support.sparkless import take_its_place

    take_its_place()
