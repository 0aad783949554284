"""The prompt of logdump: `logdump` without a file, on a terminal or with commands on standard input.

    Logdump 1 > OPEN ./dirdat/lt000000000
    Logdump 2 > GHDR ON
    Logdump 3 > NEXT

Rule: nothing that is there is changed (SAVE makes a trail of its own), and an error of the file, of a command or of
the disk is told and leaves the prompt usable.
Each line that is printed goes through `shown`, which escapes what a terminal would obey.
"""

from __future__ import annotations

import os
import shlex
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, timedelta, timezone
from typing import TextIO

from trails.errors import EXIT_OPERATOR, EXIT_STOPPED, GateError, OperatorError
from trails.format import BlockKind
from trails.fs import Fs
from trails.position import Position
from trails.reader import Block
from trails.segment import open_segment
from trails.show.cursor import TYPES, Cursor, CursorPlace, Item
from trails.show.filters import Filters, moment, number, type_named
from trails.show.layout import Counted, Sizes, View, record
from trails.show.printing import show_headers, shown
from trails.show.rows import DumpSource
from trails.show.saving import Saved, new_trail

ON_OFF = ("ON", "OFF")
DIRECTIONS = {"REV": True, "REVERSE": True, "FORWARD": False, "FWD": False}
LOGGING = "Logging to "
"""A log's first words."""
MOST_COMMANDS = 1 << 20
"""Bytes of a file that OBEY reads."""
Words = Sequence[str]


@dataclass(frozen=True, slots=True)
class Verb:
    """A command: how it is written, what it does, and other names for it."""

    name: str
    shape: str
    help: str
    run: Callable[[Shell, Words], None]
    alike: tuple[str, ...] = ()


