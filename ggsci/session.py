"""One operator's session: the home, the login, the history, where output goes, and whether anything failed.

`run()` takes one line through the parser to the function that the table names. A command says its text with `say`,
and returns its data; with --json only the data is printed. An error is one `ERROR: ...` line and counts as failed.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from ggsci.grammar import CommandError, Parsed, mask_line
from ggsci.table import GRAMMAR
from trails.errors import GateError

if TYPE_CHECKING:
    from trails.runtime.home import Home

MAX_NESTING = 16

Handler = Callable[["Session", Parsed], Any]


@dataclass(frozen=True, slots=True)
class Login:
    """A database that DBLOGIN reached. Its URL may hold a password: that goes to a sub-process's stdin only."""

    url: str
    user: str
    database: str

    def __repr__(self) -> str:
        return f"Login({self.user}@{self.database})"


class Session:
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
        self._as_json = False
        self._had_error = False

    # --- what commands use ---

    @property
    def home(self) -> Home:
        """The home, checked each time: it may have been made or damaged meanwhile."""
        from trails.runtime.home import Home

        return Home.at(self.root)

    @staticmethod
    def now_us() -> int:
        """Wall time."""
        return time.time_ns() // 1000

    def say(self, *lines: str) -> None:
        """Text for a person; nothing with --json."""
        if not self._as_json:
            for line in lines:
                print(line, file=self.out, flush=True)

    def say_lines(self, lines: Iterable[str]) -> None:
        """The same for a sequence."""
        self.say(*lines)

    def fail(self, message: str) -> None:
        """One of several objects failed; the command goes on with the others."""
        self._had_error = True
        if self._as_json:
            print(f"ERROR: {message}", file=sys.stderr, flush=True)
        else:
            print(f"ERROR: {message}", file=self.err, flush=True)

    def confirm(self, question: str, command: Parsed) -> None:
        """Ask before something that can't be undone. Without a terminal the command must end with `!`."""
        if command.force:
            return
        if not self.may_ask:
            raise CommandError(f"{command.command.name}: not confirmed", hint="End the command with ! to confirm it")
        print(f"{question} (y/n)? ", end="", file=self.out, flush=True)
        if not sys.stdin.readline().strip().lower().startswith("y"):
            raise CommandError(f"{command.command.name}: not done")

    def need_login(self, what: str) -> Login:
        """The login, or the error that asks for one."""
        if self.login is None:
            raise CommandError(f"{what} needs a database login", hint="Use DBLOGIN SOURCEDB postgresql://... first")
        return self.login

    # --- running lines ---

    @property
    def prompt(self) -> str:
        """`GGSCI (host) 1> `, with the login once there is one."""
        import socket

        login = f" as {self.login.user}@{self.login.database}" if self.login else ""
        return f"GGSCI ({socket.gethostname().split('.')[0]}{login}) {len(self.history) + 1}> "

    def run(self, line: str) -> bool:
        """One command. True if it did not fail."""
        if not line.strip() or line.lstrip().startswith("--"):
            return True
        if not line.lstrip().startswith("!"):
            self.history.append(masked(line))
        return self.run_quietly(line)

    def run_quietly(self, line: str) -> bool:
        """One command, without a place in the history."""
        outer = (self._as_json, self._had_error)
        self._as_json, self._had_error = self.json_output or _asks_json(line), False
        try:
            self._run(line)
        except GateError as error:
            self._fail_whole(str(error))
        except KeyboardInterrupt:
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
        data = find_handler(parsed.command.handler)(self, parsed)
        if self._as_json:
            json.dump(data, self.out, ensure_ascii=False, default=str)
            print(file=self.out, flush=True)

    def _fail_whole(self, message: str) -> None:
        self._had_error = True
        if self._as_json:
            print(json.dumps({"error": message}, ensure_ascii=False), file=self.out, flush=True)
        else:
            print(f"ERROR: {message}", file=self.err, flush=True)

    def _log(self, line: str) -> None:
        """Into ggserr.log, masked. Commands that only look are logged too, as GoldenGate does."""
        if not os.path.isdir(os.path.join(self.root, "dirrpt")):
            return
        from trails.runtime.clock import RealClock
        from trails.runtime.home import Home
        from trails.runtime.report import Log, quietly

        log = Log(Home(self.root), "Trailgate Command Interpreter", "", RealClock())
        quietly(log.info, "TG-00987", f"GGSCI command ({_user()}): {masked(line)}.")


def masked(line: str) -> str:
    """The line as it may be shown and kept. A DBLOGIN that can't be parsed shows nothing of its arguments."""
    if line.split()[:1] and line.split(maxsplit=1)[0].upper().startswith("DB"):
        try:
            GRAMMAR.parse(line)
        except GateError:
            return f"{line.split(maxsplit=1)[0]} ***"
    return mask_line(GRAMMAR, line.strip())


def _asks_json(line: str) -> bool:
    return any(word.lower() == "--json" for word in line.split())


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def find_handler(name: str) -> Handler:
    """The function behind `module:function`, imported now."""
    module, _, function = name.partition(":")
    handler: Handler = getattr(importlib.import_module(f"ggsci.{module}"), function)
    return handler
