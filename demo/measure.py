"""What a pipeline's processes and homes weigh, over time: memory, open files, files on disk; and whether that is flat.

Rule: only a process that lived long enough tells whether memory grows. Its first part is warming up (imports, caches,
Java's heap); growth is the median of its last quarter against that of the quarter in the middle.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

PAGE = os.sysconf("SC_PAGE_SIZE")
ENOUGH = 16
"""Samples of one process, at least, for a judgement."""
GROWTH = 1.15
SLACK = 24 << 20


@dataclass(slots=True)
class Life:
    """One process: resident bytes and open files at each sample."""

    role: str
    memory: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)

    def growth(self) -> tuple[float, float] | None:
        """(median bytes in the middle, in the end), or None if its life was too short to tell."""
        count = len(self.memory)
        if count < ENOUGH:
            return None
        return median(self.memory[count // 2 : 3 * count // 4]), median(self.memory[3 * count // 4 :])

    def faults(self) -> list[str]:
        """What is not flat."""
        found = []
        if (grown := self.growth()) and grown[1] > grown[0] * GROWTH + SLACK:
            found.append(f"{self.role}: memory grew from {_mb(grown[0])} to {_mb(grown[1])}")
        middle = self.files[len(self.files) // 2 :]
        if len(self.files) >= ENOUGH and max(middle) > max(self.files[: len(self.files) // 2]) + 32:
            found.append(f"{self.role}: open files grew to {max(middle)}")
        return found


@dataclass(slots=True)
class Measures:
    """All that was sampled. `folders`: each home's folders with their number of files, one entry a sample."""

    lives: dict[int, Life] = field(default_factory=dict)
    folders: dict[str, list[int]] = field(default_factory=dict)
    samples: int = 0

    def take(self, pids: Iterable[int], homes: Sequence[Path]) -> None:
        """One sample."""
        self.samples += 1
        for pid in pids:
            with contextlib.suppress(OSError, ValueError, IndexError):
                self._process(pid)
        for home in homes:
            for folder in [home, *sorted(path for path in home.iterdir() if path.is_dir())]:
                count = sum(1 for _, _, names in os.walk(folder) for _ in names) if folder != home else len(
                    [path for path in home.iterdir() if path.is_file()]
                )  # fmt: skip
                self.folders.setdefault(f"{home.name}/{folder.name}", []).append(count)

    def _process(self, pid: int) -> None:
        role = _role(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))
        if not role:
            return
        resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
        life = self.lives.setdefault(pid, Life(role))
        life.memory.append(resident)
        life.files.append(len(os.listdir(f"/proc/{pid}/fd")))

    def faults(self) -> list[str]:
        """What is not flat: memory or open files of a process, files of a folder."""
        found = [fault for life in self.lives.values() for fault in life.faults()]
        for folder, counts in self.folders.items():
            early, late = counts[len(counts) // 4 : len(counts) // 2], counts[3 * len(counts) // 4 :]
            if early and late and max(late) > max(early) * 1.5 + 12:
                found.append(f"{folder}: from {max(early)} files to {max(late)}")
        return found

    def table(self) -> list[str]:
        """A line for each kind of process and each folder."""
        lines = [f"{'process':22}{'lives':>6}{'longest':>9}{'in the middle':>15}{'in the end':>12}{'open files':>12}"]
        for role in sorted({life.role for life in self.lives.values()}):
            lives = [life for life in self.lives.values() if life.role == role]
            longest = max(lives, key=lambda life: len(life.memory))
            middle, end = longest.growth() or (0, 0)
            shown = (_mb(middle), _mb(end)) if end else ("-", "-")
            files = max(max(life.files) for life in lives)
            lines.append(f"{role:22}{len(lives):>6}{len(longest.memory):>9}{shown[0]:>15}{shown[1]:>12}{files:>12}")
        lines += ["", f"{'folder':22}{'most files early':>18}{'late':>6}"]
        for folder, counts in sorted(self.folders.items()):
            early, late = counts[: len(counts) // 2], counts[len(counts) // 2 :]
            if early and late and any(counts):
                lines.append(f"{folder:22}{max(early):>18}{max(late):>6}")
        return lines


def _mb(count: float) -> str:
    return f"{count / (1 << 20):.0f} MB"


def _role(words: Sequence[bytes]) -> str:
    """What a command line is: a module of ours, or Java (Spark's)."""
    text = [word.decode(errors="replace") for word in words]
    if "-m" in text:
        module = text[text.index("-m") + 1] if text.index("-m") + 1 < len(text) else ""
        known = ("extract", "pump", "collector", "replicat", "ggsci.manager", "ggsci.web")
        return module if module in known else ""
    return "java (Spark)" if text and os.path.basename(text[0]) == "java" else ""
