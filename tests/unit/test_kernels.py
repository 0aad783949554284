"""Which compiled forms there are, and when none is used."""

from __future__ import annotations

import re
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import SimpleNamespace

import psycopg  # noqa: F401  -- it loads libpq
import pytest

import extract
from extract.sources.postgres.driver import Stream
from extract.sources.postgres.kernel import libpq
from trails import kernels
from trails.runtime.home.home import Home
from trails.runtime.language import globals as globals_file
from trails.runtime.language.params import ParamErrors

CAPTURE = "extract.sources.postgres.kernel.capture"


def test_those_that_were_built_are_named_and_loaded() -> None:
    """`make setup` has built them, as gcc is there."""
    assert kernels.built() == ["apply", "capture", "convert"]
    assert kernels.loaded(CAPTURE) is not None
    assert kernels.loaded(f"{CAPTURE}d") is None


def test_switched_off_none_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By GLOBALS, for a process and those that it starts."""
    monkeypatch.setenv(kernels.SWITCH, "")
    home = Home(str(tmp_path))
    Path(home.globals).write_text("KERNELS OFF\n")
    kernels.switch(on=globals_file.read(home).one("KERNELS", True))
    assert kernels.are_off()
    assert kernels.loaded(CAPTURE) is None
    assert kernels.state() == "switched off; built: apply, capture, convert"
    Path(home.globals).write_text("KERNELS MAYBE\n")
    with pytest.raises(ParamErrors, match="expected ON or OFF"):
        globals_file.read(home)


def test_versions_tells_which_kernels_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that lies there and cannot be loaded, as of another Python, is told with the reason."""
    assert kernels.state() == "apply, capture, convert"
    assert kernels.state(on=False) == "switched off; built: apply, capture, convert"
    for name, data in (("one", b"no library"), ("two", None)):
        folder = tmp_path / "extract" / name / "kernel"
        folder.mkdir(parents=True)
        if data is not None:
            (folder / f"quick{EXTENSION_SUFFIXES[0]}").write_bytes(data)
    monkeypatch.setattr(kernels, "_ROOT", tmp_path)
    monkeypatch.setattr("extract.__path__", [*extract.__path__, str(tmp_path / "extract")])
    assert re.fullmatch(r"none was built in extract/two/kernel, quick does not load \(.+\)", kernels.state())


def test_what_was_left_out_before_the_first_gulp_halts_the_kernel_too() -> None:
    """The server's warning is told before whatever follows it, also where it came with the stream's first answer."""
    stream, front = Stream.__new__(Stream), SimpleNamespace(halt=False, gulp=None, decode=None)
    stream._connection, stream._skips, front.gulp = SimpleNamespace(pgconn_ptr=1), True, lambda *_: (0, 0, b"")
    stream.direct(front)
    assert front.halt


@pytest.mark.parametrize("names", [(), ("libpq-1.so.5", "libpq-2.so.5"), ("libpq-of-nobody.so.5",), ("mylibpq.so",)])
def test_libpq_is_called_only_where_there_is_one(
    names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two nobody knows whose connection it is; one that is not loaded is not loaded for this."""
    assert libpq.functions() is not None
    maps = tmp_path / "maps"
    maps.write_text("".join(f"7f00-7f01 r-xp 00000000 00:00 1    /opt/{name}\n" for name in names))
    monkeypatch.setattr(libpq, "_MAPS", str(maps))
    assert libpq.functions.__wrapped__() is None
