"""What a worker has imported is kept out of the collections after its tasks; no other process is touched."""

import gc

import pyarrow as pa
import pytest

from sparklog.spark.worker_heap import freeze_imports

pytestmark = pytest.mark.spark


@pytest.fixture
def frozen_in_a_worker(spark):
    """How many objects the workers that are idle hold frozen, the most of them."""

    def ask():
        def count(batches):
            for _ in batches:
                yield pa.record_batch({"n": [gc.get_freeze_count()]})

        rows = spark.range(0, 2, numPartitions=2).mapInArrow(count, "n bigint").collect()
        return max(row.n for row in rows)

    return ask


def test_nothing_is_frozen_outside_of_a_worker():
    freeze_imports()
    assert gc.get_freeze_count() == 0


def test_a_worker_that_has_read_is_frozen(spark, read, make_topic, produce, frozen_in_a_worker):
    topic = make_topic()
    produce(topic, {"value": b"one"})
    assert read(subscribe=topic).count() == 1
    assert frozen_in_a_worker() > 10_000


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
