"""What ``pyproject.toml`` cannot say: the record codec in Cython, the modules that mypyc compiles, and packages that
are the same bytes whoever builds them, and when.

Where there is no C compiler, or what is compiled fails in it, the Python form is used, which all of this has:
``SPARKLOG_IMPL=native`` ends the build instead.

Invariants of a package: no file's name, time, owner or mode, no line of debugging and no search path of a library comes
from the machine; times are ``SOURCE_DATE_EPOCH``. A source package holds what a wheel is built from, and no more.
"""

import gzip
import os
import runpy
import sys
import tarfile
import time
from glob import glob
from pathlib import Path

from Cython.Build import cythonize
from mypyc.build import mypycify
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

CODEC = "src/sparklog/record/_impl"
COMPILED = runpy.run_path("src/sparklog/compiled.py")
SOURCES = Path("src")
FROM_NO_MACHINE = ["-g0", f"-ffile-prefix-map={os.getcwd()}=.", f"-fmacro-prefix-map={sys.prefix}=python"]
BESIDE_SOURCES = ["pyproject.toml", "setup.py", "README.md", "SECURITY.md", "LICENSE"]
KINDS_OF_SOURCES = ("*.py", "*.pyi", "*.pyx", "*.pxi", "*.json", "py.typed", "web/static/*")


def source_of(module: str) -> str:
    return str(SOURCES / COMPILED["source_of"](module))


def extensions() -> list[Extension]:
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
    for each in (*codec, *hot_path):
        each.optional = os.environ.get(COMPILED["VARIABLE"]) != "native"
        each.extra_compile_args = [*each.extra_compile_args, *FROM_NO_MACHINE]  # those of mypyc share a list
    return [*codec, *hot_path]


class BuildExtensions(build_ext):
    """Links nothing that says where Python was built."""

    def build_extensions(self) -> None:
        linker = self.compiler.linker_so
        self.compiler.set_executable(
            "linker_so", [each for each in linker if not each.startswith(("-L", "-Wl,-rpath"))]
        )
        super().build_extensions()

    def get_libraries(self, ext: Extension) -> list[str]:
        return ext.libraries


class SourcePackage(sdist):
    """What a wheel is built from, in an archive that is the same bytes whenever it is made."""

    def make_distribution(self) -> None:
        found = [path for kind in KINDS_OF_SOURCES for path in Path("src").rglob(kind)]
        found += [*Path("jobs").glob("*.py"), *(path for path in Path("conf").rglob("*") if path.is_file())]
        self.filelist.files = sorted([*BESIDE_SOURCES, *map(str, found)])
        super().make_distribution()

    def make_archive(self, base_name: str, _format: str, base_dir: str = "", **_: object) -> str:
        name = f"{base_name}.tar.gz"
        with (
            open(name, "wb") as raw,
            gzip.GzipFile("", "wb", fileobj=raw, mtime=built_at()) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for path in sorted(Path(base_dir).rglob("*")):
                archive.add(path, recursive=False, filter=of_no_machine)
        return name


def of_no_machine(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = built_at()
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member


def built_at() -> int:
    return int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))


setup(
    # To make a source package nothing is compiled.
    ext_modules=[] if {"sdist", "egg_info", "dist_info"} & set(sys.argv) else extensions(),
    cmdclass={"build_ext": BuildExtensions, "sdist": SourcePackage},
    options={"build_ext": {"parallel": 2, "force": True}},
)
