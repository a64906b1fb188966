"""confluent-kafka: librdkafka as Python programs use it."""

from contextlib import contextmanager

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
RECORDS = [
    (b"key", b"value", []),
    (None, b"no key", []),
    (b"tombstone", None, []),
    (None, None, []),
    (b"", b"", []),
    (b"k", b"headers", [("a", b"1"), ("null", None), ("empty", b""), ("a", b"again")]),
    *((b"%d" % (number % 10), b"a value like many others, %d" % number, []) for number in range(200)),
]
MEGABYTE = 1 << 20


def send(bootstrap, topic, records, *, partition=0, **settings):
    """Produce, wait until all is settled, and return the failures."""
    failures = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0, **settings})
    for key, value, headers in records:
        producer.produce(
            topic, value, key, partition, headers=headers or None, on_delivery=lambda e, _: e and failures.append(e)
        )
    assert producer.flush(30) == 0
    return failures


@contextmanager
def consumer_of(bootstrap, group, **settings):
    """A consumer, closed at the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "log_level": 0,
            **settings,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def take(consumer, count):
    """The next ``count`` messages."""
    taken = []

    def enough():
        for message in consumer.consume(count - len(taken), 0.5):
            assert message.error() is None, message.error()
            taken.append(message)
        return len(taken) >= count

    eventually(enough, 60, f"{count} messages")
    return taken


def read_back(bootstrap, topic, count, **settings):
    """The first ``count`` messages of partition 0."""
    with consumer_of(bootstrap, "nobody", **settings) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        return take(consumer, count)


@pytest.mark.parametrize("codec", CODECS)
def test_what_it_writes_it_reads_back(bootstrap, make_topic, codec):
    topic = make_topic()
    assert send(bootstrap, topic, RECORDS, **{"compression.type": codec}) == []
    read = read_back(bootstrap, topic, len(RECORDS), **{"check.crcs": True})
    assert [(each.key(), each.value(), each.headers() or []) for each in read] == RECORDS
    assert [each.offset() for each in read] == list(range(len(RECORDS)))


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acknowledgement_mode(bootstrap, make_topic, acks):
    topic = make_topic()
    assert send(bootstrap, topic, RECORDS[:5], acks=acks) == []
    assert [each.value() for each in read_back(bootstrap, topic, 5)] == [value for _, value, _ in RECORDS[:5]]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_values_of_a_megabyte(bootstrap, make_topic, codec):
    topic = make_topic(max_message_bytes=3 * MEGABYTE)
    values = [bytes([number]) * MEGABYTE for number in range(1, 6)]
    assert send(
        *(bootstrap, topic, [(None, value, []) for value in values]),
        **{"message.max.bytes": 2 * MEGABYTE, "compression.type": codec},
    ) == []  # fmt: skip
    assert [each.value() for each in read_back(bootstrap, topic, 5)] == values


def test_a_message_above_the_topics_limit_is_refused(bootstrap, make_topic):
    topic = make_topic(max_message_bytes=1000)
    failures = send(bootstrap, topic, [(None, b"x" * 2000, []), (None, b"small", [])], **{"batch.num.messages": 1})
    assert [each.code() for each in failures] == [KafkaError.MSG_SIZE_TOO_LARGE]
    assert [each.value() for each in read_back(bootstrap, topic, 1)] == [b"small"]


@pytest.mark.parametrize("internal", ["__consumer_offsets", "__transaction_state"])
def test_the_brokers_own_topics_are_not_written_by_clients(bootstrap, topic, internal):
    with consumer_of(bootstrap, topic) as reader:
        reader.committed([TopicPartition(topic, 0)], timeout=30)
    transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "log_level": 0})
    transactional.init_transactions(30)
    refusals = []
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce(internal, b"value", b"key", on_delivery=lambda error, _: refusals.append(error.code()))
    assert producer.flush(30) == 0
    assert refusals == [KafkaError.TOPIC_EXCEPTION]


def test_an_idempotent_producer(bootstrap, make_topic):
    topic = make_topic()
    settings = {"enable.idempotence": True, "batch.num.messages": 7}
    assert send(bootstrap, topic, RECORDS, **settings) == []
    assert [each.value() for each in read_back(bootstrap, topic, len(RECORDS))] == [value for _, value, _ in RECORDS]


def test_a_group_commits_and_resumes(bootstrap, make_topic, topic):
    make_topic()
    numbered = [(None, b"%d" % number, []) for number in range(100)]
    assert send(bootstrap, topic, numbered) == []
    with consumer_of(bootstrap, topic) as consumer:
        consumer.subscribe([topic])
        first = take(consumer, 40)
        (committed,) = consumer.commit(offsets=[TopicPartition(topic, 0, 40)], asynchronous=False)
        assert committed.error is None
    with consumer_of(bootstrap, topic) as consumer:
        consumer.subscribe([topic])
        rest = take(consumer, 60)
        (stored,) = consumer.committed([TopicPartition(topic, 0)], 10)
    assert [each.value() for each in first + rest] == [value for _, value, _ in numbered]
    assert stored.offset == 40


def test_commits_keep_their_metadata(bootstrap, make_topic, topic):
    make_topic(partitions=2)
    with consumer_of(bootstrap, topic) as consumer:
        wanted = [TopicPartition(topic, 0, 5, "halfway"), TopicPartition(topic, 1, 7)]
        consumer.commit(offsets=wanted, asynchronous=False)
        stored = consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], 10)
    assert [(each.offset, each.metadata) for each in stored] == [(5, "halfway"), (7, None)]


def test_watermarks_and_offsets_for_times(bootstrap, make_topic):
    topic = make_topic()
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(10):
        producer.produce(topic, b"x", partition=0, timestamp=1_000 + 100 * number)
    assert producer.flush(30) == 0
    with consumer_of(bootstrap, "nobody") as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), 10) == (0, 10)
        for asked, found in ((0, 0), (1_150, 2), (1_900, 9), (1_901, -1)):
            (answer,) = consumer.offsets_for_times([TopicPartition(topic, 0, asked)], 10)
            assert answer.offset == found


def test_a_consumer_follows_what_is_written_while_it_reads(bootstrap, make_topic):
    topic = make_topic()
    with consumer_of(bootstrap, "nobody") as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        for number in range(5):
            assert send(bootstrap, topic, [(None, b"%d" % number, [])]) == []
            assert [each.value() for each in take(consumer, 1)] == [b"%d" % number]
