"""The second version request by request: an epoch a transaction, partitions that their leaders add, late requests."""

import pytest
from confluent_kafka import TopicPartition as ConfluentPartition
from integration import wire
from integration.raw_producer import RawProducer
from integration.test_transactions import consumer_of, producer_of, read, settled, state_of, write

from sparklog.client import Producer as OwnProducer
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ApiVersionsRequest
from sparklog.structs import TopicPartition
from sparklog.txn.state import Producer

pytestmark = pytest.mark.integration
E = ErrorCode


def test_the_features_are_told(bootstrap):
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    with wire.connect(bootstrap) as connection:
        told = {version: wire.ask(connection, ApiKey.API_VERSIONS, version, request) for version in (3, 4)}
    for version, answer in told.items():
        finalized = {each.name: (each.min_version_level, each.max_version_level) for each in answer.finalized_features}
        assert finalized["transaction.version"] == (2, 2)
        assert answer.finalized_features_epoch >= 0
        supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
        assert supported.get("transaction.version") == ((0, 2) if version >= 4 else None)


def test_transactions_one_after_another(bootstrap, make_topic, topic):
    make_topic(partitions=2)
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)
    producer = RawProducer(bootstrap, topic)
    assert producer.init() is E.NONE
    first = producer.me
    for number, commit in enumerate([True, False, True]):
        value = b"%d" % number
        assert producer.write(one, value) is E.NONE
        assert producer.write(two, value) is E.NONE
        assert producer.write(one, value + b" again") is E.NONE
        assert producer.commit_offset(f"g-{topic}", one, 10 + number) is E.NONE
        assert producer.end(commit=commit) is E.NONE
        assert producer.me == Producer(first.producer_id, first.epoch + number + 1)
    settled(bootstrap, topic)
    assert read(bootstrap, topic) == [b"0", b"0 again", b"2", b"2 again"]
    assert read(bootstrap, topic, partition=1) == [b"0", b"2"]
    consumer = consumer_of(bootstrap, f"g-{topic}")
    (found,) = consumer.committed([ConfluentPartition(topic, 0)], 30)
    consumer.close()
    assert found.offset == 12


def test_a_transaction_given_up_while_the_markers_of_the_last_are_written_fences_nobody(bootstrap, make_topic, topic):
    make_topic(partitions=2)
    with OwnProducer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        for number in range(20):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number, partition=number % 2).result()
            producer.commit_transaction()
            producer.begin_transaction()
            producer.send(topic, b"given up", partition=0)
            producer.abort_transaction()
    settled(bootstrap, topic)
    assert read(bootstrap, topic) == [b"%d" % number for number in range(0, 20, 2)]


def test_what_comes_after_the_end_is_refused(bootstrap, make_topic, topic):
    make_topic()
    tp = TopicPartition(topic, 0)
    producer = RawProducer(bootstrap, topic)
    producer.init()
    assert producer.write(tp, b"in time") is E.NONE
    before = producer.me
    assert producer.end(commit=True) is E.NONE
    after = producer.me
    producer.me = before
    assert producer.end(commit=True) is E.NONE  # it did not hear the answer
    assert producer.me == after
    settled(bootstrap, topic)
    producer.me = before
    assert producer.write(tp, b"late") is E.INVALID_PRODUCER_EPOCH
    assert producer.commit_offset("g", tp, 1) is E.INVALID_PRODUCER_EPOCH
    producer.me = after
    assert producer.end(commit=True) is E.INVALID_TXN_STATE
    assert producer.end(commit=False) is E.NONE
    assert read(bootstrap, topic) == [b"in time"]


def test_batches_sent_without_waiting_keep_their_order(bootstrap, make_topic, topic):
    """The first of them waits for its partition to be added; those behind it must not overtake it."""
    make_topic()
    tp = TopicPartition(topic, 0)
    producer = RawProducer(bootstrap, topic)
    producer.init()
    values = [b"%d" % number for number in range(5)]
    with wire.connect(producer.leader(tp)) as connection:
        for value in values:
            producer.send(connection, tp, value)
        assert [producer.receive(connection) for _ in values] == [E.NONE] * 5
    assert producer.end(commit=True) is E.NONE
    settled(bootstrap, topic)
    assert read(bootstrap, topic) == values


def test_both_versions_on_one_id(bootstrap, make_topic, topic):
    make_topic()
    tp = TopicPartition(topic, 0)
    second = RawProducer(bootstrap, topic)
    second.init()
    assert second.write(tp, b"second") is E.NONE
    assert second.end(commit=True) is E.NONE
    classic = producer_of(bootstrap, topic)
    classic.begin_transaction()
    write(classic, topic, b"classic")
    classic.commit_transaction(30)
    assert second.write(tp, b"zombie") is E.INVALID_PRODUCER_EPOCH
    assert second.end(commit=True) is E.PRODUCER_FENCED
    assert second.init() is E.NONE
    assert second.write(tp, b"second again") is E.NONE
    assert second.end(commit=True) is E.NONE
    settled(bootstrap, topic)
    assert read(bootstrap, topic) == [b"second", b"classic", b"second again"]


def test_a_batch_outside_a_transaction(bootstrap, make_topic, topic):
    """The first version must name its partitions; who knows the newer error is told that aborting helps."""
    make_topic()
    producer = RawProducer(bootstrap, topic, version=1)
    producer.init()
    assert producer.write(TopicPartition(topic, 0), b"unnamed") is E.TRANSACTION_ABORTABLE
    assert state_of(bootstrap, topic) == "Empty"
