"""A streaming job whose driver dies: ``dying_job.py SERVERS SOURCE OUT CHECKPOINT DIE_AT [CONF...]``.

DIE_AT is STEP/MOMENT of batch 1, or STEP/MOMENT/BATCH; ``never`` lets the job come to its end. CONF are Spark's
settings, ``name=value``, and ``spark.dying.tasks``, how many tasks a batch has. SPARKLOG_COMMAND_CONFIG names a file
with more settings of the client.
"""

import sys

from dying import DyingSource
from pyspark.sql import SparkSession

from sparklog.config.command_config import command_settings


def main(servers, source, out, checkpoint, die_at, *conf):
    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    spark = builder.config(map=dict(each.split("=", 1) for each in conf)).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    spark.dataSource.register(DyingSource)
    client = {f"kafka.{name}": value for name, value in command_settings(None, servers).items()}
    settings = {**client, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
    tasks = spark.conf.get("spark.dying.tasks", "4")
    frame = spark.readStream.format("sparklog").options(subscribe=source, minPartitions=tasks, **settings).load()
    writer = frame.select("key", "value").writeStream.format("sparklog-dying").options(**settings)
    writer = writer.options(topic=out, checkpointLocation=checkpoint, dieAt=die_at, dieBy=str(jvm), failTasks="true")
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
