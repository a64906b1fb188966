"""A streaming query without Spark: its way with the source, micro-batch by micro-batch."""

import json

from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from sparklog.spark.read.options import ReadOptions
from sparklog.spark.stream.reader import SparklogStreamReader

_SCHEMA = StructType([StructField("offset", LongType()), StructField("value", BinaryType())])


class Query:
    """Offsets are kept as text, a batch is planned, read, then gone on from."""

    def __init__(self, servers, checkpoint=None, **options):
        settings = {"kafka.bootstrap.servers": servers, "startingOffsets": "earliest", **options}
        self.reader = SparklogStreamReader(ReadOptions.for_stream(settings), _SCHEMA)
        self.checkpoint = checkpoint or json.dumps(self.reader.initialOffset())

    def batch(self):
        """The values of the next micro-batch."""
        start = json.loads(self.checkpoint)
        end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
        self.checkpoint = json.dumps(end)
        tasks = self.reader.partitions(start, end)
        return [value for task in tasks for rows in self.reader.read(task) for value in rows["value"].to_pylist()]

    def stop(self):
        self.reader.stop()
