"""A Spark session with the settings that make the source fast, sized for one machine.

The session may run in a JVM that this process starts, in the JVM that spark-submit (or a notebook) has started already,
or on a server of Spark Connect. Only the first takes every setting; the other two keep those that their JVM was started
with, and ``session`` warns of each setting that it could not apply. JARs still reach spark-submit's JVM while it has no
session: the driver's class loader adds them, and executors load them from the driver.

Spark finds the format if the workers' Python has this package. The JVM searches with the Python that its own
environment names, which may be another one; then ``session`` registers the format.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from sparklog.errors import ConfigError, SparklogError
from sparklog.local.extras import install_line
from sparklog.local.jars import jar_set
from sparklog.local.java import find_java
from sparklog.spark.source import SparklogDataSource

_log = logging.getLogger(__name__)

_QUERY_SETTINGS = {
    # Only this value makes Spark hand rows to Python without sizing each: with headers 4 to 8 times as fast.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
}
_JVM_SETTINGS = {
    # Records reach the JVM through a local socket: these two save a tenth of the CPU time of a read.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.buffer.size": "262144",
}
_QUIET_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
}
_TABLE_SETTINGS = {
    # Delta reads the state of a table in so many tasks, for each commit: its 50 cost a small machine seconds.
    "spark.databricks.delta.snapshotPartitions": "8",
}
_DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


class SparkStopped(SparklogError):
    """Spark has stopped, so this process can do nothing more: a master may have ended it, or a lack of memory."""


def session(
    app_name: str = "sparklog",
    *,
    delta: bool = False,
    jars: Sequence[Path] = (),
    master: str | None = None,
    remote: str | None = None,
    **conf: object,
) -> SparkSession:
    """The session of this process; creates it if there is none.

    ``delta`` adds Delta Lake; its JARs are downloaded once on a machine. Under a spark-submit that has Delta's
    settings, as in ``conf/spark-defaults.conf``, it is added without ``delta=True``, since Spark runs no query without
    the classes that these settings name. ``jars`` go on the class path; if Delta's are among them, Delta tables work
    too. ``master`` is ``local[2]`` unless given here or to spark-submit. ``remote`` (or the environment's SPARK_REMOTE)
    is a server of Spark Connect, ``sc://host:port``. ``conf`` overrides any setting, with underscores for its dots:
    ``spark_sql_shuffle_partitions=16``. A JVM that this process starts has no web UI (``spark_ui_enabled=True`` starts
    it) and logs only warnings. Under spark-submit both are Spark's own, and spark-submit's settings go before the
    defaults of this function.

    Raises ConfigError for a ``master`` together with a ``remote``, and if JARs cannot be downloaded; SparkStopped if
    the JVM ends before the session is there.
    """
    settings = {name.replace("_", "."): str(value) for name, value in conf.items()}
    remote = remote or (None if master else os.environ.get("SPARK_REMOTE"))
    if remote:
        if master:
            raise ConfigError(f"a session has one home: give master={master!r} or remote={remote!r}, not both")
        return _connect_session(remote, settings, _jar_settings(jars, delta=delta))
    submitted = _is_submitted()
    _choose_programs()
    wanted = settings | _with_jars(jars, delta=delta or (submitted and _is_delta_configured()))
    not_applied = _not_applied_at_launch(settings) if submitted else {}
    builder = SparkSession.builder.appName(app_name).config(map=_defaults() | wanted)
    if not submitted:
        builder = builder.master(master or settings.get("spark.master", "local[2]"))
    found = _created(builder)
    # An existing session stores any setting in its own copy, where settings of the JVM have no effect.
    started = found.sparkContext.getConf()
    for name, value in wanted.items():
        if not found.conf.isModifiable(name) and not _is_set(started.get(name), value):
            not_applied[name] = value
    _warn_of(not_applied)
    _ensure_format(found)
    return found


def _created(builder: SparkSession.Builder) -> SparkSession:
    try:
        return builder.getOrCreate()
    except (PySparkRuntimeError, Py4JError, OSError) as error:
        is_early = isinstance(error, PySparkRuntimeError) and error.getCondition() == "JAVA_GATEWAY_EXITED"
        if not is_early and not has_jvm_ended():
            raise
        said = str(error).strip().partition("\n")[0] or type(error).__name__
        raise SparkStopped(
            "Spark's JVM has ended before the session was there: it says why above, or the system has killed it for its"
            f" memory ({said})"
        ) from error


def has_jvm_ended() -> bool:
    """Whether this process had a JVM of Spark, and it does not answer."""
    gateway = SparkContext._gateway
    try:
        if gateway is not None:
            gateway.jvm.java.lang.System.nanoTime()
    except (Py4JError, OSError):
        return True
    return False


def stop(spark: SparkSession) -> None:
    """Stop it. One whose JVM has ended, killed for the memory that it took, has stopped already."""
    with suppress(Py4JError, OSError):
        spark.stop()


def _connect_session(remote: str, settings: Mapping[str, str], wanted: Mapping[str, str]) -> SparkSession:
    try:
        found = SparkSession.builder.remote(remote).getOrCreate()
    except ImportError as error:
        raise ConfigError(
            f"Spark Connect's client is not installed ({error}); type: {install_line('connect')}"
        ) from error
    not_applied = {}
    for name, value in {**_QUERY_SETTINGS, **wanted, **settings}.items():
        if found.conf.isModifiable(name):
            found.conf.set(name, value)
        elif not _is_set(found.conf.get(name, None), value):
            not_applied[name] = value
    _warn_of(not_applied)
    return found


def _defaults() -> dict[str, str]:
    """The settings that ``session`` makes unless the caller or spark-submit gives others."""
    if not _is_submitted():
        return _QUERY_SETTINGS | _TABLE_SETTINGS | _JVM_SETTINGS | _QUIET_SETTINGS
    launched = _launch_conf()
    ours = _QUERY_SETTINGS | _TABLE_SETTINGS | _JVM_SETTINGS
    return {name: value for name, value in ours.items() if launched.get(name) is None}


def _launch_conf() -> SparkConf:
    """The settings that the running JVM was started with; a SparkConf made without a JVM is empty."""
    SparkContext._ensure_initialized()
    return SparkConf()


def _is_delta_configured() -> bool:
    """Whether the running JVM has settings that name classes of Delta Lake."""
    launched = _launch_conf()
    return any(launched.get(name) == value for name, value in _DELTA_SETTINGS.items())


def _not_applied_at_launch(wanted: Mapping[str, str]) -> dict[str, str]:
    """Settings that only spark-submit can make, since they matter when the JVM starts: packages and memory."""
    launched = _launch_conf()
    launch = {name: value for name, value in wanted.items() if name.startswith(("spark.jars", "spark.driver."))}
    return {name: value for name, value in launch.items() if not _is_set(launched.get(name), value)}


def _is_set(current: str | None, value: str) -> bool:
    """Whether a setting has this value. A list may have more items, and JARs may be in another directory."""
    if current is None:
        return False
    return {part.rpartition("/")[2] for part in value.split(",")} <= {
        part.strip().rpartition("/")[2] for part in current.split(",")
    }


def _warn_of(not_applied: Mapping[str, str]) -> None:
    if not_applied:
        options = " ".join(f"--conf {name}={value}" for name, value in not_applied.items())
        _log.warning("Spark runs already, and was started without these settings; start it with: %s", options)


def _jar_settings(jars: Sequence[Path | str], *, delta: bool) -> dict[str, str]:
    settings = {"spark.jars": ",".join(str(jar) for jar in jars)} if jars else {}
    if delta or any(Path(jar).name.startswith("delta-spark") for jar in jars):
        settings |= _DELTA_SETTINGS
    return settings


def _with_jars(jars: Sequence[Path], *, delta: bool) -> dict[str, str]:
    """The settings for the JARs, and for Delta's unless the JVM was started with them."""
    needed = [*jars, *(jar_set("delta") if delta and not _has_delta() else ())]
    if needed and _jvm_is_up() and SparkContext._active_spark_context is None:
        _add_to_class_path(needed)
        launched = _launch_conf().get("spark.jars")
        return _jar_settings([*(launched.split(",") if launched else ()), *needed], delta=delta)
    return _jar_settings(needed, delta=delta)


def _has_delta() -> bool:
    """Whether the running JVM has Delta Lake on its class path."""
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
    """The driver's class loader, in which Spark looks for classes that settings name."""
    SparkContext._ensure_initialized()
    return SparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()


def _choose_programs() -> None:
    """Choose the Java for a JVM to be started, and this Python for workers on this machine.

    The environment's choices go before both.
    """
    if not _jvm_is_up():
        os.environ.setdefault("JAVA_HOME", str(find_java().home))
    if not _is_submitted() or _launch_conf().get("spark.master", "local").startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _ensure_format(found: SparkSession) -> None:
    """Register the format if the JVM would search for it with another Python than that of the workers."""
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
