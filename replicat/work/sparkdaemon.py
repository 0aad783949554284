"""What Spark starts as the parent of its Python workers, in place of pyspark's own: `python -m` with this name.

Spark puts a zip of pyspark's sources before everything else, from which each worker would compile what it needs: two
seconds of a core and 25 MB, each time. Here the installed pyspark is taken, and loaded once with what every job needs:
a worker is a fork of this process, ready at once, and shares these pages.

Rule: nothing that is loaded here starts a thread or opens a connection, as neither lives through a fork. So drivers of
databases are loaded by the workers.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from importlib.machinery import PathFinder

PRELOADED = ("pyspark.worker", "replicat.work.resident", "replicat.load.piping")
_OF_SPARK = (("pyspark", ".zip"), ("py4j-", ".zip"), ("spark-core", ".jar"))


def installed_first(path: list[str]) -> list[str]:
    """The path without Spark's own archives, if pyspark and py4j are installed too: on some executors they are not."""
    rest = [entry for entry in path if not _is_of_spark(entry)]
    found = all(PathFinder.find_spec(name, rest) is not None for name in ("pyspark", "py4j"))
    return rest if found else path


def _is_of_spark(entry: str) -> bool:
    name = os.path.basename(entry)
    return any(name.startswith(begin) and name.endswith(end) for begin, end in _OF_SPARK)


def main() -> None:
    """Load, then serve Spark until it closes our input."""
    kept = installed_first(sys.path)
    for entry in set(sys.path).difference(kept):
        sys.path_importer_cache.pop(entry, None)
    sys.path[:] = kept
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # no worker goes through all of this at each collection, and so makes it its own
    importlib.import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
