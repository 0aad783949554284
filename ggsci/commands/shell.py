"""Commands of the shell itself."""

from __future__ import annotations

from ggsci.commands.row import SHELL, row
from ggsci.grammar import Kind

ROWS = (
    row(SHELL, "HELP", "shellcmds:help_", Kind.REST, "List the commands, or explain those that begin with the words.",
         "HELP ; HELP ADD EXTRACT ; HELP MAP", optional=True,
         notes="Explains parameters too, and the options of MAP, by their names."),
    row(SHELL, "OBEY", "shellcmds:obey", Kind.FILE, "Run the commands of a file, each with an echo.",
         "OBEY ./dirprm/setup.oby", notes="`&` at a line's end continues it; `--` begins a comment. "
         "Files may OBEY others, 16 deep."),
    row(SHELL, "HISTORY", "shellcmds:history", Kind.NUMBER, "List the last commands.", "HISTORY ; HISTORY 5",
         optional=True, lists=True),
    row(SHELL, "!", "shellcmds:again", Kind.REST,
         "Run a command of the history again: the last, number n, the n-th last (-n), or the last that begins so.",
         "! ; ! 3 ; ! -2 ; ! info", optional=True),
    row(SHELL, "SHELL", "shellcmds:shell", Kind.REST, "Run a command of the operating system in the home.",
         "SHELL ls -l dirdat"),
    row(SHELL, "SHOW", "shellcmds:show", None, "Show the home's paths.", "SHOW", lists=True),
    row(SHELL, "VERSIONS", "shellcmds:versions", None, "Show the versions of Trailgate, Python and the system.",
         "VERSIONS", lists=True),
    row(SHELL, "EXIT", "shellcmds:exit_", None, "Leave ggsci; the processes go on.", "EXIT ; QUIT"),
)  # fmt: skip
