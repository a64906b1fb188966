"""The one thing ``pyproject.toml`` cannot say: the compiled record codec."""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    ext_modules=cythonize(
        [
            Extension(
                "sparklog.record._impl._codec",
                ["src/sparklog/record/_impl/_codec.pyx"],
                extra_compile_args=["-O3"],
            )
        ],
        compiler_directives={"language_level": "3"},
    )
)
