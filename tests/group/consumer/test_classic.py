"""Members of the classic protocol in a consumer group: when they are called to join again."""

from group.consumer.samples import FakeTopics

from sparklog.group.consumer.assignment import NONE
from sparklog.group.consumer.classic import must_rejoin
from sparklog.group.consumer.group import ConsumerGroup
from sparklog.group.consumer.member import ConsumerMember, MemberState


def test_a_member_that_waits_for_others_is_called_when_something_is_free():
    topics = FakeTopics(t=3)
    waiting = ConsumerMember("a", epoch=3, state=MemberState.UNRELEASED_PARTITIONS, assigned=topics.tips("t", 0))
    group = ConsumerGroup("g", epoch=3, assignment_epoch=3)
    group.put(waiting)
    group.put(ConsumerMember("b", epoch=3, assigned=topics.tips("t", 1)))
    group.target = {"a": topics.tips("t", 0, 1), "b": NONE}
    assert not must_rejoin(group, waiting)
    group.put(ConsumerMember("b", epoch=3))
    assert must_rejoin(group, waiting)


def test_a_stable_member_of_this_epoch_is_left_alone_and_one_of_an_earlier_is_called():
    group = ConsumerGroup("g", epoch=3, assignment_epoch=3)
    assert not must_rejoin(group, ConsumerMember("a", epoch=3))
    assert must_rejoin(group, ConsumerMember("a", epoch=2))
