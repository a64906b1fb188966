"""Sets of JARs by Maven coordinates, fetched once by the Ivy that PySpark ships, then kept.

A set lives in ``build/jars/NAME`` of the checkout (in the user's cache directory for an installed package, or under
``SPARKLOG_JARS``). Its ``ivy.xml`` is both the recipe and the marker: it is written last, so a directory whose
``ivy.xml`` is the wanted one is complete, needs no network and takes no time. Ivy's own default settings decide
where JARs come from: the repository that Ivy is set to.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sparklog.errors import ConfigError
from sparklog.local.extras import checkout, install_line
from sparklog.local.java import find_java

TIMEOUT_S = 900


@dataclass(frozen=True)
class JarSet:
    """What to resolve. ``roots`` and ``pinned`` are ``organisation:module:revision``; ``left_out`` are module names.

    ``beside_spark``: the JARs join Spark's class path, so what PySpark ships already is left out, whatever its version.
    """

    name: str
    roots: tuple[str, ...]
    pinned: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    beside_spark: bool = False

    def ivy_xml(self) -> str:
        left_out = [*self.left_out, *(pyspark_modules() if self.beside_spark else ())]
        return "\n".join(
            [
                '<ivy-module version="2.0">',
                f'  <info organisation="sparklog" module="{self.name}"/>',
                "  <dependencies>",
                *(_element("dependency", "name", root, ' conf="default->default"') for root in self.roots),
                *(f'    <exclude org="*" module="{module}"/>' for module in left_out),
                *(_element("override", "module", pin) for pin in self.pinned),
                "  </dependencies>",
                "</ivy-module>",
                "",
            ]
        )


JAR_SETS = {
    jar_set.name: jar_set
    for jar_set in (
        JarSet("delta", ("io.delta:delta-spark_4.2_2.13:4.4.0",), beside_spark=True),
        JarSet(
            "kafka",
            (
                "org.apache.kafka:kafka_2.13:3.9.1",
                "org.apache.kafka:kafka-tools:3.9.1",
                "org.slf4j:slf4j-reload4j:1.7.36",
            ),
            # Kafka Connect brings a web server and sixty JARs, and no tool that we run needs it.
            left_out=("connect-runtime",),
        ),
        JarSet(
            "kafka-4",
            (
                "org.apache.kafka:kafka_2.13:4.1.1",
                "org.apache.kafka:kafka-tools:4.1.1",
                "org.slf4j:slf4j-reload4j:1.7.36",
            ),
            left_out=("connect-runtime",),
        ),
        JarSet("kafka-streams", ("org.apache.kafka:kafka-streams:3.9.1", "org.slf4j:slf4j-reload4j:1.7.36")),
        # The last release with the consumer whose group lives in ZooKeeper.
        JarSet(
            "kafka-1.1",
            ("org.apache.kafka:kafka_2.12:1.1.1", "org.slf4j:slf4j-reload4j:1.7.36"),
            left_out=("slf4j-log4j12", "log4j"),
        ),
        JarSet("avro", ("org.apache.spark:spark-avro_2.13:4.2.0",), beside_spark=True),
        JarSet("postgresql", ("org.postgresql:postgresql:42.7.7",), left_out=("checker-qual",), beside_spark=True),
        # Of the version of the Hadoop client that PySpark ships, with which it stands in one class path.
        JarSet("hadoop", ("org.apache.hadoop:hadoop-client-minicluster:3.5.0",), beside_spark=True),
        JarSet(
            "spark-kafka",
            ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",),
            # The connector names its own version of the token provider, and Ivy's repository has only this one.
            pinned=("org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",),
            beside_spark=True,
        ),
    )
}


def pyspark_jars() -> Path:
    """The directory of JARs in the installed PySpark, found without importing it.

    Under spark-submit PySpark is imported from an archive beside the JARs; these are where SPARK_HOME says, then.
    Raises ConfigError where there is no PySpark.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(f"PySpark is not installed; type: {install_line('spark')}")
    own = Path(spec.submodule_search_locations[0]) / "jars"
    home = os.environ.get("SPARK_HOME")
    return own if own.is_dir() or not home else Path(home) / "jars"


def pyspark_jar(module: str) -> Path:
    """The JAR of one module that PySpark ships, whatever its version. Raises ConfigError where there is none."""
    found = [jar for jar in sorted(pyspark_jars().glob(f"{module}-*.jar")) if _module_of(jar) == module]
    if not found:
        raise ConfigError(
            f"Spark has no {module} JAR in {pyspark_jars()}; reinstall pyspark, or set SPARK_HOME to a whole Spark"
        )
    return found[0]


