import pytest

from sparklog.client.admin.admin import AdminClient, NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import latest_offsets
from sparklog.client.consumer.fetch.range_reader import fetch_range
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.errors import ApiError, ErrorCode
from sparklog.net.connection import BlockingConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.records import iter_records
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness

pytestmark = pytest.mark.integration


def _batch(*values):
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(1, None, value)
    return builder.build()


def _values(metadata, tp):
    end = latest_offsets(metadata, [tp])[tp]
    return [record.value for batch in fetch_range(metadata, tp, 0, end) for record in iter_records(batch)]


@pytest.mark.parametrize("acks", ["all", "1"])
def test_batches_arrive_in_order(servers, make_topic, acks):
    topic = make_topic(partitions=2)
    with ClusterMetadata(ClientConfig(bootstrap_servers=servers, acks=acks)) as cluster:
        with BatchProducer(cluster) as producer:
            for number in range(100):
                producer.send(TopicPartition(topic, number % 2), _batch(b"%d" % number))
        for partition in (0, 1):
            expected = [b"%d" % number for number in range(partition, 100, 2)]
            assert _values(cluster, TopicPartition(topic, partition)) == expected


def test_without_acks_nothing_is_waited_for(servers, make_topic):
    tp = TopicPartition(make_topic(), 0)
    with ClusterMetadata(ClientConfig(bootstrap_servers=servers, acks="0")) as cluster:
        with BatchProducer(cluster) as producer:
            producer.send(tp, _batch(b"x"))
        # The same connection answers in order, so the batch is in when a question after it is answered.
        assert _values(cluster, tp) == [b"x"]


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        ([bytes(2000)], "it is a single record: raise the topic's max.message.bytes, or make the record smaller"),
        ([bytes(900), bytes(900)], "raise the topic's max.message.bytes or lower batch.size"),
    ],
    ids=["one record", "two"],
)
def test_a_batch_too_large_names_the_partition_and_the_remedy(metadata, make_topic, values, remedy):
    tp = TopicPartition(make_topic(max_message_bytes=1000), 0)
    with pytest.raises(ApiError) as caught, BatchProducer(metadata) as producer:
        producer.send(tp, _batch(*values))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert str(tp) in str(caught.value)
    assert str(caught.value).endswith(f"; {remedy}")


def test_a_lost_connection_loses_no_batch(metadata, make_topic, monkeypatch):
    tp = TopicPartition(make_topic(), 0)
    send = BlockingConnection.send
    produced = []

    def failing(self, api, version, body, **kwargs):
        if api is ApiKey.PRODUCE:
            produced.append(1)
            if len(produced) in (3, 4, 20):
                self._socket.close()
        send(self, api, version, body, **kwargs)

    monkeypatch.setattr(BlockingConnection, "send", failing)
    with BatchProducer(metadata) as producer:
        for number in range(50):
            producer.send(tp, _batch(b"%d" % number))
    assert {b"%d" % number for number in range(50)} == set(_values(metadata, tp))


def test_a_batch_that_is_more_than_a_broker_takes_at_once_is_refused(tmp_path, topic):
    settings = {"socket.request.max.bytes": 1_000_000}
    with ClusterHarness(tmp_path, settings=settings) as harness:
        config = ClientConfig(bootstrap_servers=harness.bootstrap_servers, max_request_size=500_000)
        with ClusterMetadata(config) as cluster:
            tp = TopicPartition(topic, 0)
            AdminClient(cluster).create_topics([NewTopic(topic, 1, 1, {"max.message.bytes": "5000000"})])
            refused = pytest.raises(ApiError, match=r"MESSAGE_TOO_LARGE.*hung up.*single record")
            with refused, BatchProducer(cluster) as producer:
                producer.send(tp, _batch(bytes(2_000_000)))
            with BatchProducer(cluster) as producer:
                producer.send(tp, _batch(bytes(600_000)))
            assert [len(value) for value in _values(cluster, tp)] == [600_000]


def test_an_unknown_partition_is_refused(metadata, make_topic):
    with pytest.raises(ApiError, match="no partition 5, only 0 to 0"), BatchProducer(metadata) as producer:
        producer.send(TopicPartition(make_topic(), 5), _batch(b"x"))
