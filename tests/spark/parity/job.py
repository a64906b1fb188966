"""Reads cases with Spark's Kafka connector and with ours: ``job.py JARS KAFKA SPARKLOG TOPICS CASES``.

The last two are JSON. Prints a JSON object for each case, what came of it. Run by itself: a session with other JARs
cannot be had beside the tests' own.
"""

import itertools
import json
import sys

from pyspark.sql import SparkSession
from spark.parity.cases import CASES

_numbers = itertools.count()


def main(jars, kafka, ours, topics, wanted):
    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "OFF",
    }
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    for case in CASES:
        if case.name in json.loads(wanted):
            found = _compared(spark, case, kafka, ours, json.loads(topics))
            sys.stdout.write(json.dumps({case.name: found}) + "\n")
            sys.stdout.flush()
    spark.stop()


def _compared(spark, case, kafka, ours, topics):
    """What the connector found on Kafka, then what we found there and on our own cluster, as compared with that."""
    options = case.filled(topics)
    expected, refusal = _read(spark, "kafka", kafka, case.stream, options)
    found = [f"refuses: {refusal}" if expected is None else f"reads {len(expected[1])}"]
    for servers in (kafka, ours):
        rows, refusal = _read(spark, "sparklog", servers, case.stream, options)
        if rows is None:
            found.append(f"refuses: {refusal}")
        elif expected is None or rows == expected:
            found.append("reads the same" if expected else f"reads {len(rows[1])}")
        else:
            found.append(f"reads other rows: {rows} and not {expected}")
    return found


def _read(spark, kind, servers, stream, options):
    """The columns and the rows, sorted, or None and why not."""
    while True:
        try:
            return _rows(spark, kind, servers, stream, options), ""
        except Exception as error:
            if "failed to connect back" not in str(error):  # Spark gives a Python process ten seconds to start
                return None, _last_line(str(error))


def _rows(spark, kind, servers, stream, options):
    reader = (spark.readStream if stream else spark.read).format(kind)
    frame = reader.option("kafka.bootstrap.servers", servers).options(**options).load()
    if stream:
        name = f"found{next(_numbers)}"
        query = frame.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
        query.awaitTermination()
        frame = spark.table(name)
    rows = sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset))
    return frame.dtypes, rows


def _last_line(message):
    """Spark shows the Python traceback before its own advice: what was raised is the line with the code."""
    lines = [line for line in message.splitlines() if line.strip()] or [""]
    return next((line for line in lines if "[SPARKLOG_" in line), lines[0])[:300]


if __name__ == "__main__":
    main(*sys.argv[1:])
