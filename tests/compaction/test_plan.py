"""Which part of a log may be cleaned, and which segments become one."""

from dataclasses import replace

import pytest

from sparklog.compaction.plan import LogFacts, compaction_delay, divide, group_segments
from sparklog.config.topic import TopicConfig
from sparklog.log.segment import MAX_RELATIVE_OFFSET, SegmentFacts

CONFIG = TopicConfig(cleanup_policy=("compact",))
NOW = 1_000_000


def segments(*bases, size=100, latest=0):
    return [SegmentFacts(base, size, 8, 12, latest) for base in bases]


def log(*bases, start=0, end=1000, stable=None, **kwargs):
    return LogFacts(segments(*bases, **kwargs), start, end, end if stable is None else stable)


def sections(facts, checkpoint=None, config=CONFIG):
    found = divide(facts, checkpoint, config, NOW)
    return found.first_dirty, found.first_uncleanable, found.clean_bytes, found.cleanable_bytes


def test_all_but_the_active_segment_is_dirty_at_first():
    assert sections(log(0, 10, 20, 30)) == (0, 30, 0, 300)


def test_what_lies_before_the_checkpoint_is_clean():
    assert sections(log(0, 10, 20, 30), 20) == (20, 30, 200, 100)


def test_a_log_of_one_segment_has_nothing_to_clean():
    assert sections(log(0)) == (0, 0, 0, 0)


def test_a_segment_that_reaches_the_last_stable_offset_stays_as_it_is():
    assert sections(log(0, 10, 20, 30, stable=15)) == (0, 10, 0, 100)


def test_a_segment_that_ends_at_the_last_stable_offset_is_cleaned():
    assert sections(log(0, 10, 20, 30, stable=20)) == (0, 20, 0, 200)


def test_a_last_stable_offset_before_the_checkpoint_leaves_nothing_to_clean():
    assert sections(log(0, 10, 20, 30, stable=12), 25) == (25, 20, 300, 0)


def test_a_segment_younger_than_the_least_lag_ends_the_cleanable_section():
    config = replace(CONFIG, min_compaction_lag_ms=1000)
    facts = log(0, 10, 20, 30)
    facts.segments[1] = facts.segments[1]._replace(latest_timestamp=NOW - 999)
    assert sections(facts, None, config) == (0, 10, 0, 100)
    facts.segments[1] = facts.segments[1]._replace(latest_timestamp=NOW - 1000)
    assert sections(facts, None, config) == (0, 30, 0, 300)


def test_a_young_segment_in_the_clean_section_bounds_nothing():
    config = replace(CONFIG, min_compaction_lag_ms=1000)
    facts = log(0, 10, 20, 30)
    facts.segments[0] = facts.segments[0]._replace(latest_timestamp=NOW)
    assert sections(facts, 10, config) == (10, 30, 100, 200)


@pytest.mark.parametrize("checkpoint", [4, 1001])
def test_a_checkpoint_outside_the_log_is_set_to_its_start(checkpoint):
    facts = log(0, 10, 20, 30, start=5)
    found = divide(facts, checkpoint, CONFIG, NOW)
    assert found.first_dirty == 5
    assert found.is_checkpoint_wrong


def test_a_checkpoint_at_the_end_of_the_log_is_right():
    found = divide(log(0, 10, start=5, end=20), 20, CONFIG, NOW)
    assert (found.first_dirty, found.cleanable_bytes, found.is_checkpoint_wrong) == (20, 0, False)


def test_a_checkpoint_inside_a_segment_counts_that_twice():
    assert sections(log(0, 10, 20, 30), 15) == (15, 30, 200, 200)


def test_a_log_is_due_when_more_than_the_ratio_of_it_is_dirty():
    found = divide(log(0, 10, 20), 10, CONFIG, NOW)
    assert found.dirty_ratio == 0.5
    assert not found.is_due(CONFIG, 0)
    assert found.is_due(replace(CONFIG, min_cleanable_dirty_ratio=0.49), 0)


def test_a_log_that_is_overdue_needs_no_ratio_but_something_to_clean():
    config = replace(CONFIG, min_cleanable_dirty_ratio=1.0)
    assert divide(log(0, 10, 20), 10, config, NOW).is_due(config, 1)
    assert not divide(log(0, 10, 20), 20, config, NOW).is_due(config, 1)


def test_a_log_is_overdue_by_the_oldest_first_batch_of_its_dirty_segments():
    config = replace(CONFIG, max_compaction_lag_ms=1000)
    assert compaction_delay([NOW - 1000, NOW], config, NOW) == 0
    assert compaction_delay([NOW - 500, NOW - 1700], config, NOW) == 700
    assert compaction_delay([-1, 0], config, NOW) == 0
    assert compaction_delay([], config, NOW) == 0


def groups(found, first_uncleanable=1000, **config):
    return group_segments(found, replace(CONFIG, **config), first_uncleanable)


def test_successive_segments_are_grouped_up_to_the_size_of_one():
    assert groups(segments(0, 10, 20, 30, 40), segment_bytes=250) == [[0, 10], [20, 30], [40]]
    assert groups(segments(0, 10, 20), segment_bytes=50) == [[0], [10], [20]]
    assert groups(segments(0, 10, 20), segment_bytes=300) == [[0, 10, 20]]


def test_a_group_has_no_larger_index_than_is_allowed():
    assert groups(segments(0, 10, 20), segment_index_bytes=16) == [[0], [10], [20]]
    assert groups(segments(0, 10, 20), segment_index_bytes=24) == [[0, 10], [20]]


def test_a_group_has_no_offset_that_an_index_cannot_hold():
    far = MAX_RELATIVE_OFFSET + 1
    assert groups(segments(0, 10, far), far + 10) == [[0, 10], [far]]
    assert groups(segments(0, 10), far + 1) == [[0], [10]]
    assert groups(segments(0, 10), far) == [[0, 10]]


def test_an_empty_segment_goes_into_any_group():
    found = [*segments(0), *segments(10, size=0)]
    assert groups(found, MAX_RELATIVE_OFFSET + 100) == [[0, 10]]


def test_nothing_is_nothing():
    assert groups([]) == []
