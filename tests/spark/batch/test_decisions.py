"""Which replicas are cleaned by one decision, and up to where."""

from sparklog.client.cluster.compaction_grants import Grant
from sparklog.compaction.split import Target
from sparklog.compaction.task import Buffers, CleaningTask
from sparklog.config.topic import TopicConfig
from sparklog.log.segment import SegmentFacts
from sparklog.spark.batch.decisions import decide
from sparklog.structs import BrokerId, TopicPartition

TP = TopicPartition("t", 0)
CONFIG = TopicConfig()


def grant(broker, first_dirty, first_uncleanable, bases=range(0, 1100, 100), config=CONFIG):
    segments = tuple(SegmentFacts(base, 10, 0, 0, 0) for base in bases)
    buffers = Buffers(1 << 20, 0.9, 1 << 16, float("inf"))
    task = CleaningTask("/d", "t-0", segments, 0, first_dirty, first_uncleanable, 0, config, buffers)
    return Grant(TP, BrokerId(broker), broker, Target(task, {}))


def decided(*grants):
    return [(each.source.broker, {one.broker for one in each.grants}, each.end) for each in decide(grants)]


def test_one_replica_is_cleaned_as_far_as_it_may_be():
    (only,) = decide([grant(1, 0, 1000)])
    assert (only.end, only.indexed_bytes) == (1000, 100)
    assert only.indexed == only.source.target


def test_replicas_alike_share_a_decision():
    assert decided(grant(1, 0, 1000), grant(2, 0, 1000), grant(3, 0, 900)) == [(1, {1, 2, 3}, 900)]


def test_the_one_that_has_cleaned_least_is_put_into_the_map():
    (only,) = decide([grant(1, 500, 1000), grant(2, 300, 1000)])
    assert (only.source.broker, only.end) == (2, 1000)
    assert (only.indexed.task.first_dirty, only.indexed.task.first_uncleanable) == (300, 1000)


def test_it_ends_where_a_segment_of_the_source_begins():
    assert decided(grant(1, 0, 1000, range(0, 1010, 90)), grant(2, 100, 1000)) == [(1, {1, 2}, 990)]


def test_a_replica_far_behind_does_not_hold_back_others():
    assert decided(grant(1, 400, 1000), grant(2, 0, 300), grant(3, 400, 1000)) == [(1, {1, 3}, 1000), (2, {2}, 300)]


def test_one_that_is_clean_up_to_the_end_goes_its_own_way():
    assert decided(grant(1, 0, 700), grant(2, 700, 800)) in (
        [(2, {2}, 800), (1, {1}, 700)],
        [(1, {1}, 700), (2, {2}, 800)],
    )


def test_by_version_each_is_cleaned_by_its_own_map_of_the_whole_log():
    config = TopicConfig(compaction_strategy="timestamp")
    found = decide([grant(number, 100 * number, 1000, config=config) for number in (1, 2, 3)])
    assert sorted((each.source.broker, len(each.grants), each.end) for each in found) == [
        (1, 1, 1000), (2, 1, 1000), (3, 1, 1000)
    ]  # fmt: skip
    assert {(each.indexed.task.index_start, each.indexed_bytes) for each in found} == {(0, 100)}


def test_every_replica_gets_a_decision_whatever_their_sections():
    for first in range(0, 1000, 100):
        for end in range(first + 100, 1100, 100):
            grants = [grant(1, 300, 800), grant(2, first, end), grant(3, 0, 1000, range(0, 1010, 70))]
            decisions = decide(grants)
            assert sorted(one.broker for each in decisions for one in each.grants) == [1, 2, 3]
            for each in decisions:
                assert all(one.target.task.first_dirty >= each.source.target.task.first_dirty for one in each.grants)
                assert all(
                    one.target.task.first_dirty < each.end <= one.target.task.first_uncleanable for one in each.grants
                )
