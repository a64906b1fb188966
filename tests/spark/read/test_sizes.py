"""Bytes per offset, as a real cluster tells its logs' sizes."""

import pytest

from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.errors import ApiError, ErrorCode
from sparklog.spark.read import sizes
from sparklog.spark.read.sizes import PartitionSizes, log_sizes
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock

pytestmark = pytest.mark.integration


@pytest.fixture
def filled(make_topic, produce):
    topic = make_topic(partitions=3)
    produce(topic, *({"value": bytes(2000), "partition": 0} for _ in range(50)))
    produce(topic, *({"value": b"x", "partition": 1} for _ in range(50)))
    return [TopicPartition(topic, number) for number in range(3)]


def test_the_size_of_a_log_over_its_offsets(metadata, filled):
    heavy, light, empty = filled
    found = PartitionSizes(metadata).bytes_per_offset(filled)
    assert 2000 < found[heavy] < 2200
    assert 1 <= found[light] < 100
    assert found[empty] == 1024
    assert log_sizes(metadata, filled)[heavy] == round(found[heavy] * 50)


def test_sizes_are_asked_for_again_after_a_while_and_for_new_partitions(servers, filled, monkeypatch):
    asked = []
    monkeypatch.setattr(sizes, "log_sizes", lambda cluster, tps: asked.append(len(tps)) or log_sizes(cluster, tps))
    clock = ManualClock()
    with ClusterMetadata(ClientConfig(bootstrap_servers=servers), clock) as cluster:
        known = PartitionSizes(cluster)
        known.bytes_per_offset(filled[:2])
        known.bytes_per_offset(filled[:1])
        assert asked == [2]
        known.bytes_per_offset(filled)
        assert asked == [2, 3]
        clock.advance(31)
        known.bytes_per_offset(filled)
        assert asked == [2, 3, 3]


def test_brokers_that_do_not_tell_are_no_error(metadata, filled, monkeypatch, caplog):
    def refuse(cluster, partitions):
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    monkeypatch.setattr(sizes, "log_sizes", refuse)
    assert PartitionSizes(metadata).bytes_per_offset(filled[:1]) == {filled[0]: 1024}
    assert "CLUSTER_AUTHORIZATION_FAILED" in caplog.text
