"""`logdump`: shows trails and checkpoint files to a person. Needs nothing but the files, and changes none of them.

An encrypted trail is decrypted with the keys of its home, or of the one that --home names; without them headers, totals
and CRCs are still there.

    logdump ./dirdat/lt                      one line a block
    logdump ./dirdat/lt000000003 --records   the records of one file, decoded
    logdump ./dirdat/lt --verify             every CRC of every file; exit code 2 if anything is damaged
    logdump dirchk/EXT1.cpe                  a checkpoint file
    logdump                                  a prompt as GoldenGate's (trails/show/), or its commands on standard input

It reads up to the durable end, as every reader does, and stops at damage with file, RBA, expected and found; VERIFY
goes on with the next file, because it is asked for all that is wrong.
Exit codes: 0 shown, 2 damage or a wrong request.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import NoReturn

from trails.errors import EXIT_OPERATOR, EXIT_STOPPED, GateError, OperatorError
from trails.fs import Fs, RealFs
from trails.position import Position
from trails.show.printing import Say, show_blocks, show_checkpoint, show_count, show_headers, show_records, shown
from trails.show.rows import DumpSource, Wanted
from trails.show.verifying import verify
from trails.taming import tame


class _DumpArguments(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OperatorError(f"logdump: {message}", hint="logdump --help tells more")


def _time(text: str) -> int:
    """`2026-02-03`, `2026-02-03 02:30:05.123` (this machine's time zone unless it names one) to microseconds."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a time such as '2026-02-03 02:30:05'") from None
    return int(moment.astimezone().timestamp() * 1_000_000)


def _position(text: str) -> Position:
    try:
        return Position.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _limit(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number from 1")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = _DumpArguments(prog="logdump", description="Show a trail, one file of it, or a checkpoint file.")
    parser.add_argument(
        "path", nargs="?", default="", help="./dirdat/lt, ./dirdat/lt000000003, or dirchk/EXT1.cpe; none: a prompt"
    )
    parser.add_argument("--home", default="", metavar="DIR", help="decrypt with the keys of this home")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--headers", action="store_true", help="the file headers")
    what.add_argument("--blocks", action="store_true", help="one line a block (the default)")
    what.add_argument("--records", action="store_true", help="the records, decoded")
    what.add_argument("--count", action="store_true", help="totals, and changes by table")
    what.add_argument("--verify", action="store_true", help="check every CRC of every file; exit code 2 on damage")
    parser.add_argument("--table", default="", metavar="NAME", help="only this table, such as sales.*; shows records")
    parser.add_argument("--csn", default="", help="only the transaction with this CSN; shows records")
    parser.add_argument("--since", type=_time, metavar="TIME", help="only commits from this time on")
    parser.add_argument("--until", type=_time, metavar="TIME", help="only commits up to this time")
    parser.add_argument("--from", dest="start", type=_position, metavar="SEQNO/RBA", help="begin at this block")
    parser.add_argument("--to", dest="end", type=_position, metavar="SEQNO/RBA", help="stop before this position")
    parser.add_argument("--limit", type=_limit, metavar="N", help="show at most so many")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run logdump; returns the exit code."""
    try:
        return _show(_parser().parse_args(argv), RealFs(), lambda line: print(shown(line)))
    except (GateError, FileNotFoundError) as error:
        sys.stdout.flush()
        print(f"ERROR: {tame(str(error))}", file=sys.stderr)
        return EXIT_OPERATOR
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_STOPPED


def _show(options: argparse.Namespace, fs: Fs, say: Say) -> int:
    if not options.path:
        from trails.show.shell import loop  # a prompt is more than most calls need

        return loop(fs, options.home)
    if options.path.endswith((".cpe", ".cpr")):
        show_checkpoint(fs, options.path, say)
        return EXIT_STOPPED
    source = DumpSource.of(options.path, options.home)
    source.seqnos(fs)  # a trail that isn't there is told before any title is shown
    wanted = Wanted(options.table, options.csn, options.since, options.until, options.start, options.end, options.limit)
    if options.verify:
        return EXIT_STOPPED if verify(fs, source, say) else EXIT_OPERATOR
    if options.headers:
        show_headers(fs, source, say)
    elif options.count:
        show_count(fs, source, wanted, say)
    elif options.records or ((options.table or options.csn) and not options.blocks):
        show_records(fs, source, wanted, say)
    else:
        show_blocks(fs, source, wanted, say)
    return EXIT_STOPPED


if __name__ == "__main__":
    sys.exit(main())
