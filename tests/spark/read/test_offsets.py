import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.spark.read.offsets import PACKED_OFFSETS, OffsetRange, Split, from_json, into_tasks, limited, to_json
from sparklog.structs import TopicPartition


def _range(partition, start, end):
    return OffsetRange(TopicPartition("t", partition), start, end)


_ranges = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 500_000)), max_size=8).map(
    lambda pairs: [_range(number, start, start + size) for number, (start, size) in enumerate(pairs)]
)
_limits = st.none() | st.integers(1, 50)


def test_json_does_not_depend_on_the_order_of_discovery():
    a, b, c = TopicPartition("b", 10), TopicPartition("b", 2), TopicPartition("a", 0)
    one = to_json({a: 1, b: 2, c: 3})
    assert json.dumps(one) == json.dumps(to_json({c: 3, b: 2, a: 1})) == '{"a": {"0": 3}, "b": {"2": 2, "10": 1}}'
    assert from_json(one) == {a: 1, b: 2, c: 3}


@given(_ranges, _limits, st.none() | st.integers(10_000, 200_000))
def test_tasks_cover_every_range_once_and_in_order(ranges, min_partitions, max_records):
    tasks = into_tasks(ranges, Split(min_partitions, max_records))
    for wanted in ranges:
        parts = [part for task in tasks for part in task if part.tp == wanted.tp]
        position = wanted.start
        for part in parts:
            assert part.start == position
            assert part.size > 0
            position = part.end
        assert position == wanted.end if wanted.size else not parts


@given(_ranges, st.integers(1, 50))
def test_min_partitions_is_reached_when_there_are_so_many_offsets(ranges, least):
    tasks = into_tasks(ranges, Split(least))
    assert len(tasks) >= min(least, sum(each.size for each in ranges))


@given(_ranges, _limits, st.integers(10_000, 200_000))
def test_no_task_has_more_than_the_most_records(ranges, min_partitions, most):
    assert all(sum(each.size for each in task) <= most for task in into_tasks(ranges, Split(min_partitions, most)))


def test_without_limits_a_partition_is_never_cut():
    assert into_tasks([_range(0, 0, 10**9)]) == [[_range(0, 0, 10**9)]]


def test_small_ranges_share_a_task_and_large_ones_do_not():
    small = [_range(number, 0, 10) for number in range(100)]
    assert into_tasks(small) == [small]
    large = [_range(number, 0, PACKED_OFFSETS) for number in range(3)]
    assert into_tasks(large) == [[each] for each in large]


def test_min_partitions_cuts_the_large_partition_of_a_skewed_topic():
    tasks = into_tasks([_range(0, 0, 1_000_000), _range(1, 0, 10)], Split(4))
    sizes = sorted(task[0].size for task in tasks)
    assert sizes[0] == 10
    assert len(sizes) >= 4
    assert max(sizes) <= 1_000_000 / 3 + 1


def test_nothing_to_read_is_no_task():
    assert into_tasks([_range(0, 5, 5)], Split(3)) == []


_sizes = st.dictionaries(st.integers(0, 9), st.integers(0, 10_000), min_size=1)


@given(_sizes, st.integers(1, 5000))
def test_a_limit_is_kept_and_starves_nobody(sizes, most):
    start = {TopicPartition("t", number): 100 for number in sizes}
    end = {TopicPartition("t", number): 100 + size for number, size in sizes.items()}
    bounded = limited(start, end, most)
    taken = {tp: bounded[tp] - start[tp] for tp in end}
    waiting = [tp for tp in end if end[tp] > start[tp]]
    assert sum(taken.values()) <= max(most, len(waiting))
    assert all(0 <= taken[tp] <= end[tp] - start[tp] for tp in end)
    assert all(taken[tp] > 0 for tp in waiting)


@pytest.mark.parametrize("most", [100, 1000])
def test_a_limit_is_nearly_used_up(most):
    start = {TopicPartition("t", number): 0 for number in range(3)}
    end = {tp: 10_000 * (tp.partition + 1) for tp in start}
    taken = limited(start, end, most)
    assert most - 3 <= sum(taken.values()) <= most
    assert taken[TopicPartition("t", 2)] > 2 * taken[TopicPartition("t", 0)]


@given(_ranges, st.integers(10_000, 10_000_000), st.dictionaries(st.integers(0, 7), st.floats(1, 5000)))
def test_no_task_has_more_than_the_most_bytes(ranges, most, weights):
    split = Split(max_bytes=most, weights={TopicPartition("t", number): each for number, each in weights.items()})
    for task in into_tasks(ranges, split):
        heaviest = max(split.weigh(each._replace(end=each.start + 1)) for each in task)
        assert sum(split.weigh(each) for each in task) <= most + heaviest


def test_partitions_are_cut_by_bytes_not_by_records():
    heavy, light = _range(0, 0, 1000), _range(1, 0, 1000)
    split = Split(min_tasks=4, weights={heavy.tp: 3000.0, light.tp: 10.0})
    tasks = into_tasks([heavy, light], split)
    assert sum(any(part.tp == heavy.tp for part in task) for task in tasks) == 4
    assert max(sum(split.weigh(part) for part in task) for task in tasks) <= 3_010_000 / 4 * 1.02


def test_light_partitions_share_the_least_number_of_tasks():
    small = [_range(number, 0, 10) for number in range(1000)]
    tasks = into_tasks(small, Split(min_tasks=8))
    assert len(tasks) == 8
    assert sum(map(len, tasks)) == 1000
