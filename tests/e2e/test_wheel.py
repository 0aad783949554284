"""The wheel, built from the repository and installed in a fresh environment, works beside somebody's extract.py.

Offline and fast: the dependencies are those of the tests' own environment, seen through a .pth file, which (unlike the
environment itself) does not bring the editable install of the checkout along.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from demo.patience import PATIENCE, wait_for
from demo.ports import free_port
from trails.runtime.home.home import Home
from trails.runtime.home.status import manager_status

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.xdist_group("pipeline-demo")]

ROOT = Path(__file__).parents[2]
PACKAGES = {"extract", "pump", "collector", "replicat", "trails", "ggsci"}
_BUILD = "import sys; from setuptools import build_meta; build_meta.build_{}(sys.argv[1])"
_WITHOUT_CYTHON = "import sys; sys.modules['Cython'] = None; "
THEIRS = 'raise SystemExit("this is somebody\'s own script")\n'


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, so that nothing is written into ours."""
    copy = tmp_path_factory.mktemp("checkout") / "trailgate"
    copy.mkdir()
    for name in (*PACKAGES, "docs", "demo", "tests", "benchmarks"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ROOT.glob("*"):
        if file.is_file():
            shutil.copy(file, copy)
    return copy


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from it."""
    out = tmp_path_factory.mktemp("dist")
    _run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-index",
            "--no-build-isolation",
            "-w",
            out,
            checkout,
        ]
    )
    (built,) = out.glob("trailgate-*.whl")
    return built


@pytest.fixture(scope="module")
def bindir(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scripts of a fresh environment with the wheel in it."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    dependencies = home / "lib" / version / "site-packages" / "dependencies.pth"
    dependencies.write_text(sysconfig.get_paths()["purelib"] + "\n")
    python = home / "bin" / "python"
    _run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel])
    return home / "bin"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as a user may have one: with scripts named as our packages are."""
    place = tmp_path / "home"
    place.mkdir(mode=0o700)
    for name in PACKAGES:
        (place / f"{name}.py").write_text(THEIRS)
    return place


@pytest.fixture
def manager(bindir: Path, folder: Path) -> Iterator[Path]:
    """A home with a running Manager that the wheel's ggsci started."""
    _ggsci(bindir, folder, "CREATE SUBDIRS")
    (folder / "dirprm" / "mgr.prm").write_text(f"PORT {free_port()}\n")
    _ggsci(bindir, folder, "START MANAGER")
    yield folder
    _ggsci(bindir, folder, "STOP MANAGER!")
    wait_for(lambda: not manager_status(Home(str(folder))).status.is_alive)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def _run(command: list[str | Path], cwd: Path | None = None, text: str = "", code: int = 0) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        input=text,
        capture_output=True,
        text=True,
        env=_environment(),
        timeout=PATIENCE,
    )
    assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def _ggsci(bindir: Path, folder: Path, *lines: str, code: int = 0) -> str:
    return _run([bindir / "ggsci"], folder, "\n".join(lines) + "\n", code)


def test_wheel_holds_the_six_packages_and_what_they_read(wheel: Path) -> None:
    """No tests, no demo; grammar, format page and type markers are in it."""
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".data/data/" not in name]
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == PACKAGES
    assert {"trails/FORMAT.md", "trails/runtime/language/params.lark", "extract/sources/postgres/ddl.sql"} <= set(names)
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    page = ("templates/overview.html", "static/page.js", "static/uPlot.iife.min.js", "static/uPlot.LICENSE")
    assert {f"ggsci/web/{name}" for name in page} <= set(names)
    kernels = (
        "extract/sources/postgres/kernel/capture", "replicat/targets/sql/kernel/convert", "replicat/work/kernel/apply",
    )  # fmt: skip
    assert {f"{kernel}{EXTENSION_SUFFIXES[0]}" for kernel in kernels} <= set(names)


