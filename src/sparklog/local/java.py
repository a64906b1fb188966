"""Find a Java that Spark and the embedded ZooKeeper run on. A broker never needs one."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sparklog.errors import ConfigError

OLDEST = 17
TESTED = (17, 21)
"""The releases Spark 4.2 is tested on; any of them is taken before a newer one."""

JVM_DIRECTORY = Path("/usr/lib/jvm")

_MISSING = (
    f"no Java {OLDEST} or newer was found in JAVA_HOME, on the PATH or in {JVM_DIRECTORY}; type: "
    "sudo apt-get install -y openjdk-17-jre-headless"
)


@dataclass(frozen=True)
class Java:
    """An installed Java: where it is (``JAVA_HOME``) and its feature release (17, 21, ...)."""

    home: Path
    version: int

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


def find_java(environ: Mapping[str, str] | None = None, jvm_directory: Path = JVM_DIRECTORY) -> Java:
    """The Java to use: ``JAVA_HOME``'s, or else the ``PATH``'s, or else one of ``jvm_directory``.

    One that is older than ``OLDEST`` is passed over; so is, unless ``JAVA_HOME`` names it, one that Spark is not
    tested on while there is one that it is. None at all raises ConfigError with the line to type.
    """
    environ = os.environ if environ is None else environ
    named = [Path(home)] if (home := environ.get("JAVA_HOME")) else []
    for java in _usable(named):
        return java
    found = list(_usable([*_on_path(environ), *_installed(jvm_directory)]))
    if not found:
        raise ConfigError(_MISSING)
    return next((java for java in found if java.version in TESTED), found[0])


def _on_path(environ: Mapping[str, str]) -> list[Path]:
    executable = shutil.which("java", path=environ.get("PATH", ""))
    return [Path(executable).resolve().parent.parent] if executable else []


def _installed(jvm_directory: Path) -> list[Path]:
    return sorted(jvm_directory.iterdir()) if jvm_directory.is_dir() else []


def _usable(homes: Iterable[Path]) -> Iterator[Java]:
    for home in homes:
        version = _version_of(home)
        if version is not None and version >= OLDEST:
            yield Java(home, version)


def _version_of(home: Path) -> int | None:
    """The feature release in ``home``'s ``release`` file, which costs no JVM start; None if this is no Java."""
    release = home / "release"
    if not (home / "bin" / "java").is_file() or not release.is_file():
        return None
    found = re.search(r'^JAVA_VERSION="(\d+)(?:\.(\d+))?', release.read_text(errors="replace"), re.MULTILINE)
    if found is None:
        return None
    first, second = int(found[1]), int(found[2] or 0)
    return second if first == 1 else first


def main() -> int:
    """``python -m sparklog.local.java``: say which Java is used, or what to type to have one."""
    try:
        java = find_java()
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"Java {java.version} in {java.home}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
