"""What counts as an election."""

from sparklog.controller.elections import Elections
from sparklog.structs import NO_LEADER, TopicPartition

NONE = int(NO_LEADER)
A, B, C, D, E = (TopicPartition("t", number) for number in range(5))


def test_partitions_that_get_another_leader_are_counted():
    elections = Elections()
    before = {A: 1, B: 1, C: NONE, D: 1}  # E is new
    elections.note(before, {A: 2, B: NONE, C: 3, D: 1, E: 1}, {C, E}, 0.25)
    assert (elections.leaders, elections.unclean) == (2, 1)
    assert (sum(elections.times.buckets), elections.times.total_s) == (1, 0.25)


def test_a_look_that_elects_nobody_does_not_count():
    elections = Elections()
    elections.note({A: 1}, {A: 1, E: 2}, (), 1.0)
    elections.note({A: 1}, {}, {A}, 1.0)
    assert (elections.leaders, elections.unclean, sum(elections.times.buckets)) == (0, 0, 0)