@pytest.mark.soak
def test_sources_of_a_release_build_the_kernel_without_cython(checkout: Path, tmp_path: Path) -> None:
    """They hold the C that it made; and where there is no compiler either, a wheel is built all the same."""
    _run([sys.executable, "-c", _BUILD.format("sdist"), tmp_path], cwd=checkout)
    (archive,) = tmp_path.glob("*.tar.gz")
    shutil.unpack_archive(archive, tmp_path, filter="data")
    (sources,) = (path for path in tmp_path.iterdir() if path.is_dir())
    for compiler, expected in (("gcc", True), ("/none", False)):
        shutil.rmtree(sources / "build", ignore_errors=True)
        out = tmp_path / compiler.strip("/")
        out.mkdir()
        _run(
            ["env", f"CC={compiler}", sys.executable, "-c", _WITHOUT_CYTHON + _BUILD.format("wheel"), out], cwd=sources
        )
        (built,) = out.glob("*.whl")
        assert expected == any(name.endswith(".so") for name in zipfile.ZipFile(built).namelist())


def test_documents_units_dashboard_and_alert_rules_come_along(bindir: Path, folder: Path) -> None:
    """All that stands under docs/ in the repository, at the place that VERSIONS names."""
    (line,) = [line for line in _ggsci(bindir, folder, "VERSIONS").splitlines() if line.startswith("Documents")]
    installed = Path(line.removeprefix("Documents").strip())
    assert installed.is_relative_to(bindir.parent)
    ours = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*") if path.is_file()}
    assert {path.relative_to(installed) for path in installed.rglob("*") if path.is_file()} == ours
    wanted = ("systemd/trailgate@.service", "grafana/trailgate.json", "prometheus/trailgate.rules.yml", "web.md")
    assert {Path(name) for name in wanted} <= ours
    assert (installed.parent / "README.md").exists()


def test_what_is_imported_is_the_wheel(bindir: Path, folder: Path) -> None:
    """Not the checkout, and not the stray files."""
    text = _run(
        [bindir / "python", "-P", "-c", "import trails, extract; print(trails.__file__, extract.__file__)"], folder
    )
    assert [Path(word).is_relative_to(bindir.parent) for word in text.split()] == [True, True]


def test_console_scripts_run_from_any_folder(bindir: Path, folder: Path) -> None:
    """`ggsci` and `logdump` are ours even beside somebody's extract.py."""
    assert "CREATE SUBDIRS" in _run([bindir / "ggsci", "HELP"], folder)
    assert "Trailgate" in _run([bindir / "ggsci", "VERSIONS"], folder)
    assert "usage" in _run([bindir / "logdump", "--help"], folder).lower()


@pytest.mark.parametrize("module", ["extract", "pump", "replicat", "collector", "ggsci.manager"])
def test_processes_run_beside_a_file_of_their_name(bindir: Path, folder: Path, module: str) -> None:
    """With -P Python leaves the current folder out: ours runs, and says what is wrong with the command line."""
    text = _run([bindir / "python", "-P", "-m", module], folder, code=2)
    assert "--home" in text
    assert "somebody" not in text


def test_manager_of_the_wheel_starts_our_extract(bindir: Path, manager: Path) -> None:
    """The Manager's children are ours as well: EXT1 runs into a closed port and says so."""
    port = free_port()
    (manager / "dirprm" / "ext1.prm").write_text(
        f"EXTRACT EXT1\nSOURCEDB postgresql://nobody@127.0.0.1:{port}/none\n"
        "EXTTRAIL ./dirdat/lt\nRECONNECTSECS 0\nTABLE s.*;\n"
    )
    _ggsci(bindir, manager, "ADD EXTRACT EXT1, TRANLOG", "ADD EXTTRAIL ./dirdat/lt, EXTRACT EXT1")
    text = _ggsci(bindir, manager, "START EXTRACT EXT1", code=1)
    assert "ABENDED" in text
    assert "somebody" not in text
