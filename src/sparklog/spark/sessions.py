"""A Spark session with the settings that the source needs to be fast, and small enough for one machine.

Three ways lead to one: a JVM of this process's own, the one that spark-submit (or a notebook) has started already, and
a server of Spark Connect. Only the first takes every setting; the others keep what their JVM was started with, and
``session`` warns of each setting that it could not make. JARs still reach spark-submit's JVM as long as it has no
session: the driver's class loader takes them, and executors load them from the driver.

The format is known wherever the workers' Python has this package. The JVM looks for it with the Python that its own
environment names, which need not be the workers'; where they differ, ``session`` registers the format with the latter.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from sparklog.errors import ConfigError
from sparklog.local.extras import install_line
from sparklog.local.jars import jar_set
from sparklog.local.java import find_java
from sparklog.spark.source import SparklogDataSource

_log = logging.getLogger(__name__)

_QUERY_SETTINGS = {
    # Exactly this value makes Spark skip sizing every row on its way to Python; with headers that costs 4 to 8 times.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
}
_JVM_SETTINGS = {
    # Records come to the JVM through a socket of this machine: these two take a tenth off the CPU time of a read.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.buffer.size": "262144",
}
_QUIET_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
}
_DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def session(
    app_name: str = "sparklog",
    *,
    delta: bool = False,
    jars: Sequence[Path] = (),
    master: str | None = None,
    remote: str | None = None,
    **conf: object,
) -> SparkSession:
    """The session of this process, made or found.

    ``delta`` adds Delta Lake: its JARs are fetched on the first call on a machine. It is added unasked under a
    spark-submit that was told Delta's settings, as by ``conf/spark-defaults.conf``: Spark runs no query then without
    their classes. ``jars`` go on the class path; if Delta's are among them, Delta tables work too. ``master`` is
    ``local[2]`` unless given here or to spark-submit. ``remote`` (or the environment's SPARK_REMOTE) is a server of
    Spark Connect, ``sc://host:port``. ``conf`` overrides any setting, its dots written as underscores:
    ``spark_sql_shuffle_partitions=16``. A JVM of this process's own has no web UI (``spark_ui_enabled=True`` brings it)
    and logs warnings alone; under spark-submit both are as Spark has them, and what spark-submit was told counts before
    this function's own choices.

    Raises ConfigError for a ``master`` beside a ``remote``, and where JARs cannot be fetched.
    """
    given = {name.replace("_", "."): str(value) for name, value in conf.items()}
    remote = remote or (None if master else os.environ.get("SPARK_REMOTE"))
    if remote:
        if master:
            raise ConfigError(f"a session has one home: give master={master!r} or remote={remote!r}, not both")
        return _connected(remote, given, _jar_settings(jars, delta=delta))
    submitted = _is_submitted()
    _choose_programs()
    wanted = given | _with_jars(jars, delta=delta or (submitted and _is_told_of_delta()))
    missed = _missed_at_start(given) if submitted else {}
    builder = SparkSession.builder.appName(app_name).config(map=_own_choices() | wanted)
    if not submitted:
        builder = builder.master(master or given.get("spark.master", "local[2]"))
    found = builder.getOrCreate()
    # A session that there was already takes any setting into its own copy, where the JVM's settings do nothing.
    started = found.sparkContext.getConf()
    for name, value in wanted.items():
        if not found.conf.isModifiable(name) and not _has(started.get(name), value):
            missed[name] = value
    _warn_of(missed)
    _have_format(found)
    return found


def _connected(remote: str, given: Mapping[str, str], wanted: Mapping[str, str]) -> SparkSession:
    try:
        found = SparkSession.builder.remote(remote).getOrCreate()
    except ImportError as error:
        raise ConfigError(
            f"Spark Connect's client is not installed ({error}); type: {install_line('connect')}"
        ) from error
    missed = {}
    for name, value in {**_QUERY_SETTINGS, **wanted, **given}.items():
        if found.conf.isModifiable(name):
            found.conf.set(name, value)
        elif not _has(found.conf.get(name, None), value):
            missed[name] = value
    _warn_of(missed)
    return found


def _own_choices() -> dict[str, str]:
    """What ``session`` sets where nobody has said otherwise."""
    if not _is_submitted():
        return _QUERY_SETTINGS | _JVM_SETTINGS | _QUIET_SETTINGS
    told = _told()
    return {name: value for name, value in (_QUERY_SETTINGS | _JVM_SETTINGS).items() if told.get(name) is None}


def _told() -> SparkConf:
    """What the JVM that is up was started with; a SparkConf that is made without a JVM is empty."""
    SparkContext._ensure_initialized()
    return SparkConf()


def _is_told_of_delta() -> bool:
    """Whether the JVM that is up was told to use classes of Delta Lake, which it must be brought then."""
    told = _told()
    return any(told.get(name) == value for name, value in _DELTA_SETTINGS.items())


def _missed_at_start(wanted: Mapping[str, str]) -> dict[str, str]:
    """What spark-submit was to be told: the JVM that it started has its packages and its memory."""
    told = _told()
    launch = {name: value for name, value in wanted.items() if name.startswith(("spark.jars", "spark.driver."))}
    return {name: value for name, value in launch.items() if not _has(told.get(name), value)}


def _has(current: str | None, value: str) -> bool:
    """Whether a setting is made. Lists may hold more than was asked for, and JARs may lie in another directory."""
    if current is None:
        return False
    return {part.rpartition("/")[2] for part in value.split(",")} <= {
        part.strip().rpartition("/")[2] for part in current.split(",")
    }


def _warn_of(missed: Mapping[str, str]) -> None:
    if missed:
        told = " ".join(f"--conf {name}={value}" for name, value in missed.items())
        _log.warning("Spark runs already, and was started without these settings; start it with: %s", told)


def _jar_settings(jars: Sequence[Path | str], *, delta: bool) -> dict[str, str]:
    settings = {"spark.jars": ",".join(str(jar) for jar in jars)} if jars else {}
    if delta or any(Path(jar).name.startswith("delta-spark") for jar in jars):
        settings |= _DELTA_SETTINGS
    return settings


def _with_jars(jars: Sequence[Path], *, delta: bool) -> dict[str, str]:
    """The settings that go with the JARs, and with Delta's unless the JVM was started with them."""
    needed = [*jars, *(jar_set("delta") if delta and not _has_delta() else ())]
    if needed and _jvm_is_up() and SparkContext._active_spark_context is None:
        _add_to_class_path(needed)
        told = _told().get("spark.jars")
        return _jar_settings([*(told.split(",") if told else ()), *needed], delta=delta)
    return _jar_settings(needed, delta=delta)


def _has_delta() -> bool:
    """Whether the JVM that is up has Delta Lake on its class path."""
    if not _jvm_is_up():
        return False
    try:
        _class_loader().loadClass(_DELTA_SETTINGS["spark.sql.extensions"])
    except Py4JJavaError:
        return False
    return True


def _add_to_class_path(jars: Sequence[Path]) -> None:
    loader = _class_loader()
    for jar in jars:
        loader.addURL(SparkContext._jvm.java.io.File(str(jar)).toURI().toURL())


def _class_loader() -> Any:
    """The class loader of the driver, in which Spark looks for what settings name."""
    SparkContext._ensure_initialized()
    return SparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()


def _choose_programs() -> None:
    """The Java of a JVM that is still to be started, and the Python of workers: this one, if they are on this machine.

    What the environment says counts before both.
    """
    if not _jvm_is_up():
        os.environ.setdefault("JAVA_HOME", str(find_java().home))
    if not _is_submitted() or _told().get("spark.master", "local").startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _have_format(found: SparkSession) -> None:
    """Register the format if the JVM would look for it with another Python than the workers'."""
    python, environment = found.sparkContext.pythonExec, found._jvm.java.lang.System
    if python != (environment.getenv("PYSPARK_DRIVER_PYTHON") or environment.getenv("PYSPARK_PYTHON") or "python3"):
        found.dataSource.register(SparklogDataSource)
    if python == "python3" and not _is_this(shutil.which(python)):
        _log.warning(
            "Spark's workers run %s, this is %s: if they do not find sparklog, set PYSPARK_PYTHON before Spark starts",
            shutil.which(python),
            sys.executable,
        )


def _is_this(executable: str | None) -> bool:
    return executable is not None and Path(executable).parent == Path(sys.executable).parent


def _jvm_is_up() -> bool:
    return SparkContext._gateway is not None or _is_submitted()


def _is_submitted() -> bool:
    """Whether spark-submit started this process, and so chose the master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
