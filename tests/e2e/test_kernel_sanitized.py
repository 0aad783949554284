"""The kernels under AddressSanitizer: streams and mangled bytes lead them nowhere outside their memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]

ROOT = Path(__file__).parents[2]
PACKAGES = ("extract", "trails", "tests", "demo", "replicat", "pump", "collector", "ggsci")
TESTS = {
    "extract/sources/postgres/kernel/capture": ("tests/property/test_packed_decoder.py",),
    "replicat/targets/sql/kernel/convert": ("tests/property/test_converted.py",),
    "replicat/work/kernel/apply": (
        "tests/property/test_usual_parts.py",
        "tests/property/test_usual_maps.py",
        "tests/property/test_malformed.py",
    ),
}


@pytest.mark.parametrize("kernel", TESTS)
def test_mangled_bytes_stay_inside_the_kernels_memory(kernel: str, tmp_path: Path) -> None:
    """A copy of the checkout with a kernel that ends its process at the first byte that is not its own."""
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "images"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    library = tmp_path / f"{kernel}{sysconfig.get_config_var('EXT_SUFFIX')}"
    build = ["gcc", "-O1", "-g", "-fsanitize=address,undefined", "-shared", "-fPIC"]
    _run([*build, f"-I{sysconfig.get_paths()['include']}", f"{kernel}.c", "-o", str(library)], tmp_path)
    sanitizers = [_run(["gcc", f"-print-file-name=lib{name}.so"], tmp_path).strip() for name in ("asan", "ubsan")]
    where = f"import {kernel.replace('/', '.')} as kernel; print(kernel.__file__)"
    settings = {
        "LD_PRELOAD": " ".join(sanitizers), "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(tmp_path),
    }  # fmt: skip
    assert _run([sys.executable, "-c", where], tmp_path, **settings).strip() == str(library)
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--timeout", "0"]
    _run([*pytest_, *TESTS[kernel]], tmp_path, **settings)


def _run(command: list[str], folder: Path, **settings: str) -> str:
    done = subprocess.run(command, cwd=folder, env=os.environ | settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
