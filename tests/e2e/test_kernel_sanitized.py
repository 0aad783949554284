"""The kernel under AddressSanitizer: streams and mangled bytes lead it nowhere outside its memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
FOLDER = Path("extract/sources/postgres/kernel")
SANITIZERS = "address,undefined"


def test_mangled_bytes_stay_inside_the_kernels_memory(tmp_path: Path) -> None:
    """A copy of the checkout with a kernel that ends its process at the first byte that is not its own."""
    for name in ("extract", "trails", "tests", "demo", "replicat", "pump", "collector", "ggsci"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "images"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    library = tmp_path / FOLDER / f"capture{sysconfig.get_config_var('EXT_SUFFIX')}"
    include = sysconfig.get_paths()["include"]
    build = ["gcc", "-O1", "-g", f"-fsanitize={SANITIZERS}", "-shared", "-fPIC", f"-I{include}"]
    subprocess.run([*build, str(ROOT / FOLDER / "capture.c"), "-o", str(library)], check=True)
    loaded = [
        subprocess.run(["gcc", f"-print-file-name=lib{name}.so"], check=True, capture_output=True, text=True)
        for name in ("asan", "ubsan")
    ]
    environment = os.environ | {
        "LD_PRELOAD": " ".join(one.stdout.strip() for one in loaded), "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc", "PYTHONPATH": str(tmp_path),
    }  # fmt: skip
    where = "import extract.sources.postgres.kernel.capture as kernel; print(kernel.__file__)"
    found = subprocess.run([sys.executable, "-c", where], env=environment, check=True, capture_output=True, text=True)
    assert found.stdout.strip() == str(library)
    tests = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--timeout", "0"]
    done = subprocess.run(
        [*tests, "tests/property/test_packed_decoder.py"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
