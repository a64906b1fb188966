import pytest

from sparklog.client.cluster.offsets import EARLIEST, LATEST, latest_offsets
from sparklog.client.consumer.batch_consumer import BatchConsumer
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.record.builder import RecordBatchBuilder
from sparklog.structs import TopicPartition

pytestmark = pytest.mark.integration


@pytest.fixture
def partitions(metadata, make_topic):
    topic = make_topic(partitions=2)
    return [TopicPartition(topic, partition) for partition in (0, 1)]


def _put(metadata, tp, *values):
    builder = RecordBatchBuilder()
    for number, value in enumerate(values):
        builder.append(1_700_000_000_000 + number, b"k", value, [("h", b"1"), ("n", None)])
    with BatchProducer(metadata) as producer:
        producer.send(tp, builder.build())


def test_reads_up_to_an_end(metadata, partitions):
    for tp in partitions:
        _put(metadata, tp, b"a", b"", b"c")
    consumer = BatchConsumer(metadata, dict.fromkeys(partitions, EARLIEST))
    found = list(consumer.records(until=latest_offsets(metadata, partitions)))
    assert sorted((r.tp, r.offset, r.value) for r in found) == [
        (tp, offset, value) for tp in partitions for offset, value in enumerate([b"a", b"", b"c"])
    ]
    assert found[0].headers == (("h", b"1"), ("n", None))
    assert {r.timestamp for r in found} == {1_700_000_000_000, 1_700_000_000_001, 1_700_000_000_002}


def test_starts_in_the_middle_of_a_batch_and_ends_there(metadata, partitions):
    tp = partitions[0]
    _put(metadata, tp, b"a", b"b", b"c", b"d")
    consumer = BatchConsumer(metadata, {tp: 1})
    assert [r.value for r in consumer.records(until={tp: 3})] == [b"b", b"c"]


def test_follows_what_comes_after_latest(metadata, partitions):
    tp = partitions[0]
    _put(metadata, tp, b"old")
    consumer = BatchConsumer(metadata, {tp: LATEST})
    records = consumer.records()
    _put(metadata, tp, b"new", b"newer")
    assert [next(records).value, next(records).value] == [b"new", b"newer"]


def test_poll_gives_batches_and_moves_on(metadata, partitions):
    tp = partitions[0]
    _put(metadata, tp, b"a")
    consumer = BatchConsumer(metadata, {tp: 0})
    assert [batch.record_count for batch in consumer.poll()[tp]] == [1]
    assert consumer.positions == {tp: 1}
    assert consumer.poll(max_wait_ms=1) == {}
