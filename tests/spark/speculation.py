"""Programs in which Spark really does a slow task twice at a time.

Spark makes no second attempt on the host of the first, and a ``local-cluster`` has one host. So a worker of another
address of the loopback is added.
"""

import os
import sys
from contextlib import contextmanager
from pathlib import Path

from fix_spark import QUICK_JVM
from pyspark import SparkContext

from sparklog.local.java import find_java
from sparklog.spark import session
from sparklog.testing.eventually import eventually
from sparklog.testing.programs import run_program

_CORES, _MEMORY_MB = 1, 1024
"""Of a worker."""
_ELSEWHERE = "127.0.0.2"
PATIENCE_S = 600.0
_SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.25",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.minTaskRuntime": "50ms",
    "spark.speculation.task.duration.threshold": "5s",  # counts where a stage has one task
    "spark.executor.memory": "700m",
}
FIRST, SECOND, BOTH = "first", "second", "both"
"""Of two attempts, the one whose outcome Spark hears of."""


def _start_cluster():
    """A ``local-cluster`` in the JVM of the driver to be, with one more worker; its master, and what stops it."""
    os.environ.setdefault("JAVA_HOME", str(find_java().home))
    SparkContext._ensure_initialized()
    jvm = SparkContext._jvm
    deploy, conf = jvm.org.apache.spark.deploy, jvm.org.apache.spark.SparkConf()
    cluster = deploy.LocalSparkCluster.apply(1, _CORES, _MEMORY_MB, conf)
    masters = cluster.start()
    size = (0, 0, _CORES, _MEMORY_MB)
    option = jvm.scala.Option
    deploy.worker.Worker.startRpcEnvAndEndpoint(_ELSEWHERE, *size, masters, None, option.apply(2), conf, option.empty())
    return masters[0], cluster.stop


def _await_executors(spark):
    """Until each worker has one: a task that waited for the second could not have two attempts."""
    found = spark.sparkContext._jsc.sc()
    eventually(lambda: found.getExecutorMemoryStatus().size() == 3, PATIENCE_S, "the driver and two executors")


@contextmanager
def speculating_session():
    """Two executors of a core each, one for each attempt."""
    settings = {name.replace(".", "_"): value for name, value in _SPECULATION.items()}
    master, stop = _start_cluster()
    spark = session("speculated", delta=True, master=master, **settings)
    _await_executors(spark)
    yield spark
    spark.stop()
    stop()


def run_speculated(program, servers, topic, home, environment):
    """``program`` in a process of its own, with ``environment`` beside that of the tests, to its end."""
    own = {"JAVA_TOOL_OPTIONS": QUICK_JVM, "SPARK_LOCAL_IP": "127.0.0.1"}
    command, paths = [sys.executable, program, servers, topic, home], [str(Path(__file__).parents[1])]
    run_program(command, home, timeout=1500, paths=paths, environment={**os.environ, **environment, **own})
