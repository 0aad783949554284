"""Builds the kernels, where there is a C compiler; pyproject.toml has all else.

A release's sources hold the C that Cython made of them, so Cython is needed only where they are changed.
"""

from __future__ import annotations

from setuptools import Extension, setup

try:
    from Cython.Build import cythonize
except ImportError:
    cythonize = None

KERNELS = (
    "extract/sources/postgres/kernel/capture",
    "replicat/targets/sql/kernel/convert",
    "replicat/work/kernel/apply",
)


def _extensions() -> list[Extension]:
    """Optional: where one can't be built, Trailgate does without."""
    suffix = ".c" if cythonize is None else ".pyx"
    made = [
        Extension(name.replace("/", "."), [f"{name}{suffix}"], optional=True, extra_compile_args=["-O3"])
        for name in KERNELS
    ]
    return made if cythonize is None else cythonize(made)


setup(ext_modules=_extensions(), options={"build_ext": {"parallel": len(KERNELS)}})
