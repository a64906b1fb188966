"""Spark for the tour: quiet on the terminal, gone afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparklog.errors import DataSourceError
from sparklog.local.jars import jar_set
from sparklog.local.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP_GRACE_S = 20.0


@contextmanager
def spark_session(directory: Path) -> Iterator[SparkSession]:
    """A session with Delta Lake on two cores; Spark's files and its log (``spark.log``) are in ``directory``.

    What Spark raises becomes a DataSourceError that names the log. At the end the JVM has ended, not only the session.
    """
    jars = jar_set("delta")
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    log = directory / "spark.log"
    directory.mkdir(parents=True, exist_ok=True)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from sparklog.spark.session import session

    try:
        with _standard_error_to(log):
            spark = session("sparklog demo", jars=jars, **_settings(directory))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield spark
    except (PySparkException, Py4JError) as error:
        raise DataSourceError("SPARKLOG_DEMO", f"Spark failed: {_first_lines(error)}\n(its log is {log})") from error
    finally:
        _end()


def _settings(directory: Path) -> dict[str, str]:
    return {
        "spark__driver__memory": "2g",
        "spark__local__dir": str(directory / "local"),
        "spark__log__level": "ERROR",
        "spark__sql__shuffle__partitions": "2",
        "spark__sql__warehouse__dir": str(directory / "warehouse"),
        "spark__databricks__delta__snapshotPartitions": "2",
        "spark__databricks__delta__merge__materializeSource": "none",
    }


@contextmanager
def _standard_error_to(path: Path) -> Iterator[None]:
    """Our file descriptor 2 is ``path`` meanwhile; a child that starts in it keeps that."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def _end() -> None:
    """Stop the session and its JVM, and wait until that has gone."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    if spark is not None:
        with suppress(Exception):  # The JVM may have died; what matters is that it is gone below.
            spark.stop()
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    process = gateway.proc
    with suppress(Exception):
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    process.stdin.close()  # Spark's JVM ends when its standard input does.
    try:
        process.wait(STOP_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _first_lines(error: Exception) -> str:
    """The message without the JVM's stack trace."""
    lines = str(error).splitlines()
    kept = [line for line in lines if line.strip() and not line.lstrip().startswith(("at ", "JVM stacktrace"))]
    return "\n".join(kept[:6]) or type(error).__name__
