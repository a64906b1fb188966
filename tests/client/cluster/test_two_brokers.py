"""Two brokers: every question goes to the leader of its partition, and follows when the leader is another one."""

import pytest

from sparklog.client.admin.admin import AdminClient, NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import EARLIEST, latest_offsets
from sparklog.client.consumer.batch_consumer import BatchConsumer
from sparklog.client.consumer.fetch.range_reader import fetch_range
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.record.builder import RecordBatchBuilder
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness

pytestmark = pytest.mark.integration
_TOPIC = "spread"
_PARTITIONS = [TopicPartition(_TOPIC, number) for number in range(4)]


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with ClusterHarness(tmp_path_factory.mktemp("two"), brokers=2) as harness:
        with ClusterMetadata(ClientConfig(bootstrap_servers=harness.bootstrap_servers)) as cluster:
            AdminClient(cluster).create_topics([NewTopic(_TOPIC, len(_PARTITIONS), 1)])
        yield harness.bootstrap_servers


@pytest.fixture
def cluster(servers):
    with ClusterMetadata(ClientConfig(bootstrap_servers=servers)) as metadata:
        metadata.describe([_TOPIC])
        yield metadata


def _mislead(cluster):
    """As if every partition had moved to the other broker since the metadata was fetched."""
    leaders = cluster._leaders
    known = leaders.topic(_TOPIC)
    other = dict(zip(sorted(leaders.brokers), sorted(leaders.brokers, reverse=True), strict=True))
    wrong = tuple(each._replace(leader=other[each.leader]) for each in known.partitions)
    leaders._topics[_TOPIC] = known._replace(partitions=wrong)


def _put(cluster):
    builder = RecordBatchBuilder()
    builder.append(1, None, b"x")
    with BatchProducer(cluster) as producer:
        for tp in _PARTITIONS:
            producer.send(tp, builder.build())


def test_partitions_are_on_both_brokers(cluster):
    groups = cluster.by_leader(_PARTITIONS)
    assert len(groups) == 2
    assert sorted(tp for group in groups.values() for tp in group) == _PARTITIONS


def test_producing_to_both_and_after_a_move(cluster):
    before = latest_offsets(cluster, _PARTITIONS)
    _put(cluster)
    _mislead(cluster)
    _put(cluster)
    assert latest_offsets(cluster, _PARTITIONS) == {tp: end + 2 for tp, end in before.items()}


def test_asking_for_offsets_after_a_move(cluster):
    _put(cluster)
    before = latest_offsets(cluster, _PARTITIONS)
    _mislead(cluster)
    assert latest_offsets(cluster, _PARTITIONS) == before


def test_fetching_after_a_move(cluster):
    _put(cluster)
    tp = _PARTITIONS[0]
    end = latest_offsets(cluster, [tp])[tp]
    _mislead(cluster)
    assert sum(batch.record_count for batch in fetch_range(cluster, tp, 0, end)) == end


def test_consuming_from_both_and_after_a_move(cluster):
    _put(cluster)
    ends = latest_offsets(cluster, _PARTITIONS)
    consumer = BatchConsumer(cluster, dict.fromkeys(_PARTITIONS, EARLIEST))
    _mislead(cluster)
    found = list(consumer.records(until=ends))
    assert len(found) == sum(ends.values())
    assert {record.tp for record in found} == set(_PARTITIONS)


def test_settings_are_asked_of_each_broker(cluster):
    admin = AdminClient(cluster)
    for broker in admin.describe_cluster().brokers:
        settings = {each.name: each.value for each in admin.broker_configs(broker)}
        assert settings["broker.id"] == str(broker)
