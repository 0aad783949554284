"""The prompt for a person at a terminal: history and completion by prompt_toolkit, which only this module imports."""

from __future__ import annotations

import os
from collections.abc import Iterator

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from ggsci.commands.session import OperatorSession, masked
from ggsci.shell.completing import Choices

KEEP_COMMANDS = 1000


def loop(session: OperatorSession) -> None:
    """Read and run commands until EXIT or the end of input."""
    prompt: PromptSession[str] = PromptSession(
        history=_history(session),
        completer=CommandCompleter(session),
        complete_while_typing=False,
        complete_in_thread=True,  # tables are asked of a database
    )
    session.ask_line = input
    while not session.leave:
        try:
            line = prompt.prompt(session.prompt)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        session.run(line)


class _Masked(History):
    """History without passwords; what can be recalled with the arrow keys is masked too."""

    def append_string(self, string: str) -> None:
        """Remember a line, masked."""
        super().append_string(masked(string))


class MaskedFile(_Masked, FileHistory):
    """Kept on disk."""


class MaskedMemory(_Masked, InMemoryHistory):
    """For a folder that is no home yet."""


def _history(session: OperatorSession) -> History:
    folder = os.path.join(session.root, "dirtmp")
    if os.path.isdir(folder) and os.access(folder, os.W_OK):
        path = os.path.join(folder, "ggsci_history")
        shorten(path)
        return MaskedFile(path)
    return MaskedMemory()


def shorten(path: str) -> None:
    """Keep the last KEEP_COMMANDS of a history file that has grown to twice as many."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            entries = file.read().split("\n# ")  # each command is a time behind `# ` and a line behind `+`
    except FileNotFoundError:
        return
    if len(entries) < 2 * KEEP_COMMANDS:
        return
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.writelines(f"\n# {entry}" for entry in entries[-KEEP_COMMANDS:])
    os.replace(f"{path}.new", path)


class CommandCompleter(Completer):
    """Offers what may stand next (ggsci.shell.completing)."""

    def __init__(self, session: OperatorSession) -> None:
        self._choices = Choices(session)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:  # noqa: ARG002  -- the base class's name
        """What may stand at the cursor."""
        typed, choices = self._choices.after(document.text_before_cursor)
        for choice in choices:
            yield Completion(choice, start_position=-len(typed))
