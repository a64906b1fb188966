"""The replicas that stand with all that was acknowledged: cases, and every history of three replicas."""

from typing import NamedTuple

import pytest

from sparklog.controller.context import ControllerContext
from sparklog.controller.election import elect
from sparklog.controller.eligible import UNTOLD, LogEnd, fallen, out_of_sync, standing
from sparklog.controller.isr_change import IsrChange, judge
from sparklog.structs import Endpoint, TopicPartition
from sparklog.zk.znodes import BrokerInfo, PartitionState, TopicAssignment

ALL = (1, 2, 3)
TP = TopicPartition("t", 0)


def state(leader, isr, eligible=(), last_known=()):
    return PartitionState(leader, 5, isr, 1, 3, eligible=eligible, last_known=last_known)


@pytest.mark.parametrize(
    ("before", "live", "restarted", "min_isr", "after"),
    [
        (state(1, (1, 2, 3)), {1, 2}, (), 2, (1, (1, 2), ())),
        (state(1, (1, 2)), {1}, (), 2, (1, (1,), (2,))),
        (state(1, (1, 2, 3)), {3}, (), 2, (3, (3,), (1, 2))),
        (state(1, (1,), (2,)), {3}, (), 2, (-1, (1,), (2,))),
        (state(1, (1,), (2,)), {2, 3}, (), 2, (2, (2,), (1,))),
        (state(-1, (1,), (2,)), {2}, (), 2, (2, (2,), (1,))),
        (state(1, (1,), (2,)), {1, 2}, {2}, 2, (1, (1,), ())),
        (state(1, (1,), (2,)), {1, 2}, {1}, 2, (2, (2,), ())),
        (state(1, (1,), (2,)), {1}, {1}, 2, (-1, (2,), ())),
        (state(-1, (2,), (), (1,)), {1, 2}, (), 2, (2, (2,), ())),
        (state(-1, (2,), (), (1,)), {2}, {2}, 2, (-1, (2,), ())),
        (state(1, (1, 2, 3)), set(), (), 1, (-1, (3,), (1, 2))),
        (state(-1, (3,), (1, 2)), {1}, (), 1, (1, (1,), ())),
        (state(1, (1,), (2,)), {1, 2, 3}, (), 1, None),
    ],
    ids=[
        "enough are left",
        "too few are left: who goes is eligible",
        "two go at once",
        "the last of the ISR goes, and the eligible one is away",
        "the last of the ISR goes, and the eligible one lives",
        "an eligible one comes back",
        "an eligible one comes back without its end",
        "the last of the ISR comes back without its end",
        "the last of the ISR comes back without its end, and the eligible one is away",
        "one is last known, and another stands",
        "all have begun other lives, and one is gone again",
        "all go at once",
        "the first of them to come back leads",
        "nothing has happened",
    ],
)
def test_elections(before, live, restarted, min_isr, after):
    found = elect(before, ALL, live, 9, (), restarted, min_isr)
    assert (found and (found.leader, found.isr, found.eligible)) == after
    if found:
        assert (found.leader_epoch, found.min_isr, found.version) == (6, min_isr, 3)


@pytest.mark.parametrize(
    ("before", "live", "restarted", "ends", "after"),
    [
        (state(1, (1, 2, 3)), ALL, ALL, {}, (-1, (1,), (1, 2, 3))),
        (state(-1, (1,), (), ALL), ALL, (), {1: (4, 9), 2: (4, 7)}, None),
        (state(-1, (1,), (), ALL), {1, 2}, (), {1: (4, 9), 2: (4, 7), 3: (4, 8)}, None),
        (state(-1, (1,), (), ALL), ALL, (), {1: (4, 9), 2: (4, 12), 3: (4, 8)}, (2, (2,), (1, 3))),
        (state(-1, (1,), (), ALL), ALL, (), {1: (4, 9), 2: (3, 12), 3: (-1, 0)}, (1, (1,), (2, 3))),
        (state(-1, (2,), (), (2, 1, 3)), ALL, (), {1: (4, 9), 2: (4, 9), 3: (4, 9)}, (2, (2,), (1, 3))),
        (state(-1, (2,), (), (2, 1, 3)), ALL, (), {1: (4, 9), 2: UNTOLD, 3: (4, 9)}, (2, (2,), (1, 3))),
        (state(-1, (1,), (), (1, 2)), ALL, (), {1: (4, 7), 2: (4, 8)}, (2, (2,), (1,))),
        (state(1, (1,), (2,)), ALL, {2}, {}, (1, (1,), (2,))),
        (state(1, (1,), (), (2,)), ALL, {1}, {}, (-1, (1,), (1, 2))),
        (state(1, (1,), (), (2,)), ALL, {1}, {1: (4, 7), 2: (4, 8)}, (2, (2,), (1,))),
        (state(1, (1,), (), (2,)), {2}, (), {}, (-1, (1,), (2,))),
    ],
    ids=[
        "all at once",
        "one has yet to tell",
        "one is gone again",
        "the longest log leads",
        "a record of a later epoch tells more than many of an earlier one",
        "who led last leads among equals",
        "one cannot tell: who led last leads",
        "who was not in sync does not count",
        "one that was eligible is last known",
        "and stays so when the leader begins another life too",
        "its log may be the longest by then",
        "one that is last known does not lead while one that stands is away",
    ],
)
def test_where_nobody_stands_the_longest_log_leads(before, live, restarted, ends, after):
    told = {each: LogEnd(*end) for each, end in ends.items()}
    found = elect(before, ALL, live, 9, (), restarted, 2, told)
    assert (found and (found.leader, found.isr, found.last_known)) == after
    assert found is None or found.eligible == ()


