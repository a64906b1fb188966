"""Transactions written by one client and ended by another, and the batches in them."""

import pytest

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.prepared import PreparedTransaction
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import latest_offsets
from sparklog.client.consumer.fetch.range_reader import fetch_range
from sparklog.client.producer.transactional_batch_producer import TransactionalBatchProducer
from sparklog.clock import SystemClock
from sparklog.errors import ApiError, ConfigError, ErrorCode
from sparklog.net.connection import BlockingConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.records import iter_records
from sparklog.structs import IsolationLevel, TopicPartition
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

COMMITTED = IsolationLevel.READ_COMMITTED


def _batch(*values):
    builder = RecordBatchBuilder(is_transactional=True)
    for value in values:
        builder.append(SystemClock().now_ms(), None, value)
    return bytearray(builder.build())


@pytest.fixture
def admin(servers):
    with Admin({"bootstrap.servers": servers}) as admin:
        yield admin


@pytest.fixture
def producer(metadata, admin):
    """Begins a transaction under an id, and makes its producer."""

    def begin(transactional_id):
        transaction = admin.init_prepared(transactional_id, 60_000)
        assert transaction is not None
        return transaction, TransactionalBatchProducer(
            metadata, transaction, lambda tps: admin.add_to_prepared(transaction, tps)
        )

    return begin


@pytest.fixture
def committed(metadata):
    """What a reader of committed records finds in a partition, once nothing is open there."""

    def read(tp):
        def is_settled():
            high = latest_offsets(metadata, [tp])[tp]
            return latest_offsets(metadata, [tp], COMMITTED)[tp] == high and high

        end = eventually(is_settled, what=f"nothing is open in {tp}")
        batches = fetch_range(metadata, tp, 0, end, isolation=COMMITTED)
        return [record.value for batch in batches for record in iter_records(batch)]

    return read


@pytest.mark.parametrize("commit", [True, False])
def test_whoever_knows_the_pair_ends_it(admin, producer, partitions, committed, topic, commit):
    tps = partitions(2)
    transaction, writer = producer(topic)
    with writer:
        for number in range(40):
            writer.send(tps[number % 2], _batch(b"%d" % number, b"+"))
    assert admin.open_transactions([topic])[topic].partitions == tuple(tps)
    assert admin.end_prepared([transaction], commit=commit) == [True]
    assert admin.end_prepared([transaction], commit=commit) == [True]
    assert admin.end_prepared([transaction], commit=not commit) == [False]
    eventually(lambda: not admin.open_transactions([topic]), what="the markers")
    for tp in tps:
        numbers = range(tp.partition, 40, 2)
        expected = [value for number in numbers for value in (b"%d" % number, b"+")]
        assert committed(tp) == (expected if commit else [])


def test_the_pair_never_ends_the_next_transaction(admin, producer, make_topic, committed, topic):
    tp = TopicPartition(make_topic(), 0)
    first, writer = producer(topic)
    with writer:
        writer.send(tp, _batch(b"first"))
    assert admin.end_prepared([first], commit=False) == [True]
    eventually(lambda: not admin.open_transactions([topic]), what="the marker")
    second, writer = producer(topic)
    with writer:
        writer.send(tp, _batch(b"second"))
    assert admin.end_prepared([first], commit=True) == [False]
    assert admin.end_prepared([first], commit=False) == [False]
    assert admin.end_prepared([second], commit=True) == [True]
    assert committed(tp) == [b"second"]


def test_a_retired_pair_opens_no_transaction_and_ends_no_other(admin, producer, partitions, committed, topic):
    one, two = partitions(2)
    first, writer = producer(topic)
    with writer:
        writer.send(one, _batch(b"first"))
    admin.retire_prepared([first, PreparedTransaction(f"{topic}-never-heard-of", 1, 0)])
    assert not admin.open_transactions([topic])
    with pytest.raises(ApiError):
        admin.add_to_prepared(first, [two])
    second, writer = producer(topic)
    with writer:
        writer.send(one, _batch(b"second"))
    admin.retire_prepared([first])
    assert admin.end_prepared([second], commit=True) == [True]
    assert committed(one) == [b"second"]


def test_an_open_transaction_is_left_to_its_owner(admin, producer, make_topic, committed, topic):
    tp = TopicPartition(make_topic(), 0)
    transaction, writer = producer(topic)
    with writer:
        writer.send(tp, _batch(b"kept"))
    assert admin.init_prepared(topic, 60_000) is None
    assert admin.end_prepared([transaction], commit=True) == [True]
    assert committed(tp) == [b"kept"]


def test_nothing_written_is_nothing_to_end(admin, topic):
    transaction = admin.init_prepared(topic, 60_000)
    assert admin.open_transactions([topic, "never-heard-of"]) == {}
    assert admin.end_prepared([transaction, PreparedTransaction("never-heard-of", 1, 0)], commit=False) == [False, None]


def test_each_batch_once_though_connections_break(producer, admin, partitions, committed, topic, monkeypatch):
    tps = partitions(3)
    transaction, writer = producer(topic)
    plain, answers = BlockingConnection.receive, []

    def receive(connection):
        answer = plain(connection)
        if answer[0] is ApiKey.PRODUCE:
            answers.append(answer)
            if len(answers) % 4 == 3:  # the batches are written, and nobody is told
                connection.close()
                return plain(connection)
        return answer

    with writer, monkeypatch.context() as patch:
        patch.setattr(BlockingConnection, "receive", receive)
        for number in range(120):
            writer.send(tps[number % 3], _batch(b"%d" % number))
        writer.flush()
    assert len(answers) > 10
    assert admin.end_prepared([transaction], commit=True) == [True]
    for tp in tps:
        assert committed(tp) == [b"%d" % number for number in range(tp.partition, 120, 3)]


def test_the_aborted_writer_is_refused(admin, producer, make_topic, topic):
    tp = TopicPartition(make_topic(), 0)
    transaction, writer = producer(topic)
    writer.send(tp, _batch(b"a"))
    writer.flush()
    assert admin.end_prepared([transaction], commit=False) == [True]
    eventually(lambda: not admin.open_transactions([topic]), what="the marker")
    again = admin.init_prepared(topic, 60_000)
    assert again is not None
    writer.send(tp, _batch(b"late"))
    with pytest.raises(ApiError) as caught:
        writer.flush()
    assert caught.value.code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_EPOCH)
    writer.close()


def test_a_transaction_needs_all_replicas(servers):
    config = ClientConfig(bootstrap_servers=servers, acks="1")
    with ClusterMetadata(config) as cluster, pytest.raises(ConfigError, match="acks=all"):
        TransactionalBatchProducer(cluster, PreparedTransaction("x", 1, 0), lambda tps: None)


def test_partitions_are_added_together_and_once(metadata):
    asked = []
    tps = [TopicPartition("t", number) for number in range(3)]
    producer = TransactionalBatchProducer(metadata, PreparedTransaction("x", 1, 0), asked.append)
    producer.will_send(tps[:2])
    producer.will_send(reversed(tps))
    producer.will_send([])
    assert asked == [tps[:2], tps[2:]]


def test_the_partition_that_cannot_be_added_is_named(admin, make_topic, topic):
    topic = make_topic()
    transaction = admin.init_prepared(f"{topic}-id", 60_000)
    missing = TopicPartition(topic, 7)
    with pytest.raises(ApiError, match=f"{missing} cannot be written.*UNKNOWN_TOPIC_OR_PARTITION"):
        admin.add_to_prepared(transaction, [TopicPartition(topic, 0), missing])
