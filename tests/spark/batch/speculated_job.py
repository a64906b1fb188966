"""Offloads whose first task Spark does twice at a time: ``speculated_job.py SERVERS TOPIC HOME``.

Each goes to a place of its own in HOME; ``HOME/attempts/NAME`` has a file for each attempt that has written its rows.

Spark makes no second attempt on the host of the first, and a ``local-cluster`` has one host. So this program adds a
worker of another address of the loopback.
"""

import os
import sys
from pathlib import Path

from pyspark import SparkContext, TaskContext

from sparklog.local.java import find_java
from sparklog.spark import session
from sparklog.spark.batch import offload
from sparklog.spark.batch.offload import OffloadOptions, run
from sparklog.spark.lake.delta.raw_table import RawTable
from sparklog.spark.lake.delta.upsert_table import UpsertTable
from sparklog.spark.lake.places.file_place import FilesTarget
from sparklog.testing.eventually import eventually

CORES, MEMORY_MB = 1, 1024
"""Of a worker."""
ELSEWHERE = "127.0.0.2"
PATIENCE_S = 600.0
SPECULATION = {
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
RAW, UPSERT, FILES = "raw", "upsert", "files"
ROUNDS = [(RAW, SECOND), (RAW, FIRST), (RAW, BOTH), (UPSERT, SECOND), (FILES, SECOND)]


def start_cluster():
    """A ``local-cluster`` in the JVM of the driver to be, with one more worker; its master, and what stops it."""
    os.environ.setdefault("JAVA_HOME", str(find_java().home))
    SparkContext._ensure_initialized()
    jvm = SparkContext._jvm
    deploy, conf = jvm.org.apache.spark.deploy, jvm.org.apache.spark.SparkConf()
    cluster = deploy.LocalSparkCluster.apply(1, CORES, MEMORY_MB, conf)
    masters = cluster.start()
    size = (0, 0, CORES, MEMORY_MB)
    option = jvm.scala.Option
    deploy.worker.Worker.startRpcEnvAndEndpoint(ELSEWHERE, *size, masters, None, option.apply(2), conf, option.empty())
    return masters[0], cluster.stop


def await_executors(spark):
    """Until each worker has one: a task that waited for the second could not have two attempts."""
    found = spark.sparkContext._jsc.sc()
    eventually(lambda: found.getExecutorMemoryStatus().size() == 3, PATIENCE_S, "the driver and two executors")


def slow(attempts, heard):
    """What begins the tasks in a worker: two attempts of the first one write its rows, and end if they are heard of."""

    def begin():
        def act(named):
            outcome = offload._perform(named)
            if TaskContext.get().partitionId() == 0:
                number = TaskContext.get().attemptNumber()
                (attempts / f"{number}").touch()
                eventually(lambda: len([*attempts.iterdir()]) == 2, PATIENCE_S, "another attempt that has written")
                if heard == (SECOND if number == 0 else FIRST):
                    eventually(lambda: False, PATIENCE_S, "its death")
            return outcome

        return act

    return begin


def target_of(kind, place):
    if kind == FILES:
        return FilesTarget(place)
    return UpsertTable(place) if kind == UPSERT else RawTable(place, ())


def main(servers, topic, home):
    settings = {name.replace(".", "_"): value for name, value in SPECULATION.items()}
    master, stop = start_cluster()
    spark = session("speculated", delta=True, master=master, **settings)
    await_executors(spark)
    for kind, heard in ROUNDS:
        name = f"{kind}-{heard}"
        attempts = home / "attempts" / name
        attempts.mkdir(parents=True)
        offload._begin = slow(attempts, heard)
        options = OffloadOptions(servers, (topic,), target_of(kind, str(home / name)), task_bytes=1500)
        run(spark, options)
    spark.stop()
    stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