def test_one_that_is_about_to_stop_is_the_last_of_the_eligible_to_be_elected():
    before = state(-1, (1,), (2, 3))
    for live, leader in (({2, 3}, 3), ({2}, 2)):
        found = elect(before, ALL, live, 9, {2}, (), 3)
        assert found is not None
        assert found.leader == leader


def test_what_a_leader_proposes_makes_eligible_too():
    context = ControllerContext(9, 0, min_isrs={"t": 2})
    context.brokers = {each: BrokerInfo(each, Endpoint("h", each), epoch=each) for each in ALL}
    context.assignments = {"t": TopicAssignment("t", {0: ALL})}
    context.states = {TP: state(1, (1, 2, 3))}

    def eligible_with(*isr):
        verdict = judge(context, TP, IsrChange(1, 5, isr, isr, 3))
        assert isinstance(verdict, PartitionState)
        return verdict.eligible

    assert eligible_with(1, 2) == ()
    assert eligible_with(1) == (2, 3)
    context.restarted = {TP: {2}}
    assert eligible_with(1) == (3,)
    context.states = {TP: state(1, (1,), (2,))}
    assert eligible_with(1, 3) == ()


def test_one_that_holds_no_replica_any_more_is_not_eligible():
    assert out_of_sync(state(1, (1, 2), (3,)), (1,), (1, 2), 2).eligible == (2,)


def test_no_more_replicas_are_wanted_in_sync_than_there_are():
    context = ControllerContext(9, 0, min_isrs={"t": 2})
    context.assignments = {"t": TopicAssignment("t", {0: (1,), 1: ALL})}
    assert [context.min_isr(TopicPartition("t", number)) for number in (0, 1)] == [1, 2]


def test_when_fewer_are_wanted_in_sync_nobody_is_eligible_any_more():
    """A leader may have heard of it first, and have gone on without them."""
    context = ControllerContext(9, 0, min_isrs={"t": 3})
    context.assignments = {"t": TopicAssignment("t", {0: ALL})}
    context.states = {TP: PartitionState(1, 5, (1,), 1, 3, eligible=(2, 3), min_isr=3)}
    assert context.take_settings({"t": 3}) == set()
    assert context.states[TP].eligible == (2, 3)
    assert context.take_settings({"t": 2}) == {"t"}
    assert context.states[TP].eligible == ()
    context.found({TP: PartitionState(1, 5, (1,), 1, 4, eligible=(2, 3), min_isr=3)})
    assert context.states[TP].eligible == (), "it was written while more were wanted"


class World(NamedTuple):
    """Three replicas, and what ZooKeeper says of them. Sets are sorted tuples."""

    state: PartitionState
    up: tuple[int, ...] = ALL
    may_have_lost: tuple[int, ...] = ()
    """They have stopped otherwise than in order, and are away: killed, or without power."""
    unnoticed: tuple[int, ...] = ()
    """They have come back so, and the controller has yet to hear of it."""
    lacks: tuple[int, ...] = ()
    """They have not all that was acknowledged."""
    at_risk: tuple[int, ...] = ()
    """Their power was cut, and they were not in the ISR since."""


def with_(members, each):
    return tuple(sorted({*members, each}))


def without(members, each):
    return tuple(member for member in members if member != each)


def proposed(world, isr, min_isr):
    before = world.state
    eligible, last_known = out_of_sync(before, isr, ALL, min_isr, world.unnoticed)
    return PartitionState(before.leader, 0, tuple(isr), 0, eligible=eligible, last_known=last_known)


