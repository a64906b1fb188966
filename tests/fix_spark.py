"""Fixtures: the one Spark session of a run, and what makes the Spark of a program of its own start sooner."""

import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from sparklog.errors import ConfigError
from sparklog.local.jars import is_fetched, jar_set
from sparklog.local.java import find_java
from sparklog.testing.spark_home import make_spark_home

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""For a JVM that loads ten thousand classes and runs few of them twice: compiled in haste, and not verified."""
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Spark's settings for queries of a few rows: to compile them would cost more than to interpret them."""
QUICK_CONF = {
    **INTERPRETED,
    "spark.ui.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
}
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
}

RUN_AGAIN = pytest.mark.flaky(reruns=4, only_rerun=["Python worker (failed )?to connect back"])
"""Spark gives a Python process that it starts 10 s to connect back, and has no setting for that: on a machine that is
short of processors such a test is run again. No other is, nor asked for: of each that may be, a worker of a run asks
the first process how often it was, and waits 40 ms for the answer."""


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("spark") or "quick_spark" in item.fixturenames:
            item.add_marker(RUN_AGAIN)


@pytest.fixture(scope="session")
def delta_jars():
    """The JARs of Delta Lake; the test is skipped where they are not there and cannot be fetched."""
    return _delta_jars() or pytest.skip("no Delta JARs; type: make jars (with a network)")


@pytest.fixture(scope="session")
def spark_home(tmp_path_factory):
    """A home of Spark whose Python workers start sooner."""
    return make_spark_home(tmp_path_factory.mktemp("spark-home"))


@pytest.fixture(scope="session")
def quick_spark(tmp_path_factory, spark_home):
    """What the environment of a program has that starts a Spark of its own, for a few rows."""
    directory = tmp_path_factory.mktemp("spark-conf")
    (directory / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in QUICK_CONF.items()))
    return {
        "SPARK_HOME": str(spark_home),
        "SPARK_CONF_DIR": str(directory),
        "SPARK_LAUNCHER_OPTS": QUICK_JVM,
        "SPARK_SUBMIT_OPTS": QUICK_JVM,
    }


@pytest.fixture(scope="session")
def spark(tmp_path_factory, spark_home):
    """A session on two cores, small and quiet, with Delta Lake where its JARs are to be had."""
    from pyspark.sql import SparkSession

    jars = _delta_jars()
    more = jar_set("avro") if is_fetched("avro") else []
    settings = {
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.log.level": "ERROR",
        **({"spark.jars": ",".join(map(str, [*jars, *more])), **DELTA} if jars else {}),
    }
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_HOME", str(find_java().home))
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        environment.setenv("SPARK_LOCAL_DIRS", str(tmp_path_factory.mktemp("spark-local")))
        builder = SparkSession.builder.master("local[2]").appName("sparklog tests").config(map=settings)
        with pytest.MonkeyPatch.context() as start, _no_jvm_left_behind():
            start.setenv("SPARK_HOME", str(spark_home))
            session = builder.getOrCreate()
        yield session
        session.stop()


@pytest.fixture
def interpreted(spark):
    """Spark interprets the queries of a test that is not about their rows' types."""
    for name, value in INTERPRETED.items():
        spark.conf.set(name, value)
    yield
    for name in INTERPRETED:
        spark.conf.unset(name)


@contextlib.contextmanager
def _no_jvm_left_behind():
    """PySpark, interrupted while its JVM starts, removes the directory where they meet, and the JVM would stay."""
    try:
        yield
    except BaseException:
        for pid in map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()):
            if b"SparkSubmit" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        raise


def _delta_jars():
    try:
        return jar_set("delta")
    except ConfigError:
        return []
