"""The one thing ``pyproject.toml`` cannot say: the compiled record codec."""

from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup

CODEC = "src/sparklog/record/_impl"

setup(
    ext_modules=cythonize(
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
)