def pyspark_modules() -> list[str]:
    return sorted({_module_of(jar) for jar in pyspark_jars().glob("*.jar")})


def jar_set(name: str, root: Path | None = None) -> list[Path]:
    """The JARs of the set ``name``, fetched now if they are not there yet (it takes up to a minute or two)."""
    return _jars_in(fetch(_known(name), root or jars_root()))


def is_fetched(name: str, root: Path | None = None) -> bool:
    """Whether ``jar_set(name)`` needs no network."""
    wanted = _known(name)
    return _is_complete((root or jars_root()) / name, wanted.ivy_xml())


def jars_root() -> Path:
    """Where the sets are kept: ``SPARKLOG_JARS``, the checkout's ``build/jars``, or the user's cache directory."""
    if chosen := os.environ.get("SPARKLOG_JARS"):
        return Path(chosen).absolute()
    root = checkout()
    if root is not None:
        return root / "build" / "jars"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparklog" / "jars"


def fetch(wanted: JarSet, root: Path, resolve: Callable[[str, Path], None] | None = None) -> Path:
    """The directory of a complete set; ``resolve(recipe, directory)`` fills one, and is Ivy unless a test says else.

    Two processes that want the same set at once wait for one another, and one of them fetches.
    """
    recipe, target = wanted.ivy_xml(), root / wanted.name
    if _is_complete(target, recipe):
        return target
    root.mkdir(parents=True, exist_ok=True)
    with _exclusive(root / f".{wanted.name}.lock"):
        if not _is_complete(target, recipe):
            with tempfile.TemporaryDirectory(dir=root, prefix=f".{wanted.name}-") as scratch:
                filled = Path(scratch) / wanted.name
                filled.mkdir()
                (resolve or _resolve_with_ivy)(recipe, filled)
                (filled / "ivy.xml").write_text(recipe)
                shutil.rmtree(target, ignore_errors=True)
                filled.rename(target)
    return target


def _resolve_with_ivy(recipe: str, directory: Path) -> None:
    ivy_file = directory.parent / "ivy.xml"
    ivy_file.write_text(recipe)
    command = [
        str(find_java().executable),
        "-jar",
        str(pyspark_jar("ivy")),
        "-warn",
        *("-cache", str(directory.parent / "cache")),
        *("-ivy", str(ivy_file)),
        *("-confs", "default"),
        *("-retrieve", f"{directory}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"Ivy had not fetched the JARs after {TIMEOUT_S} s; is Ivy's repository reachable?") from None
    if done.returncode != 0 or not _jars_in(directory):
        raise ConfigError(_why_not(done.stdout + done.stderr))


def _why_not(output: str) -> str:
    """Ivy's complaint without its progress dots."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.lstrip().startswith("..")]
    return (
        "Ivy could not fetch the JARs from Ivy's repository; check the network and try again, or copy the directory "
        "from a machine that has it and name it in SPARKLOG_JARS. Ivy said:\n  " + "\n  ".join(lines[-15:])
    )


def _known(name: str) -> JarSet:
    if name not in JAR_SETS:
        raise ConfigError(f"there is no JAR set {name!r}; there are: {', '.join(sorted(JAR_SETS))}")
    return JAR_SETS[name]


def _is_complete(directory: Path, recipe: str) -> bool:
    marker = directory / "ivy.xml"
    return marker.is_file() and marker.read_text() == recipe


def _jars_in(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.jar"))


def _module_of(jar: Path) -> str:
    return re.sub(r"-\d[^/]*$", "", jar.stem)


def _element(tag: str, module_attribute: str, coordinate: str, rest: str = "") -> str:
    organisation, module, revision = coordinate.split(":")
    return f'    <{tag} org="{organisation}" {module_attribute}="{module}" rev="{revision}"{rest}/>'


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(names: list[str]) -> int:
    """``python -m sparklog.local.jars NAME...``: have the named sets, and say where."""
    try:
        for name in names:
            if not is_fetched(name):
                sys.stderr.write(f"fetching the JARs of {name} from Ivy's repository (once; a minute or so)\n")
            sys.stdout.write(f"{len(jar_set(name))} JARs in {jars_root() / name}\n")
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or sorted(JAR_SETS)))
