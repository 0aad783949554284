"""One operator's session: the home, the login, the history, where output goes, and whether anything failed.

`run()` takes one line through the parser to the function that the table names. A command says its text with `say`,
and returns its data; with --json only the data is printed. An error is one `ERROR: ...` line and counts as failed.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from ggsci.commands.terminal import Progress, has_colour, is_terminal, page, paint
from ggsci.table.grammar import CommandError, Parsed, mask_line
from ggsci.table.table import GRAMMAR
from trails.errors import GateError
from trails.taming import tame, tame_json

if TYPE_CHECKING:
    from trails.runtime.home.home import Home
    from trails.runtime.report.report import Log

MAX_NESTING = 16

Handler = Callable[["OperatorSession", Parsed], Any]


@dataclass(frozen=True, slots=True)
class Login:
    """A database that DBLOGIN reached. Its URL may hold a password: that goes to a sub-process's stdin only.

    `program`: whose admin sub-process reaches it, that of extract (a source) or of replicat (a target).
    """

    url: str
    user: str
    database: str
    server: str = ""
    program: str = "extract"

    @property
    def name(self) -> str:
        """`user@database`; a file has no user."""
        return f"{self.user}@{self.database}" if self.user else self.database

    def __repr__(self) -> str:
        return f"Login({self.name})"


class OperatorSession:
    """What lasts from the first command to EXIT."""

    def __init__(
        self,
        root: str,
        *,
        out: TextIO | None = None,
        err: TextIO | None = None,
        json_output: bool = False,
        interactive: bool = False,
        may_ask: bool = False,
    ) -> None:
        self.root = os.path.abspath(root)
        self.out = out or sys.stdout
        self.err = err or self.out
        self.json_output = json_output
        self.interactive = interactive
        self.may_ask = may_ask
        self.login: Login | None = None
        self.history: list[str] = []
        self.failed = 0
        self.leave = False
        self.nesting = 0
        self.allow_nested = False
        self.editor = ""
        self.ask_line: Callable[[str], str] | None = None
        """Reads a line from the person at the prompt; None where nobody is there."""
        self._progress: Progress | None = None
        self._as_json = False
        self._had_error = False

    # --- what commands use ---

    @property
    def home(self) -> Home:
        """The home, checked each time: it may have been made or damaged meanwhile."""
        from trails.runtime.home.home import Home

        return Home.at(self.root)

    @staticmethod
    def now_us() -> int:
        """Wall time."""
        return time.time_ns() // 1000

    def say(self, *lines: str) -> None:
        """Lines for a person; nothing with --json. What stands in one of them begins no other line."""
        if not self._as_json:
            for line in lines:
                self._print(tame(line, keep="\t"), self.out)

    def _print_error(self, message: str) -> None:
        """Its lines but the first are indented, so that none of them looks like another message."""
        self._print(tame(f"ERROR: {message}").replace("\n", "\n    "), self.err)

    def _print(self, text: str, stream: TextIO) -> None:
        text = paint(text) if has_colour(stream) else text
        if self._progress:
            self._progress.aside(text, stream)
        else:
            print(text, file=stream, flush=True)

    def say_lines(self, lines: Iterable[str]) -> None:
        """The same for a sequence."""
        self.say(*lines)

    def page(self, text: str) -> None:
        """A whole file: a screenful at a time where a person reads it."""
        lines = tame(text).rstrip("\n").splitlines()
        if self.interactive and not self._as_json and is_terminal(self.out):
            coloured = [paint(line) for line in lines] if has_colour(self.out) else lines
            with self.hands_off():
                if page(coloured):
                    return
        self.say(*lines)

    @contextlib.contextmanager
    def hands_off(self) -> Iterator[None]:
        """While somebody else has the terminal (a question, an editor, a pager), no progress is shown."""
        progress = self._progress
        if progress is None:
            yield
            return
        progress.pause()
        try:
            yield
        finally:
            progress.resume()

    def fail(self, message: str) -> None:
        """One of several objects failed; the command goes on with the others."""
        self._had_error = True
        if self._as_json:
            print(f"ERROR: {tame(message)}", file=sys.stderr, flush=True)
        else:
            self._print_error(message)

    def confirm(self, question: str, command: Parsed) -> None:
        """Ask before something that can't be undone. Without a terminal the command must end with `!`."""
        if command.force:
            return
        if not self.may_ask:
            raise CommandError(f"{command.command.name}: not confirmed", hint="End the command with ! to confirm it")
        with self.hands_off():
            print(tame(f"{question} (y/n)? ", keep=""), end="", file=self.out, flush=True)
            answer = sys.stdin.readline()
        if not answer.strip().lower().startswith("y"):
            raise CommandError(f"{command.command.name}: not done")

    def ask_secret(self, question: str) -> str:
        """A password, typed without an echo; only where `may_ask`."""
        import getpass

        with self.hands_off():
            return getpass.getpass(question)

    def need_login(self, what: str) -> Login:
        """The login, or the error that asks for one."""
        if self.login is None:
            raise CommandError(f"{what} needs a database login", hint="Use DBLOGIN SOURCEDB url, or TARGETDB url")
        return self.login

    # --- running lines ---

    @property
    def prompt(self) -> str:
        """`GGSCI (host) 1> `, with the login once there is one."""
        import socket

        login = f" as {self.login.name}" if self.login else ""
        return f"GGSCI ({socket.gethostname().split('.')[0]}{login}) {len(self.history) + 1}> "

    def run(self, line: str) -> bool:
        """One command. True if it did not fail."""
        if not line.strip() or line.lstrip().startswith("--"):
            return True
        if not (line.lstrip().startswith("!") or line.split(maxsplit=1)[0].upper() == "FC"):
            self.history.append(masked(line))
        return self.run_quietly(line)

    def run_again(self, line: str) -> None:
        """One command for another one (`!`, FC): it has told its error, and its failure is that of both."""
        good = self.run(line)
        self._had_error = self._had_error or not good

    def run_quietly(self, line: str) -> bool:
        """One command, without a place in the history."""
        outer = (self._as_json, self._had_error)
        self._as_json, self._had_error = self.json_output or _asks_json(line), False
        try:
            self._run(line)
        except GateError as error:
            self._fail_whole(str(error))
        except (KeyboardInterrupt, EOFError):  # Ctrl-C, or Ctrl-D at a question
            self._fail_whole("interrupted")
        except BrokenPipeError:
            raise  # whoever read our output is gone: nobody is left to tell anything
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            self._fail_whole(f"{where}{error.strerror or error}")
        except Exception as error:  # noqa: BLE001  -- a bug in one command must not end the session
            self._fail_whole(f"bug in ggsci: {type(error).__name__}: {error}")
        good = not self._had_error
        self.failed += not good
        self._as_json, self._had_error = outer
        return good

    def _run(self, line: str) -> None:
        try:
            parsed = GRAMMAR.parse(line)
        finally:
            self._log(line)
        if self.json_output and not parsed.command.lists:
            self._as_json = False
        handler = find_handler(parsed.command.handler)
        if self._as_json:
            data = handler(self, parsed)
        else:
            data = self._with_progress(handler, parsed)
        if self._as_json:
            print(tame_json(data, default=str), file=self.out, flush=True)

    def _with_progress(self, handler: Handler, parsed: Parsed) -> Any:
        """A command that takes its time says so: on a terminal where it writes, else beside its output."""
        outer = self._progress
        stream = self.out if is_terminal(self.out) else self.err
        with Progress(stream, masked(parsed.line), outer) as progress:
            self._progress = progress
            try:
                return handler(self, parsed)
            finally:
                self._progress = outer

    def _fail_whole(self, message: str) -> None:
        self._had_error = True
        if self._as_json:
            print(tame_json({"error": message}), file=self.out, flush=True)
        else:
            self._print_error(message)

    def _log(self, line: str) -> None:
        """Into ggserr.log, masked. Commands that only look are logged too, as GoldenGate does."""
        if not os.path.isdir(os.path.join(self.root, "dirrpt")):
            return
        from trails.runtime.home.home import Home, user_name
        from trails.runtime.report.report import quietly

        quietly(command_log(Home(self.root)).info, "TG-00987", f"GGSCI command ({user_name()}): {masked(line)}.")


def command_log(home: Home) -> Log:
    """Where commands are noted: the home's event log."""
    from trails.clock import RealClock
    from trails.runtime.report.report import Log

    return Log(home, "Trailgate Command Interpreter", "", RealClock())


def masked(line: str) -> str:
    """The line as it may be shown and kept. A command that takes a password and can't be parsed shows no argument."""
    words = [word for word in re.split(r"[\s,]+", line) if word]
    upper = tuple(word.upper() for word in words)
    heads = {command.words for command in GRAMMAR.commands if any(option.secret for option in command.options)}
    shown = next((len(head) for head in heads if upper[: len(head)] == head), 0)
    if not shown and upper and upper[0].startswith("DB"):
        shown = 1
    if shown:
        try:
            GRAMMAR.parse(line)
        except GateError:
            return f"{' '.join(words[:shown])} ***"
    return mask_line(GRAMMAR, line.strip())


def _asks_json(line: str) -> bool:
    return any(word.lower() == "--json" for word in line.split())


def find_handler(name: str) -> Handler:
    """The function behind `module:function`, imported now."""
    module, _, function = name.partition(":")
    handler: Handler = getattr(importlib.import_module(f"ggsci.commands.{module}"), function)
    return handler
