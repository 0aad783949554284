"""Commands of the shell itself."""

from __future__ import annotations

from ggsci.table.grammar import Takes
from ggsci.table.row import SHELL, row

ROWS = (
    row(SHELL, "HELP", "shellcmds:help_", Takes.REST,
         "List the topics, a topic's commands, or explain the commands that begin with the words.",
         "HELP ; HELP GROUPS ; HELP ALL ; HELP ADD EXTRACT ; HELP MAP ; HELP PARAM ; HELP PARAM EXTTRAIL",
         optional=True,
         notes="It also explains parameters, and the options of MAP, by their names. HELP PARAM lists them. On a "
         "terminal it shows a screen at a time."),
    row(SHELL, "OBEY", "shellcmds:obey", Takes.FILE, "Run the commands of a file, each with an echo.",
         "OBEY ./dirprm/setup.oby", notes="`&` at a line's end continues it; `--` begins a comment. "
         "A file may OBEY another one only after ALLOWNESTED."),
    row(SHELL, "ALLOWNESTED", "shellcmds:allow_nested", None,
         "Let files that are obeyed OBEY others, 16 deep, until EXIT.", "ALLOWNESTED"),
    row(SHELL, "NOALLOWNESTED", "shellcmds:no_allow_nested", None,
         "Refuse an OBEY in a file that is obeyed. This is the default.", "NOALLOWNESTED"),
    row(SHELL, "HISTORY", "shellcmds:history", Takes.NUMBER, "List the last commands.", "HISTORY ; HISTORY 5",
         optional=True, lists=True),
    row(SHELL, "!", "shellcmds:again", Takes.REST,
         "Run a command of the history again: the last, number n, the n-th last (-n), or the last that begins so.",
         "! ; ! 3 ; ! -2 ; ! info", optional=True),
    row(SHELL, "FC", "fc:fc", Takes.REST,
         "Edit a command of the history, chosen as with `!`, and run it.",
         "FC ; FC 3 ; FC -2 ; FC info", optional=True,
         notes="The command is shown. On the line below it, at the column to change, type one of these:\n"
         "- `i` and a text, to insert the text,\n"
         "- `r` and a text, to replace what stands there by the text,\n"
         "- a `d` for each letter to delete,\n"
         "- or just the new text.\n"
         "An empty line runs the command, and Ctrl-C leaves it as it is. FC works at the prompt only."),
    row(SHELL, "SHELL", "shellcmds:shell", Takes.REST, "Run a command of the operating system in the home.",
         "SHELL ls -l dirdat"),
    row(SHELL, "SET EDITOR", "shellcmds:set_editor", Takes.REST,
         "Choose the editor of EDIT PARAMS until EXIT; else $VISUAL, $EDITOR or vi.", "SET EDITOR nano"),
    row(SHELL, "SHOW", "shellcmds:show", None,
         "Show the home's paths, the editor, the size of the history and whether OBEY may nest.", "SHOW", lists=True),
    row(SHELL, "INFO PARAMS", "paraminfo:info", Takes.WORD,
         "Explain parameters, by name or pattern: which programs take them, their form, and an example.",
         "INFO PARAM EXTTRAIL ; INFO PARAM *TRAIL", lists=True, notes="HELP PARAM lists them all, by program."),
    row(SHELL, "VERSIONS", "shellcmds:versions", None,
         "Show the versions of Trailgate, Python, the system, and after DBLOGIN the database; which compiled "
         "kernels run; and the folder of the documents.",
         "VERSIONS", lists=True),
    row(SHELL, "EXIT", "shellcmds:exit_", None, "Leave ggsci; the processes go on.", "EXIT ; QUIT"),
)  # fmt: skip
