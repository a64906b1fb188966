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


@pytest.mark.parametrize("present", range(1, 6))
def test_added_partitions_go_on_with_the_numbers_of_those_that_are_there(present):
    added = assign_replicas(range(5), 10 - present, 3, first_number=present)
    assert assign_replicas(range(5), present, 3) | added == assign_replicas(range(5), 10, 3)


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


RACKS = {0: "a", 1: "a", 2: "a", 3: "b", 4: "b", 5: "b", 6: "c", 7: "c", 8: "c"}


@given(
    racks=st.dictionaries(st.integers(0, 50), st.sampled_from("abcd"), min_size=1, max_size=9),
    partitions=st.integers(1, 40),
    start=st.integers(0, 20),
    shift=st.integers(0, 20),
    data=st.data(),
)
def test_no_rack_has_two_replicas_while_another_has_none(racks, partitions, start, shift, data):
    factor = data.draw(st.integers(1, len(racks)))
    assignment = assign_replicas(list(racks), partitions, factor, start=start, shift=shift, racks=racks)
    assert sorted(assignment) == list(range(partitions))
    for replicas in assignment.values():
        assert len(set(replicas)) == factor
        held = Counter(racks[each] for each in replicas)
        assert max(held.values()) == 1 or len(held) == len(set(racks.values()))
    leaders = Counter(dict.fromkeys(racks, 0) | Counter(replicas[0] for replicas in assignment.values()))
    assert max(leaders.values()) - min(leaders.values()) <= 1


def test_racks_are_spread_over_as_kafka_does_it():
    """Worked out by AdminUtils.assignReplicasToBrokersRackAware: the brokers by turns are 0, 3, 6, 1, 4, 7, 2, 5, 8."""
    assert assign_replicas(range(9), 10, 3, racks=RACKS) == {
        0: (0, 3, 6),
        1: (3, 6, 1),
        2: (6, 1, 4),
        3: (1, 4, 7),
        4: (4, 7, 2),
        5: (7, 2, 5),
        6: (2, 5, 8),
        7: (5, 8, 0),
        8: (8, 0, 3),
        9: (0, 4, 7),  # shifted by one round of the three racks: four brokers on from the first
    }


def test_the_example_of_six_brokers_in_three_racks():
    """From the comment on AdminUtils: 0 and 5 in one rack, 1 and 3 in another, 2 and 4 in the third."""
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    assert assign_replicas(range(6), 7, 3, racks=racks) == {
        0: (0, 3, 1),
        1: (3, 1, 5),
        2: (1, 5, 4),
        3: (5, 4, 2),
        4: (4, 2, 0),
        5: (2, 0, 3),
        6: (0, 4, 2),
    }


def test_a_start_and_a_shift_over_uneven_racks_are_as_kafka_has_them():
    """By hand from AdminUtils: by turns 1, 2, 4, 3, 5; the first replica is at 2, the others 1 + (2 * 2 + k) % 4 on."""
    racks = {1: "a", 2: "b", 3: "b", 4: "a", 5: "b"}
    # By turns: 1 (a), 2 (b), 4 (a), 3 (b), 5 (b). Partition 0: at 2 is 4 (a); 1 + 4 % 4 on is 3 (b), then 5.
    assert assign_replicas(range(1, 6), 1, 3, start=2, shift=2, racks=racks) == {0: (4, 3, 5)}
    # Shifted by one rack round, 1 + 6 % 4 = 3 on is 1, which is in the same rack; then 2 (b), and 3 in turn.
    assert assign_replicas(range(1, 6), 1, 3, start=2, shift=3, racks=racks) == {0: (4, 2, 3)}


def test_racks_that_not_all_brokers_tell_of_count_for_nothing():
    for racks in (None, {}, {0: "a", 1: "b"}, {0: "a", 1: "b", 2: None}, {0: "a", 1: "a", 2: ""}):
        assert assign_replicas(range(3), 4, 2, racks=racks) == assign_replicas(range(3), 4, 2)
