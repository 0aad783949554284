"""Commands of the shell itself."""

from __future__ import annotations

from ggsci.commands.row import SHELL, row
from ggsci.grammar import Kind

ROWS = (
    row(SHELL, "HELP", "shellcmds:help_", Kind.REST, "List the commands, or explain those that begin with the words.",
         "HELP ; HELP ADD EXTRACT ; HELP MAP ; HELP PARAM ; HELP PARAM EXTTRAIL", optional=True,
         notes="Explains parameters too, and the options of MAP, by their names; HELP PARAM lists them."),
    row(SHELL, "OBEY", "shellcmds:obey", Kind.FILE, "Run the commands of a file, each with an echo.",
         "OBEY ./dirprm/setup.oby", notes="`&` at a line's end continues it; `--` begins a comment. "
         "A file may OBEY another one only after ALLOWNESTED."),
    row(SHELL, "ALLOWNESTED", "shellcmds:allow_nested", None,
         "Let files that are obeyed OBEY others, 16 deep, until EXIT.", "ALLOWNESTED"),
    row(SHELL, "NOALLOWNESTED", "shellcmds:no_allow_nested", None,
         "Refuse an OBEY in a file that is obeyed; so it is at first.", "NOALLOWNESTED"),
    row(SHELL, "HISTORY", "shellcmds:history", Kind.NUMBER, "List the last commands.", "HISTORY ; HISTORY 5",
         optional=True, lists=True),
    row(SHELL, "!", "shellcmds:again", Kind.REST,
         "Run a command of the history again: the last, number n, the n-th last (-n), or the last that begins so.",
         "! ; ! 3 ; ! -2 ; ! info", optional=True),
    row(SHELL, "FC", "fc:fc", Kind.REST,
         "Edit a command of the history, chosen as `!` does, and run it.",
         "FC ; FC 3 ; FC -2 ; FC info", optional=True,
         notes="The command is shown; below it, at the column to change, type `i` and a text to insert it, `r` and a "
         "text to replace by it, a `d` for each letter to delete, or just the new text. An empty line runs it, Ctrl-C "
         "leaves it. At the prompt only."),
    row(SHELL, "SHELL", "shellcmds:shell", Kind.REST, "Run a command of the operating system in the home.",
         "SHELL ls -l dirdat"),
    row(SHELL, "SET EDITOR", "shellcmds:set_editor", Kind.REST,
         "Choose the editor of EDIT PARAMS until EXIT; else $VISUAL, $EDITOR or vi.", "SET EDITOR nano"),
    row(SHELL, "SHOW", "shellcmds:show", None,
         "Show the home's paths, the editor, the size of the history and whether OBEY may nest.", "SHOW", lists=True),
    row(SHELL, "INFO PARAMS", "paraminfo:info", Kind.WORD,
         "Explain parameters, by name or pattern: which programs take them, their form, and an example.",
         "INFO PARAM EXTTRAIL ; INFO PARAM *TRAIL", lists=True, notes="HELP PARAM lists them all, by program."),
    row(SHELL, "VERSIONS", "shellcmds:versions", None,
         "Show the versions of Trailgate, Python, the system, and after DBLOGIN the database.",
         "VERSIONS", lists=True),
    row(SHELL, "EXIT", "shellcmds:exit_", None, "Leave ggsci; the processes go on.", "EXIT ; QUIT"),
)  # fmt: skip