def what_may_follow(world, min_isr, rule):
    """Every world that one event leads to."""
    current = world.state
    for each in world.up:
        clean = world._replace(up=without(world.up, each))
        if each not in world.unnoticed:
            yield clean
        killed = clean._replace(
            may_have_lost=with_(world.may_have_lost, each), unnoticed=without(world.unnoticed, each)
        )
        yield killed
        if each in world.at_risk or len(world.at_risk) < min_isr - 1:
            yield killed._replace(at_risk=with_(world.at_risk, each), lacks=with_(world.lacks, each))
    for each in ALL:
        if each not in world.up:
            back = world._replace(up=with_(world.up, each), may_have_lost=without(world.may_have_lost, each))
            yield back._replace(unnoticed=with_(back.unnoticed, each)) if each in world.may_have_lost else back
    decided = rule(current, world, min_isr)
    yield world._replace(state=decided or current, unnoticed=())
    if current.leader in world.up and current.leader not in world.unnoticed:
        yield from what_a_leader_may_do(world, min_isr)


def what_a_leader_may_do(world, min_isr):
    current = world.state
    present = [each for each in world.up if each not in world.unnoticed]
    if len(current.isr) >= min_isr and {*current.isr} <= {*present}:
        yield world._replace(lacks=tuple(sorted({*world.lacks, *ALL} - {*current.isr} | {*world.lacks})))
    for each in present:
        if each not in current.isr:
            lacks = with_(world.lacks, each) if current.leader in world.lacks else without(world.lacks, each)
            joined = proposed(world, (*current.isr, each), min_isr)
            yield world._replace(state=joined, lacks=lacks, at_risk=without(world.at_risk, each))
    for each in current.isr:
        if each != current.leader:
            yield world._replace(state=proposed(world, without(current.isr, each), min_isr))


def by_the_rule(current, world, min_isr):
    """Of two that stood once the one that has lost nothing has the longer log."""
    ends = {each: LogEnd(0, each not in world.lacks) for each in ALL}
    return decided_with(ends, current, world, min_isr)


def by_who_led_last(current, world, min_isr):
    """What Kafka 4.1 does where nobody stands."""
    return decided_with(dict.fromkeys(ALL, UNTOLD), current, world, min_isr)


def decided_with(ends, current, world, min_isr):
    found = elect(current, ALL, world.up, 0, (), world.unnoticed, min_isr, ends)
    return found and PartitionState(found.leader, 0, found.isr, 0, eligible=found.eligible, last_known=found.last_known)


def without_eligible_replicas(current, world, min_isr):
    found = elect(current, ALL, world.up, 0, (), world.unnoticed, min_isr)
    return found and PartitionState(found.leader, 0, found.isr, 0)


def losses(min_isr, rule):
    """How many worlds can be reached, and those of them in which a leader lacks what was acknowledged."""
    begin = World(PartitionState(1, 0, ALL, 0))
    seen, ahead = {begin}, [begin]
    while ahead:
        for world in what_may_follow(ahead.pop(), min_isr, rule):
            if world not in seen:
                seen.add(world)
                ahead.append(world)
    return len(seen), [
        world
        for world in seen
        if world.state.leader in world.lacks
        and world.state.leader in world.up
        and world.state.leader not in world.unnoticed
    ]


@pytest.mark.parametrize("min_isr", [1, 2, 3])
def test_in_every_history_of_three_replicas_a_leader_has_all_that_was_acknowledged(min_isr):
    number, lost = losses(min_isr, by_the_rule)
    assert number > 100
    assert not lost


def test_without_eligible_replicas_something_is_lost():
    """The checker is checked."""
    assert losses(2, without_eligible_replicas)[1]


def test_by_who_led_last_something_is_lost():
    """A process that was killed is not told from one that lost its power: so the logs have to tell."""
    assert losses(2, by_who_led_last)[1]


def test_who_stands():
    assert standing(state(1, (2, 1), (3,))) == [2, 1, 3]
    assert standing(state(1, (2, 1), (3,)), {1, 3}) == [2]
    assert standing(state(-1, (2,), (3,), (2,))) == [3]


def test_who_is_last_known_to_have_everything():
    assert fallen(state(1, (2, 1), (3,)), ALL, {3, 1}) == (1, 3)
    assert fallen(state(-1, (2,), (3,), (1, 2)), ALL, {3}) == (2, 1, 3)
    assert fallen(state(-1, (2,), (), (1, 2, 3)), (1, 2)) == (2, 1), "3 has moved away"
