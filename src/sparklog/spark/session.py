"""A Spark session with the settings that the source needs to be fast, and small enough for one machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

_SETTINGS = {
    # Exactly this value makes Spark skip sizing every row on its way to Python; with headers that costs 4 to 8 times.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    # Records come to the JVM through a socket of this machine: these two take a tenth off the CPU time of a read.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.buffer.size": "262144",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
}
_DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def session(app_name: str, *, jars: Sequence[Path] = (), master: str | None = None, **conf: object) -> SparkSession:
    """The session of this process, made or found.

    ``jars`` go on the class path; if Delta's are among them, Delta tables work. ``master`` is ``local[2]`` unless
    given here or to spark-submit. ``conf`` overrides any setting, its dots written as underscores:
    ``spark_sql_shuffle_partitions=16``.
    """
    settings = dict(_SETTINGS)
    if jars:
        settings["spark.jars"] = ",".join(str(jar) for jar in jars)
    if any(jar.name.startswith("delta-spark") for jar in jars):
        settings.update(_DELTA_SETTINGS)
    settings.update({name.replace("_", "."): str(value) for name, value in conf.items()})
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name).config(map=settings)
    if master is not None or not _is_submitted():
        builder = builder.master(master or "local[2]")
    return builder.getOrCreate()


def _is_submitted() -> bool:
    """Whether spark-submit started this process, and so chose the master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
