"""The prompt for a person at a terminal: history and completion by prompt_toolkit, which only this module imports."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from ggsci.grammar import SYNONYMS, Kind
from ggsci.session import Session, masked
from ggsci.table import COMMANDS


def loop(session: Session) -> None:
    """Read and run commands until EXIT or the end of input."""
    prompt: PromptSession[str] = PromptSession(
        history=_history(session), completer=CommandCompleter(session), complete_while_typing=False
    )
    while not session.leave:
        try:
            line = prompt.prompt(session.prompt)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        session.run(line)


class MaskedFile(FileHistory):
    """History on disk, without passwords; what can be recalled with the arrow keys is masked too."""

    def append_string(self, string: str) -> None:
        """See History."""
        super().append_string(masked(string))


class MaskedMemory(InMemoryHistory):
    """The same for a folder that is no home yet."""

    def append_string(self, string: str) -> None:
        """See History."""
        super().append_string(masked(string))


def _history(session: Session) -> History:
    folder = os.path.join(session.root, "dirtmp")
    if os.path.isdir(folder) and os.access(folder, os.W_OK):
        return MaskedFile(os.path.join(folder, "ggsci_history"))
    return MaskedMemory()


class CommandCompleter(Completer):
    """Completes a command's words, then group names and options, from the same table that the parser reads."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:  # noqa: ARG002  -- the base class's name
        """See Completer."""
        before = document.text_before_cursor.replace(",", " ")
        words = before.split()
        typed = "" if not words or before[-1].isspace() else words.pop()
        for choice in self._choices([SYNONYMS.get(word.upper(), word.upper()) for word in words]):
            if choice.upper().startswith(typed.upper()):
                yield Completion(choice, start_position=-len(typed))

    def _choices(self, words: list[str]) -> Iterable[str]:
        at = len(words)
        following = {c.words[at] for c in COMMANDS if len(c.words) > at and list(c.words[:at]) == words}
        if following:
            return sorted(following)
        command = next((c for n in (2, 1) for c in COMMANDS if list(c.words) == words[:n]), None)
        if command is None:
            return []
        if command.operand in (Kind.GROUP, Kind.GROUPS, Kind.NAME) and at == len(command.words):
            return self._groups()
        return [option.name for option in command.options if option.name not in words]

    def _groups(self) -> list[str]:
        folder = os.path.join(self._session.root, "dirpcs")
        names = os.listdir(folder) if os.path.isdir(folder) else []
        return sorted(name[:-5] for name in names if name.endswith(".json") and not name.startswith("."))
