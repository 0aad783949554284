"""`checkprm [--home DIR] [--text] FILE`: a parameter file checked whole, without starting anything.

First the text: every mistake with file and line. Then (unless --text) what START would find out besides: an Extract
against its source database, a pump against trail and remote Manager, a Replicat against trail, Spark and target.
The file may lie anywhere; which program it is for follows from the group it names, or from what stands in it.
Exit codes: 0 no mistakes, 1 mistakes, 2 the command line can't be understood, or there is no such home or file.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from ggsci import check
from trails.errors import GateError, OperatorError, ParamError
from trails.runtime.home.home import Home
from trails.runtime.masking import mask
from trails.taming import tame


def main(argv: Sequence[str] | None = None) -> int:
    """Check one file and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="checkprm", description="Check a parameter file whole; nothing is started, nothing is changed."
    )
    parser.add_argument("file", metavar="FILE", help="a parameter file, such as dirprm/ext1.prm")
    parser.add_argument("--home", help="the home it is for; if not given, the folder above dirprm")
    parser.add_argument("--text", action="store_true", help="look at the text only: no database, no other host")
    given = parser.parse_args(argv)
    path = os.path.abspath(given.file)
    try:
        home = Home.at(given.home or _home_of(path))
        if not os.path.isfile(path):
            raise OperatorError(f"{path}: there is no such file", hint="Name a parameter file")
    except (GateError, OSError) as error:
        print(tame(f"checkprm: {mask(str(error))}"), file=sys.stderr)
        return 2
    return _checked(home, path, text_only=given.text)


def _home_of(path: str) -> str:
    folder = os.path.dirname(path)
    if os.path.basename(path) == "GLOBALS":
        return folder
    if os.path.basename(folder) == "dirprm":
        return os.path.dirname(folder)
    raise OperatorError(f"{path} lies in no home's dirprm", hint="Name the home: checkprm --home DIR FILE")


def _checked(home: Home, path: str, *, text_only: bool) -> int:
    try:
        check.check_file(home, path)
        said = check.without_meaning(home, path)
        found, notes = ([], []) if text_only else check.dry_run(home, path)
    except ParamError as error:
        found, notes, said = check.mistakes(error), [], []
    except GateError as error:
        print(tame(f"checkprm: {mask(str(error))}"), file=sys.stderr)
        return 2
    for note in [*said, *notes]:
        print(tame(mask(note)))
    for mistake in found:
        print(tame(f"ERROR: {mask(mistake)}"), file=sys.stderr)
    if not found:
        print(tame(f"{path}: no mistakes found."))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
