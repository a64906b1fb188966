"""Who leads: the table of cases, and what holds in all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.controller.context import ControllerContext
from sparklog.controller.election import decide, elect, imbalanced, initial_state, prefer
from sparklog.errors import ErrorCode
from sparklog.structs import Endpoint, TopicPartition
from sparklog.testing.steps import counted, finish
from sparklog.zk.znodes import BrokerInfo, PartitionState, TopicAssignment

EPOCH = 9


def state(leader, *isr, epoch=5):
    return PartitionState(leader, epoch, isr, 1, version=3)


@pytest.mark.parametrize(
    ("before", "replicas", "live", "after"),
    [
        (state(1, 1, 2, 3), (1, 2, 3), {1, 2, 3}, None),
        (state(1, 1, 2, 3), (1, 2, 3), {2, 3}, (2, (2, 3))),
        (state(1, 1, 2, 3), (1, 2, 3), {1, 3}, (1, (1, 3))),
        (state(1, 1, 2, 3), (1, 3, 2), {2, 3}, (3, (2, 3))),
        (state(1, 1), (1, 2), {2}, (-1, (1,))),
        (state(1, 1, 2), (1, 2), set(), (-1, (2,))),
        (state(-1, 1), (1, 2), {1, 2}, (1, (1,))),
        (state(-1, 1), (1, 2), {2}, None),
        (state(-1, 2), (1, 2), {1, 2}, (2, (2,))),
        (state(2, 2), (1, 2), {1, 2}, None),
    ],
    ids=[
        "nothing happened",
        "the leader died",
        "a follower died",
        "the first live replica in sync leads",
        "the last in sync died",
        "all died: the last of the ISR stays",
        "the last in sync came back",
        "another came back",
        "in sync before preferred",
        "a leader is not unseated",
    ],
)
def test_elections(before, replicas, live, after):
    found = elect(before, replicas, live, EPOCH)
    assert (found and (found.leader, found.isr)) == after
    if found:
        assert (found.leader_epoch, found.controller_epoch, found.version) == (before.leader_epoch + 1, EPOCH, 3)


def test_a_new_partition_is_led_by_its_first_live_replica():
    assert initial_state((3, 1, 2), {1, 2}, EPOCH) == PartitionState(1, 0, (1, 2), EPOCH)
    assert initial_state((3, 1, 2), {1, 2}, EPOCH).version == -1
    assert initial_state((3,), {1, 2}, EPOCH) is None


REPLICAS = st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True).map(tuple)
LIVES = st.lists(st.sets(st.integers(0, 5)), min_size=1, max_size=12)


@given(replicas=REPLICAS, lives=LIVES)
def test_whatever_brokers_come_and_go(replicas, lives):
    """Through a whole history of who is alive: the leader lives and is in sync, and the ISR never empties."""
    current = None
    for live in lives:
        found = initial_state(replicas, live, EPOCH) if current is None else elect(current, replicas, live, EPOCH)
        if found is not None and current is not None:
            assert found.leader_epoch == current.leader_epoch + 1
            stood = {*current.isr, *current.eligible}
            assert {*found.isr, *found.eligible} <= stood, "nobody comes to stand by an election"
        current = found or current
        if current is None:
            assert not live & set(replicas)
            continue
        assert current.isr
        assert set(current.isr) <= set(replicas)
        if current.leader >= 0:
            assert current.leader in live
            assert current.leader in current.isr
        else:
            assert not live & set(current.isr), "somebody in sync is alive"
        assert elect(current, replicas, live, EPOCH) is None, "a decision is final until something happens"


def context_of(brokers, topics, states=()):
    context = ControllerContext(EPOCH, 0)
    context.brokers = {id_: BrokerInfo(id_, Endpoint("h", id_)) for id_ in brokers}
    for name, partitions in topics.items():
        context.assign(TopicAssignment(name, dict(enumerate(partitions))))
    context.states = dict(states)
    return context


def test_only_what_must_change_is_decided():
    context = context_of(
        {1, 2},
        {"t": [(1,), (2,), (3,)], "u": [(3,)]},
        {TopicPartition("t", 0): state(1, 1), TopicPartition("u", 0): state(3, 3)},
    )
    leaders = {tp: change.leader for tp, change in finish(decide(context)).items()}
    assert leaders == {
        TopicPartition("t", 1): 2,
        TopicPartition("u", 0): -1,
    }


def test_many_partitions_are_decided_in_steps():
    context = context_of({1}, {"t": [(1,)] * 1000})
    steps = decide(context)
    next(steps)
    context.refused(1, TopicPartition("t", 999), ErrorCode.KAFKA_STORAGE_ERROR)
    number, changes = counted(steps)
    assert len(changes) == 999, "one that a broker refuses meanwhile is looked at as it is by then"
    assert number >= 40


def test_a_topic_that_is_going_away_is_left_alone():
    context = context_of({1}, {"t": [(1,)], "u": [(1,)]})
    context.deleting = {"t"}
    assert list(finish(decide(context))) == [TopicPartition("u", 0)]


def test_a_context_knows_what_each_broker_holds():
    context = context_of({1, 2}, {"t": [(1,), (2, 1)], "u": [(1,)]})
    context.states = {tp: state(1, 1) for topic in ("t", "u") for tp in context.partitions_of(topic)}
    context.deleting = {"u"}
    assert context.partitions_on(1) == [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert context.partitions_on(2) == [TopicPartition("t", 1)]
    context.forget("u")
    assert set(context.assignments) == {"t"}
    assert not context.deleting
    assert set(context.states) == {TopicPartition("t", 0), TopicPartition("t", 1)}


@pytest.mark.parametrize(
    ("before", "live", "leaving", "after"),
    [
        (state(1, 1, 2, 3), {1, 2, 3}, {1}, (2, (2, 3))),
        (state(1, 1, 2, 3), {1, 2, 3}, {2}, (1, (1, 3))),
        (state(1, 1, 2, 3), {1, 2, 3}, {1, 2}, (3, (3,))),
        (state(1, 1, 2, 3), {1, 2, 3}, {1, 2, 3}, None),
        (state(1, 1, 2, 3), {1, 2}, {1}, (2, (2,))),
        (state(1, 1, 2, 3), {1}, {1}, (1, (1,))),
        (state(1, 1), {1, 2, 3}, {1}, None),
        (state(2, 2, 3), {1, 2, 3}, {1}, None),
        (state(-1, 1), {1, 2}, {1}, (1, (1,))),
    ],
    ids=[
        "the leader leaves",
        "a follower leaves",
        "two leave",
        "all leave: nobody could go on",
        "the other follower is gone",
        "both followers are gone",
        "no other is in sync",
        "one leaves that is not in sync",
        "back, and about to stop: none else can lead",
    ],
)
def test_one_that_is_leaving_gives_its_place_up(before, live, leaving, after):
    found = elect(before, (1, 2, 3), live, EPOCH, leaving)
    assert (found and (found.leader, found.isr)) == after
    if found:
        assert (found.leader_epoch, found.version) == (before.leader_epoch + 1, 3)


@pytest.mark.parametrize(
    ("before", "live", "restarted", "after"),
    [
        (state(1, 1, 2, 3), {1, 2, 3}, {1}, (2, (2, 3))),
        (state(1, 1, 2, 3), {1, 2, 3}, {2}, (1, (1, 3))),
        (state(1, 1, 2, 3), {1, 3}, {2}, (1, (1, 3))),
        (state(1, 1, 2), {1}, {1}, (-1, (2,))),
        (state(1, 1, 2, 3), {1, 2, 3}, {1, 2, 3}, (-1, (1,))),
        (state(1, 1), {1, 2}, {1}, (1, (1,))),
        (state(-1, 2), {1, 2}, {2}, (2, (2,))),
    ],
    ids=[
        "the leader",
        "a follower",
        "a follower, which is gone again",
        "the leader, and the one that has all is away",
        "all of them, of whose logs nothing is known",
        "the only one",
        "the last of the ISR, whom nobody saw gone",
    ],
)
def test_one_that_has_started_again_is_in_sync_no_more_unless_nobody_else_is(before, live, restarted, after):
    """It may have lost what was not on its disk; under the same epoch nobody would find out."""
    found = elect(before, (1, 2, 3), live, EPOCH, restarted=restarted)
    assert (found.leader, found.isr) == after
    assert (found.leader_epoch, found.controller_epoch, found.version) == (before.leader_epoch + 1, EPOCH, 3)


@given(
    isr=st.lists(st.integers(1, 4), min_size=1, max_size=4, unique=True).map(tuple),
    live=st.sets(st.integers(1, 4)),
    leaving=st.sets(st.integers(1, 4)),
    restarted=st.sets(st.integers(1, 4)),
    data=st.data(),
)
def test_whoever_leaves_or_starts_again(isr, live, leaving, restarted, data):
    before = state(data.draw(st.sampled_from((-1, *isr))), *isr)
    found = elect(before, (1, 2, 3, 4), live, EPOCH, leaving, restarted & set(isr))
    after = found or before
    assert after.isr
    assert set(after.isr) <= set(isr), "nobody comes into sync by an election"
    if after.leader >= 0:
        assert after.leader in live & set(after.isr)
    if set(after.isr) & restarted:
        assert set(isr) <= restarted
        assert len(after.isr) == 1
        assert not after.eligible
    if after.leader in leaving:
        assert not (set(after.isr) & live) - leaving
    assert (found is None) or found.leader_epoch == before.leader_epoch + 1


def test_a_context_remembers_who_has_started_again_until_that_is_written():
    tp, other = TopicPartition("t", 0), TopicPartition("t", 1)
    context = context_of({1, 2}, {"t": [(1, 2), (1, 2)]}, {tp: state(1, 1, 2), other: state(1, 1)})
    context.lives = {2: 7}
    context.brokers[2] = BrokerInfo(2, Endpoint("h", 2), epoch=9, unbroken_since=7)
    context.begin_anew(2)
    assert not finish(decide(context)), "it has lost its session, or has stopped cleanly"
    context.brokers[2] = BrokerInfo(2, Endpoint("h", 2), epoch=10)
    context.begin_anew(2)
    assert context.account() == {1: -1, 2: 7}, "no state takes account of that yet"
    changes = finish(decide(context))
    assert {each: change.isr for each, change in changes.items()} == {tp: (1,)}, "of the other it was not in sync"
    context.write(changes)
    assert context.account() == {1: -1, 2: 10}
    assert not finish(decide(context))
    context.found({tp: PartitionState(1, 6, (1, 2), EPOCH, version=4)})
    assert not finish(decide(context)), "it has joined anew since"


def test_one_that_was_left_out_since_it_started_again_is_not_left_out_twice():
    tp = TopicPartition("t", 0)
    context = context_of({1, 2}, {"t": [(1, 2)]}, {tp: state(1, 1, 2)})
    context.begin_anew(2)
    context.found({tp: PartitionState(1, 5, (1,), 1, version=4)})
    assert not finish(decide(context))
    context.found({tp: PartitionState(1, 5, (1, 2), 1, version=5)})
    assert not finish(decide(context))


def test_a_state_that_is_told_of_late_does_not_take_a_newer_ones_place():
    """Else the version that is known would be one that ZooKeeper has no more, and every proposal would be refused."""
    tp = TopicPartition("t", 0)
    context = context_of({1, 2}, {"t": [(1, 2)]}, {tp: PartitionState(1, 5, (1, 2), 1, version=4)})
    context.found({tp: PartitionState(1, 4, (1,), 1, version=3)})
    assert context.states[tp].version == 4
    context.found({tp: PartitionState(2, 6, (2,), 1, version=5)})
    assert context.states[tp].leader == 2


T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def test_the_first_replica_is_preferred_where_it_may_lead():
    context = context_of({1, 2}, {"t": [(1, 2), (1, 2), (2, 1)]}, {T0: state(2, 2, 1), T1: state(1, 1, 2)})
    context.states[T2] = state(1, 1)
    assert prefer(context, [T0, T1, T2]) == {T0: PartitionState(1, 6, (2, 1), EPOCH)}
    assert prefer(context, [T0])[T0].version == 3
    assert prefer(context, [T1, T2]) == {}, "it leads already; it is not in sync"


@pytest.mark.parametrize("why", ["gone", "refused", "leaving", "deleting"])
def test_the_first_replica_is_not_preferred_where_it_may_not_lead(why):
    context = context_of({1, 2}, {"t": [(1, 2)]}, {T0: state(2, 2, 1)})
    if why == "gone":
        del context.brokers[1]
    elif why == "refused":
        context.refused(1, T0, ErrorCode.KAFKA_STORAGE_ERROR)
    elif why == "leaving":
        context.leaving = {1}
    else:
        context.deleting = {"t"}
    assert prefer(context, [T0]) == {}


def test_a_broker_that_leads_much_less_than_it_should_is_imbalanced():
    context = context_of({1, 2}, {"t": [(1, 2), (1, 2), (2, 1)], "u": [(1, 2)] * 8})
    context.states = {tp: state(1, 1, 2) for topic in ("t", "u") for tp in context.partitions_of(topic)}
    context.states[T2] = state(2, 2, 1)
    assert finish(imbalanced(context, 10)) == []
    context.states[T0] = state(2, 2, 1)
    assert finish(imbalanced(context, 10)) == [], "one of ten is ten percent"
    context.states[T1] = state(-1, 2)
    assert sorted(finish(imbalanced(context, 10))) == [T0, T1]
    assert finish(imbalanced(context, 20)) == []
    assert sorted(finish(imbalanced(context, 0))) == [T0, T1]
    context.deleting = {"t"}
    assert finish(imbalanced(context, 0)) == []


@pytest.mark.parametrize(
    ("registered", "written", "gone", "after"),
    [
        ({1: 50, 2: 10}, 30, {1}, (2, (2,))),
        ({1: 50, 2: 10}, -1, set(), None),
        ({1: 20, 2: 10}, 30, set(), None),
        ({1: 50, 2: 60}, 30, {1, 2}, (-1, (1,))),
        ({1: 50}, 30, {1}, (-1, (2,))),
    ],
    ids=["one since", "not known when", "none since", "all since, as after a stop of all", "the other does not live"],
)
def test_a_new_controller_finds_out_which_members_have_started_again(registered, written, gone, after):
    context = ControllerContext(EPOCH, 0)
    context.brokers = {each: BrokerInfo(each, Endpoint("x", 1), epoch=zxid) for each, zxid in registered.items()}
    tp = TopicPartition("t", 0)
    context.assign(TopicAssignment("t", {0: (1, 2)}))
    context.states[tp] = PartitionState(1, 4, (1, 2), 3, version=7, zxid=written)
    context.look_for_restarts(tp)
    assert context.restarted.get(tp, set()) == gone
    changed = finish(decide(context)).get(tp)
    assert (changed and (changed.leader, changed.isr)) == after
    assert changed is None or changed.leader_epoch == 5


def test_a_new_controller_finds_out_of_a_life_that_the_last_one_did_not_take_account_of():
    """The state was written after the broker had come back, by a controller that had yet to hear of that."""
    tp = TopicPartition("t", 0)
    context = context_of({1, 2}, {"t": [(1, 2)]})
    context.states[tp] = PartitionState(1, 4, (1, 2), 3, version=7, zxid=60)
    context.brokers[2] = BrokerInfo(2, Endpoint("x", 1), epoch=50)
    context.lives = {2: 10}
    context.look_for_restarts(tp)
    assert context.restarted == {tp: {2}}


@pytest.mark.parametrize(("written", "gone"), [(60, None), (40, {2})], ids=["after it came", "before it came"])
def test_of_a_state_of_kafkas_controller_counts_when_it_was_written(written, gone):
    """A controller of Kafka's notes no lives: what the last of ours noted says nothing of what it wrote."""
    tp = TopicPartition("t", 0)
    context = context_of({1, 2}, {"t": [(1, 2)]})
    context.states[tp] = PartitionState(1, 4, (1, 2), 3, version=7, zxid=written)
    context.brokers[2] = BrokerInfo(2, Endpoint("x", 1), epoch=50)
    context.lives, context.foreign_terms = {2: 10}, range(2, 5)
    context.look_for_restarts(tp)
    assert context.restarted.get(tp) == gone


def test_a_single_replica_goes_on_without_a_word():
    tp = TopicPartition("t", 0)
    context = context_of({1}, {"t": [(1,)]})
    context.states[tp] = PartitionState(1, 4, (1,), 3, version=7, zxid=30)
    context.brokers[1] = BrokerInfo(1, Endpoint("x", 1), epoch=50)
    context.look_for_restarts(tp)
    assert not finish(decide(context))
