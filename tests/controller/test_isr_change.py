"""Which changes of an ISR a leader may have: each branch, and what holds in all of them."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.controller.context import ControllerContext
from sparklog.controller.election import decide
from sparklog.controller.isr_change import IsrChange, judge
from sparklog.errors import ErrorCode
from sparklog.structs import NO_LEADER, Endpoint, TopicPartition
from sparklog.testing.steps import finish
from sparklog.zk.znodes import BrokerInfo, PartitionState, TopicAssignment

TP, ID = TopicPartition("t", 0), UUID(int=1)
REPLICAS = (1, 2, 3)
CONTROLLER_EPOCH = 9
STATE = PartitionState(leader=1, leader_epoch=5, isr=(1, 2), controller_epoch=4, version=7)


def context_of(state=STATE, brokers=REPLICAS, **changes):
    context = ControllerContext(CONTROLLER_EPOCH, 0)
    context.brokers = {each: BrokerInfo(each, Endpoint("h", each), epoch=100 + each) for each in brokers}
    context.assign(TopicAssignment(TP.topic, {0: REPLICAS}, ID))
    context.states = {TP: state}
    for name, value in changes.items():
        setattr(context, name, value)
    return context


def change(*isr, leader=1, epoch=5, broker_epochs=None, version=7):
    return IsrChange(leader, epoch, isr, broker_epochs or tuple(100 + each for each in isr), version)


@pytest.mark.parametrize(
    "asked",
    [
        change(1, 2, 3),
        change(1),
        change(3, 2, 1),
        change(1, 3),
        change(1, 2, 3, broker_epochs=(101, -1, 103)),
        change(1, 2, 3, broker_epochs=(-1, -1, -1)),
    ],
    ids=["more", "fewer", "in another order", "another", "an epoch that is not known", "no epoch is known"],
)
def test_what_is_written(asked):
    """The leader and its epoch stay; it is this controller's state, over the version that the leader named."""
    found = judge(context_of(), TP, asked)
    assert found == PartitionState(1, 5, asked.isr, CONTROLLER_EPOCH)
    assert found.version == 7


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (change(1, 2, 3, epoch=6), ErrorCode.NOT_CONTROLLER),
        (change(1, 2, epoch=6), ErrorCode.NOT_CONTROLLER),
        (change(1, 2, 3, epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (change(1, 2, epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (change(1, 2, 3, leader=2), ErrorCode.FENCED_LEADER_EPOCH),
        (change(1, 2, leader=2), ErrorCode.FENCED_LEADER_EPOCH),
        (change(1, 2), ErrorCode.NONE),
        (change(2, 1), ErrorCode.NONE),
        (change(1, 2, version=6), ErrorCode.NONE),
        (change(1, 2, version=8), ErrorCode.NOT_CONTROLLER),
        (change(1, 2, 3, version=6), ErrorCode.INVALID_UPDATE_VERSION),
        (change(1, 2, 3, version=8), ErrorCode.NOT_CONTROLLER),
        (change(), ErrorCode.INVALID_REQUEST),
        (change(2, 3), ErrorCode.INVALID_REQUEST),
        (change(1, 2, 3, 3), ErrorCode.INVALID_REQUEST),
        (change(1, 2, 4), ErrorCode.INVALID_REQUEST),
        (change(1, 2, 3, broker_epochs=(101, 102, 99)), ErrorCode.INELIGIBLE_REPLICA),
        (change(1, 2, 3, broker_epochs=(101, 99, 103)), ErrorCode.INELIGIBLE_REPLICA),
        (change(1, 2, 3, broker_epochs=(101, 102, 104)), ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_what_is_refused_or_stands_so_already(asked, code):
    assert judge(context_of(), TP, asked) is code


def test_what_is_not_there_or_is_going_away_is_unknown():
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert judge(context_of(states={}), TP, change(1, 2, 3)) is unknown
    assert judge(context_of(), TopicPartition("t", 1), change(1, 2, 3)) is unknown
    assert judge(context_of(deleting={"t"}), TP, change(1, 2, 3)) is unknown
    assert judge(context_of(deleting={"u"}), TP, change(1, 2, 3)) == PartitionState(1, 5, (1, 2, 3), CONTROLLER_EPOCH)


def test_a_change_that_was_meant_for_another_topic_of_the_name_is_not_written():
    """It was deleted, and made again, after the name was looked up; its first state has the same numbers."""
    asked = change(1, 2, 3)._replace(topic_id=ID)
    assert judge(context_of(), TP, asked) == PartitionState(1, 5, (1, 2, 3), CONTROLLER_EPOCH)
    context = context_of()
    context.assign(TopicAssignment(TP.topic, {0: REPLICAS}, UUID(int=2)))
    assert judge(context, TP, asked) is ErrorCode.UNKNOWN_TOPIC_ID
    assert judge(context, TP, asked._replace(isr=(1, 2))) is ErrorCode.UNKNOWN_TOPIC_ID, "nor does it stand so already"


def test_one_that_is_gone_or_has_no_disk_for_it_does_not_join():
    gone, refused = context_of(brokers=(1, 2)), context_of()
    refused.refused(3, TP, ErrorCode.KAFKA_STORAGE_ERROR)
    for context in (gone, refused):
        assert judge(context, TP, change(1, 2, 3)) is ErrorCode.INELIGIBLE_REPLICA
        assert judge(context, TP, change(1)) == PartitionState(1, 5, (1,), CONTROLLER_EPOCH)


def test_one_that_is_about_to_stop_does_not_join_but_may_stay():
    """Else it would be elected out, and join again, until it is gone; the leader epoch rises each time."""
    context = context_of(leaving={3})
    assert judge(context, TP, change(1, 2, 3)) is ErrorCode.INELIGIBLE_REPLICA
    staying = context_of(PartitionState(1, 5, (1,), 4, version=7), leaving={1})
    assert judge(staying, TP, change(1, 2)) == PartitionState(1, 5, (1, 2), CONTROLLER_EPOCH)


MEMBERS = st.sampled_from((1, 2, 3, 1, 2, 3, 4))


@st.composite
def changes(draw):
    isr = tuple(draw(st.lists(MEMBERS, max_size=4) | st.permutations(REPLICAS)))
    epochs = tuple(draw(st.sampled_from((100 + each, 100 + each, 100 + each, -1, 99))) for each in isr)
    leader, epoch, version = (draw(st.sampled_from((right, right, right, right + 1))) for right in (1, 5, 7))
    return IsrChange(leader, epoch, isr, epochs, version)


SOME = st.sets(st.sampled_from(REPLICAS))


@given(asked=changes(), live=st.just(set(REPLICAS)) | SOME, leaving=SOME)
def test_whatever_is_asked(asked, live, leaving):
    """What is to be written has the leader in it, and none who is no replica, is away or has started again since."""
    found = judge(context_of(brokers=tuple(live), leaving=leaving), TP, asked)
    if not isinstance(found, PartitionState):
        return
    assert (found.leader, found.leader_epoch, found.version) == (1, 5, 7)
    assert (asked.leader, asked.leader_epoch, asked.partition_epoch) == (1, 5, 7)
    assert found.isr == asked.isr
    assert 1 in found.isr
    assert len(set(found.isr)) == len(found.isr)
    assert set(found.isr) <= live & set(REPLICAS)
    assert not (set(found.isr) - set(STATE.isr)) & leaving
    assert all(epoch in (-1, 100 + each) for each, epoch in zip(asked.isr, asked.broker_epochs, strict=True))


def test_one_that_comes_back_in_another_life_while_its_joining_is_written_is_not_in_sync():
    """It joined with what it had before, and may have lost its end."""
    brokers = {id_: BrokerInfo(id_, Endpoint("h", id_), epoch=10 * id_) for id_ in (1, 2)}
    context = ControllerContext(9, 0, brokers=brokers, lives={1: 10, 2: 20}, min_isrs={"t": 2})
    tp = TopicPartition("t", 0)
    context.assign(TopicAssignment("t", {0: (1, 2)}))
    context.states[tp] = PartitionState(1, 5, (1,), 9, version=3)
    joined = judge(context, tp, IsrChange(1, 5, (1, 2), (10, 20), 3))
    assert isinstance(joined, PartitionState)
    context.brokers = {1: brokers[1], 2: BrokerInfo(2, Endpoint("h", 2), epoch=30)}
    context.begin_anew(2)
    context.found({tp: replace(joined, version=4)})
    context.look_for_lives(brokers, [tp])
    assert finish(decide(context))[tp].isr == (1,)
    del context.brokers[1]
    assert finish(decide(context))[tp].leader == NO_LEADER
