"""`ggsci [--home DIR] [--json] [command ...]`: one command, a script on standard input, or the prompt.

Exit codes: 0 every command succeeded, 1 one failed, 2 the command line can't be understood.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from ggsci.commands.session import OperatorSession, masked
from trails.lasting import keep_imports

USAGE = "usage: ggsci [--home DIR] [--json] [command ...]   (ggsci --help tells more)"
HELP = """usage: ggsci [--home DIR] [--json] [command ...]
       ggsci [--home DIR] [--json] < script

The command interpreter of Trailgate. Without a command it gives a prompt; from a pipe or file it obeys each line.

  --home DIR   the home; the current folder if not given
  --json       lists as JSON; also behind any list command
  --version    the versions of Trailgate and what it runs on
  --help       this page

  ggsci HELP                       all commands by topic; HELP topic, HELP command, HELP PARAM name
  ggsci --home DIR CREATE SUBDIRS  makes a home
  ggsci --home DIR INFO ALL        shows its groups

Exit codes: 0 every command succeeded, 1 one failed, 2 the command line can't be understood.
A trailing ! confirms what would be asked. A password is never taken from a command line: pipe the command in."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run ggsci to its end and return the exit code."""
    keep_imports()
    os.umask(0o077)  # what an editor or a SHELL makes in a home is private too
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        root, as_json, line = _arguments(words)
    except ValueError as error:
        from trails.taming import tame

        print(tame(f"ggsci: {error}\n{USAGE}"), file=sys.stderr)
        return 2
    try:
        if line == "--help":
            print(HELP, flush=True)
            return 0
        from ggsci import admin

        with admin.kept():
            return _run(root, as_json, line)
    except BrokenPipeError:
        # Whoever read our output is gone; keep Python from complaining about it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _arguments(words: list[str]) -> tuple[str, bool, str]:
    """(home, JSON wanted, the command line). Raises ValueError."""
    root, as_json = ".", False
    while words and (words[0].startswith("--") or words[0] == "-h"):
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name == "--home" and (equals or words):
            root = value if equals else words.pop(0)
        elif word == "--json":
            as_json = True
        elif word in ("--help", "-h"):
            return root, as_json, "--help"
        elif word == "--version":
            return root, as_json, "VERSIONS"
        else:
            raise ValueError(f"{word}: unknown, or without its value")
    # One argument is a whole line; several are words, of which one with blanks in it was quoted in the shell.
    line = words[0] if len(words) == 1 else " ".join(map(_quoted, words))
    return root, as_json, line


def _quoted(word: str) -> str:
    if any(c.isspace() for c in word) and word[0] not in "'\"":
        return "'" + word.replace("'", "''") + "'"
    return word or "''"


def _run(root: str, as_json: bool, line: str) -> int:
    if line:
        session = OperatorSession(root, err=sys.stderr, json_output=as_json, may_ask=sys.stdin.isatty())
        if masked(line) != line.strip():
            print(
                "ERROR: a password on a command line can be read by everyone on this host. Pipe the command in",
                file=sys.stderr,
            )
            return 1
        session.run(line)
    elif sys.stdin.isatty():
        session = OperatorSession(root, json_output=as_json, interactive=True, may_ask=True)
        _prompt(session)
    else:
        session = OperatorSession(root, err=sys.stderr, json_output=as_json)
        _script(session)
    return 1 if session.failed else 0


def _prompt(session: OperatorSession) -> None:
    from ggsci.shell.prompt import loop

    print("Trailgate Command Interpreter. HELP lists the commands, EXIT leaves.\n")
    loop(session)


def _script(session: OperatorSession) -> None:
    from ggsci.commands.shellcmds import logical_lines

    for line in logical_lines(sys.stdin):
        session.run(line)
        if session.leave:
            return


if __name__ == "__main__":
    sys.exit(main())
