"""FC: a command of the history is changed below itself, letter by letter, until it is right; then it runs.

    GGSCI (host) 7> info exract ext1, detial       the command
    GGSCI (host) 7..       it                      below it, what is to change, where it is to change
    GGSCI (host) 7> info extract ext1, detial      and so on; an empty line runs it, Ctrl-C leaves it

`i` inserts the text behind it, `r` replaces by the text behind it, each `d` deletes the letter above it; anything else
replaces what stands above it.
"""

from __future__ import annotations

from ggsci.commands.session import OperatorSession
from ggsci.commands.shellcmds import recall
from ggsci.table.grammar import CommandError, Parsed


def fc(session: OperatorSession, command: Parsed) -> None:
    """Edit the last command, number n, the n-th last (-n), or the last that begins so; then run it."""
    if session.ask_line is None:
        raise CommandError("FC edits at the prompt, and this is no prompt", hint="! runs an older command as it is")
    line = recall(session.history, command.operand)
    if "***" in line:
        raise CommandError("that command held a password, which is not kept", hint="Type it again")
    prompt = session.prompt
    below = prompt.removesuffix("> ") + ".."
    with session.hands_off():
        session.say(f"{prompt}{line}")
        while change := session.ask_line(below).rstrip():
            line = edited(line, change)
            session.say(f"{prompt}{line}")
    session.run_again(line)


def edited(line: str, change: str) -> str:
    """The line after one subcommand, which stands at the column that it changes."""
    text = change.lstrip()
    at = len(change) - len(text)
    line = line.ljust(at)
    verb, rest = text[:1].lower(), text[1:]
    if text and not text.lower().strip("d"):
        return line[:at] + line[at + len(text) :]
    if verb == "i":
        return line[:at] + rest + line[at:]
    if verb == "r":
        text = rest
    return line[:at] + text + line[at + len(text) :]
