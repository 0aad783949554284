"""docs/recovery.md, obeyed: its blocks of commands, given in the page's order to the homes of a pipeline.

A section's steps are its blocks and the sections that it sends the reader to, in order. Words that begin with `$` are
filled in as a reader would. A step whose text says "until it shows `WORD`" is given again until it does.
Every command is given as by a script, so one that asks must end with `!` on the page.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from demo.patience import PATIENCE, wait_for
from demo.pipeline import Host
from ggsci.commands.groups import order_start
from ggsci.commands.session import OperatorSession
from ggsci.table.table import GRAMMAR
from trails.runtime.home import registration

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "recovery.md"
_GO = (
    r"^\d+\. (?:Go on with step (\d+) of |Do all that stands under (?:(\*\*[^*\n]+)\*\* in )?)?"
    r"\[[^\n]*?\]\(#([\w-]+)\)"
)
_STEP = re.compile(r"^```(\w+) (\w+)\n(.*?)^```$|" + _GO, re.DOTALL | re.MULTILINE)
_UNTIL = re.compile(r"until it shows `(\w+)`")


@dataclass(frozen=True, slots=True)
class Step:
    """A block of commands for `ggsci` or `sh`, on `source` or `target`; or `goto`: another section, from `begin` on."""

    kind: str = ""
    host: str = ""
    text: str = ""
    until: str = ""
    goto: str = ""
    begin: str = ""


def sections() -> dict[str, str]:
    """The page's sections by their anchors."""
    parts = re.split(r"^## (.*)$", PAGE.read_text(), flags=re.MULTILINE)[1:]
    return {title.lower().replace(" ", "-"): text for title, text in zip(parts[::2], parts[1::2], strict=True)}


def steps(section: str, begin: str = "") -> list[Step]:
    """The steps of a section; or from the text `begin` on up to the next case (a paragraph that begins in bold)."""
    text = sections()[section]
    if begin:
        text = text[text.index(begin) :]
        text = text[:1] + text[1:].split("\n**", 1)[0]
    found, at = [], 0
    for match in _STEP.finditer(text):
        until = _UNTIL.search(text, at, match.start())
        kind, host, commands, number, case, goto = (group or "" for group in match.groups())
        found.append(Step(kind, host, commands, until[1] if until else "", goto, f"{number}. " if number else case))
        at = match.end()
    return found


@dataclass
class Reader:
    """Somebody who does what the page says. `words`: what stands for `$WORD`, looked up when it is met. `copies`: how
    the tables are copied where psql can't.
    """

    hosts: Mapping[str, Host]
    words: Mapping[str, Callable[[], str]]
    path: str
    copies: Callable[[], None] | None = None
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def do(self, section: str, begin: str = "", blocks: int | None = None) -> None:
        """All of a section, or of one case of it; or only so many of its blocks."""
        for step in steps(section, begin)[:blocks]:
            if step.goto:
                self.do(step.goto, step.begin)
            else:
                self._obey(step)

    def _obey(self, step: Step) -> None:
        if self.copies is not None and step.text.startswith("TABLES="):
            self.copies()
        elif step.kind == "sh":
            self._shell(self.hosts[step.host], self._filled(step.text))
        elif step.until:
            wait_for(lambda: step.until in self.commands(step.host, step.text), lambda: "\n".join(self.said[-20:]))
        else:
            self.commands(step.host, step.text)

    def commands(self, host: str, text: str) -> str:
        """Give the lines to one session of ggsci. Each must succeed."""
        out = io.StringIO()
        session = OperatorSession(str(self.hosts[host].home), out=out, err=out)
        for line in self._filled(text).splitlines():
            before = len(out.getvalue())
            good = self._start(session, line) if line.startswith("START REPLICAT") else session.run(line)
            self.said.append(f"{line}\n{out.getvalue()[before:]}")
            assert good, "\n".join(self.said[-12:])
        return out.getvalue()

    def _filled(self, text: str) -> str:
        return re.sub(
            r"\$([A-Z]+)\b", lambda found: self.words[found[1]]() if found[1] in self.words else found[0], text
        )

    def _shell(self, host: Host, text: str) -> None:
        environment = {**host.environment, "PATH": self.path}
        done = subprocess.run(
            ["/bin/bash", "-euo", "pipefail", "-c", text], cwd=host.home, env=environment, capture_output=True,
            text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
        self.said.append(f"{text}\n{done.stdout}{done.stderr}")
        assert done.returncode == 0, "\n".join(self.said[-12:])

    def _start(self, session: OperatorSession, line: str) -> bool:
        """START, but for the Manager, which would start the Replicat with Spark."""
        parsed = GRAMMAR.parse(line)
        order_start(session, parsed, registration.load(session.home, parsed.operand))
        host = next(host for host in self.hosts.values() if str(host.home) == session.root)
        self.start_replicat(host, parsed.operand)
        return True

    def start_replicat(self, host: Host, group: str) -> None:
        """The real Replicat without Spark; returns once it runs, or has ended."""
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.support.sparkless", "--home", str(host.home), group],
            env={**host.environment, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.started.append(process)
        wait_for(lambda: process.poll() is not None or host.statuses()[group]["status"] == "RUNNING")
