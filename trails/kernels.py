"""Compiled forms of the hottest parts: which were built here, and whether they are wanted.

Each lies in a folder named kernel, beside the Python code that does the same and is its reference. So where none was
built, speed is all that is lost. KERNELS OFF in GLOBALS has a whole home do without; the environment variable does so
for tests.
"""

from __future__ import annotations

import importlib
import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

SWITCH = "TRAILGATE_KERNELS"
OFF = "OFF"
_ROOT = Path(__file__).parents[1]
_PACKAGES = ("extract", "replicat")


def switch(*, on: bool) -> None:
    """For this process, if it has not loaded any, and for those that it starts."""
    if not on:
        os.environ[SWITCH] = OFF


def are_off() -> bool:
    """Whether this process, and those that it starts, do without."""
    return os.environ.get(SWITCH, "").upper() == OFF


def built() -> list[str]:
    """The names of those that this installation has; nothing is loaded."""
    found = (path for package in _PACKAGES for path in _ROOT.glob(f"{package}/**/kernel/*{EXTENSION_SUFFIXES[0]}"))
    return sorted(path.name.removesuffix(EXTENSION_SUFFIXES[0]) for path in found)


def state(*, on: bool = True) -> str:
    """Which of them run here, for people: each that was built is loaded, unless they are switched off."""
    if not on or are_off():
        return f"switched off; built: {', '.join(built()) or 'none'}"
    found = [_of(folder) for package in _PACKAGES for folder in sorted(_ROOT.glob(f"{package}/**/kernel"))]
    return ", ".join(sorted(found))


def _of(folder: Path) -> str:
    """Its name, and why it does not run if it doesn't."""
    where = folder.relative_to(_ROOT)
    path = next(folder.glob(f"*{EXTENSION_SUFFIXES[0]}"), None)
    if path is None:
        return f"none was built in {where}"
    name = path.name.removesuffix(EXTENSION_SUFFIXES[0])
    try:
        importlib.import_module(".".join((*where.parts, name)))
    except ImportError as error:
        return f"{name} does not load ({error})"
    return name


def loaded(module: str) -> ModuleType | None:
    """A compiled module; None where it was not built, or is not wanted."""
    if are_off():
        return None
    try:
        return importlib.import_module(module)
    except ImportError:
        return None
