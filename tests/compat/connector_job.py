"""A Spark job with Spark's own Kafka connector: ``connector_job.py JARS BOOTSTRAP TOPIC CHECKPOINT [SETTINGS]``.

``SETTINGS`` is a JSON file of more settings of Kafka's clients. Prints one JSON object. Run by itself, since a session
with other JARs cannot be had beside the tests' own.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

RECORDS = 1000


def main(jars, bootstrap, topic, checkpoint, more=None):
    brokers = {"bootstrap.servers": bootstrap, **(json.loads(Path(more).read_text()) if more else {})}
    kafka = {f"kafka.{name}": value for name, value in brokers.items()}
    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
    }
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    found = {"written": written(spark, kafka, topic)}
    found["selected"] = selected(spark, kafka, topic)
    found["copied"] = [copied(spark, kafka, topic, checkpoint) for _ in range(2)]
    write(spark.range(RECORDS, RECORDS + 10), kafka, topic)
    found["copied"].append(copied(spark, kafka, topic, checkpoint))
    sys.stdout.write(json.dumps(found) + "\n")
    spark.stop()


def write(numbers, kafka, topic):
    """A record a number, with a key, a header and a partition by its parity."""
    headers = f.array(f.struct(f.lit("h").alias("key"), f.encode(f.col("id").cast("string"), "UTF-8").alias("value")))
    frame = numbers.select(
        f.concat(f.lit("k"), f.col("id")).alias("key"),
        f.col("id").cast("string").alias("value"),
        headers.alias("headers"),
        (f.col("id") % 2).cast("int").alias("partition"),
    )
    options = {**kafka, "topic": topic, "includeHeaders": "true"}
    frame.write.format("kafka").options(**options).save()


def read(spark, kafka, topic, **options):
    asked = {**kafka, "subscribe": topic, "includeHeaders": "true", **options}
    return spark.read.format("kafka").options(**asked).load()


def written(spark, kafka, topic):
    """What was written, and how many of it came back whole and in its partition."""
    write(spark.range(RECORDS), kafka, topic)
    value = f.col("value").cast("string")
    whole = (
        (f.col("key").cast("string") == f.concat(f.lit("k"), value))
        & (f.col("headers")[0]["value"].cast("string") == value)
        & (f.col("partition") == value.cast("long") % 2)
    )
    return read(spark, kafka, topic).where(whole).select(value).distinct().count()


def selected(spark, kafka, topic):
    """Records of a range of offsets, and of all that is not older than the epoch."""
    start, end = json.dumps({topic: {"0": 10, "1": 0}}), json.dumps({topic: {"0": 20, "1": 5}})
    by_offset = read(spark, kafka, topic, startingOffsets=start, endingOffsets=end)
    by_time = read(spark, kafka, topic, startingTimestamp="1")
    return [by_offset.count(), by_time.count()]


def copied(spark, kafka, topic, checkpoint):
    """How many records the copy has after one more run of the stream over what is there."""
    stream = spark.readStream.format("kafka").options(**kafka).option("subscribe", topic)
    out = stream.option("startingOffsets", "earliest").load().select("key", "value").writeStream.format("kafka")
    out = out.options(**kafka).option("topic", f"{topic}-copy")
    out.option("checkpointLocation", Path(checkpoint).as_uri()).trigger(availableNow=True).start().awaitTermination()
    return read(spark, kafka, f"{topic}-copy").count()


if __name__ == "__main__":
    main(*sys.argv[1:])
