"""A Spark session with the settings that the source needs to be fast, and small enough for one machine.

Three ways lead to one: a JVM of this process's own, the one that spark-submit (or a notebook) has started already, and
a server of Spark Connect. Only the first takes every setting; the others keep what their JVM was started with, and
``session`` warns of each setting that it could not make.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark import SparkConf
from pyspark.sql import SparkSession

from sparklog.errors import ConfigError
from sparklog.local.jars import jar_set

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

    ``delta`` adds Delta Lake: its JARs are fetched on the first call on a machine. ``jars`` go on the class path; if
    Delta's are among them, Delta tables work too. ``master`` is ``local[2]`` unless given here or to spark-submit.
    ``remote`` (or the environment's SPARK_REMOTE) is a server of Spark Connect, ``sc://host:port``. ``conf`` overrides
    any setting, its dots written as underscores: ``spark_sql_shuffle_partitions=16``.

    Raises ConfigError for a ``master`` beside a ``remote``, and where JARs cannot be fetched.
    """
    given = {name.replace("_", "."): str(value) for name, value in conf.items()}
    remote = remote or (None if master else os.environ.get("SPARK_REMOTE"))
    if remote:
        if master:
            raise ConfigError(f"a session has one home: give master={master!r} or remote={remote!r}, not both")
        return _connected(remote, given, _jar_settings(jars) | (_DELTA_SETTINGS if delta else {}))
    wanted = given | _jar_settings([*jars, *(jar_set("delta") if delta else ())])
    settings = _QUERY_SETTINGS | _JVM_SETTINGS | wanted
    _choose_python()
    missed = _missed_at_start(wanted) if _is_submitted() else {}
    builder = SparkSession.builder.appName(app_name).config(map=settings)
    found = builder.getOrCreate() if _is_submitted() else builder.master(master or "local[2]").getOrCreate()
    # A session that there was already takes any setting into its own copy, where the JVM's settings do nothing.
    started = found.sparkContext.getConf()
    for name, value in wanted.items():
        if not found.conf.isModifiable(name) and not _has(started.get(name), value):
            missed[name] = value
    _warn_of(missed)
    return found


def _connected(remote: str, given: Mapping[str, str], wanted: Mapping[str, str]) -> SparkSession:
    try:
        found = SparkSession.builder.remote(remote).getOrCreate()
    except ImportError as error:
        raise ConfigError(
            f"Spark Connect's client is not installed ({error}); type: pip install 'sparklog[connect]'"
        ) from error
    missed = {}
    for name, value in {**_QUERY_SETTINGS, **wanted, **given}.items():
        if found.conf.isModifiable(name):
            found.conf.set(name, value)
        elif not _has(found.conf.get(name, None), value):
            missed[name] = value
    _warn_of(missed)
    return found


def _missed_at_start(wanted: Mapping[str, str]) -> dict[str, str]:
    """What spark-submit was to be told: the JVM that it started has its class path and its memory."""
    conf = SparkConf()
    launch = {name: value for name, value in wanted.items() if name.startswith(("spark.jars", "spark.driver."))}
    return {name: value for name, value in launch.items() if not _has(conf.get(name), value)}


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


def _jar_settings(jars: Sequence[Path]) -> dict[str, str]:
    settings = {"spark.jars": ",".join(str(jar) for jar in jars)} if jars else {}
    if any(jar.name.startswith("delta-spark") for jar in jars):
        settings.update(_DELTA_SETTINGS)
    return settings


def _choose_python() -> None:
    """Workers run the Python of this process; a JVM that is up already may have chosen another."""
    if not _is_submitted():
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    elif "PYSPARK_PYTHON" not in os.environ and not _is_this(shutil.which("python3")):
        _log.warning(
            "Spark's workers run %s, this is %s: if they do not find sparklog, set PYSPARK_PYTHON before spark-submit",
            shutil.which("python3"),
            sys.executable,
        )


def _is_this(executable: str | None) -> bool:
    return executable is not None and Path(executable).parent == Path(sys.executable).parent


def _is_submitted() -> bool:
    """Whether spark-submit started this process, and so chose the master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
