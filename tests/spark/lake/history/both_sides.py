"""A topic and a table of it, and readers of both, without Spark."""

import json

from spark.lake.history.delta_log import DeltaLog

from sparklog.client import Admin, NewTopic, Producer
from sparklog.spark.lake.history.union import UnionReader, UnionStreamReader
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.schema import source_schema
from sparklog.structs import TopicPartition

SCHEMA = source_schema(include_headers=True)


class Scene:
    """A topic, and a table of it."""

    def __init__(self, servers, topic, path, partitions=1, **configs):
        self.servers, self.topic, self.partitions = servers, topic, partitions
        self.admin = Admin(bootstrap_servers=servers)
        self.producer = Producer(bootstrap_servers=servers)
        self.table = DeltaLog(path)
        self.sent = [0] * partitions
        self.admin.create_topics([NewTopic(topic, partitions, 1, {"retention.ms": "-1"} | configs)])

    def close(self):
        self.producer.close()
        self.admin.close()

    def send(self, count, partition=0):
        """Records whose value is their offset, a second apart."""
        for _ in range(count):
            offset = self.sent[partition]
            self.producer.send(self.topic, b"%d" % offset, partition=partition, timestamp=offset * 1000)
            self.sent[partition] += 1
        self.producer.flush()

    def offload(self):
        self.table.offload(self.servers, self.topic)

    def trim(self, offset, partition=0):
        """Delete the front of the log."""
        self.admin.delete_records({TopicPartition(self.topic, partition): offset})

    def options(self, **options):
        return {
            "kafka.bootstrap.servers": self.servers,
            "subscribe": self.topic,
            "history": str(self.table.path),
            **options,
        }

    def reader(self, schema=SCHEMA, **options):
        return UnionReader(ReadOptions.for_batch(self.options(**options)), schema)

    def read(self, **options):
        """The offsets that a batch gives, in its order; each value is its own offset."""
        reader = self.reader(**options)
        return [offset for task in reader.partitions() for offset in offsets(reader.read(task))]


def offsets(batches):
    found = []
    for batch in batches:
        found += batch.column("offset").to_pylist()
        assert [b"%d" % each for each in batch.column("offset").to_pylist()] == batch.column("value").to_pylist()
    return found


class Query:
    """A streaming query without Spark, whose checkpoint is text."""

    def __init__(self, scene, checkpoint=None, **options):
        self.reader = UnionStreamReader(
            ReadOptions.for_stream(scene.options(startingOffsets="earliest", **options)), SCHEMA
        )
        self.checkpoint = checkpoint or json.dumps(self.reader.initialOffset())

    def batch(self):
        start = json.loads(self.checkpoint)
        end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
        self.checkpoint = json.dumps(end)
        return self.rows(start, end)

    def rows(self, start, end):
        return [each for task in self.reader.partitions(start, end) for each in offsets(self.reader.read(task))]

    def stop(self):
        self.reader.stop()


def compact(path):
    """OPTIMIZE, then VACUUM of all that is not named any more."""
    from deltalake import DeltaTable

    table = DeltaTable(str(path))
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
