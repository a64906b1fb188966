"""What a worker has imported is kept out of the collections after its tasks; no other process is touched."""

import gc

import pyarrow as pa
import pytest

from sparklog.spark.source import SparklogDataSource
from sparklog.spark.worker_gc import freeze_imports

pytestmark = pytest.mark.spark


def test_nothing_is_frozen_outside_of_a_worker():
    before = gc.get_freeze_count()
    freeze_imports()
    assert gc.get_freeze_count() == before


def test_a_worker_that_has_read_is_frozen(spark, servers, make_topic, produce):
    topic = make_topic()
    produce(topic, {"value": b"one"})

    def read(batches):
        for _ in batches:
            source = SparklogDataSource({"kafka.bootstrap.servers": servers, "subscribe": topic})
            reader = source.reader(source.schema())
            rows = sum(batch.num_rows for task in reader.partitions() for batch in reader.read(task))
            yield pa.record_batch({"rows": [rows], "frozen": [gc.get_freeze_count()]})

    (found,) = spark.range(0, 1, numPartitions=1).mapInArrow(read, "rows bigint, frozen bigint").collect()
    assert found.rows == 1
    assert found.frozen > 10_000


def test_what_is_made_later_is_collected(spark):
    """A cycle that a later task leaves is still found."""

    def collected(batches):
        for _ in batches:
            freeze_imports()
            before = gc.get_freeze_count()
            cycle = []
            cycle.append(cycle)
            del cycle
            yield pa.record_batch({"found": [gc.collect()], "same": [gc.get_freeze_count() == before]})

    (row,) = spark.range(0, 1, numPartitions=1).mapInArrow(collected, "found bigint, same boolean").collect()
    assert row.found >= 1
    assert row.same
