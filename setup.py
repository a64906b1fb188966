"""What ``pyproject.toml`` cannot say: the record codec in Cython, and the modules that mypyc compiles.

Where the latter cannot be compiled they are used as they are.
"""

import runpy
from glob import glob
from pathlib import Path

from Cython.Build import cythonize
from mypyc.build import mypycify
from setuptools import Extension, setup

CODEC = "src/sparklog/record/_impl"
COMPILED = runpy.run_path("src/sparklog/compiled.py")
SOURCES = Path("src")


def source_of(module: str) -> str:
    return str(SOURCES / COMPILED["source_of"](module))


codec = cythonize(
    [
        Extension(
            "sparklog.record._impl._codec",
            [f"{CODEC}/_codec.pyx"],
            depends=sorted(glob(f"{CODEC}/*.pxi")),
            extra_compile_args=["-O3"],
        )
    ],
    compiler_directives={"language_level": "3"},
)
hot_path = mypycify(
    # Not as strictly as `make check`: what a build's own environment has not installed has no types there.
    ["--config-file=", "--ignore-missing-imports", "--cache-dir=build/mypy", *map(source_of, COMPILED["MODULES"])],
    opt_level="2",
    debug_level="0",
    separate=[(list(map(source_of, modules)), group) for group, modules in COMPILED["GROUPS"].items()],
    target_dir="build/mypyc",
)
for each in hot_path:
    each.optional = True

setup(ext_modules=[*codec, *hot_path], options={"build_ext": {"parallel": 2, "force": True}})
