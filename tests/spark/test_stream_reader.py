"""What a streaming query decides on the driver, with a cluster that does as it is told."""

from uuid import UUID

import pytest

from sparklog.errors import DataSourceError
from sparklog.spark.offsets import OffsetRange
from sparklog.spark.options import ReadOptions
from sparklog.spark.stream_reader import _Driver
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock

_A, _B = TopicPartition("t", 0), TopicPartition("t", 1)
_ID = UUID(int=1)


class _Resolver:
    """Partitions and their ends as the test sets them."""

    def __init__(self, **ends):
        self.ids = {}
        self.ends = {}
        self.firsts = {}

    def set(self, ends, firsts=None, topic_id=_ID):
        self.ends = dict(ends)
        self.ids = dict.fromkeys(ends, topic_id)
        self.firsts = firsts or {}

    def partitions(self):
        return dict(self.ids)

    def latest(self, partitions):
        return {tp: self.ends[tp] for tp in partitions}

    def earliest(self, partitions):
        return {tp: self.firsts.get(tp, 0) for tp in partitions}

    def starting(self):
        return dict(self.ends)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def make_driver(clock):
    def make(**options):
        settings = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", **options}
        driver = _Driver(ReadOptions.for_stream(settings), clock)
        driver._resolver = _Resolver()
        return driver, driver._resolver

    return make


def test_the_initial_offset_is_resolved_once(make_driver):
    driver, cluster = make_driver()
    cluster.set({_A: 5})
    assert driver.initial() == {_A: 5}
    cluster.set({_A: 9})
    assert driver.initial() == {_A: 5}


def test_an_end_never_goes_back(make_driver):
    driver, cluster = make_driver()
    cluster.set({_A: 10, _B: 10})
    assert driver.end_of_batch({_A: 0, _B: 0}, unlimited=True) == {_A: 10, _B: 10}
    cluster.set({_A: 7, _B: 12})
    assert driver.end_of_batch({_A: 10, _B: 10}, unlimited=True) == {_A: 10, _B: 12}


def test_an_end_that_stays_behind_is_data_loss(make_driver, clock):
    driver, cluster = make_driver()
    cluster.set({_A: 7})
    driver.end_of_batch({_A: 10}, unlimited=True)
    clock.advance(2.9)
    driver.end_of_batch({_A: 10}, unlimited=True)
    clock.advance(0.2)
    with pytest.raises(DataSourceError, match=r"SPARKLOG_DATA_LOSS.*t-0 ends at offset 7, before 10"):
        driver.end_of_batch({_A: 10}, unlimited=True)


def test_an_end_that_was_behind_for_a_moment_is_forgotten(make_driver, clock):
    driver, cluster = make_driver()
    for end in (7, 10, 7, 10):
        cluster.set({_A: end})
        driver.end_of_batch({_A: 10}, unlimited=True)
        clock.advance(2)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_partition_that_is_gone(make_driver, fail):
    driver, cluster = make_driver(failOnDataLoss=fail)
    cluster.set({_A: 10})
    start = {_A: 3, _B: 4}
    if fail == "true":
        with pytest.raises(DataSourceError, match="t-1 do not exist"):
            driver.end_of_batch(start, unlimited=True)
    else:
        assert driver.end_of_batch(start, unlimited=True) == {_A: 10}


def test_a_topic_created_again_is_noticed(make_driver):
    driver, cluster = make_driver()
    cluster.set({_A: 10})
    driver.end_of_batch({_A: 0}, unlimited=True)
    cluster.set({_A: 50}, topic_id=UUID(int=2))
    with pytest.raises(DataSourceError, match=r"SPARKLOG_DATA_LOSS.*created again"):
        driver.end_of_batch({_A: 10}, unlimited=True)


def test_a_new_partition_is_read_from_its_beginning(make_driver):
    driver, cluster = make_driver(maxOffsetsPerTrigger="4")
    cluster.set({_A: 10, _B: 100})
    end = driver.end_of_batch({_A: 10}, unlimited=False)
    assert end == {_A: 10, _B: 4}
    assert driver.ranges({_A: 10}, end) == [OffsetRange(_A, 10, 10, _ID), OffsetRange(_B, 0, 4, _ID)]


def test_a_new_partition_that_has_lost_its_beginning(make_driver):
    driver, cluster = make_driver()
    cluster.set({_A: 10, _B: 100}, firsts={_B: 60})
    with pytest.raises(DataSourceError, match="t-1 begins at offset 60"):
        driver.ranges({_A: 10}, {_A: 10, _B: 100})


def test_the_limit_is_for_all_partitions_together(make_driver):
    driver, cluster = make_driver(maxOffsetsPerTrigger="10")
    cluster.set({_A: 100, _B: 100})
    end = driver.end_of_batch({_A: 0, _B: 0}, unlimited=False)
    assert sum(end.values()) == 10
    assert driver.end_of_batch({_A: 0, _B: 0}, unlimited=True) == {_A: 100, _B: 100}


def test_too_little_is_waited_on_until_the_delay_has_passed(make_driver, clock):
    driver, cluster = make_driver(minOffsetsPerTrigger="10", maxTriggerDelay="30s")
    cluster.set({_A: 9})
    assert driver.end_of_batch({_A: 0}, unlimited=False) == {_A: 0}
    clock.advance(31)
    assert driver.end_of_batch({_A: 0}, unlimited=False) == {_A: 9}
    cluster.set({_A: 18})
    assert driver.end_of_batch({_A: 9}, unlimited=False) == {_A: 9}
    cluster.set({_A: 19})
    assert driver.end_of_batch({_A: 9}, unlimited=False) == {_A: 19}


def test_what_came_after_the_freeze_is_left(make_driver):
    driver, cluster = make_driver(minOffsetsPerTrigger="6", maxOffsetsPerTrigger="6")
    cluster.set({_A: 10})
    driver.freeze()
    cluster.set({_A: 99})
    seen = []
    at = {_A: 0}
    while (end := driver.end_of_batch(at, unlimited=False)) != at:
        seen.append(end[_A])
        at = end
    assert seen == [6, 10]


def test_a_query_that_is_ahead_of_the_freeze_ends_at_once(make_driver):
    driver, cluster = make_driver()
    cluster.set({_A: 10})
    driver.freeze()
    assert driver.end_of_batch({_A: 12}, unlimited=False) == {_A: 12}
