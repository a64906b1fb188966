"""The Pythons of this machine, and a copy of the sources that a package is built from."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

HOUSE = Path(__file__).parents[2]
VERSIONS = ("3.11", "3.12", "3.13")
"""Those that the package says it runs on."""


def python_of(version):
    """The interpreter of that version, on the path or of pyenv, with its C headers; None where there is none."""
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    found = [shutil.which(f"python{version}", path=os.defpath), shutil.which(f"python{version}"), *map(str, pyenv)]
    return next((each for each in found if each is not None and _can_build(each, version)), None)


def _can_build(python, version):
    code = """if True:
        import ensurepip, os, sys, sysconfig
        print(sys.version, os.path.isfile(os.path.join(sysconfig.get_path("include"), "Python.h")))
    """
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.startswith(f"{version}.") and done.stdout.endswith("True\n")


def copy_of_the_house(to, house=HOUSE):
    """A clone with what is not committed yet, and nothing that git does not know."""
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", house, to], check=True)
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=house,
        check=True,
        capture_output=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (house / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(house / name, to / name)
    return to


def make_package(house, python, to, umask=0o022):
    """``make package`` in ``house``: the wheel and the source package, in the directory ``to``.

    The tools are set up once for all. Processes that share the tests do it one after another.
    """
    packaging = HOUSE / "build" / "packaging"
    packaging.mkdir(parents=True, exist_ok=True)
    command = [
        "make",
        "--silent",
        "package",
        f"PYTHON={python}",
        f"DIST={to}",
        f"PACKAGING={packaging}",
    ]
    with (packaging / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(command, cwd=house, umask=umask, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    (wheel,), (source,) = (list(to.glob(kind)) for kind in ("*.whl", "*.tar.gz"))
    return wheel, source
