"""Spark for the tour: quiet on the terminal, gone afterwards."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparklog.errors import DataSourceError, SparklogError
from sparklog.local.jars import jar_set
from sparklog.local.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP_GRACE_S = 20.0

_CAUSE = re.compile(r"(Caused by|[\w.]*(Error|Exception))?: ?\S")
"""Java's and Python's last words on what went wrong; py4j puts the name of a Java exception on a line of its own."""


@contextmanager
def spark_session(directory: Path) -> Iterator[SparkSession]:
    """A session with Delta Lake on two cores; Spark's files and its log (``spark.log``) are in ``directory``.

    What Spark raises becomes a DataSourceError that quotes the log. At the end the JVM has ended, not only the session.
    """
    jars = jar_set("delta")
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    log = directory / "spark.log"
    directory.mkdir(parents=True, exist_ok=True)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    with _quiet(log), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield _start(jars, directory, log)
        except SparklogError:
            raise
        except (PySparkException, Py4JError) as error:
            raise DataSourceError("SPARKLOG_DEMO", f"Spark failed: {_first_lines(error)}{_end_of(log)}") from error
        except ConnectionError as error:
            raise DataSourceError("SPARKLOG_DEMO", f"Spark's JVM died ({error}); run it again{_end_of(log)}") from error
        finally:
            _end()


def _start(jars: Sequence[Path], directory: Path, log: Path) -> SparkSession:
    from sparklog.spark import session

    on_interrupt = signal.getsignal(signal.SIGINT)
    with _standard_error_to(log):
        spark = session("sparklog demo", jars=jars, **_settings(directory))
    # PySpark's own handler asks the JVM to cancel jobs, over the connection that the interrupted call is using.
    signal.signal(signal.SIGINT, on_interrupt)
    return spark


@contextmanager
def _quiet(log: Path) -> Iterator[None]:
    """What is logged meanwhile, such as py4j's calls that an interrupt cut short, goes to ``log``."""
    handler = logging.FileHandler(log)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()


def _settings(directory: Path) -> dict[str, Any]:
    return {
        "spark_driver_memory": "2g",
        "spark_local_dir": str(directory / "local"),
        "spark_log_level": "ERROR",
        "spark_sql_shuffle_partitions": "2",
        "spark_sql_warehouse_dir": str(directory / "warehouse"),
        "spark_databricks_delta_snapshotPartitions": "2",
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

    with suppress(Exception):  # The JVM may have died; what matters is that it is gone below.
        spark = SparkSession.getActiveSession()
        if spark is not None:
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
    """What failed, and the causes that its stack traces name."""
    first, *others = _without_frames(str(error)) or [type(error).__name__]
    causes = [line for line in others if _CAUSE.match(line) and line not in first]
    return "\n".join(dict.fromkeys([first, *causes[:4]]))


def _end_of(log: Path) -> str:
    """The last lines of Spark's log, which may be gone when the message is read."""
    lines = _without_frames(log.read_text(errors="replace"))[-6:]
    return "\nthe end of Spark's log:\n" + "\n".join(f"  {line}" for line in lines) if lines else ""


def _without_frames(text: str) -> list[str]:
    """The lines of ``text`` but for those of stack traces, Java's or Python's, which are indented."""
    return [line for line in text.splitlines() if line.strip() and not line[0].isspace()]
