"""What ails partitions, and what brokers have of them: counted by hand."""

from uuid import UUID

import pytest

from sparklog.cluster.health import Ailment, ailments, health_of
from sparklog.cluster.info import ClusterInfo, PartitionInfo, TopicInfo
from sparklog.structs import NO_LEADER, Endpoint

UNDER, GONE, BELOW, AT = Ailment
LIVE = {1, 2}


def partition(number=0, leader=1, replicas=(1, 2), isr=(1, 2), offline=()):
    return PartitionInfo(number, leader, 5, replicas, isr, offline)


@pytest.mark.parametrize(
    ("found", "min_isr", "expected"),
    [
        (partition(), 1, set()),
        (partition(), 2, {AT}),
        (partition(), 3, {BELOW}),
        (partition(isr=(1,)), 1, {UNDER, AT}),
        (partition(isr=(1,)), 2, {UNDER, BELOW}),
        (partition(leader=NO_LEADER, isr=(2,)), 1, {UNDER, GONE, BELOW, AT}),
        (partition(leader=3, replicas=(3,), isr=(3,)), 1, {GONE, BELOW, AT}),
        (partition(replicas=(1,), isr=(1,)), 1, {AT}),
    ],
)
def test_what_ails_a_partition(found, min_isr, expected):
    assert ailments(found, LIVE, min_isr) == expected


def cluster_of(**topics):
    brokers = {broker: Endpoint("h", broker) for broker in LIVE}
    infos = {name: TopicInfo(name, UUID(int=1), False, tuple(partitions)) for name, partitions in topics.items()}
    return ClusterInfo("c", 1, brokers, infos, {})


def test_a_cluster_is_counted_with_brokers_that_are_gone():
    found = cluster_of(
        a=[partition(), partition(1, leader=1, replicas=(2, 1)), partition(2, leader=2, replicas=(2, 3), isr=(2,))],
        b=[partition(0, leader=NO_LEADER, replicas=(3, 1), isr=(3,), offline=(3,))],
    )
    health = health_of(found, {"a": 2})
    assert (health.partitions, health.elsewhere) == (4, 2)
    assert health.ailing == {UNDER: 2, GONE: 1, BELOW: 2, AT: 3}
    shares = {broker: tuple(vars(share).values()) for broker, share in health.shares.items()}
    #                 leads, under-replicated, preferred, elsewhere, replicas, out of sync, offline
    assert shares == {1: (2, 0, 1, 0, 3, 1, 0), 2: (1, 1, 2, 1, 3, 0, 0), 3: (0, 0, 1, 1, 2, 1, 1)}
    assert [share.imbalance_percent for _, share in sorted(health.shares.items())] == [0, 50, 100]


def test_a_broker_without_partitions_counts_too():
    health = health_of(cluster_of(), {})
    assert (health.partitions, sorted(health.shares)) == (0, [1, 2])
    assert {share.imbalance_percent for share in health.shares.values()} == {0}