class Shell:
    """One session: the open file, the switches, the filters and what was typed."""

    def __init__(self, fs: Fs, out: TextIO, home: str = "") -> None:
        self.fs = fs
        self.out = out
        self.home = home
        self.cursor: Cursor | None = None
        self.view = View()
        self.filters = Filters()
        self.history: list[str] = []
        self.goes_on = False  # NEXTTRAIL ON
        self.back = False  # POS REV
        self.obeying = False
        self.leave = False
        self.failed = False
        self.log: TextIO | None = None

    @property
    def prompt(self) -> str:
        """As GoldenGate's."""
        return f"Logdump {len(self.history) + 1} > "

    def say(self, *lines: str) -> None:
        """Print lines, and copy them to LOG."""
        for line in lines:
            print(shown(line), file=self.out, flush=True)
            if self.log is not None:
                print(shown(line), file=self.log, flush=True)

    def obey(self, line: str) -> None:
        """One line. Whatever is wrong with it is told."""
        if not line.strip() or line.lstrip().startswith("--"):
            return
        if not line.lstrip().startswith("!"):
            self.history.append(line.strip())
        try:
            self._run(line)
        except GateError as error:
            self._fail(str(error))
        except OSError as error:
            self._fail(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "))
        except KeyboardInterrupt:
            self._fail("interrupted")

    def _fail(self, text: str) -> None:
        self.failed = True
        self.say(f"ERROR: {text}", "")

    def _run(self, line: str) -> None:
        words = _words(line)
        if not words:
            return
        verb = BY_NAME.get(words[0].upper())
        if verb is None and words[0].startswith("!"):
            self._again(words[0][1:] or " ".join(words[1:]))
            return
        if verb is None:
            raise OperatorError(f"{words[0]}: unknown command", hint="HELP lists all")
        verb.run(self, words[1:])

    def _again(self, which: str) -> None:
        """`!`, `!n`: a command of the history once more."""
        count = len(self.history)
        wanted = int(which) if which.isdecimal() else count
        if not 0 < wanted <= count:
            raise OperatorError(f"!{which}: there is no such command", hint="HISTORY numbers them")
        self.say(self.history[wanted - 1])
        self.obey(self.history[wanted - 1])

    # --- the open file ---

    @property
    def file(self) -> Cursor:
        """The open file. Raises OperatorError if there is none."""
        if self.cursor is None:
            raise OperatorError("no trail file is open", hint="OPEN ./dirdat/lt000000000")
        return self.cursor

    def open(self, words: Words) -> None:
        """OPEN: a file, or the first file of a trail."""
        if not words:
            self.say(f"Current LogTrail is {self.cursor.path}" if self.cursor else "No LogTrail is open", "")
            return
        source = DumpSource.of(words[-1] if words[0].upper() == "FROM" else words[0], self.home)
        self._enter(source, source.seqnos(self.fs)[0])

    def _enter(self, source: DumpSource, seqno: int) -> None:
        self.cursor = Cursor(self.fs, source.trail, seqno)
        self.say(f"Current LogTrail is {self.cursor.path}", "")
        if self.view.fileheader != "OFF":
            show_headers(self.fs, DumpSource(source.trail, seqno), self.say)

    def next_trail(self, words: Words) -> None:
        """NEXTTRAIL: the next file; ON and OFF: whether NEXT goes on there by itself."""
        if words and words[0].upper() in ON_OFF:
            self.goes_on = words[0].upper() == "ON"
            self.say(f"NEXTTRAIL is {words[0].upper()}", "")
            return
        if not self._next_file():
            raise OperatorError(f"there is no file behind {self.file.path}", hint="FILES shows what is there")

    def _next_file(self, *, back: bool = False) -> bool:
        """Open the file behind this one, or stand at the end of the one before."""
        here = self.file
        held = here.trail.seqnos(self.fs.listdir(here.trail.folder))
        found = [n for n in held if (n < here.seqno if back else n > here.seqno)]
        if found:
            self._enter(DumpSource(here.trail), found[-1 if back else 0])
            if back:
                self.file.seek(CursorPlace(self._rba("EOF")))
        return bool(found)

    def take(self, *, back: bool = False) -> Item | None:
        """The next record that the filters let through, or the one before; also of other files if NEXTTRAIL is ON."""
        while True:
            item = self.file.previous() if back else self.file.next()
            if item is None:
                if not (self.goes_on and self._next_file(back=back)):
                    return None
            elif self.filters.passes(item):
                return item

    # --- moving ---

    def next(self, words: Words) -> None:
        """NEXT n: of the direction that POS REV or POS FORWARD chose."""
        for _ in range(_count(words)):
            item = self.take(back=self.back)
            if item is None:
                end = "Begin of" if self.back else "End of what is durable in"
                self.say(f"{end} {self.file.path}, RBA {self.file.rba}", "")
                return
            self.say(*record(item, self.view))

    def skip(self, words: Words) -> None:
        """SKIP n."""
        skipped = 0
        for _ in range(_count(words)):
            skipped += self.take(back=self.back) is not None
        self.say(f"Skipped {skipped} records", "")

    def position(self, words: Words) -> None:
        """POS: where we are, or somewhere else."""
        if not words:
            self.say(f"Current position is file {self.file.path}, RBA {self.file.rba}", "")
            return
        here, word = self.file, words[0].upper()
        if word in DIRECTIONS:
            self.back = DIRECTIONS[word]
        else:
            here.seek(CursorPlace(self._rba(word)))
        self.say(f"Reading {'in reverse' if self.back else 'forward'} from RBA {here.rba}", "")

    def _rba(self, word: str) -> int:
        if word in ("FIRST", "0"):
            return self.file.first_rba
        borders = list(self.file.borders())
        if word in ("LAST", "EOF"):
            ends = [block.end.rba if word == "EOF" else block.start.rba for block in borders]
            return ends[-1] if ends else self.file.first_rba
        rba = Position.parse(word).rba if "/" in word else number(word)
        if rba not in {block.start.rba for block in borders} | {block.end.rba for block in borders[-1:]}:
            raise OperatorError(f"no block begins at RBA {rba}", hint=_near(borders, rba))
        return rba

    def scan_header(self, words: Words) -> None:
        """SFH, SFH PREV: the next block's begin, or the one before; also behind a block that is damaged."""
        starts = [block.start.rba for block in self.file.borders()]
        prev = bool(words) and words[0].upper() == "PREV"
        found = [rba for rba in starts if (rba < self.file.rba if prev else rba > self.file.rba)]
        if not found:
            raise OperatorError(
                f"there is no block {'before' if prev else 'behind'} RBA {self.file.rba}",
                hint="POS FIRST goes to the first one",
            )
        self.file.seek(CursorPlace(found[-1] if prev else found[0]))
        self.say(f"Scanned to RBA {self.file.rba}", "")
        item = self.take()
        if item is not None:
            self.say(*record(item, self.view))

    def scan(self, wanted: Callable[[Item], bool], what: str, *, back: bool | None = None) -> None:
        """Go on to the first record that is wanted, in the direction of POS unless `back` says which, and show it."""
        while (item := self.take(back=self.back if back is None else back)) is not None:
            if wanted(item):
                self.say(*record(item, self.view))
                return
        self.say(f"Filter not matched: {what} was not found up to {self.file.path}, RBA {self.file.rba}", "")

    def scan_type(self, words: Words) -> None:
        """SFT type."""
        wanted = {type_named(word) for word in words} or _missing("SCANFORTYPE", "Insert")
        self.scan(lambda item: item.type in wanted, ", ".join(sorted(wanted)))

    def scan_rba(self, words: Words) -> None:
        """SFR rba: the first record at or behind it."""
        rba = number(words[0]) if words else number("")
        self.file.seek(CursorPlace(self.file.first_rba))
        self.scan(lambda item: item.block.end.rba > rba, f"RBA {rba}", back=False)

    def scan_time(self, words: Words) -> None:
        """SFTS time: the first record committed then or later; in reverse then or before."""
        since, sign = moment(" ".join(words)), -1 if self.back else 1
        self.scan(lambda item: item.row is not None and item.time_us * sign >= since * sign, " ".join(words))

    def _rest(self) -> Iterator[Item]:
        """The records from here to the end; the place stays."""
        here, path = self.file.place, self.file.path
        while (item := self.take()) is not None:
            yield item
        if self.file.path == path:
            self.file.seek(here)

    def count(self, words: Words) -> None:
        """COUNT [DETAIL] [START time] [END time]: from here to the end."""
        options = [word.upper() for word in words]
        bounds = {name: moment(" ".join(_until_option(words, options, name))) for name in ("START", "END")
                  if name in options}  # fmt: skip
        counted, path = Counted(), self.file.path
        for item in self._rest():
            if bounds.get("START", item.time_us) <= item.time_us <= bounds.get("END", item.time_us):
                counted.add(item)
        self.say(*counted.lines(path, detail="DETAIL" in options))

    def history_of_transactions(self, words: Words) -> None:
        """TRANSHIST [n]: the n largest transactions from here to the end."""
        sizes = Sizes(number(words[0]) if words else 10)
        for item in self._rest():
            sizes.add(item)
        self.say(*sizes.lines(self.view))

    def save(self, words: Words) -> None:
        """SAVE file [!] [n RECORDS | n BYTES]: what NEXT would show from here on, forward."""
        again = "!" in words[1:]
        rest = [word.upper() for word in words[1:] if word != "!"]
        if not words or (rest and (len(rest) != 2 or rest[1] not in ("RECORDS", "BYTES"))):
            raise OperatorError("SAVE: expected file [!] [n RECORDS | n BYTES]", hint="SAVE ./dirtmp/zz 20 RECORDS")
        wanted = number(rest[0]) if rest else None
        trail = new_trail(self.fs, words[0], self.file.trail, again=again)
        saved = Saved(self.fs, trail, self.file.header)
        try:
            while wanted is None or (saved.records if rest[1] == "RECORDS" else saved.bytes) < wanted:
                item = self.take()
                if item is None:
                    break
                saved.add(item)
            saved.close()
        except BaseException:
            saved.abandon()
            raise
        self.say(*saved.lines(), "")

    def files(self, words: Words) -> None:  # noqa: ARG002  -- as its neighbours
        """FILES: the files of the open trail."""
        trail = self.file.trail
        for seqno in trail.seqnos(self.fs.listdir(trail.folder)):
            with closing(open_segment(self.fs, trail, seqno)) as segment:
                made, size = segment.header.created_us, segment.file.size()
            here = "*" if seqno == self.file.seqno else " "
            self.say(f"{here} {segment.path}  {size:>12} bytes  {self.view.stamp(made)}")
        self.say("")

    # --- switches ---

    def ghdr(self, words: Words) -> None:
        """GHDR ON|OFF."""
        self.view.ghdr = _on(words, "GHDR")

    def detail(self, words: Words) -> None:
        """DETAIL ON|OFF|DATA."""
        self.view.detail = _one(words, "DETAIL", ("ON", "OFF", "DATA"))

    def hex(self, words: Words) -> None:
        """HEX ON|OFF."""
        self.view.hex = _on(words, "HEX")

    def tokens(self, words: Words) -> None:
        """GGSTOKEN, USERTOKEN, HEADERTOKEN."""
        self.view.tokens = _one(words, "GGSTOKEN", ("ON", "OFF", "DETAIL")) != "OFF"

    def fileheader(self, words: Words) -> None:
        """FILEHEADER ON|OFF|DETAIL: shown now, and at each OPEN."""
        self.view.fileheader = _one(words, "FILEHEADER", ("ON", "OFF", "DETAIL"))
        if self.cursor is not None and self.view.fileheader != "OFF":
            show_headers(self.fs, DumpSource(self.cursor.trail, self.cursor.seqno), self.say)

    def reclen(self, words: Words) -> None:
        """RECLEN n: so many bytes of an image in HEX."""
        self.view.reclen = number(words[0] if words else "")

    def time_offset(self, words: Words) -> None:
        """TIMEOFFSET LOCAL|GMT|+hh:mm."""
        word = words[0].upper() if words else "LOCAL"
        if word in ("LOCAL", "GMT"):
            self.view.offset = None if word == "LOCAL" else timezone(timedelta(), "GMT")
            return
        sign, (hours, _, minutes) = (-1 if word[0] == "-" else 1), word.lstrip("+-").partition(":")
        shift = timedelta(hours=number(hours), minutes=number(minutes or "0")) * sign
        if abs(shift) >= timedelta(hours=24):
            raise OperatorError(f"TIMEOFFSET {word}: expected less than a day")
        self.view.offset = timezone(shift) if shift else UTC

    def filter(self, words: Words) -> None:
        """FILTER ..."""
        self.filters.obey(words)
        self.say(*self.filters.lines(), "")

    def env(self, words: Words) -> None:
        """ENV, SHOW ENV|FILTER|OPEN|RECTYPE|TIME."""
        what = words[0].upper() if words else "ENV"
        if what == "FILTER":
            self.say(*self.filters.lines(), "")
        elif what == "OPEN":
            self.open(())
        elif what == "RECTYPE":
            self.say(*TYPES, "")
        elif what == "ENV":
            self.say(f"LogTrail           {self.cursor.path if self.cursor else '(none)'}",
                     f"NEXTTRAIL          {'ON' if self.goes_on else 'OFF'}",
                     f"POS                {'REV' if self.back else 'FORWARD'}", *self.view.lines(),
                     *self.filters.lines(), "")  # fmt: skip
        elif what == "TIME":
            self.say(f"Current time  {self.view.stamp(time.time_ns() // 1000)}", "")
        else:
            raise OperatorError(f"SHOW {what}: expected ENV, FILTER, OPEN, RECTYPE or TIME")

    # --- the session ---

    def log_to(self, words: Words) -> None:
        """LOG TO file, LOG STOP."""
        if self.log is not None:
            self.log.close()
            self.log = None
        if words and words[0].upper() != "STOP":
            _refuse_other(words[-1])
            self.log = open(words[-1], "a", encoding="utf-8")  # noqa: SIM115  -- open until LOG STOP or the end
            self.say(f"{LOGGING}{words[-1]}", "")

    def obey_file(self, words: Words) -> None:
        """OBEY file: its lines, one command each."""
        if len(words) != 1:
            raise OperatorError("OBEY: expected a file of commands")
        if self.obeying:
            raise OperatorError(
                f"OBEY {words[0]}: a file that is obeyed obeys no other", hint="Put its commands into one file"
            )
        with open(words[0], encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read(MOST_COMMANDS).splitlines()
        self.obeying = True
        try:
            for line in lines:
                if not self.leave:
                    self.say(f"{self.prompt}{line}")
                    self.obey(line)
        finally:
            self.obeying = False

    def show_history(self, words: Words) -> None:  # noqa: ARG002  -- as its neighbours
        """HISTORY."""
        self.say(*(f"{number:>4}: {line}" for number, line in enumerate(self.history, 1)), "")

    def help(self, words: Words) -> None:
        """HELP [command]."""
        if words and words[0].upper() not in BY_NAME:
            raise OperatorError(f"HELP {words[0]}: unknown command", hint="HELP lists all")
        verbs = [BY_NAME[words[0].upper()]] if words else VERBS
        for verb in verbs:
            names = " | ".join([verb.name, *verb.alike])
            first, *more = textwrap.wrap(verb.help, 56)
            self.say(f"{f'{names} {verb.shape}'.rstrip():43} {first}", *(" " * 44 + line for line in more))
        self.say("")

    def exit(self, words: Words) -> None:  # noqa: ARG002  -- as its neighbours
        """EXIT."""
        self.leave = True


def _scan_for(what: str, wanted: Callable[[Item], bool]) -> Callable[[Shell, Words], None]:
    return lambda shell, _: shell.scan(wanted, what)


VERBS = (
    Verb("OPEN", "file", "Open a file, or the first of a trail: OPEN ./dirdat/lt000000003.", Shell.open, ("FROM",)),
    Verb("NEXT", "[n]", "Show the next record, or the next n.", Shell.next, ("N",)),
    Verb("POS", "[rba | FIRST | LAST | EOF | REV | FORWARD]", "Show the position, or go to a block's begin; REV: NEXT "
         "and scans go back from here, FORWARD: on again.", Shell.position, ("POSITION",)),
    Verb("SKIP", "n", "Leave out n records.", Shell.skip),
    Verb("COUNT", "[DETAIL] [START time] [END time]", "Count from here on, by type; DETAIL: by table.", Shell.count),
    Verb("TRANSHIST", "[n]", "The n (10) largest transactions from here on.", Shell.history_of_transactions),
    Verb("SAVE", "file [!] [n RECORDS | n BYTES]", "Save what NEXT would show from here on as a new trail, such as "
         "./dirtmp/zz; !: in place of one that SAVE made.", Shell.save),
    Verb("SCANFORHEADER", "[PREV]", "The next block, or the one before; passes over damage.", Shell.scan_header,
         ("SFH",)),
    Verb("SCANFORTYPE", "type", "The next record of this type: SFT Delete.", Shell.scan_type, ("SFT",)),
    Verb("SCANFORRBA", "rba", "The first record at or behind this RBA.", Shell.scan_rba, ("SFR",)),
    Verb("SCANFORTIME", "time", "The next record committed then or later.", Shell.scan_time, ("SFTS", "BEGIN")),
    Verb("SCANFORENDTRANS", "", "The last record of this transaction.", _scan_for(
        "the end of a transaction", lambda item: item.ends_transaction), ("SFET",)),
    Verb("SCANFORNEXTTRANS", "", "The first record of the next transaction.", _scan_for(
        "another transaction", lambda item: item.begins_transaction), ("SFNT",)),
    Verb("SCANFORMETADATA", "", "The next definitions of tables.", _scan_for(
        "a Metadata block", lambda item: item.block.header.kind is BlockKind.METADATA), ("SFMD",)),
    Verb("NEXTTRAIL", "[ON | OFF]", "Open the next file; ON: NEXT does it by itself.", Shell.next_trail, ("NT",)),
    Verb("FILES", "", "List the files of the open trail.", Shell.files, ("FILELIST", "DIR")),
    Verb("FILTER", "[INCLUDE | EXCLUDE] condition", "RECTYPE, FILENAME, STRING, HEX, CSN, TRANSID, RBA, AUDITRBA, "
         "RECLEN, TRANSIND, STARTTIME, ENDTIME; MATCH {ANY | ALL}, CLEAR [n], ENABLE, DISABLE, SHOW.", Shell.filter),
    Verb("GHDR", "ON | OFF", "Show each record's header.", Shell.ghdr),
    Verb("DETAIL", "ON | OFF | DATA", "ON: lengths of columns; DATA: names and values.", Shell.detail),
    Verb("HEX", "ON | OFF", "Show images byte by byte, up to RECLEN.", Shell.hex),
    Verb("RECLEN", "n", "So many bytes with HEX; 280 if not given.", Shell.reclen),
    Verb("GGSTOKEN", "ON | OFF", "Show CSN, transaction id and the source's state; tokens of TABLE are columns.",
         Shell.tokens, ("USERTOKEN", "HEADERTOKEN")),
    Verb("FILEHEADER", "ON | OFF | DETAIL", "Show the header of each file that is opened.", Shell.fileheader),
    Verb("TIMEOFFSET", "LOCAL | GMT | +hh:mm", "Show times in another zone.", Shell.time_offset),
    Verb("ENV", "[FILTER | OPEN | RECTYPE | TIME]", "Show the open file and all switches, or one of these.", Shell.env,
         ("SHOW",)),
    Verb("LOG", "TO file | STOP", "Copy what is shown to a file.", Shell.log_to),
    Verb("OBEY", "file", "Run the commands in a file.", Shell.obey_file),
    Verb("HISTORY", "", "List what was typed; !n runs it again.", Shell.show_history, ("HIST",)),
    Verb("HELP", "[command]", "List the commands, or explain one.", Shell.help, ("?",)),
    Verb("EXIT", "", "Leave.", Shell.exit, ("QUIT", "Q")),
)  # fmt: skip
BY_NAME = {name: verb for verb in VERBS for name in (verb.name, *verb.alike)}


def _words(line: str) -> list[str]:
    try:
        found = shlex.shlex(line.rstrip("; \n"), posix=True)
        found.whitespace += ","
        found.whitespace_split, found.commenters = True, ""
        return list(found)
    except ValueError as error:
        raise OperatorError(f"{line.strip()}: {str(error).lower()}", hint="Close the quote") from None


def _refuse_other(path: str) -> None:
    """A log is added to a file that is none yet, or is one already: not to a trail, nor to anything else."""
    if os.path.isfile(path) and os.path.getsize(path):
        with open(path, "rb") as file:
            if not file.read(len(LOGGING)).startswith(LOGGING.encode()):
                raise OperatorError(f"LOG TO {path}: expected a new file, or one that LOG made", hint="Name another")


def _count(words: Words) -> int:
    return number(words[0]) if words else 1


def _one(words: Words, name: str, known: Sequence[str]) -> str:
    word = words[0].upper() if words else "ON"
    if word not in known:
        raise OperatorError(f"{name} {word}: expected {', '.join(known)}")
    return word


def _on(words: Words, name: str) -> bool:
    return _one(words, name, ON_OFF) == "ON"


def _missing(name: str, example: str) -> set[str]:
    raise OperatorError(f"{name}: expected a value", hint=f"{name} {example}")


def _until_option(words: Words, upper: Sequence[str], name: str) -> list[str]:
    """The words behind an option, up to the next one."""
    at = upper.index(name) + 1
    end = next((n for n in range(at, len(words)) if upper[n] in ("START", "END", "DETAIL")), len(words))
    return list(words[at:end])


def _near(borders: Sequence[Block], rba: int) -> str:
    before = [block.start.rba for block in borders if block.start.rba < rba]
    behind = [block.start.rba for block in borders if block.start.rba > rba]
    return f"Blocks begin at RBA {' and '.join(str(n) for n in [*before[-1:], *behind[:1]]) or '(none)'}"


def loop(fs: Fs, home: str = "") -> int:
    """The session on standard input; exit code 2 if a command of a script failed."""
    shell = Shell(fs, sys.stdout, home)
    interactive = sys.stdin.isatty()
    if interactive:
        import readline  # noqa: F401  -- arrows and history for input()

        shell.say("Trailgate Log File Dump Utility. HELP lists the commands, EXIT leaves.", "")
    while not shell.leave:
        try:
            line = input(shell.prompt) if interactive else sys.stdin.readline()
        except EOFError:
            break
        except KeyboardInterrupt:
            print()
            continue
        if not line and not interactive:
            break
        shell.obey(line)
    return EXIT_OPERATOR if shell.failed and not interactive else EXIT_STOPPED
