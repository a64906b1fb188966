"""Which partition a record goes to."""

from itertools import pairwise
from uuid import UUID

import pytest
from client.interrupts import interruptions

from sparklog.client.producer.router import Router
from sparklog.cluster.info import ClusterInfo, PartitionInfo, TopicInfo
from sparklog.cluster.leaders import Leaders
from sparklog.errors import ApiError
from sparklog.record.partitioning import partition_for
from sparklog.structs import Endpoint


def _knowing(count, leaderless=()):
    partitions = tuple(
        PartitionInfo(number, -1 if number in leaderless else 1, 0, (1,), (1,)) for number in range(count)
    )
    topic = TopicInfo("t", UUID(int=1), False, partitions)
    leaders = Leaders()
    leaders.apply(ClusterInfo("c", 1, {1: Endpoint("h", 1)}, {"t": topic}, {}))
    return leaders


def test_what_is_not_known_is_to_be_asked_for():
    router = Router(_knowing(2), 100)
    assert router.route("other", None, b"x", None) is None
    assert router.route("t", None, b"x", 2) is None
    assert router.route("t", None, b"x", 1) == ("t", 1)


@pytest.mark.parametrize("key", [b"", b"key", b"\xff" * 100])
def test_a_key_decides_as_in_kafka(key):
    assert Router(_knowing(7), 100).route("t", key, b"x", None).partition == partition_for(key, 7)


def test_keyless_records_stick_to_a_partition_for_a_batch():
    router = Router(_knowing(3), 10 * 132)
    chosen = [router.route("t", None, b"x" * 100, None).partition for _ in range(300)]
    runs = [1]
    for before, after in pairwise(chosen):
        if after == before:
            runs[-1] += 1
        else:
            runs.append(1)
    assert set(runs[:-1]) == {11}
    assert set(chosen) == {0, 1, 2}


def test_keyless_records_avoid_partitions_without_a_leader():
    router = Router(_knowing(3, leaderless={1}), 1)
    assert {router.route("t", None, b"x", None).partition for _ in range(50)} == {0, 2}


def test_keyless_records_leave_a_partition_whose_leader_has_gone():
    leaders = _knowing(2)
    router = Router(leaders, 1 << 20)
    stuck = router.route("t", None, b"x", None).partition
    leaders.apply(ClusterInfo("c", 1, {1: Endpoint("h", 1)}, {"t": _knowing(2, leaderless={stuck}).topic("t")}, {}))
    assert {router.route("t", None, b"x", None).partition for _ in range(50)} == {1 - stuck}


@pytest.mark.source
def test_keyless_records_leave_it_even_if_that_was_interrupted():
    def begun():
        leaders = _knowing(2)
        router = Router(leaders, 1 << 20)
        stuck = router.route("t", None, b"x", None).partition
        gone = {"t": _knowing(2, leaderless={stuck}).topic("t")}
        leaders.apply(ClusterInfo("c", 1, {1: Endpoint("h", 1)}, gone, {}))
        return (router, stuck), lambda: router.route("t", None, b"x", None)

    for router, stuck in interruptions(begun):
        assert router.route("t", None, b"x", None).partition == 1 - stuck


def test_new_partitions_are_used():
    leaders = _knowing(1)
    router = Router(leaders, 100)
    assert router.route("t", None, None, 1) is None
    grown = _knowing(2)
    leaders.apply(ClusterInfo("c", 1, grown.brokers, {"t": grown.topic("t")}, {}))
    assert router.route("t", None, None, 1) == ("t", 1)


def test_a_partitioner_must_choose_one_that_is_there():
    router = Router(_knowing(2), 100, lambda topic, key, value, count: count)
    with pytest.raises(ApiError, match="the partitioner chose 2 of the partitions 0 to 1"):
        router.route("t", b"k", b"v", None)
