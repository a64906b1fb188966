"""Replicas of a new topic: Kafka's own example, and what holds for any."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.controller.assignment import MAX_PARTITIONS, assign_replicas
from sparklog.errors import ApiError, ErrorCode


def test_the_example_that_kafka_documents():
    # Ten partitions of three replicas on five brokers, from the comment on AdminUtils.assignReplicasToBrokers.
    assert assign_replicas(range(5), 10, 3) == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


@given(
    brokers=st.lists(st.integers(0, 1000), min_size=1, max_size=8, unique=True),
    partitions=st.integers(1, 60),
    start=st.integers(0, 20),
    data=st.data(),
)
def test_replicas_are_distinct_and_leaders_even(brokers, partitions, start, data):
    factor = data.draw(st.integers(1, len(brokers)))
    assignment = assign_replicas(brokers, partitions, factor, start=start)
    assert sorted(assignment) == list(range(partitions))
    for replicas in assignment.values():
        assert len(set(replicas)) == factor
        assert set(replicas) <= set(brokers)
    leaders = Counter(dict.fromkeys(brokers, 0) | Counter(replicas[0] for replicas in assignment.values()))
    assert max(leaders.values()) - min(leaders.values()) <= 1


@pytest.mark.parametrize(
    ("brokers", "partitions", "factor", "code"),
    [
        (3, 0, 1, ErrorCode.INVALID_PARTITIONS),
        (3, -5, 1, ErrorCode.INVALID_PARTITIONS),
        (3, MAX_PARTITIONS + 1, 1, ErrorCode.INVALID_PARTITIONS),
        (3, 2**31 - 1, 1, ErrorCode.INVALID_PARTITIONS),
        (3, 1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (3, 1, 4, ErrorCode.INVALID_REPLICATION_FACTOR),
        (0, 1, 1, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_what_cannot_be_is_refused(brokers, partitions, factor, code):
    with pytest.raises(ApiError) as caught:
        assign_replicas(range(brokers), partitions, factor)
    assert caught.value.code is code
