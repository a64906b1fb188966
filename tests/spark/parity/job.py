"""Reads cases with Spark's Kafka connector and with ours: ``job.py JARS KAFKA SPARKLOG TOPICS CASES``.

The last two are JSON. Prints a JSON object for each case, what came of it. Run by itself: a session with other JARs
cannot be had beside the tests' own.
"""

import itertools
import json
import sys
from contextlib import ExitStack, redirect_stdout

from chispa import DataFramesNotEqualError, assert_df_equality
from chispa.schema_comparer import SchemasNotEqualError
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
    with ExitStack() as kept:
        expected, refusal = _read(spark, "kafka", kafka, case.stream, options, kept)
        found = [f"refuses: {refusal}" if expected is None else f"reads {expected.count()}"]
        for servers in (kafka, ours):
            frame, refusal = _read(spark, "sparklog", servers, case.stream, options, kept)
            if frame is None:
                found.append(f"refuses: {refusal}")
            elif expected is None:
                found.append(f"reads {frame.count()}")
            else:
                found.append(_difference(frame, expected))
    return found


def _difference(frame, expected):
    try:
        with redirect_stdout(sys.stderr):  # where chispa shows schemas
            assert_df_equality(frame, expected, ignore_row_order=True)
    except (DataFramesNotEqualError, SchemasNotEqualError) as error:
        return f"reads other rows (ours, the connector's): {error}"
    return "reads the same"


def _read(spark, kind, servers, stream, options, kept):
    """The rows, read once and kept until ``kept`` is closed, or None and why not."""
    while True:
        try:
            return _rows(spark, kind, servers, stream, options, kept), ""
        except Exception as error:
            if "failed to connect back" not in str(error):  # Spark gives a Python process ten seconds to start
                return None, _last_line(str(error))


def _rows(spark, kind, servers, stream, options, kept):
    reader = (spark.readStream if stream else spark.read).format(kind)
    frame = reader.option("kafka.bootstrap.servers", servers).options(**options).load()
    if stream:
        name = f"found{next(_numbers)}"
        query = frame.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
        query.awaitTermination()
        frame = spark.table(name)
        kept.callback(spark.catalog.dropTempView, name)
    kept.callback(frame.unpersist)
    frame.cache().count()
    return frame


def _last_line(message):
    """Spark shows the Python traceback before its own advice: what was raised is the line with the code."""
    lines = [line for line in message.splitlines() if line.strip()] or [""]
    return next((line for line in lines if "[SPARKLOG_" in line), lines[0])[:300]


if __name__ == "__main__":
    main(*sys.argv[1:])
